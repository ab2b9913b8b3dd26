"""The protocol over HTTP: metadata, requests as JSON or with tensors as bytes behind it, and answers.

Sources: the open inference protocol's REST specification, and Triton's extension for binary tensor data.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from workbench.load.http1 import asked, body_words, exchange
from workbench.load.kserve.served import BYTES, ServedModel, ServedTensor, from_bytes, from_numbers, to_bytes
from workbench.load.requests import Request
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.preprocess import Array

HEADER_LENGTH = "Inference-Header-Content-Length"


def path_of(name: str, version: str) -> str:
    """Where a model's metadata are; requests go to `/infer` below it."""
    return f"/v2/models/{quote(name, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def http_model(url: str, name: str, version: str) -> ServedModel:
    """Ask a server for its model's metadata.

    Args:
        name: '' where the server has one model alone.

    Raises:
        ConfigError: nobody answers, not with this protocol, or there is no such model.
    """
    server = _got(url, "/v2", "is no server of the protocol kserve-v2")
    name = name or _only_model(url)
    body = _got(url, path_of(name, version), f"has no model {name!r}" + (f" version {version}" if version else ""))
    try:
        return ServedModel(
            url=url,
            name=name,
            version=version,
            platform=str(body.get("platform", "")),
            inputs=_tensors(body["inputs"]),
            outputs=_tensors(body["outputs"]),
            server=" ".join(str(server.get(key, "")) for key in ("name", "version")).strip(),
            extensions=tuple(str(extension) for extension in server.get("extensions", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{url} does not say which inputs and outputs its model {name!r} has ({type(error).__name__}: {error}).",
            key="--model",
            hint="Give the model's configuration its inputs and outputs, with names, datatypes and shapes.",
        ) from error


def infer_request(feeds: Mapping[str, Array], model: ServedModel, *, binary: bool) -> Request:
    """One request; outputs are asked for in the same form.

    Raises:
        ConfigError: a type that JSON cannot carry.
    """
    datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
    inputs: list[dict[str, Any]] = []
    contents = []
    for name, array in feeds.items():
        entry: dict[str, Any] = {"name": name, "datatype": datatypes[name], "shape": list(array.shape)}
        if binary:
            content = to_bytes(array, datatypes[name])
            entry["parameters"] = {"binary_data_size": len(content)}
            contents.append(content)
        elif datatypes[name] == "FP16":
            raise ConfigError(
                f"input {name!r} is FP16, which has no form in JSON.", key="--tensors", hint="Use --tensors binary."
            )
        else:
            entry["data"] = array.ravel().tolist()
        inputs.append(entry)
    question: dict[str, Any] = {"inputs": inputs}
    if not binary:
        return Request(body=json.dumps(question, ensure_ascii=False).encode())
    question["parameters"] = {"binary_data_output": True}
    head = json.dumps(question, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return Request(body=head + b"".join(contents), headers=headers)


def http_ask(url: str, path: str, request: Request) -> dict[str, Array]:
    """The outputs of one request, by the server's names.

    Raises:
        MeasureError: another status than 200, with the server's words, or no answer of this protocol.
    """
    headers = {"Content-Type": "application/json", **request.headers}
    try:
        status, found, content = exchange(url, "POST", f"{path}/infer", request.body, headers)
    except (OSError, http.client.HTTPException) as error:
        raise MeasureError(f"{url} did not answer: {error}.", transient=True) from error
    if status != 200:
        raise MeasureError(f"{url}{path}/infer: status {status}: {body_words(content)}")
    return _outputs(content, found.get(HEADER_LENGTH.lower()))


def _outputs(content: bytes, head_length: str | None) -> dict[str, Array]:
    if head_length is not None and not (head_length.isdigit() and int(head_length) <= len(content)):
        raise MeasureError(f"the answer's {HEADER_LENGTH} is {head_length[:20]!r} in {len(content)} bytes.")
    end = len(content) if head_length is None else int(head_length)
    try:
        entries = loads(content[:end])["outputs"]
        outputs, at = {}, end
        for entry in entries:
            name, datatype, shape = str(entry["name"]), str(entry["datatype"]), _shape(entry["shape"])
            if datatype == BYTES:
                at += int(entry.get("parameters", {}).get("binary_data_size", 0))
                continue  # texts, such as a label's name: nothing to compare
            if "data" in entry:
                outputs[name] = from_numbers(entry["data"], datatype, shape, name)
            else:
                size = int(entry["parameters"]["binary_data_size"])
                outputs[name] = from_bytes(content[at : at + size], datatype, shape, name)
                at += size
    except (JsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise MeasureError(
            f"no answer of this protocol ({type(error).__name__}: {error}): {body_words(content)}"
        ) from error
    return outputs


def _shape(written: Any) -> tuple[int, ...]:
    if not isinstance(written, list) or not all(type(size) is int for size in written):
        raise ValueError(f"shape {str(written)[:50]!r}")
    return tuple(written)


def _only_model(url: str) -> str:
    """Its name, by the repository's index, which Triton and MLServer have."""
    headers = {"Content-Type": "application/json"}
    status, entries, _ = asked(url, "POST", "/v2/repository/index", b"{}", headers)
    entries = entries if status == 200 and isinstance(entries, list) else []
    names = sorted({str(entry.get("name")) for entry in entries if isinstance(entry, dict) and entry.get("name")})
    if len(names) == 1:
        return names[0]
    known = f"It has {', '.join(names[:20])}: " if names else ""
    raise ConfigError("which model is asked?", key="--model", hint=f"{known}name it with --model NAME.")


def _got(url: str, path: str, otherwise: str) -> dict[str, Any]:
    status, body, content = asked(url, "GET", path, None, {})
    if status != 200 or not isinstance(body, dict):
        raise ConfigError(f"{url} {otherwise} (status {status} at {path}: {body_words(content)}).", key="url")
    return body


def _tensors(entries: Any) -> tuple[ServedTensor, ...]:
    return tuple(
        ServedTensor(name=str(e["name"]), datatype=str(e["datatype"]), shape=tuple(int(size) for size in e["shape"]))
        for e in entries
    )
