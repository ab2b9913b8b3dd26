"""Protocol Buffers text format, without a schema: what AMCT's .cfg and record files are written in.

    parse(text) ──► Message of fields, each with its line ──► `MessageReader`, whose users know the schema
    print_message(…) ◄── the same tree; the layout of protobuf's own printer, two spaces per level

Tokens, strings and numbers are read by protobuf's own text format. Its parser needs a schema and forgets the lines,
which every message about a user's file names. Left out, since no such file can use them: extension names, `Any` values
and group names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from typing import Literal as Kinds

import numpy as np
from google.protobuf import text_encoding, text_format  # type: ignore[import-untyped]  # protobuf ships no stubs

from workbench.values.errors import ConfigError, nearest

T = TypeVar("T")
Place = Path | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A scalar as it is written; `text` is the content for a string, the token for the others."""

    kind: Kinds["string", "number", "identifier"]
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Fields in the order of the file; a list `[a, b]` becomes one field per element."""

    fields: tuple[Field, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    value: Literal | Message
    line: int


def parse(text: str, *, file: Place = None) -> Message:
    """The fields of a text; their meaning and types are the caller's business.

    Raises:
        ConfigError: the text does not follow the grammar (with its line).
    """
    return _Reader(text, file).message("", 1)


# --- scalars -------------------------------------------------------------------------------------------------------


def boolean(field: Field, *, file: Place = None) -> bool:
    """Raises ConfigError where the field is no bool, as the readers below do for their types."""
    return bool(_scalar(field, text_format.ParseBool, "true or false", file))


def string(field: Field, *, file: Place = None) -> str:
    if isinstance(field.value, Message) or field.value.kind != "string":
        raise _wrong(field, "a string in quotes", file)
    return field.value.text


def identifier(field: Field, names: Sequence[str], *, file: Place = None) -> str:
    """The name of an enum value, one of `names`."""
    return names[_scalar(field, names.index, " or ".join(names), file)]


def integer(field: Field, low: int, high: int, *, file: Place = None) -> int:
    """A whole number of the field's type, whose bounds are `low` and `high`."""
    wanted = f"a whole number in [{low}, {high}]"
    number: int = _scalar(
        field, lambda text: text_format.ParseInteger(text, is_signed=True, is_long=True), wanted, file
    )
    if not low <= number <= high:
        raise _wrong(field, wanted, file)
    return number


def real(field: Field, *, file: Place = None) -> float:
    """A float field, rounded to float32 as protobuf stores it; may be infinite or NaN."""
    with np.errstate(over="ignore"):
        return float(np.float32(_scalar(field, text_format.ParseFloat, "a number", file)))


def message(field: Field, *, file: Place = None) -> Message:
    if not isinstance(field.value, Message):
        raise _wrong(field, "a message in { }", file)
    return field.value


def shortest(value: float) -> str:
    """The digits protobuf prints for a float32: six significant ones, more until they give the same float32."""
    single = np.float32(value)
    if not np.isfinite(single):
        return "nan" if np.isnan(single) else ("inf" if single > 0 else "-inf")
    for digits in range(6, 9):
        short = float(f"{single:.{digits}g}")
        if np.float32(short) == single:
            return str(short)
    return str(float(f"{single:.9g}"))


def _scalar(field: Field, read: Callable[[str], T], wanted: str, file: Place) -> T:
    """What `read` makes of a token that is no string; a ValueError of its says that it is none of these."""
    if isinstance(field.value, Literal) and field.value.kind != "string":
        try:
            return read(field.value.text)
        except ValueError:
            pass
    raise _wrong(field, wanted, file)


def _wrong(field: Field, wanted: str, file: Place) -> ConfigError:
    value = field.value
    written = "a message" if isinstance(value, Message) else repr(value.text) if value.kind == "string" else value.text
    return ConfigError(f"is {written}, not {wanted}.", file=file, line=field.line, key=field.name)


# --- writing -------------------------------------------------------------------------------------------------------

Printable = bool | int | str | tuple["Printed", ...]
Printed = tuple[str, Printable]
"""Field name and value: bools and whole numbers as they are, a tuple for a message, a str for a token already in
its form (`quoted`, `shortest`, an enum name)."""


def quoted(text: str) -> str:
    """A string token; characters beyond ASCII stay, as AMCT writes its records in UTF-8."""
    return f'"{text_encoding.CEscape(text, as_utf8=True)}"'


