"""Strict YAML 1.2: every key is asked for, every other key is an error with file, line, path and the nearest name.

    with read_yaml(path) as top:                 # leaving the block raises all that is wrong, and refuses keys
                                                 # nobody asked for
        trials = top.integer("trials", default=40, minimum=1)
        with top.section("constraints") as section: ...

YAML 1.2 because PyYAML's 1.1 reads `off` as False and `010` as 8, and fusion switches are written on/off.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from workbench.values.documents.input_files import read_text, special_kind
from workbench.values.documents.yaml_nodes import MISSING, MOST_BYTES, UNKNOWN, Problems, compose
from workbench.values.errors import ConfigError, nearest

T = TypeVar("T")
N = TypeVar("N", int, float)
_REQUIRED: Any = object()
_LONGEST_S = 10 * 366 * 86400.0
"""Beyond some centuries the system's clocks overflow."""

MOST_COUNTED = 10**9
"""Of anything that a file counts, where the reader names no lower limit."""

MOST_NAME_BYTES = 200
"""File systems take 255, and names get endings."""


class Section:
    """One mapping of a YAML file. A context manager: on a clean exit, unknown keys are refused.

    While the file's top is open, what is wrong is gathered, and leaving the top raises all of it as one error: a value
    that is missing or of a wrong kind is answered with a stand-in that the reader may go on with, never to be used.
    """

    def __init__(self, node: CommentedMap, file: Path, path: str = "", parent: Section | None = None) -> None:
        self._node, self.file, self.path, self._top = node, file, path, parent is None
        self._problems: Problems = Problems() if parent is None else parent._problems
        self._asked: set[str] = set()
        self._children: list[Section] = []
        self._sections: dict[str, Section] = {}
        if parent is not None:
            parent._children.append(self)

    def __enter__(self) -> Section:
        self._problems.gathering |= self._top
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            for unknown in self._unknown():
                self._found(unknown)
        if not self._top:
            return
        self._problems.gathering = False
        if self._problems and (error is None or isinstance(error, Exception)):  # over a stand-in it says nothing new
            if isinstance(error, ConfigError):
                self._raised(error)
            raise self._problems.error() from error

    def refuse_unknown(self) -> None:
        """Raises ConfigError for the first key that was never asked for, here or in a section read from here."""
        for unknown in self._unknown():
            raise unknown

    def leave_the_rest(self) -> None:
        """Keys that are not asked for here are another reader's."""
        self._asked.update(map(str, self._node))

    def _unknown(self) -> Iterator[ConfigError]:
        for key in self._node:
            if key not in self._asked:
                yield self.error(str(key), UNKNOWN, nearest(str(key), self._asked))
        for child in self._children:
            yield from child._unknown()

    def refuse(self, key: str | None, rule: str, hint: str | None = None) -> None:
        """Gather an error placed at `key` where the file is still being read, and raise it otherwise."""
        self._found(self.error(key, rule, hint))

    def _found(self, error: ConfigError) -> None:
        if not self._problems.gathering:
            raise error
        self._problems.add(error)

    def wrong(self, key: str) -> bool:
        """Whether something is wrong with a key, so that nothing can follow from it."""
        return self._problems.wrong(self._join(key))

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the file whose first error ends this part alone."""
        try:
            yield
        except ConfigError as error:
            if not self._problems.gathering:
                raise
            self._raised(error)

    def _raised(self, error: ConfigError) -> None:
        """Gather an error that ended something; where others were met before, one that names no key of this file may
        be about a stand-in."""
        if error.key is not None or not self._problems:
            self._problems.add(error)

    def settle(self) -> None:
        """Raise what was gathered so far: what comes next needs all of it right."""
        if self._problems:
            raise self._problems.error()

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

    def leave_anchors(self) -> None:
        """Keys whose value has an anchor (`name: &name {…}`) are there to be repeated elsewhere."""
        anchors = {key: getattr(value, "anchor", None) for key, value in self._node.items()}
        self._asked.update(str(key) for key, anchor in anchors.items() if anchor is not None and anchor.value)

    def raw(self, key: str, default: Any = _REQUIRED) -> Any:
        """The plain value (dict, list, scalar) of a key."""
        if self.has(key):
            return _plain(self._node[key])
        if default is _REQUIRED:
            self.refuse(key, MISSING, "This key is required.")
            return None
        return default

    def optional(self, key: str, read: Callable[[str], T]) -> T | None:
        """`read(key)` where the key is present, else None: `section.optional("seed", section.integer)`."""
        return read(key) if self.has(key) else None

    def text(self, key: str, default: str = _REQUIRED, choices: Sequence[str] | None = None) -> str:
        value: str = self._typed(key, str, "a text", default)
        if choices is not None and value not in choices:
            self.refuse(key, f"{value!r} is not allowed.", nearest(value, choices))
            return choices[0]
        return value

    def name(self, key: str, default: str = _REQUIRED) -> str:
        """A text that names something: a folder, a run, a metric, a column of tables."""
        value = self.text(key, default)
        if not value.isprintable() or not 0 < len(value.encode()) <= MOST_NAME_BYTES:
            self.refuse(key, f"{value[:40]!r} is no name: 1 to {MOST_NAME_BYTES} bytes of printable characters.")
            return "name"
        return value

    def integer(
        self, key: str, default: int = _REQUIRED, minimum: int | None = None, maximum: int = MOST_COUNTED
    ) -> int:
        value: int = self._typed(key, int, "an integer", default)
        return self._within(key, value, minimum, maximum)

    def number(
        self, key: str, default: float = _REQUIRED, minimum: float | None = None, maximum: float | None = None
    ) -> float:
        value = float(self._typed(key, (int, float), "a number", default))
        if not math.isfinite(value):
            self.refuse(key, f"{value} is not a finite number.")
            return minimum or 0.0
        return self._within(key, value, minimum, maximum)

    def _within(self, key: str, value: N, minimum: N | None, maximum: N | None) -> N:
        """The value, or the bound that it is beyond."""
        if minimum is not None and value < minimum:
            self.refuse(key, f"{_number(value)} is less than {_number(minimum)}.")
            return minimum
        if maximum is not None and value > maximum:
            self.refuse(key, f"{_number(value)} is greater than {_number(maximum)}.")
            return maximum
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
            self.refuse(key, f"{error}.", "Write a duration such as 90s, 30m or 2h.")
            return 1.0

    def file_path(self, key: str, must_exist: bool = True) -> Path:
        """A path relative to the YAML file itself, made absolute; with `must_exist` False it may be a folder's too."""
        written = self.text(key)
        if self.wrong(key):
            return self.file
        try:
            path = (self.file.parent / written).resolve()
            kind = special_kind(path.stat().st_mode) if path.exists() else None
            if kind == "" or (not must_exist and kind in (None, "a folder")):
                return path
            if kind is None:
                self.refuse(key, f"{path} does not exist.", "Paths are relative to this file.")
            else:
                self.refuse(key, f"{path} is {kind}, not a regular file.", "Name a file on a disk.")
        except (OSError, RuntimeError) as error:  # too long, or links that lead back to themselves
            self.refuse(key, f"{written!r} is no path: {error}.")
        return self.file

    def texts(self, key: str, default: Sequence[str] = _REQUIRED) -> tuple[str, ...]:
        return tuple(self._typed(key, str, "a list of texts", default, listed=True))

    def integers(
        self,
        key: str,
        default: Sequence[int] = _REQUIRED,
        minimum: int | None = None,
        maximum: int = MOST_COUNTED,
    ) -> tuple[int, ...]:
        values = self._typed(key, int, "a list of integers", default, listed=True)
        return tuple(self._within(key, value, minimum, maximum) for value in values)

    def section(self, key: str) -> Section:
        """The mapping below a key, the same each time; an absent key gives an empty section."""
        if key not in self._sections:
            value = self._node[key] if self.has(key) else CommentedMap()
            if not isinstance(value, CommentedMap):
                self.refuse(key, f"expected a mapping, got {_kind(value)}.")
                value = CommentedMap()
            self._sections[key] = Section(value, self.file, self._join(key), self)
        return self._sections[key]

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
            self.refuse(key, f"expected a list, got {_kind(value)}.")
            return
        for index, item in enumerate(value):
            if not isinstance(item, CommentedMap):
                self.refuse(key, f"item {index} must be a mapping, got {_kind(item)}.")
                continue
            yield Section(item, self.file, f"{self._join(key)}[{index}]", self)

    def _join(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _typed(self, key: str, kind: type | tuple[type, ...], words: str, default: Any, *, listed: bool = False) -> Any:
        """A value of a kind, or a list of such; where it is missing or another, an empty one to go on with."""
        if not self.has(key):
            if default is not _REQUIRED:
                return default
            self.refuse(key, MISSING, "This key is required.")
        else:
            value = _plain(self._node[key])
            values = value if listed and isinstance(value, list) else [value]
            fits = all(isinstance(v, kind) and (kind is bool or not isinstance(v, bool)) for v in values)
            if fits and (not listed or isinstance(value, list)):
                return value
            self.refuse(key, f"expected {words}, got {value!r}.")
        return [] if listed else (kind[0] if isinstance(kind, tuple) else kind)()


def read_yaml(path: Path, *, version: int | None = 1) -> Section:
    """The top section of a YAML file whose `version:` key is the one given, for a `with`: leaving it raises.

    Args:
        version: None for files of others, which have no such key.

    Raises:
        ConfigError: the file is missing, too large, not UTF-8, not YAML or beyond a bound (`yaml_nodes`), has a
            duplicate key, is not a mapping, or is of another version.
    """
    node = compose(read_text(path, limit_bytes=MOST_BYTES), path)
    if not isinstance(node, CommentedMap):
        raise ConfigError(f"expected a mapping at the top, got {_kind(node)}.", file=path)
    top = Section(node, path.resolve()).__enter__()
    found = version if version is None else top.integer("version")
    if found != version and not top.wrong("version"):
        raise top.error("version", f"{found} is not supported.", f"This workbench reads version {version}.")
    return top


def is_pipeline(path: Path) -> bool:
    """Whether a file is a pipeline's, by its key `stages`."""
    lines = read_text(path, limit_bytes=MOST_BYTES).splitlines() if path.is_file() else []
    return any(line.startswith("stages:") for line in lines)


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


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


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
