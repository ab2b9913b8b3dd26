"""What a server says of a model, samples in the form that it asks for, and the protocol over HTTP: metadata, requests
as JSON or with tensors as bytes behind it, and answers.

Tensors are laid out little endian, row major, without gaps; texts with their length. Sources: the open inference
protocol's REST specification, and Triton's extension for binary tensor data.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from workbench.load.http1 import asked, body_words, only_name
from workbench.load.plan import Wire
from workbench.load.requests import Request
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.preprocess import Array, Feeds, Text

_BINARY_EXTENSION = "binary_tensor_data"
"""Name of the extension in a server's metadata."""
_SAME_KIND = {"b": "b", "i": "iu", "u": "iu", "f": "f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTensor:
    """Attributes: shape: with the batch; -1 for any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model's metadata, and its server's.

    Attributes:
        version: that was asked for; '' for the server's choice.
        server: name and version of the server, such as 'triton 2.47.0'; '' where it does not tell.
        extensions: of the protocol, that the server says it has.
        renamed_inputs, renamed_outputs: the server's name → ours, where they differ.
    """

    url: str
    name: str
    version: str
    platform: str
    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    server: str = ""
    extensions: tuple[str, ...] = ()
    renamed_inputs: Mapping[str, str] = field(default_factory=dict)
    renamed_outputs: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version else ""
        return f"model {self.name}{version} of {self.server or self.url}"

    @property
    def wire(self) -> Wire:
        """Tensors travel as bytes where the server says that it takes them."""
        return "kserve-v2/binary" if _BINARY_EXTENSION in self.extensions else "kserve-v2/json"


def texts_for(model: ServedModel, texts: tuple[Text, ...]) -> dict[str, Array]:
    """Texts as the one input of a model that takes them; a list of words becomes one text with blanks.

    Raises:
        ConfigError: its shape holds something else than one text a row.
    """
    (tensor,) = model.inputs
    rows = np.array([text if isinstance(text, str) else " ".join(text) for text in texts], dtype=object)
    shaped = rows.reshape(len(texts), *([1] * (len(tensor.shape) - 1)))
    _check_shape(model, tensor, shaped)
    return {tensor.name: shaped}


def feeds_for(model: ServedModel, feeds: Feeds) -> dict[str, Array]:
    """The server's inputs in its own types; inputs of ours that it does not ask for are left out.

    Raises:
        ConfigError: it asks for an input that is not there, for another kind of number, a shape that does not fit, or
            a value that its type cannot hold.
    """
    found = {}
    for tensor in model.inputs:
        ours = model.renamed_inputs.get(tensor.name, tensor.name)
        if ours not in feeds:
            raise ConfigError(
                f"{model} asks for the input {tensor.name!r} ({tensor.datatype}); the data have "
                f"{', '.join(sorted(feeds))}.",
                key="--map-input",
                hint=f"Say which of them it is: --map-input {tensor.name}=NAME.",
            )
        array, what = np.asarray(feeds[ours]), f"input {tensor.name!r} of {model} is {tensor.datatype}"
        kind = np.dtype(NUMPY[tensor.datatype]) if tensor.datatype in NUMPY else None
        if kind is None or array.dtype.kind not in _SAME_KIND[kind.kind]:
            raise ConfigError(f"{what}; the data are {array.dtype}.", key="--model")
        _check_shape(model, tensor, array)
        if kind.kind in "iu" and array.size:
            bounds = np.iinfo(kind)
            if array.min() < bounds.min or array.max() > bounds.max:
                raise ConfigError(f"{what}; a value of {array.max()} does not fit.", key="--model")
        found[tensor.name] = array.astype(kind, copy=False)
    return found


def _check_shape(model: ServedModel, tensor: ServedTensor, array: Array) -> None:
    wanted = tensor.shape
    if len(wanted) == array.ndim and all(size in (-1, own) for size, own in zip(wanted, array.shape, strict=True)):
        return
    raise ConfigError(
        f"input {tensor.name!r} of {model} has the shape {list(wanted)}; a request would have {list(array.shape)}.",
        key="--batch, --length",
        hint="-1 is any size; choose --batch and --length by the others.",
    )


BYTES = "BYTES"
NUMPY: dict[str, str] = {
    "BOOL": "?",
    **{
        f"{sign}INT{bits}": f"<{letter}{bits // 8}"
        for sign, letter in (("", "i"), ("U", "u"))
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""Datatype of the protocol → NumPy's; BF16, which NumPy has not, is missing."""


HEADER_LENGTH = "Inference-Header-Content-Length"


def path_of(name: str, version: str) -> str:
    """Where a model's metadata are; requests go to `/infer` below it."""
    return f"/v2/models/{quote(name, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def served_model(
    url: str,
    name: str,
    version: str,
    *,
    renamed_inputs: Mapping[str, str] | None = None,
    renamed_outputs: Mapping[str, str] | None = None,
) -> ServedModel:
    """Ask a server for its model's metadata.

    Args:
        name: '' where the server has one model alone.
        renamed_inputs, renamed_outputs: the server's name → ours.

    Raises:
        ConfigError: nobody answers, not with this protocol, or there is no such model, input or output.
    """
    server = _got(url, "/v2", "is no server of the protocol kserve-v2")
    if not name:  # by the repository's index, which Triton and MLServer have
        status, listed, _ = asked(url, "POST", "/v2/repository/index", b"{}", {})
        name = only_name(listed if status == 200 else None, "name", "")
    body = _got(url, path_of(name, version), f"has no model {name!r}" + (f" version {version}" if version else ""))
    try:
        found = ServedModel(
            url=url,
            name=name,
            version=version,
            platform=str(body.get("platform", "")),
            inputs=_tensors(body["inputs"]),
            outputs=_tensors(body["outputs"]),
            server=" ".join(str(server.get(key, "")) for key in ("name", "version")).strip(),
            extensions=tuple(str(extension) for extension in server.get("extensions", ())),
            renamed_inputs=renamed_inputs or {},
            renamed_outputs=renamed_outputs or {},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{url} does not say which inputs and outputs its model {name!r} has ({type(error).__name__}: {error}).",
            key="--model",
            hint="Give the model's configuration its inputs and outputs, with names, datatypes and shapes.",
        ) from error
    for option, tensors, given in (
        ("--map-input", found.inputs, found.renamed_inputs),
        ("--map-output", found.outputs, found.renamed_outputs),
    ):
        names = [tensor.name for tensor in tensors]
        if unknown := sorted(set(given) - set(names)):
            raise ConfigError(f"{found} has no {unknown[0]!r}; it has {', '.join(names)}.", key=option)
    return found


def infer_request(feeds: Mapping[str, Array], model: ServedModel) -> Request:
    """One request; outputs are asked for in the same form.

    Raises:
        ConfigError: a type that JSON cannot carry.
    """
    binary = model.wire == "kserve-v2/binary"
    datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
    inputs: list[dict[str, Any]] = []
    contents = []
    for name, array in feeds.items():
        entry: dict[str, Any] = {"name": name, "datatype": datatypes[name], "shape": list(array.shape)}
        if binary:
            if datatypes[name] == BYTES:  # each text's length as four bytes, then its UTF-8
                parts = [str(text).encode() for text in array.ravel().tolist()]
                content = b"".join(struct.pack("<I", len(part)) + part for part in parts)
            else:
                content = np.ascontiguousarray(array, dtype=NUMPY[datatypes[name]]).tobytes()
            entry["parameters"] = {"binary_data_size": len(content)}
            contents.append(content)
        elif datatypes[name] == "FP16":
            raise ConfigError(
                f"input {name!r} is FP16, which has no form in JSON.",
                key="url",
                hint=f"Ask a server that lists the extension {_BINARY_EXTENSION}.",
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


def outputs_of(content: bytes, head_length: str | None) -> dict[str, Array]:
    """Of an answer's body, by the server's names.

    Args:
        head_length: what the header `HEADER_LENGTH` says; None where it is not there.

    Raises:
        MeasureError: no answer of this protocol.
    """
    if head_length is not None and not (head_length.isdigit() and int(head_length) <= len(content)):
        raise MeasureError(f"the answer's {HEADER_LENGTH} is {head_length[:20]!r} in {len(content)} bytes.")
    at = len(content) if head_length is None else int(head_length)
    outputs = {}
    try:
        for entry in loads(content[:at])["outputs"]:
            size = int((entry.get("parameters") or {}).get("binary_data_size", 0))
            if entry["datatype"] != BYTES:  # texts, such as a label's name: nothing to compare
                outputs[str(entry["name"])] = _output(entry, content[at : at + size])
            at += size
    except (JsonError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise MeasureError(
            f"no answer of this protocol ({type(error).__name__}: {error}): {body_words(content)}"
        ) from error
    return outputs


def _output(entry: Mapping[str, Any], part: bytes) -> Array:
    """One array, of the entry's own numbers or of the bytes behind the JSON."""
    name, datatype, shape = entry["name"], entry["datatype"], entry["shape"]
    if datatype not in NUMPY:
        raise MeasureError(f"output {name!r} is of datatype {datatype!r}, which is no number that can be compared.")
    kind = np.dtype(NUMPY[datatype])
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise MeasureError(f"output {name!r} has the shape {str(shape)[:50]}, which is none.")
    if "data" in entry:
        return np.asarray(entry["data"], dtype=kind).reshape(shape)
    if len(part) != (wanted := kind.itemsize * math.prod(shape)):
        raise MeasureError(f"output {name!r} has {len(part)} bytes; {datatype} of the shape {shape} has {wanted}.")
    return np.frombuffer(part, dtype=kind).reshape(shape)


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
