"""YAML text → ruamel's tree of mappings and lists, refused while it is read where it goes beyond what people write.

The bounds stand between the parser and the objects it would build: a few lines of aliases can name a billion values,
and a thousand brackets cost the scanner seconds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from workbench.values.errors import ConfigError

MISSING, UNKNOWN = "missing.", "unknown key."
_MOST_SHOWN = 15


class Problems:
    """The errors of one file in the order they were met: at most one for a key, none for what lies below a wrong one.

    Attributes:
        gathering: whether an error waits for the end of the file; otherwise it is raised where it is met.
    """

    def __init__(self) -> None:
        self.gathering = False
        self._found: list[ConfigError] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def wrong(self, key: str) -> bool:
        """Whether something is known to be wrong with a key, by its full path, or with a section it lies in."""
        return any(error.key is not None and f"{key}.".startswith(f"{error.key}.") for error in self._found)

    def add(self, error: ConfigError) -> None:
        if error.key is None or not self.wrong(error.key):
            self._found.append(error)

    def error(self) -> ConfigError:
        """The one error where it is alone, else one that lists them by line."""
        found = sorted(self._without_misspelt(), key=lambda error: error.line or 0)
        if len(found) == 1:
            return found[0]
        file = next((error.file for error in found if error.file is not None), None)
        lines = [_problem_line(error, file) for error in found[:_MOST_SHOWN]]
        if len(found) > _MOST_SHOWN:
            lines.append(f"… and {len(found) - _MOST_SHOWN} more")
        return ConfigError("\n  ".join([f"{len(found)} things are wrong:", *lines]), file=file)

    def _without_misspelt(self) -> list[ConfigError]:
        """A misspelt key is one mistake: the key that it should have been is not reported as missing too."""
        meant = {
            f"{(error.key or '').rpartition('.')[0]}|{word}"
            for error in self._found
            if error.rule == UNKNOWN and (error.hint or "").startswith("Did you mean")
            for word in (error.hint or "").split("'")[1::2]
        }
        return [
            error
            for error in self._found
            if error.rule != MISSING or "|".join((error.key or "").rpartition(".")[::2]) not in meant
        ]


def _problem_line(error: ConfigError, file: Path | str | None) -> str:
    if error.file != file:
        return str(error)
    place = "" if error.line is None else f"line {error.line}"
    return " ".join(filter(None, (": ".join(filter(None, (place, error.key, error.rule))), error.hint)))


MOST_BYTES = 1 << 18
"""The scanner takes some seconds for a mebibyte; what people write by hand is a few kilobytes."""
MOST_DEPTH = 24
MOST_VALUES = 10_000
"""Scalars, lists and mappings in one file, every alias counted as what it stands for."""
MOST_DIGITS = 64
"""Characters of a number. The longest double needs 24."""
LARGEST_INTEGER = 2**63 - 1

_OTHER_VERSION = re.compile(r"^%YAML(?![ \t]+1\.2\s).*", re.MULTILINE)
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "merge")}
_NUMBERS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float")}


class _BeyondBoundsError(MarkedYAMLError):
    """What the text says is YAML, and more than is read."""

    def __init__(self, problem: str, mark: StringMark | None) -> None:
        super().__init__(None, None, problem, mark)


class _BoundedComposer(Composer):
    """ruamel's composer, which stops at the first value beyond the bounds."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML lets a name be given again
        self._levels = self._values = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise _BeyondBoundsError("an alias stands inside what it names", event.start_mark)
            self._values += self._sizes[id(node)]
            if self._values > MOST_VALUES:
                raise _BeyondBoundsError(f"more than {MOST_VALUES} values with its aliases", event.start_mark)
            return node
        before = self._values
        self._levels += 1
        self._values += 1
        if self._levels > MOST_DEPTH:
            raise _BeyondBoundsError(f"nested deeper than {MOST_DEPTH} levels", event.start_mark)
        if self._values > MOST_VALUES:
            raise _BeyondBoundsError(f"more than {MOST_VALUES} values", event.start_mark)
        node = super().compose_node(parent, index)
        self._levels -= 1
        self._sizes[id(node)] = self._values - before
        _check(node)
        return node


def compose(text: str, file: Path) -> Any:
    """What a YAML 1.2 text holds: `CommentedMap`, `CommentedSeq` or a scalar.

    Raises:
        ConfigError: not YAML, a duplicate key, or beyond one of the bounds; with the line.
    """
    if (directive := _OTHER_VERSION.search(text)) is not None:
        line = text.count("\n", 0, directive.start()) + 1
        raise ConfigError(f"{directive[0].strip()[:40]!r}: only YAML 1.2 is read.", file=file, line=line)
    reader = YAML(typ="rt")
    reader.Composer = _BoundedComposer
    reader.version = (1, 2)
    try:
        node = reader.load(text)
    except _BeyondBoundsError as error:
        raise ConfigError(f"{error.problem}.", file=file, line=_line(error)) from error
    except MarkedYAMLError as error:
        raise ConfigError(f"not valid YAML: {error.problem}.", file=file, line=_line(error)) from error
    except YAMLError as error:
        raise ConfigError(f"not valid YAML: {str(error).splitlines()[0]}.", file=file) from error
    # the library lets what it stumbles over escape as it is: a date with a 13th month, a character beyond Unicode
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise ConfigError(f"not valid YAML: {error or type(error).__name__}.", file=file) from error
    return node


def _line(error: MarkedYAMLError) -> int | None:
    return error.problem_mark.line + 1 if error.problem_mark is not None else None


def _check(node: Node) -> None:
    """Raises _BeyondBoundsError for scalars, keys and tags that no file of ours needs."""
    tag = str(node.tag)
    if tag not in _TAGS and tag != "tag:yaml.org,2002:timestamp":
        raise _BeyondBoundsError(f"the tag {tag!r} is not read", node.start_mark)
    if isinstance(node, MappingNode):
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _BeyondBoundsError("a key must be a single value", key.start_mark)
            if str(key.tag) == "tag:yaml.org,2002:merge":
                raise _BeyondBoundsError("merge keys (<<) are not read; write the keys out", key.start_mark)
    if not isinstance(node, ScalarNode):
        return
    if tag in _NUMBERS and len(node.value) > MOST_DIGITS:
        raise _BeyondBoundsError(f"a number of more than {MOST_DIGITS} characters", node.start_mark)
    if tag == "tag:yaml.org,2002:int" and abs(_integer(node.value)) > LARGEST_INTEGER:
        raise _BeyondBoundsError("a whole number of more than 64 bits", node.start_mark)
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in node.value):
        raise _BeyondBoundsError("a text with a NUL or half of a surrogate pair", node.start_mark)


def _integer(text: str) -> int:
    """A whole number as YAML 1.2 writes it: 12, -0x1F, 0o17, and with underscores; 0 for what is none."""
    digits = text.replace("_", "").lower().lstrip("+-")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)
    try:
        return int(digits if base == 10 else digits[2:], base)
    except ValueError:  # an explicit tag !!int before something else: the constructor says so
        return 0
