"""/openapi.json, and /docs drawn from it: one page without anything from elsewhere, as production has no internet."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from workbench import __version__
from workbench.bundle import Manifest
from workbench.serve.answers import MOST_CLASSES
from workbench.serve.refusals import STATUS
from workbench.serve.settings import ServeSettings

_TEXT = "Please move my payment to next Friday."
_WORDS = ["Anna", "Bell", "paid", "in", "Paris"]


def openapi(manifest: Manifest, settings: ServeSettings) -> dict[str, Any]:
    """The OpenAPI 3.1 document of one service."""
    keyed: dict[str, Any] = {"security": [{"key": []}]} if settings.access.keyed else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": manifest.name, "version": manifest.candidate_id[:12], "description": _about(manifest)},
        "paths": {
            "/predict": {"post": {**_predict(manifest, settings), **keyed}},
            "/health": {"get": _get("200 once every worker replayed the golden samples and one can answer; else 503")},
            "/health/live": {"get": _get("200 while the service answers at all: no reason to start it again")},
            "/health/ready": {"get": _get("200 while requests may be sent here, else 503; in one word")},
            "/info": {"get": {**_get("what is served, with what, and what it was measured to do"), **keyed}},
            **({"/metrics": {"get": _get("Prometheus' text format")}} if settings.access.metrics == "open" else {}),
            "/openapi.json": {"get": _get("this document")},
        },
        "components": {
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
            "schemas": {"Error": _ERROR},
        },
    }


def page(document: dict[str, Any]) -> str:
    """The same for people, with a form to try it."""
    info = document["info"]
    sections = [
        _section(path, method.upper(), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    first = next(iter(_examples(document["paths"]["/predict"]["post"]).values()))
    return _PAGE.format(
        title=html.escape(info["title"]),
        version=html.escape(info["version"]),
        about=html.escape(info["description"]),
        sections="\n".join(sections),
        example=html.escape(json.dumps(first, ensure_ascii=False)),
    )


def _about(manifest: Manifest) -> str:
    emulated = manifest.artifact.toolchain.emulated
    warning = "EMULATED: no device ran this; its figures are a model's. " if emulated else ""
    about = manifest.about.strip()
    about += "" if not about else " " if about[-1] in ".?!" else ". "
    return f"{warning}{about}Task {manifest.task}, {manifest.artifact.target}, workbench {__version__}."


def _predict(manifest: Manifest, settings: ServeSettings) -> dict[str, Any]:
    limits = settings.limits
    answers = {
        str(status): _json(f"{', '.join(kinds)}", {"$ref": "#/components/schemas/Error"}) for status, kinds in _kinds()
    }
    return {
        "summary": "answer one text, several, or raw tensors",
        "description": (
            f"Exactly one of the fields. A body has at most {limits.body_bytes} bytes, a list {limits.texts} texts, a "
            f"text {limits.characters} characters. Tokens beyond the model's length are cut off, and the answer then "
            'says "truncated": true. 503 comes with Retry-After.'
        ),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"oneOf": _bodies(manifest, limits.texts)},
                    "examples": _bodies_shown(manifest),
                }
            },
        },
        "responses": {"200": _json("the answer", _answer(manifest)), **answers},
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
    fields = (
        {"inputs": tensors}
        if manifest.text is None
        else {
            "text": text,
            "texts": several,
            "words": words,
            "inputs": tensors,
        }
    )
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
    one: dict[str, Any]
    if manifest.task == "classification":
        scores = {
            "type": "object",
            "additionalProperties": number,
            "description": f"the best {MOST_CLASSES} classes, softmax, best first",
        }
        one = {"type": "object", "properties": {"label": string, "score": number, "scores": scores}}
    elif manifest.task == "ner":
        whole = {
            "type": "integer",
            "description": "characters of a text, words of a list of words; the end is not inside",
        }
        entity = {"type": string, "start": whole, "end": whole, "text": string, "score": number}
        one = {"type": "object", "properties": {"entities": {"type": "array", "items": {"properties": entity}}}}
    else:
        one = {"type": "object", "properties": {"outputs": {"type": "object"}}}
    tensors = {"type": "object", "properties": {"outputs": {"type": "object", "description": "name: nested lists"}}}
    several = {"type": "object", "properties": {"results": {"type": "array", "items": one}}}
    return {"oneOf": [one, several, tensors]}


def _kinds() -> list[tuple[int, list[str]]]:
    statuses = sorted(set(STATUS.values()))
    return [(status, [kind for kind, s in STATUS.items() if s == status]) for status in statuses]


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _get(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "as said"}}}


_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": list(STATUS)}, "message": {"type": "string"}},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}


def _examples(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return {name: example["value"] for name, example in content.get("examples", {}).items()}


def _section(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"<h2><code>{method} {path}</code></h2><p>{html.escape(operation['summary'])}</p>"]
    if "description" in operation:
        parts.append(f"<p>{html.escape(operation['description'])}</p>")
    for name, value in _examples(operation).items():
        body = html.escape(json.dumps(value, ensure_ascii=False))
        parts.append(f"<h3>{html.escape(name)}</h3><pre>{body}</pre>")
    schema = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema")
    if schema is not None:
        parts.append(f"<details><summary>schema of the answer</summary><pre>{_pretty(schema)}</pre></details>")
        rows = "".join(
            f"<tr><td>{status}</td><td>{html.escape(response['description'])}</td></tr>"
            for status, response in operation["responses"].items()
            if status != "200"
        )
        parts.append(f"<h3>errors</h3><table><tr><th>status</th><th>kind</th></tr>{rows}</table>")
    return "\n".join(parts)


def _pretty(value: object) -> str:
    return html.escape(json.dumps(value, indent=1, ensure_ascii=False))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><link rel="icon" href="data:,">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }}
code, pre, textarea {{ font: 14px/1.4 ui-monospace, monospace; }}
pre {{ background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }}
textarea {{ width: 100%; box-sizing: border-box; height: 5rem; }}
table {{ border-collapse: collapse; }} td, th {{ text-align: left; padding: .15rem 1rem .15rem 0; }}
h2 {{ border-top: 1px solid #ccc; padding-top: 1rem; margin-top: 2rem; }} h3 {{ margin-bottom: .2rem; }}
</style></head><body>
<h1>{title}</h1><p>{about}</p>
<p>Candidate <code>{version}</code>. For programs: <a href="/openapi.json">openapi.json</a>.</p>
<h2>Try it</h2>
<form id="try"><p><label>Body<br><textarea id="body">{example}</textarea></label></p>
<p><label>X-API-Key, where the service asks for one: <input id="key" type="password" autocomplete="off"></label>
<button>POST /predict</button></p></form><pre id="answer" aria-live="polite">the answer appears here</pre>
{sections}
<script>
document.getElementById("try").addEventListener("submit", async (event) => {{
  event.preventDefault();
  const answer = document.getElementById("answer"), key = document.getElementById("key").value;
  const headers = {{"Content-Type": "application/json", ...(key ? {{"X-API-Key": key}} : {{}})}};
  try {{
    const response = await fetch("/predict", {{method: "POST", headers, body: document.getElementById("body").value}});
    answer.textContent = response.status + "\\n" + JSON.stringify(await response.json(), null, 1);
  }} catch (error) {{ answer.textContent = String(error); }}
}});
</script></body></html>
"""
