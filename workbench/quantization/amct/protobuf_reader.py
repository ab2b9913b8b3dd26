"""Reading a protobuf text message by the names of its fields, each use naming the field's type.

What no use has named is unknown: `finish` refuses it, with its line and the nearest known name.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from workbench.quantization.amct import protobuf_text
from workbench.quantization.amct.protobuf_text import Field, Message, Place
from workbench.values.errors import ConfigError, nearest

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
            return protobuf_text.identifier(found[-1], kind, file=self.file)
        if kind is bool:
            return protobuf_text.boolean(found[-1], file=self.file)
        if kind is int:
            return protobuf_text.integer(found[-1], 0, _LARGEST_UINT32, file=self.file)
        if kind is str:
            return protobuf_text.string(found[-1], file=self.file)
        value = protobuf_text.real(found[-1], file=self.file)
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
        values = tuple(protobuf_text.string(each, file=self.file) for each in self._all(name))
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
        return tuple(protobuf_text.integer(each, *_INT32, file=self.file) for each in self._all(name))

    def reals(self, name: str) -> tuple[float, ...]:
        """Every float32 of a repeated field, or the occurrences of a single one; may be infinite or NaN."""
        return tuple(protobuf_text.real(each, file=self.file) for each in self._all(name))

    def _all(self, name: str) -> list[Field]:
        self.known.add(name)
        return [each for each in self.message.fields if each.name == name]

    def _inner(self, name: str, parts: list[Field]) -> MessageReader:
        messages = [protobuf_text.message(each, file=self.file) for each in parts]
        merged = Message(fields=tuple(inner for each in messages for inner in each.fields), line=parts[-1].line)
        return MessageReader(merged, file=self.file, name=name, path=self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name
