"""JSON of others: read strictly, and within bounds that Python's own reader lacks.

    value = read_json(path, limit_bytes=MOST_BYTES)        # ConfigError names file and rule
    value = loads(text)                                    # JsonError is a ValueError

A name twice in one object, NaN, a number beyond a double or of more than 64 bits, half of a surrogate pair and deep
nesting are refused: each of them is a mistake, or an attack on whatever reads the value later.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError

T = TypeVar("T")
MOST_BYTES = 1 << 24
"""Of a file that people or tools write by hand or once for a model. Empty lists, as objects, take twenty times that."""
MOST_DEPTH = 64
_INTEGER_DIGITS = 20  # 2**64 - 1 has so many
_INTEGERS = range(-(2**63), 2**64)


class JsonError(ValueError):
    """A text is no JSON, or beyond a bound.

    Attributes:
        line: of the text, where the reader knows it.
        key: the name that stands twice.
    """

    def __init__(self, rule: str, *, line: int | None = None, key: str | None = None) -> None:
        super().__init__(rule)
        self.line, self.key = line, key


def loads(text: str | bytes, *, once: bool = True) -> Any:
    """The value of a JSON text.

    Args:
        once: refuse a name that stands twice in an object; False for what a foreign tool wrote.

    Raises:
        JsonError: says the rule, and the place where the reader tells one.
    """
    try:
        # bytes are UTF-8, as the standard demands, and not whichever encoding the first zero byte suggests
        written = text.decode("utf-8") if isinstance(text, bytes) else text
        value = (_STRICT if once else _LENIENT).decode(written.removeprefix("\ufeff"))
    except RecursionError:
        raise JsonError(f"nested deeper than {MOST_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.object[error.start]:#04x} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg}, column {error.colno}", line=error.lineno) from None
    # fewer brackets than levels, and no escape that could be half of a pair: nearly every text ends here
    halves = "\\ud" in written or "\\uD" in written
    if halves or written.count("[") + written.count("{") > MOST_DEPTH:
        _refuse_beyond(value, texts=halves)
    return value


def parse_json(text: str | bytes, *, file: Path | str, line: int | None = None) -> Any:
    """`loads` for a part of a file.

    Raises:
        ConfigError: with file, line and rule.
    """
    try:
        return loads(text)
    except JsonError as error:
        at = error.line if line is None else line
        raise ConfigError(f"not valid JSON: {error}.", file=file, line=at, key=error.key) from error


def read_json(path: Path, *, limit_bytes: int = MOST_BYTES) -> Any:
    """The value of a JSON file.

    Raises:
        ConfigError: missing, not a regular file, too large, not UTF-8, not JSON, or beyond a bound.
    """
    return parse_json(read_text(path, limit_bytes=limit_bytes), file=path)


def read_document(
    kind: type[T],
    path: Path,
    what: str,
    *,
    version: int = 1,
    derived: Collection[str] = (),
    limit_bytes: int = MOST_BYTES,
    key: str | None = None,
    hint: str | None = None,
) -> T:
    """A value that a command of ours wrote as JSON, alone or under the name of `what`, with what is derived beside its
    fields; ConfigError where there is none, or one of another version."""
    body = read_json(path, limit_bytes=limit_bytes)
    if isinstance(body, dict):
        found = body.get(what)
        body = {n: v for n, v in (found if isinstance(found, dict) else body).items() if n not in derived}
    try:
        return decode(kind, body, what, version=version)
    except DecodeError as error:
        raise ConfigError(f"is no {what} of this workbench: {error}.", file=path, key=key, hint=hint) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # add gives None
        raise JsonError(f"{twice[:200]!r} is given more than once", key=twice[:200])
    return found


def _integer(text: str) -> int:
    if len(text) > _INTEGER_DIGITS + 1 or (value := int(text)) not in _INTEGERS:
        raise JsonError(f"the number {text[:24]}{'…' * (len(text) > 24)} has more than 64 bits")
    return value


def _real(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise JsonError(f"the number {text[:40]} is beyond a double")
    return value


def _constant(name: str) -> float:
    raise JsonError(f"{name} is no number of JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_real, parse_constant=_constant)
_LENIENT = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


def _refuse_beyond(value: Any, *, texts: bool) -> None:
    """Args: texts: look at them, too."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        try:
            "".join(each for each in level if texts and isinstance(each, str)).encode()
        except UnicodeEncodeError:
            raise JsonError("a text holds half of a surrogate pair") from None
        inner = [each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [item for each in inner for item in ((*each, *each.values()) if isinstance(each, dict) else each)]
    raise JsonError(f"nested deeper than {MOST_DEPTH} levels")