def print_message(fields: Iterable[Printed], indent: int = 0) -> str:
    """One field a line, `name: value` or `name {` … `}`; ends with a line break unless there are no fields."""
    lines = []
    space = "  " * indent
    for name, value in fields:
        if isinstance(value, tuple):
            lines.append(f"{space}{name} {{\n{print_message(value, indent + 1)}{space}}}\n")
        else:
            lines.append(f"{space}{name}: {str(value).lower() if isinstance(value, bool) else value}\n")
    return "".join(lines)


# --- reading -------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]++|(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+[fF]?)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STRING = re.compile(
    r"""(["'])(?:(?!\1)[^\\]|\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[abfnrtv\\'"]))*+\1"""
)
_QUOTES = ('"', "'")
_CLOSING = {"{": "}", "<": ">"}
MOST_BYTES = 1 << 26
"""Of a file. AMCT's records of the largest models that fit a card stay below it."""
MOST_VALUES = 1_000_000
"""Of one text: as objects they take some hundred bytes each."""
_DEEPEST = 100  # protobuf's own readers stop there too


class _Reader:
    """Attributes: line: of the next token, which is where the tokenizer stands."""

    def __init__(self, text: str, file: Place) -> None:
        self.file, self.line, self.values = file, 1, 0
        self._tokens = text_format.Tokenizer(self._lines(text))

    def _lines(self, text: str) -> Iterator[str]:
        for self.line, line in enumerate(text.split("\n"), start=1):
            yield line

    @property
    def _token(self) -> str:
        return str(self._tokens.token)

    def _next(self) -> str:
        token = self._token
        self._tokens.NextToken()
        return token

    def _error(self, rule: str, line: int | None = None, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=self.file, line=line or self.line, hint=hint)

    def _out_of_place(self, where: str) -> ConfigError:
        return self._error(f"{self._token or 'the end of the file'!r} stands {where}.")

    def message(self, closing: str, line: int, depth: int = 0) -> Message:
        """Fields up to `closing`, which is '' for the end of the file."""
        if depth > _DEEPEST:
            raise self._error(f"messages are nested more than {_DEEPEST} deep.")
        fields: list[Field] = []
        while (name := self._token) != closing:
            if not name:
                raise self._error(f"the message that begins here has no {closing!r}.", line)
            if not _NAME.fullmatch(name):
                raise self._out_of_place("where a field name must")
            begun = self.line
            fields += [Field(name=name, value=value, line=begun) for value in self._values(depth)]
            if self._token in (";", ","):
                self._next()
        self._next()
        return Message(fields=tuple(fields), line=line)

    def _values(self, depth: int) -> list[Literal | Message]:
        line, name = self.line, self._next()
        colon = self._tokens.TryConsume(":")
        if not colon and self._token not in ("[", *_CLOSING):
            raise self._error(f"field {name!r} has no ':' and no '{{' after its name.", line)
        if not self._tokens.TryConsume("["):
            return [self._value(depth)]
        if self._tokens.TryConsume("]"):
            return []
        values = [self._value(depth)]
        while not self._tokens.TryConsume("]"):
            if not self._tokens.TryConsume(","):
                raise self._out_of_place("in a list where ',' or ']' must")
            values.append(self._value(depth))
        return values

    def _value(self, depth: int) -> Literal | Message:
        self.values += 1
        if self.values > MOST_VALUES:
            raise self._error(f"more than {MOST_VALUES} values.")
        token, line = self._token, self.line
        if token in _CLOSING:
            self._next()
            return self.message(_CLOSING[token], line, depth + 1)
        if token[:1] in _QUOTES:
            return Literal(kind="string", text=self._string(), line=line)
        if _NUMBER.fullmatch(token):
            return Literal(kind="number", text=self._next(), line=line)
        if _NAME.fullmatch(token.removeprefix("-")):
            return Literal(kind="identifier", text=self._next(), line=line)
        raise self._out_of_place("where a value must")

    def _string(self) -> str:
        """The content of a string; neighbouring ones are one."""
        content = bytearray()
        while (token := self._token)[:1] in _QUOTES:
            try:
                if not _STRING.fullmatch(token):  # protobuf's Python would take any escape
                    raise ValueError("unfinished, or a backslash in it begins no escape")
                content += text_encoding.CUnescape(token[1:-1])
            except ValueError as error:
                raise self._error(
                    f"the string {token[:80]} is none: {error}.", hint="Double a plain backslash."
                ) from error
            self._next()
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self._error(f"a string is no UTF-8: {error.reason}.") from error


