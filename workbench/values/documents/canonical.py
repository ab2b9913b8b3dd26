"""One JSON form for everything that is hashed or stored.

Frozen dataclasses become JSON with sorted keys and no white space; `decode` rebuilds them and refuses what does
not fit. Floats are written by `repr` (shortest digits that round-trip); NaN and infinity are refused, since a
stored number must be a number.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_LATER = "left out while it has its default"
_STORED = "its name in the canonical form"
_MOST_SHOWN = 200
"""Characters of a value that does not fit: it may be a whole measurement."""
_SCALARS = frozenset({str, int, float, bool, type(None)})


class DecodeError(ValueError):
    """Stored JSON does not have the shape its type demands; the message starts with the path inside it."""


def added_later(default: T, *, stored: str | None = None) -> T:
    """A dataclass field that came after values of its class were stored: while it has its default it is left out of
    the canonical form, so that those values keep their digests.

    Args:
        stored: what it is called there, where that was another name.
    """
    field: T = dataclasses.field(default=default, metadata={_LATER: True, _STORED: stored})
    return field


def encode(value: object) -> Any:
    """Plain JSON data (dict, list, str, int, float, bool, None) of dataclasses, mappings, tuples and paths."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if (fields := _fields(kind)) is not None:
        found = [(stored, getattr(value, name), later, default) for name, stored, later, default in fields]
        return {name: encode(part) for name, part, later, default in found if not (later and part == default)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, str, bool, Any], ...] | None:
    """(name, name when stored, whether it is left out while it has its default, default) of a dataclass; None for any
    other type."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(
        (field.name, field.metadata.get(_STORED) or field.name, bool(field.metadata.get(_LATER)), field.default)
        for field in dataclasses.fields(kind)
    )


def canonical_json(value: object) -> str:
    """The one text form of a value: sorted keys, no spaces, UTF-8, no NaN.

    Raises:
        ValueError: a float is NaN or infinite.
    """
    return text_of_plain(encode(value))


def text_of_plain(data: object) -> str:
    """`canonical_json` of what `encode` or `json.loads` gave, which is not gone through once more.

    Raises:
        ValueError: a float is NaN or infinite.
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: object) -> str:
    """sha256 (64 hex) of `canonical_json(value)`; the same in every process and on every machine."""
    return digest_of_plain(encode(value))


def digest_of_plain(data: object) -> str:
    """`digest` of what `encode` or `json.loads` gave."""
    return hashlib.sha256(text_of_plain(data).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 (64 hex) of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def decode(kind: type[T], data: Any, path: str = "", *, version: int | None = None) -> T:
    """Rebuild a value of `kind` from `encode`d data.

    Args:
        version: what must stand under 'version' beside the fields.

    Raises:
        DecodeError: a key is unknown or missing, or a value has another type; names the path inside `data`. Or another
            version.

    A dataclass whose fields' types depend on each other has `types_within(data)`, which gives the exact ones by name;
    one that had other fields before has `EARLIER`, their names → today's, None for what is not told any more, and ''
    for what is not where it was empty.
    """
    if version is not None and isinstance(data, dict):
        data = dict(data)
        if (found := data.pop("version", None)) != version:
            raise DecodeError(f"{path} version {found!r} is unknown; this workbench reads version {version}")
    return typing.cast(T, _decode(kind, data, path or kind.__name__))


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        errors = []
        for option in arguments:
            try:
                return _decode(option, data, path)
            except DecodeError as error:
                errors.append(str(error))
        raise DecodeError("; ".join(errors))
    if origin is typing.Literal:
        if data not in arguments:
            raise DecodeError(f"{path}: {data!r} is none of {', '.join(map(repr, arguments))}")
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise DecodeError(f"{path}: expected a list, got {type(data).__name__}")
        kinds = arguments[:1] * len(data) if arguments[1:] == (Ellipsis,) else arguments
        if len(kinds) != len(data):
            raise DecodeError(f"{path}: expected {len(kinds)} items, got {len(data)}")
        return tuple(_decode(a, item, f"{path}[{i}]") for i, (a, item) in enumerate(zip(kinds, data, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise DecodeError(f"{path}: expected an object, got {type(data).__name__}")
        return {key: _decode(arguments[1], item, f"{path}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, path)
    if kind is Any:
        return data
    if kind is Path:
        return Path(_decode(str, data, path))
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise DecodeError(f"{path}: a whole number of {data.bit_length()} bits is no float") from None
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise DecodeError(f"{path}: expected {kind.__name__}, got {_shown(data)}")
    return data


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …"


def _decode_dataclass(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise DecodeError(f"{path}: expected an object, got {type(data).__name__}")
    if earlier := getattr(kind, "EARLIER", None):
        named = [(name, earlier.get(name, name), value) for name, value in data.items()]
        data = {today or name: value for name, today, value in named if today or (today == "" and value)}
    fields = {f.metadata.get(_STORED) or f.name: f for f in dataclasses.fields(kind)}
    if unknown := sorted(set(data) - set(fields)):
        raise DecodeError(f"{path}: unknown key {unknown[0]!r}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise DecodeError(f"{path}: key {name!r} is missing")
    hints = {**_hints(kind), **(kind.types_within(data) if hasattr(kind, "types_within") else {})}
    values = {fields[name].name: _decode(hints[fields[name].name], data[name], f"{path}.{name}") for name in data}
    try:
        return kind(**values)
    except ValueError as error:
        raise DecodeError(f"{path}: {error}") from error
