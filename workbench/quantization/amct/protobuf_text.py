"""AMCT's files are Protocol Buffers text (amct.md §2.2, §3.1): protobuf itself reads and prints them, by a schema.

    message_class(root, schema) ─► class;   parse(text, class) ─► Body;   print_message(message) ─► text

Protobuf's rules hold: of a repeated single field the last one counts, a message given twice is merged, and of a oneof
the later member wins. Its parser forgets the lines, which every message about a user's file names, so where something
is wrong the text is searched for the field once more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import (  # type: ignore[import-untyped]  # protobuf ships no stubs
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from workbench.values.errors import ConfigError, nearest

Place = Path | str | None

MOST_BYTES = 1 << 26
"""Of a file. AMCT's records of the largest models that fit a card stay below it."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_KINDS = {
    "float": (2, "a number"),
    "int32": (5, f"a whole number in [{-(2**31)}, {2**31 - 1}]"),
    "bool": (8, "true or false"),
    "string": (9, "a string in quotes"),
    "uint32": (13, f"a whole number in [0, {2**32 - 1}]"),
    "uint64": (4, f"a whole number in [0, {2**64 - 1}]"),
    "bytes": (12, "a string in quotes"),
}
_MESSAGE, _ENUM = 11, 14


def message_class(root: str, schema: Mapping[str, Mapping[str, str]], syntax: str = "proto2") -> Any:
    """The class of the message `root`.

    Args:
        schema: message → field → its type, in the order that they are printed in: `repeated string`, `float 0.5` with
            a default, `enum INT8 INT16`, or a message, with the oneof it belongs to as a second word. Fields are
            numbered from 1, where the name does not say its number: `size=6`.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{root}.proto", package=root, syntax=syntax)
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        oneofs: list[str] = []
        for place, (named, kind) in enumerate(fields.items(), start=1):
            (field_name, _, number), (first, *rest) = named.partition("="), kind.removeprefix("repeated ").split()
            label = 3 if kind.startswith("repeated") else 1
            field = message.field.add(name=field_name, number=int(number or place), label=label)
            if first in _KINDS:
                field.type = _KINDS[first][0]
                if rest:
                    field.default_value = rest[0]
            elif first == "enum":
                values = message.enum_type.add(name=f"{field_name}_values")
                for value_number, value in enumerate(rest):
                    values.value.add(name=value, number=value_number)
                field.type, field.type_name = _ENUM, f".{root}.{name}.{values.name}"
            else:
                field.type, field.type_name = _MESSAGE, f".{root}.{first}"
                if rest:
                    if rest[0] not in oneofs:
                        oneofs.append(message.oneof_decl.add(name=rest[0]).name)
                    field.oneof_index = oneofs.index(rest[0])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{root}.{root}"))


def print_message(message: Any) -> str:
    """The layout of protobuf's own printer; characters beyond ASCII stay, as AMCT writes its records in UTF-8."""
    return str(text_format.MessageToString(message, as_utf8=True))


@dataclass(frozen=True, slots=True)
class Body:
    """One message of a text.

    Attributes:
        path: names of the fields that lead here; an index behind one that is repeated.
    """

    message: Any
    text: str
    file: Place
    path: tuple[str | int, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a field is set, or a repeated one not empty."""
        return any(field.name == name for field, _ in self.message.ListFields())

    def get(self, name: str) -> Any:
        """A single scalar, an enum by its name, a float with the shortest digits (0.01, not 0.00999999978); None where
        it is neither set nor has a default."""
        field = self.message.DESCRIPTOR.fields_by_name.get(name)
        if field is None or not (self.message.HasField(name) or field.has_default_value):
            return None
        value = getattr(self.message, name)
        if isinstance(value, float):
            return float(str(np.float32(value)))
        return value if field.enum_type is None else field.enum_type.values_by_number[value].name

    def inner(self, name: str) -> Body:
        return Body(getattr(self.message, name), self.text, self.file, (*self.path, name))

    def each(self, name: str) -> list[Body]:
        """Of a repeated message."""
        found = enumerate(getattr(self.message, name))
        return [Body(message, self.text, self.file, (*self.path, name, index)) for index, message in found]

    def error(self, name: str, rule: str, hint: str | None = None) -> ConfigError:
        """About a field of this message, at its last line; where it is absent, at the message's own."""
        wanted = (*self.path, name)
        key = ".".join(part for part in wanted if isinstance(part, str))
        lines: dict[tuple[str | int, ...], int] = {}  # the last one of a path stays
        for path, (line, _), _ in _fields(self.text):
            lines[path] = lines[tuple(part for part in path if isinstance(part, str))] = line
        while wanted and wanted not in lines:
            wanted = wanted[:-1]
        return ConfigError(rule, file=self.file, line=lines.get(wanted, 1), key=key, hint=hint)


def parse(text: str, kind: Any, *, file: Place = None) -> Body:
    """The message of a class that a text holds.

    Raises:
        ConfigError: the text is none of that message, with line, field, and what the field takes.
    """
    message = kind()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError as error:
        raise _explained(error, text, message, file) from error
    return Body(message, text, file)


def _explained(error: text_format.ParseError, text: str, message: Any, file: Place) -> ConfigError:
    place = (error.GetLine(), error.GetColumn())
    path: tuple[str | int, ...] = ()
    value = ""
    for found, begins, token in _fields(text):
        if begins <= place:
            path, value = found, token if begins == place else ""
    names = [part for part in path if part and isinstance(part, str)]
    rule, hint, holder = re.sub(r"^\d+:\d+ : ('.*': )?", "", str(error)), None, message.DESCRIPTOR
    for at, name in enumerate(names):
        field = holder.fields_by_name.get(name)
        if field is None:
            rule = f"{names[at - 1] if at else holder.name} has no field {name!r}."
            hint = nearest(name, list(holder.fields_by_name.keys()))
            break
        if at == len(names) - 1 and value and (field.message_type is None or value not in ("{", "<")):
            takes = dict(_KINDS.values()).get(field.type, "a message in { }")
            takes = takes if field.enum_type is None else " or ".join(each.name for each in field.enum_type.values)
            rule = f"is {value}, not {takes}."
        holder = field.message_type or holder
    return ConfigError(rule, file=file, line=place[0], key=".".join(names) or None, hint=hint)


def _fields(text: str) -> Iterator[tuple[tuple[str | int, ...], tuple[int, int], str]]:
    """Every name, value and brace of a text: the path of its field, with an index behind the messages of the top level,
    its (line, column), and the value, '' for a name."""
    tokens = text_format.Tokenizer(text.split("\n"))
    levels: list[str | int] = []
    outer: list[tuple[int, bool]] = []
    seen: Counter[str] = Counter()
    name, before, in_list = "", "", False
    while not tokens.AtEnd():
        token = str(tokens.token)
        place = (tokens._line + 1, tokens._column + 1)  # as `ParseError` has them, which copies the line for each
        if token in ("{", "<"):
            outer.append((len(levels), in_list))
            levels += [name] if levels else [name, seen[name]]
            seen[name] += len(levels) == 2
            in_list = False
            yield tuple(levels), place, token
        elif token in ("}", ">") and outer:
            at, in_list = outer.pop()
            del levels[at:]
        elif token in ("[", "]"):
            in_list = token == "["
        elif before == ":" or in_list:
            yield (*levels, name), place, token
        elif _NAME.fullmatch(token):
            name = token
            yield (*levels, name), place, ""
        before = token
        tokens.NextToken()