# --- by the names of fields ------------------------------------------------------------------------------------------

_LARGEST_UINT32 = 2**32 - 1
_INT32 = (-(2**31), 2**31 - 1)


class MessageReader:
    """The fields of one message, by name.

    Protobuf's rules: of a repeated single scalar the last one counts, a single message given twice is merged. Every
    method raises ConfigError, with file, line and field, where the text does not hold the type that is asked for.
    """

    def __init__(self, message: Message, *, file: Place, name: str, path: str = "") -> None:
        self.message, self.file, self.name, self.path = message, file, name, path
        self.known: set[str] = set()

    def error(self, name: str, rule: str, hint: str | None = None) -> ConfigError:
        """About a field of this message, at its line."""
        return ConfigError(rule, file=self.file, line=self.line_of(name), key=self._path(name), hint=hint)

    def messages(self, name: str) -> list[MessageReader]:
        """A repeated message."""
        return [self._inner(name, [each]) for each in self._all(name)]

    def message_of(self, *names: str) -> tuple[str, MessageReader] | None:
        """A single message, or the last of the members of a oneof; parts of one member in a row are merged."""
        self.known.update(names)
        parts: list[Field] = []
        for each in self.message.fields:
            if each.name in names:
                if parts and parts[-1].name != each.name:
                    parts = []
                parts.append(each)
        return (parts[0].name, self._inner(parts[0].name, parts)) if parts else None

    def scalar(self, name: str, kind: type | tuple[str, ...]) -> Any:
        """A single bool, uint32, float32 or string, or an enum by its names; None where it is absent.

        A float32 comes as its shortest decimal, as AMCT reads those of a .cfg.
        """
        found = self._all(name)
        if not found:
            return None
        if isinstance(kind, tuple):
            return identifier(found[-1], kind, file=self.file)
        if kind is bool:
            return boolean(found[-1], file=self.file)
        if kind is int:
            return integer(found[-1], 0, _LARGEST_UINT32, file=self.file)
        if kind is str:
            return string(found[-1], file=self.file)
        value = real(found[-1], file=self.file)
        if not math.isfinite(value):
            raise self.error(name, f"{value} is not finite.")
        return float(str(np.float32(value)))

    def text(self, name: str) -> str | None:
        found: str | None = self.scalar(name, str)
        return found

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise self.error(name, "is missing or empty.", f"Every {self.name} needs a {name}.")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A repeated string; AMCT refuses repeated items."""
        values = tuple(string(each, file=self.file) for each in self._all(name))
        if len(set(values)) != len(values):
            twice = next(value for value, times in Counter(values).items() if times > 1)
            raise self.error(name, f"lists {twice!r} more than once.", "Delete the repeated item.")
        return values

    def finish(self) -> None:
        for each in self.message.fields:
            if each.name not in self.known:
                raise ConfigError(
                    f"{self.name} has no field {each.name!r}.",
                    file=self.file,
                    line=each.line,
                    key=self._path(each.name),
                    hint=nearest(each.name, self.known),
                )

    def has(self, name: str) -> bool:
        return bool(self._all(name))

    def line_of(self, name: str) -> int:
        """Of a field's last occurrence; the message's own where it is absent."""
        found = self._all(name)
        return found[-1].line if found else self.message.line

    def integers(self, name: str) -> tuple[int, ...]:
        """Every int32 of a repeated field, or the occurrences of a single one."""
        return tuple(integer(each, *_INT32, file=self.file) for each in self._all(name))

    def reals(self, name: str) -> tuple[float, ...]:
        """Every float32 of a repeated field, or the occurrences of a single one; may be infinite or NaN."""
        return tuple(real(each, file=self.file) for each in self._all(name))

    def _all(self, name: str) -> list[Field]:
        self.known.add(name)
        return [each for each in self.message.fields if each.name == name]

    def _inner(self, name: str, parts: list[Field]) -> MessageReader:
        messages = [message(each, file=self.file) for each in parts]
        merged = Message(fields=tuple(inner for each in messages for inner in each.fields), line=parts[-1].line)
        return MessageReader(merged, file=self.file, name=name, path=self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name
