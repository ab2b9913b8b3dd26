"""Strict YAML 1.2: every key is asked for, every other key is an error with file, line, path and the nearest name.

    with read_yaml(path) as top:                 # leaving the block refuses keys nobody asked for
        trials = top.integer("trials", default=40, minimum=1)
        with top.section("constraints") as section: ...

YAML 1.2 because PyYAML's 1.1 reads `off` as False and `010` as 8, and fusion switches are written on/off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from workbench.values.documents.input_files import read_text
from workbench.values.documents.yaml_nodes import MOST_BYTES, compose
from workbench.values.errors import ConfigError, nearest

T = TypeVar("T")
_REQUIRED: Any = object()
_LONGEST_S = 10 * 366 * 86400.0
"""Beyond some centuries the system's clocks overflow."""

MOST_COUNTED = 10**9
"""Of anything that a file counts, where the reader names no lower limit."""


class Section:
    """One mapping of a YAML file. A context manager: on a clean exit, unknown keys are refused."""

    def __init__(self, node: CommentedMap, file: Path, path: str) -> None:
        self._node, self.file, self.path = node, file, path
        self._asked: set[str] = set()
        self._children: list[Section] = []

    def __enter__(self) -> Section:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.refuse_unknown()

    def refuse_unknown(self) -> None:
        """Raises ConfigError for the first key that was never asked for, here or in a section read from here."""
        for key in self._node:
            if key not in self._asked:
                raise self.error(str(key), "unknown key.", nearest(str(key), self._asked))
        for child in self._children:
            child.refuse_unknown()

    def error(self, key: str | None, rule: str, hint: str | None = None) -> ConfigError:
        """A ConfigError placed at `key` of this section (or at the section itself)."""
        line = None
        if key is not None and key in self._node:
            line = self._node.lc.key(key)[0] + 1
        elif self._node.lc.line is not None:
            line = self._node.lc.line + 1
        full = ".".join(part for part in (self.path, key) if part)
        return ConfigError(rule, file=self.file, line=line, key=full or None, hint=hint)

    def names(self) -> tuple[str, ...]:
        return tuple(str(key) for key in self._node)

    def has(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._node and self._node[key] is not None

    def raw(self, key: str, default: Any = _REQUIRED) -> Any:
        """The plain value (dict, list, scalar) of a key."""
        if not self.has(key):
            if default is _REQUIRED:
                raise self.error(key, "missing.", "This key is required.")
            return default
        return _plain(self._node[key])

    def optional(self, key: str, read: Callable[[str], T]) -> T | None:
        """`read(key)` where the key is present, else None: `section.optional("seed", section.integer)`."""
        return read(key) if self.has(key) else None

    def text(self, key: str, default: str = _REQUIRED, choices: Sequence[str] | None = None) -> str:
        value: str = self._typed(key, str, "a text", default)
        if choices is not None and value not in choices:
            raise self.error(key, f"{value!r} is not allowed.", nearest(value, choices))
        return value

    def integer(
        self, key: str, default: int = _REQUIRED, minimum: int | None = None, maximum: int = MOST_COUNTED
    ) -> int:
        value: int = self._typed(key, int, "an integer", default)
        if minimum is not None and value < minimum:
            raise self.error(key, f"{value} is less than {minimum}.")
        if value > maximum:
            raise self.error(key, f"{value} is greater than {maximum}.")
        return value

    def number(
        self, key: str, default: float = _REQUIRED, minimum: float | None = None, maximum: float | None = None
    ) -> float:
        value = float(self._typed(key, (int, float), "a number", default))
        if not math.isfinite(value):
            raise self.error(key, f"{value} is not a finite number.")
        if minimum is not None and value < minimum:
            raise self.error(key, f"{value:g} is less than {minimum:g}.")
        if maximum is not None and value > maximum:
            raise self.error(key, f"{value:g} is greater than {maximum:g}.")
        return value

    def flag(self, key: str, default: bool = _REQUIRED) -> bool:
        return bool(self._typed(key, bool, "true or false", default))

    def seconds(self, key: str, default: float = _REQUIRED) -> float:
        """A duration written as seconds (90), or with a unit (90s, 30m, 2h)."""
        if not self.has(key) and default is not _REQUIRED:
            return default
        value = self.raw(key)
        try:
            return parse_seconds(value)
        except ValueError as error:
            raise self.error(key, f"{error}.", "Write a duration such as 90s, 30m or 2h.") from error

    def file_path(self, key: str, default: Path = _REQUIRED, must_exist: bool = True) -> Path:
        """A path relative to the YAML file itself, made absolute."""
        if not self.has(key) and default is not _REQUIRED:
            return default
        written = self.text(key)
        try:
            path = (self.file.parent / written).resolve()
            if not path.exists() and must_exist:
                raise self.error(key, f"{path} does not exist.", "Paths are relative to this file.")
        except (OSError, RuntimeError) as error:  # too long, or links that lead back to themselves
            raise self.error(key, f"{written!r} is no path: {error}.") from error
        return path

    def texts(self, key: str, default: Sequence[str] = _REQUIRED) -> tuple[str, ...]:
        return tuple(self._items(key, str, "texts", default))

    def integers(
        self,
        key: str,
        default: Sequence[int] = _REQUIRED,
        minimum: int | None = None,
        maximum: int = MOST_COUNTED,
    ) -> tuple[int, ...]:
        values = tuple(self._items(key, int, "integers", default))
        for value in values:
            if minimum is not None and value < minimum:
                raise self.error(key, f"{value} is less than {minimum}.")
            if value > maximum:
                raise self.error(key, f"{value} is greater than {maximum}.")
        return values

    def section(self, key: str) -> Section:
        """The mapping below a key; an absent key gives an empty section."""
        if not self.has(key):
            return self._child(CommentedMap(), self._join(key))
        value = self._node[key]
        if not isinstance(value, CommentedMap):
            raise self.error(key, f"expected a mapping, got {_kind(value)}.")
        return self._child(value, self._join(key))

    def sections(self, key: str) -> Iterator[tuple[str, Section]]:
        """(name, section) of every entry of a mapping of mappings, in file order."""
        parent = self.section(key)
        for name in parent.names():
            yield name, parent.section(name)

    def items(self, key: str) -> Iterator[Section]:
        """The sections of a list of mappings, in file order; an absent key gives none."""
        if not self.has(key):
            return
        value = self._node[key]
        if not isinstance(value, CommentedSeq):
            raise self.error(key, f"expected a list, got {_kind(value)}.")
        for index, item in enumerate(value):
            if not isinstance(item, CommentedMap):
                raise self.error(key, f"item {index} must be a mapping, got {_kind(item)}.")
            yield self._child(item, f"{self._join(key)}[{index}]")

    def _child(self, node: CommentedMap, path: str) -> Section:
        child = Section(node, self.file, path)
        self._children.append(child)
        return child

    def _join(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _typed(self, key: str, kind: type | tuple[type, ...], words: str, default: Any) -> Any:
        if not self.has(key):
            if default is _REQUIRED:
                raise self.error(key, "missing.", "This key is required.")
            return default
        value = _plain(self._node[key])
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"expected {words}, got {value!r}.")
        return value

    def _items(self, key: str, kind: type, words: str, default: Any) -> list[Any]:
        if not self.has(key):
            if default is _REQUIRED:
                raise self.error(key, "missing.", "This key is required.")
            return list(default)
        values = _plain(self._node[key])
        if not isinstance(values, list) or any(not isinstance(v, kind) or isinstance(v, bool) for v in values):
            raise self.error(key, f"expected a list of {words}, got {values!r}.")
        return values


def read_yaml(path: Path, *, version: int = 1) -> Section:
    """The top section of a YAML file whose `version:` key is the one given.

    Raises:
        ConfigError: the file is missing, too large, not UTF-8, not YAML or beyond a bound (`yaml_nodes`), has a
            duplicate key, is not a mapping, or is of another version.
    """
    node = compose(read_text(path, limit_bytes=MOST_BYTES), path)
    if not isinstance(node, CommentedMap):
        raise ConfigError(f"expected a mapping at the top, got {_kind(node)}.", file=path)
    top = Section(node, path.resolve(), "")
    found = top.integer("version")
    if found != version:
        raise top.error("version", f"{found} is not supported.", f"This workbench reads version {version}.")
    return top


def parse_seconds(value: object) -> float:
    """Seconds of 90, '90', '90s', '30m' or '2h'; positive.

    Raises:
        ValueError: not a duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    text = str(value).strip()
    factor = units.get(text[-1:])
    try:
        seconds = float(text[:-1]) * factor if factor is not None else float(text)
    except ValueError:
        raise ValueError(f"{value!r} is not a duration") from None
    if isinstance(value, bool) or not 0 < seconds <= _LONGEST_S:
        raise ValueError(f"{value!r} is not a positive duration of at most ten years")
    return seconds


def _plain(value: Any) -> Any:
    """ruamel's containers and scalar subclasses as plain Python values."""
    if isinstance(value, CommentedMap):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, CommentedSeq):
        return [_plain(v) for v in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, CommentedMap):
        return "a mapping"
    return "a list" if isinstance(value, CommentedSeq) else repr(value)
