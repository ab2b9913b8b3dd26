"""Protocol Buffers text format, without a schema: what AMCT's .cfg and record files are written in.

    parse(text) ──► Message of fields, each with its line ──► a reader that knows the schema (amct_cfg, amct_record)
    print_message(…) ◄── the same tree; the layout of protobuf's own printer, two spaces per level

Source of the grammar: protobuf.dev/reference/protobuf/textformat-spec. Left out, since neither file can use it:
extension names, `Any` values and group names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal as Kinds

import numpy as np

from workbench.values.errors import ConfigError

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
    return _Reader(text, file).message(None, 1)


# --- scalars -------------------------------------------------------------------------------------------------------

_BOOLEANS = {"true": True, "True": True, "t": True, "1": True, "false": False, "False": False, "f": False, "0": False}
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\Z")


def boolean(field: Field, *, file: Place = None) -> bool:
    """Raises ConfigError where the field is no bool, as the readers below do for their types."""
    value = field.value
    if isinstance(value, Message) or value.kind == "string" or value.text not in _BOOLEANS:
        raise _wrong(field, "true or false", file)
    return _BOOLEANS[value.text]


def string(field: Field, *, file: Place = None) -> str:
    if isinstance(field.value, Message) or field.value.kind != "string":
        raise _wrong(field, "a string in quotes", file)
    return field.value.text


def identifier(field: Field, names: Sequence[str], *, file: Place = None) -> str:
    """The name of an enum value, one of `names`."""
    value = field.value
    if isinstance(value, Message) or value.kind != "identifier" or value.text not in names:
        raise _wrong(field, " or ".join(names), file)
    return value.text


def integer(field: Field, low: int, high: int, *, file: Place = None) -> int:
    """A whole number of the field's type, whose bounds are `low` and `high`."""
    value = field.value
    if isinstance(value, Message) or value.kind != "number" or not _INTEGER.match(value.text):
        raise _wrong(field, "a whole number", file)
    digits = value.text.lstrip("-")
    if len(digits) > 64:  # beyond every integer type; int() itself refuses thousands of digits with another error
        raise _wrong(field, f"a whole number in [{low}, {high}]", file)
    octal = digits.startswith("0") and digits[1:].isdigit()
    number = int(digits, 8 if octal else 0) * (-1 if value.text.startswith("-") else 1)
    if not low <= number <= high:
        raise _wrong(field, f"a whole number in [{low}, {high}]", file)
    return number


