"""/openapi.json, and /docs drawn from it: one page without anything from elsewhere, as production has no internet."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from workbench import __version__
from workbench.bundle import Manifest
from workbench.serve.refusals import STATUS
from workbench.serve.samples import MOST_CLASSES
from workbench.serve.settings import ServeSettings

_TEXT = "Please move my payment to next Friday."
_WORDS = ["Anna", "Bell", "paid", "in", "Paris"]


def openapi(manifest: Manifest, settings: ServeSettings) -> dict[str, Any]:
    """The OpenAPI 3.1 document of one service."""
    keyed: dict[str, Any] = {"security": [{"key": []}]} if settings.keyed else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": manifest.name, "version": manifest.candidate_id[:12], "description": _about(manifest)},
        "paths": {
            "/predict": {"post": {**_predict(manifest, settings), **keyed}},
            "/health": {"get": _get("200 once every worker replayed the golden samples and one can answer; else 503")},
            "/health/live": {"get": _get("200 while the service answers at all: no reason to start it again")},
            "/health/ready": {"get": _get("200 while requests may be sent here, else 503; in one word")},
            "/info": {"get": {**_get("what is served, with what, and what it was measured to do"), **keyed}},
            **({"/metrics": {"get": _get("Prometheus' text format")}} if settings.metrics == "open" else {}),
            "/openapi.json": {"get": _get("this document")},
        },
        "components": {
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
            "schemas": {"Error": _ERROR},
        },
    }


def page(document: dict[str, Any]) -> str:
    """The same for people."""
    info, predict = document["info"], document["paths"]["/predict"]["post"]
    shown = predict["requestBody"]["content"]["application/json"]["examples"]
    paths = [
        (f"{method.upper()} {path}", operation["summary"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    answers = predict["responses"]
    return _PAGE.format(
        **{name: html.escape(info[name]) for name in ("title", "version", "description")},
        paths=_table(paths),
        predict=html.escape(predict["description"]),
        examples=_table([(name, json.dumps(one["value"], ensure_ascii=False)) for name, one in shown.items()]),
        answer=html.escape(json.dumps(answers["200"]["content"]["application/json"]["schema"], indent=1)),
        errors=_table([(status, one["description"]) for status, one in answers.items() if status != "200"]),
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = (f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(text)}</td></tr>" for name, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _about(manifest: Manifest) -> str:
    emulated = manifest.artifact.toolchain.emulated
    warning = "EMULATED: no device ran this; its figures are a model's. " if emulated else ""
    about = manifest.about.strip()
    about += "" if not about else " " if about[-1] in ".?!" else ". "
    return f"{warning}{about}Task {manifest.task}, {manifest.artifact.target}, workbench {__version__}."


def _predict(manifest: Manifest, settings: ServeSettings) -> dict[str, Any]:
    limits = settings.limits
    kinds = {status: [kind for kind, s in STATUS.items() if s == status] for status in sorted(set(STATUS.values()))}
    error = {"$ref": "#/components/schemas/Error"}
    asked = {"schema": {"oneOf": _bodies(manifest, limits.texts)}, "examples": _bodies_shown(manifest)}
    return {
        "summary": "answer one text, several, or raw tensors",
        "description": (
            f"Exactly one of the fields. A body has at most {limits.body_bytes} bytes, a list {limits.texts} texts, a "
            f"text {limits.characters} characters. Tokens beyond the model's length are cut off, and the answer then "
            'says "truncated": true. 503 comes with Retry-After.'
        ),
        "requestBody": {"required": True, "content": {"application/json": asked}},
        "responses": {
            "200": _json("the answer", _answer(manifest)),
            **{str(status): _json(", ".join(named), error) for status, named in kinds.items()},
        },
    }


def _bodies(manifest: Manifest, most: int) -> list[dict[str, Any]]:
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    words = {"type": "array", "items": text, "minItems": 1}
    several = {"type": "array", "items": {"oneOf": [text, words]}, "minItems": 1, "maxItems": most}
    largest = {axis.name: axis.bins[-1] for axis in manifest.axes if axis.bins}
    tensors = {
        "type": "object",
        "properties": {
            s.name: {"type": "array", "description": f"{s.dtype} [{', '.join(_size(d, largest) for d in s.shape)}]"}
            for s in manifest.model.inputs
        },
        "required": [s.name for s in manifest.model.inputs],
    }
    fields: dict[str, Any] = {"inputs": tensors}
    if manifest.text is not None:
        fields = {"text": text, "texts": several, "words": words, **fields}
    return [
        {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}
        for name, schema in fields.items()
    ]


def _size(axis: int | str | None, largest: Mapping[str, int]) -> str:
    """'frames ≤ 200' for one that is padded."""
    limit = f" ≤ {largest[axis]}" if isinstance(axis, str) and axis in largest else ""
    return ("?" if axis is None else str(axis)) + limit


def _bodies_shown(manifest: Manifest) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for spec in manifest.model.inputs:
        value: Any = 1.0 if spec.dtype.startswith("float") else 1
        for size in reversed(spec.shape):
            value = [value] * (size if isinstance(size, int) else 1)
        numbers[spec.name] = value
    shown: dict[str, Any] = {}
    if manifest.text is not None:
        shown = {"text": {"text": _TEXT}, "texts": {"texts": [_TEXT, "Thanks!"]}, "words": {"words": _WORDS}}
    return {name: {"value": value} for name, value in {**shown, "tensors": {"inputs": numbers}}.items()}


def _answer(manifest: Manifest) -> dict[str, Any]:
    number, string = {"type": "number"}, {"type": "string"}
    outputs = {"outputs": {"type": "object", "description": "name: nested lists"}}
    one: dict[str, Any] = outputs
    if manifest.task == "classification":
        about = f"the best {MOST_CLASSES} classes, softmax, best first"
        scores = {"type": "object", "additionalProperties": number, "description": about}
        one = {"label": string, "score": number, "scores": scores}
    elif manifest.task == "ner":
        about = "characters of a text, words of a list of words; the end is not inside"
        whole = {"type": "integer", "description": about}
        entity = {"type": string, "start": whole, "end": whole, "text": string, "score": number}
        one = {"entities": {"type": "array", "items": {"properties": entity}}}
    several = {"results": {"type": "array", "items": {"properties": one}}}
    return {"oneOf": [{"type": "object", "properties": found} for found in (one, several, outputs)]}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _get(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "as said"}}}


_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {"kind": {"enum": list(STATUS)}, "message": {}}}},
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
td {{ padding: .15rem 1rem .15rem 0; vertical-align: top; overflow-wrap: anywhere; }}</style></head><body>
<h1>{title}</h1><p>{description}</p>
<p>Candidate <code>{version}</code>. For programs: <a href="/openapi.json">openapi.json</a>.</p>
{paths}
<h2>POST /predict</h2><p>{predict}</p>
<p>Try it: <code>curl -H 'Content-Type: application/json' -d BODY http://HOST:PORT/predict</code>; with
<code>-H 'X-API-Key: KEY'</code> where the service asks for a key. Bodies:</p>
{examples}
<h3>Answers</h3><pre>{answer}</pre>
<h3>Errors</h3>{errors}
</body></html>
"""
