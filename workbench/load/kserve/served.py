"""What a server says of a model, and samples in the form that it asks for; tensors as the protocol
names and lays them out: little endian, row major, without gaps; texts with their length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.values.errors import ConfigError, MeasureError
from workbench.values.preprocess import Array, Feeds, Text

BINARY_EXTENSION = "binary_tensor_data"
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
    def takes_texts(self) -> bool:
        """Whether it takes texts as they are, and tokenizes them itself."""
        return len(self.inputs) == 1 and self.inputs[0].datatype == BYTES

    @property
    def width(self) -> int | None:
        """The length that every sequence must be padded to; None where any is taken."""
        sizes = {tensor.shape[1] for tensor in self.inputs if len(tensor.shape) == 2}
        return next(iter(sizes)) if len(sizes) == 1 and min(sizes) > 0 else None

    def our_name(self, output: str) -> str:
        return self.renamed_outputs.get(output, output)


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
        found[tensor.name] = _typed(model, tensor, np.asarray(feeds[ours]))
    return found


def _typed(model: ServedModel, tensor: ServedTensor, array: Array) -> Array:
    where = f"input {tensor.name!r} of {model}"
    if tensor.datatype not in NUMPY:
        raise ConfigError(f"{where} is {tensor.datatype}; the data are {array.dtype}.", key="--model")
    kind = np.dtype(NUMPY[tensor.datatype])
    if array.dtype.kind not in _SAME_KIND[kind.kind]:
        raise ConfigError(f"{where} is {tensor.datatype}; the data are {array.dtype}.", key="--model")
    _check_shape(model, tensor, array)
    if kind.kind in "iu" and array.size:
        bounds = np.iinfo(kind)
        if array.min() < bounds.min or array.max() > bounds.max:
            raise ConfigError(f"{where} is {tensor.datatype}; a value of {array.max()} does not fit.", key="--model")
    return array.astype(kind, copy=False)


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


def to_bytes(array: Array, datatype: str) -> bytes:
    """The tensor's bytes; of BYTES each element's length as four bytes, then its UTF-8."""
    if datatype != BYTES:
        return np.ascontiguousarray(array, dtype=NUMPY[datatype]).tobytes()
    parts = [str(text).encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def from_bytes(content: bytes, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """The array of an answer's bytes, not writable.

    Raises:
        MeasureError: a datatype that is no number, or another number of bytes than the shape takes.
    """
    kind = numpy_type(datatype, name)
    wanted = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(content) != wanted:
        raise MeasureError(
            f"output {name!r} has {len(content)} bytes; {datatype} of the shape {list(shape)} has {wanted}."
        )
    return np.frombuffer(content, dtype=kind).reshape(shape)


def from_numbers(data: Any, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """The array of an answer's numbers, flat or nested.

    Raises:
        MeasureError: a datatype that is no number, something else than numbers, or another number of them.
    """
    kind = numpy_type(datatype, name)
    if min(shape, default=0) < 0:
        raise MeasureError(f"output {name!r} has the shape {list(shape)}, which is none.")
    try:
        return np.asarray(data, dtype=kind).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise MeasureError(f"output {name!r} is no {datatype} of the shape {list(shape)}: {error}.") from error


def numpy_type(datatype: str, name: str) -> np.dtype[Any]:
    """NumPy's type of a datatype.

    Raises:
        MeasureError: texts, BF16, and what the protocol does not know.
    """
    if datatype not in NUMPY:
        raise MeasureError(f"output {name!r} is of datatype {datatype!r}, which is no number that can be compared.")
    return np.dtype(NUMPY[datatype])
