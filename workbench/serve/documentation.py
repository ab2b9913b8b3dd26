"""/openapi.json, and /docs: the same for people, on one page without anything from elsewhere, as production has no
internet."""

from __future__ import annotations

import html
import json
from typing import Any

from workbench import __version__
from workbench.bundle import Manifest
from workbench.serve.refusals import STATUS
from workbench.serve.settings import ServeSettings


def openapi(manifest: Manifest, settings: ServeSettings) -> dict[str, Any]:
    """The OpenAPI 3.1 document of one service."""
    limits = settings.limits
    keyed: dict[str, Any] = {"security": [{"key": []}]} if settings.keyed else {}
    kinds = {status: [kind for kind, s in STATUS.items() if s == status] for status in sorted(set(STATUS.values()))}
    bodies = {name: {"value": {name: value}} for name, value in _examples(manifest).items()}
    schema = {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": {name: {} for name in bodies}}
    about = "EMULATED: no device ran this; its figures are a model's. " if manifest.artifact.toolchain.emulated else ""
    about += f"{manifest.about.strip().rstrip('.')}. " if manifest.about.strip() else ""
    predict = {
        "summary": "answer one text, several, or raw tensors",
        "description": (
            f"Exactly one of the fields. A body has at most {limits.body_bytes} bytes, a list {limits.texts} texts, a "
            f"text {limits.characters} characters. Tokens beyond the model's length are cut off, and the answer then "
            'says "truncated": true. 503 comes with Retry-After.'
        ),
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": bodies}}},
        "responses": {"200": {"description": _ANSWERS[manifest.task]}}
        | {str(status): {"description": ", ".join(named)} for status, named in kinds.items()},
    }
    told = {
        "/health": "200 once every worker replayed the golden samples and one can answer; else 503",
        "/health/live": "200 while the service answers at all: no reason to start it again",
        "/health/ready": "200 while requests may be sent here, else 503; in one word",
        "/info": "what is served, with what, and what it was measured to do",
        **({"/metrics": "Prometheus' text format"} if settings.metrics == "open" else {}),
        "/openapi.json": "this document",
    }
    as_said = {"200": {"description": "as said"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": manifest.name,
            "version": manifest.candidate_id[:12],
            "description": f"{about}Task {manifest.task}, {manifest.artifact.target}, workbench {__version__}.",
        },
        "paths": {
            "/predict": {"post": {**predict, **keyed}},
            **{
                path: {"get": {"summary": summary, "responses": as_said, **(keyed if path == "/info" else {})}}
                for path, summary in told.items()
            },
        },
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}},
    }


def page(document: dict[str, Any]) -> str:
    """The document as HTML."""
    title, predict = html.escape(document["info"]["title"]), document["paths"]["/predict"]["post"]["description"]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>\n'
        f"<h1>{title}</h1><p>{html.escape(predict)}</p>\n<p>Try it: <code>curl -H 'Content-Type: application/json' -d "
        "BODY http://HOST:PORT/predict</code>, with <code>-H 'X-API-Key: KEY'</code> where the service asks for a key."
        f"</p>\n<pre>{html.escape(json.dumps(document, indent=1, ensure_ascii=False))}</pre></body></html>\n"
    )


def _examples(manifest: Manifest) -> dict[str, Any]:
    """Field of a body → a value of it."""
    numbers: dict[str, Any] = {}
    for spec in manifest.model.inputs:
        value: Any = 1.0 if spec.dtype.startswith("float") else 1
        for size in reversed(spec.shape):
            value = [value] * (size if isinstance(size, int) else 1)
        numbers[spec.name] = value
    text = "Please move my payment to next Friday."
    texts = {"text": text, "texts": [text, "Thanks!"], "words": ["Anna", "Bell", "paid", "in", "Paris"]}
    return {**(texts if manifest.text is not None else {}), "inputs": numbers}


_ANSWERS = {
    "classification": '{"label", "score", "scores": {label: score, best first}}; {"results": […]} of texts',
    "ner": '{"entities": [{"type", "start", "end", "text", "score"}]}, the end not inside; {"results": […]} of texts',
    "tensors": '{"outputs": {name: nested lists}}',
}