def real(field: Field, *, file: Place = None) -> float:
    """A float field, rounded to float32 as protobuf stores it; may be infinite or NaN."""
    value = field.value
    if isinstance(value, Literal) and value.kind in ("number", "identifier"):
        digits = value.text.rstrip("fF") if value.kind == "number" and "x" not in value.text.lower() else value.text
        try:
            # float() also takes what the grammar calls identifiers: inf, infinity and nan in any case
            with np.errstate(over="ignore"):
                return float(np.float32(float(digits)))
        except ValueError:
            pass
    raise _wrong(field, "a number", file)


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
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
    return '"' + "".join(named.get(c, f"\\{ord(c):03o}" if c < " " or c == "\x7f" else c) for c in text) + '"'


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

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f\v]+|\#[^\n]*)
  | (?P<newline>\n)
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
  | (?P<number>-?[ \t]*(?:0[xX][0-9a-fA-F]++|(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+[fF]?)(?![\w.]))
  | (?P<identifier>-?[A-Za-z_]\w*)
  | (?P<mark>[:{}<>\[\];,])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
_NAMED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_CLOSING = {"{": "}", "<": ">"}
MOST_BYTES = 1 << 26
"""Of a file. AMCT's records of the largest models that fit a card stay below it."""
MOST_TOKENS = 3_000_000
"""Names, values and marks of one text: as objects they take some hundred bytes each."""
_DEEPEST = 100  # protobuf's own readers stop there too


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


class _Reader:
    def __init__(self, text: str, file: Place) -> None:
        self.file = file
        self.tokens = self._tokens(text)
        self.position = 0

    def _tokens(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at, line = 0, 1
        while at < len(text):
            if len(tokens) == MOST_TOKENS:
                raise self._error(f"more than {MOST_TOKENS} names, values and marks.", line)
            match = _TOKEN.match(text, at)
            if match is None:
                what = "an unfinished string" if text[at] in "\"'" else f"{text[at]!r}"
                raise self._error(f"{what} is no protobuf text.", line)
            kind = match.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind != "blank":
                token = match.group()
                tokens.append(_Token(kind, re.sub(r"\s", "", token) if kind == "number" else token, line))
            at = match.end()
        return [*tokens, _Token("end", "the end of the file", line)]

    def _error(self, rule: str, line: int, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=self.file, line=line, hint=hint)

    def message(self, closing: str | None, line: int, depth: int = 0) -> Message:
        """Fields up to `closing`; None reads to the end of the file."""
        if depth > _DEEPEST:
            raise self._error(f"messages are nested more than {_DEEPEST} deep.", line)
        fields: list[Field] = []
        while True:
            token = self._next()
            if (token.kind == "end" and closing is None) or token.text == closing:
                return Message(fields=tuple(fields), line=line)
            if token.kind == "end":
                raise self._error(f"the message that begins here has no {closing!r}.", line)
            if token.kind != "identifier" or token.text.startswith("-"):
                raise self._error(f"{token.text} stands where a field name must.", token.line)
            fields.extend(self._values(token, depth))
            if self.tokens[self.position].text in (";", ","):
                self.position += 1

    def _values(self, name: _Token, depth: int) -> list[Field]:
        token = self._next()
        colon = token.text == ":" and token.kind == "mark"
        if colon:
            token = self._next()
        if token.kind == "mark" and token.text == "[":
            values = self._list(depth)
        elif token.kind == "mark" and token.text in _CLOSING:
            values = [self.message(_CLOSING[token.text], token.line, depth + 1)]
        elif colon:
            values = [self._scalar(token)]
        else:
            raise self._error(f"field {name.text!r} has no ':' and no '{{' after its name.", name.line)
        return [Field(name=name.text, value=value, line=name.line) for value in values]

    def _list(self, depth: int) -> list[Literal | Message]:
        values: list[Literal | Message] = []
        token = self._next()
        while not (token.kind == "mark" and token.text == "]" and not values):
            if token.kind == "mark" and token.text in _CLOSING:
                values.append(self.message(_CLOSING[token.text], token.line, depth + 1))
            else:
                values.append(self._scalar(token))
            after = self._next()
            if after.kind == "mark" and after.text == "]":
                break
            if after.text != ",":
                raise self._error(f"{after.text} stands in a list where ',' or ']' must.", after.line)
            token = self._next()
        return values

    def _scalar(self, token: _Token) -> Literal:
        if token.kind == "string":
            content = bytearray(self._unescaped(token))
            while self.tokens[self.position].kind == "string":  # neighbouring strings are one string
                content += self._unescaped(self._next())
            try:
                return Literal(kind="string", text=content.decode(), line=token.line)
            except UnicodeDecodeError as error:
                raise self._error(f"the string {token.text} is no UTF-8: {error.reason}.", token.line) from error
        if token.kind == "number":
            return Literal(kind="number", text=token.text, line=token.line)
        if token.kind == "identifier":
            return Literal(kind="identifier", text=token.text, line=token.line)
        raise self._error(f"{token.text} stands where a value must.", token.line)

    def _unescaped(self, token: _Token) -> bytes:
        content, at = bytearray(), 0
        inner = token.text[1:-1]
        for match in _ESCAPE.finditer(inner):
            content += inner[at : match.start()].encode()
            at = match.end()
            if match["octal"]:
                content += bytes([int(match["octal"], 8) & 255])
            elif match["hex"]:
                content += bytes([int(match["hex"], 16)])
            elif match["short"] or match["long"]:
                point = int(match["short"] or match["long"], 16)
                if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
                    raise self._error(f"{match.group()} is no character.", token.line)
                content += chr(point).encode()
            elif match["one"] in _NAMED:
                content += bytes([_NAMED[match["one"]]])
            else:
                raise self._error(f"{match.group()} is no escape of a string.", token.line, "Double the backslash.")
        return bytes(content + inner[at:].encode())

    def _next(self) -> _Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token
