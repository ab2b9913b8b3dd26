"""Shapes on atc's command line as text: --input_shape and --input_shape_range.

Names are not looked up here: what a name means needs the model (atc.md §3.3, §13a; rules of ge v8.5.0
compiler/api/aclgrph/option_utils.cc:262-830). A text is static, one with gears (a dynamic flag fills its -1), or a
range; each of the three is read by rules of its own. Every shape has its input's name: the manual also shows shapes by
position (`1,128;1,128`), which v8.5.0 refuses (option_utils.cc:757,476).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.cann_emulator.atc.failure import AtcFailure, failure

Dim = int | tuple[int, int]
"""A size, -1 for one that is open, or (least, greatest)."""
Ranges = Mapping[str, tuple[Dim, ...]]
Entries = tuple[tuple[str, tuple[int, ...]], ...]
"""(input, sizes) in the order written; a name stands there as often as it was written."""

INT64_MAX = 2**63 - 1

_BLANKS = " \t\n\v\f\r"
_SHAPE_SAMPLE = '"input_name1:n1,c1,h1,w1"'
_VALUE_SAMPLE = '"input_name1:1,3,224,224"'
_RANGE_SAMPLE = '"input_name1:n1~n2,c1,h1,w1"'
_BRACKET_SAMPLE = '"input_name1:[n1~n2,c1,h1,w1]"'
_TWO_PARTS = "an entry has a name and a value, with a colon between them"


def parse_shapes(text: str, *, gears: bool) -> Entries:
    """The shapes of a static --input_shape, or of one with gears; `name:` alone is a scalar, ().

    Args:
        gears: one of the dynamic flags is given, so that any number stands, -1 for what the gears fill in.

    Raises:
        AtcFailure: E10002 (no name, or no whole number), E10011 (not positive, without gears), E10013, E10014.
    """
    entries: list[tuple[str, tuple[int, ...]]] = []
    for entry in text.split(";"):
        name, dims = _split_name(entry)
        sizes = tuple(_size(dim.strip(_BLANKS), entry, gears=gears) for dim in dims.split(",")) if dims else ()
        entries.append((name.strip(_BLANKS), sizes))
    return tuple(entries)


def is_range(text: str) -> bool:
    """Whether an --input_shape without a dynamic flag asks for a dynamic-shape model: by its letters alone, so that
    the name of an input may decide it."""
    return "~" in text or "-1" in text


def as_range(text: str) -> str:
    """An --input_shape that is a range, in the form of --input_shape_range. An entry without sizes is left out.

    Raises:
        AtcFailure: E10002 (an entry without a name, or with another character than a range has).
    """
    if ":" not in text:
        for dims in text.split(";"):
            _check_characters(dims)
        return ",".join(f"[{dims}]" for dims in text.split(";"))
    entries = []
    for entry in text.split(";"):
        name, dims = _split_name(entry, _RANGE_SAMPLE)
        if not name:
            raise failure("E10002", shape=entry, reason="the input's name is empty", sample=_RANGE_SAMPLE)
        if dims:
            _check_characters(dims)
            entries.append(f"{name}:[{dims}]")
    return ";".join(entries)


def parse_ranges(text: str) -> Ranges:
    """The value of --input_shape_range: `name:[1~8,128];…`; of a name written twice the first counts.

    Raises:
        AtcFailure: E10048.
    """
    ranges: dict[str, tuple[Dim, ...]] = {}
    for entry in text.split(";"):
        name, colon, dims = entry.rpartition(":")
        if not colon:
            raise _bad_range(text, _TWO_PARTS)
        if not dims:
            raise _bad_range(text, "an entry has a name but no value")
        if [c for c in dims if c in "[]"] != ["[", "]"]:
            raise _bad_range(dims, "the value stands in one pair of square brackets")
        inner = dims.removeprefix("[").removesuffix("]")
        ranges.setdefault(name.strip(_BLANKS), tuple(_range_dim(dim, inner) for dim in inner.split(",")))
    return ranges


def _split_name(entry: str, sample: str = _SHAPE_SAMPLE) -> tuple[str, str]:
    name, colon, dims = entry.rpartition(":")
    if not colon:
        raise failure("E10002", shape=entry, reason=_TWO_PARTS, sample=sample)
    return name, dims


def _size(dim: str, entry: str, *, gears: bool) -> int:
    if "." in dim:
        raise failure("E10002", shape=entry, reason="a dimension is no floating-point number", sample=_VALUE_SAMPLE)
    start = re.match(r"[+-]?\d+", dim, re.ASCII)
    if start is None:
        raise failure("E10014", parameter="input_shape", value=dim)
    value = _int64(start.group())
    if value is None:
        raise failure("E10013", parameter="input_shape", value=dim)
    if not re.fullmatch(r"-?\d+", dim, re.ASCII):
        raise failure("E10002", shape=entry, reason="a dimension is made of digits", sample=_VALUE_SAMPLE)
    if value <= 0 and not gears:
        raise failure("E10011", shape=entry, result=str(value))
    return value


def _check_characters(dims: str) -> None:
    if re.search(r"[^0-9 ,~-]", dims):
        reason = "a range holds digits, commas, ~ and -1 only"
        raise failure("E10002", shape=dims, reason=reason, sample=_RANGE_SAMPLE)


def _range_dim(dim: str, dims: str) -> Dim:
    ends = [_range_end(end) for end in dim.split("~")]
    if len(ends) == 1:
        return ends[0]
    if len(ends) > 2 or min(ends) < 0:
        raise _bad_range(dims, "a range is two sizes with one ~ between them")
    least, greatest = ends
    return least if least == greatest else (least, greatest)


def _range_end(end: str) -> int:
    value = _int64(end.strip(_BLANKS)) if re.fullmatch(r"[+-]?\d+", end.strip(_BLANKS), re.ASCII) else None
    if value is None:
        raise failure("E10048", shape_range=end, reason="it cannot be read as a number", sample='"16"')
    return value


def _int64(digits: str) -> int | None:
    """The number, None where it does not fit; Python refuses to read thousands of digits at all."""
    significant = digits.lstrip("+-").lstrip("0")
    if len(significant) > len(str(INT64_MAX)):
        return None
    value = int(digits)
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else None


def _bad_range(text: str, reason: str) -> AtcFailure:
    return failure("E10048", shape_range=text, reason=reason, sample=_BRACKET_SAMPLE)
