"""Shapes on atc's command line as text: --input_shape, --input_shape_range and the three lists of gears.

Names are not looked up here: what a name means needs the model (atc.md §3.3; rules of ge v8.5.0
compiler/api/aclgrph/option_utils.cc:262-830 and compiler/graph/preprocess/multi_batch_options.cc:582-720).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.cann_emulator.atc.failure import AtcFailure, failure

Dim = int | tuple[int, int]
"""A size, -1 for one that is open, or (least, greatest)."""
Shapes = Mapping[str, tuple[Dim, ...]]

GEAR_FLAGS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")

_SHAPE_SAMPLE = '"input_name1:n1,c1,h1,w1"'
_VALUE_SAMPLE = '"input_name1:1,3,224,224"'
_RANGE_SAMPLE = '"input_name1:n1~n2,c1,h1,w1"'
_BRACKET_SAMPLE = '"input_name1:[n1~n2,c1,h1,w1]"'
_MINIMUM_GEARS = 2
_INT64 = 2**63


def is_by_index(text: str) -> bool:
    """Whether shapes are given in the order of the inputs, without names: then keys are "0", "1", …"""
    return ":" not in text


def parse_input_shape(text: str, *, gears: bool = False) -> Shapes:
    """Input → its shape, in the order written; `name:` alone is a scalar, ().

    Without names (`1,128;1,128`) the keys are the positions "0", "1", … (`is_by_index` tells which form it is): the
    manual has this form; v8.5.0's own reader of static shapes does not [inferred: the manual is followed].

    Args:
        gears: one of the dynamic flags is given, so that -1 stands for what the gears fill in; otherwise any -1 or `~`
            makes the whole text a range, whose rules differ. Gears need names.

    Raises:
        AtcFailure: E10002, E10011, E10013, E10014 of a static or gear shape; E10002, E10048 of a range.
    """
    if not gears and is_range(text):
        return _parse_range(text)
    shapes: dict[str, tuple[Dim, ...]] = {}
    for position, entry in enumerate(text.split(";")):
        by_index = not gears and is_by_index(text) and re.fullmatch(r"[0-9 ,+-]+", entry)
        name, dims = (str(position), entry) if by_index else _split_name(entry)
        values = tuple(_static_dim(dim.strip(), entry, gears=gears) for dim in dims.split(",")) if dims else ()
        shapes.setdefault(name.strip(), values)  # of a name written twice the first counts, as in a C++ map's emplace
    return shapes


def is_range(text: str) -> bool:
    """Whether a shape without a dynamic flag asks for a dynamic-shape model."""
    return "~" in text or "-1" in text


def parse_input_shape_range(text: str) -> Shapes:
    """The value of --input_shape_range: `name:[1~8,128];…`, or `[1~8,128],[…]` with positions as keys.

    Raises:
        AtcFailure: E10048.
    """
    if is_by_index(text):
        if len(text) < 2:
            raise _bad_range(text, "a shape range has at least two characters")
        inner = [part.lstrip(",").lstrip().removeprefix("[") for part in text.split("]") if part.strip()]
        return {str(position): _range_dims(part) for position, part in enumerate(inner)}
    shapes: dict[str, tuple[Dim, ...]] = {}
    for entry in text.split(";"):
        name, colon, dims = entry.rpartition(":")
        if not colon:
            raise _bad_range(text, "an entry has a name and a value, with a colon between them")
        if not dims:
            raise _bad_range(text, "an entry has a name but no value")
        if [c for c in dims if c in "[]"] != ["[", "]"]:
            raise _bad_range(dims, "the value stands in one pair of square brackets")
        shapes.setdefault(name.strip(), _range_dims(dims.removeprefix("[").removesuffix("]")))
    return shapes


def requested_shapes(options: Mapping[str, str]) -> tuple[Shapes, bool]:
    """The shapes that a command line asks for, and whether they are keyed by position.

    --input_shape_range replaces --input_shape. Nothing asked for gives ({}, False).
    """
    ranges = options.get("input_shape_range", "")
    if ranges:
        return parse_input_shape_range(ranges), is_by_index(ranges)
    text = options.get("input_shape", "")
    if not text:
        return {}, False
    return parse_input_shape(text, gears=any(options.get(flag) for flag in GEAR_FLAGS)), is_by_index(text)


def parse_dynamic_batch(text: str) -> tuple[int, ...]:
    """Batch sizes in the order written; one trailing comma is dropped.

    Raises:
        AtcFailure: E10003 (a character that is neither digit nor comma), E10013, E10014.
    """
    if any(not (c.isdecimal() or c == ",") for c in text):
        raise failure("E10003", parameter="dynamic_batch_size", value=text, reason="it may hold digits and commas only")
    return tuple(_gear_value("dynamic_batch_size", part) for part in text.removesuffix(",").split(","))


def parse_dynamic_image_size(text: str) -> tuple[tuple[int, int], ...]:
    """(height, width) of every gear, in the order written; one trailing semicolon is dropped.

    Raises:
        AtcFailure: E10003 (other characters), E10020 (a group that is no pair), E10013, E10014.
    """
    if any(not (c.isdecimal() or c in ",; ") for c in text):
        raise failure(
            "E10003",
            parameter="dynamic_image_size",
            value=text,
            reason="it may hold digits, commas, blanks and semicolons only",
        )
    pairs: list[tuple[int, int]] = []
    for group in text.removesuffix(";").split(";"):
        values = group.split(",")
        if len(values) != 2:
            raise failure("E10020", dynamic_image_size=text)
        height, width = (_gear_value("dynamic_image_size", value.strip()) for value in values)
        pairs.append((height, width))
    return tuple(pairs)


def parse_dynamic_dims(text: str, *, open_axes: int | None = None) -> tuple[tuple[int, ...], ...]:
    """The values of every gear, in the order written; one trailing semicolon is dropped.

    Args:
        open_axes: number of -1 over all inputs, which every gear must fill.

    Raises:
        AtcFailure: E10004 (nothing), E10003 (another number of values than open axes), E10001 (no number), E10013.
    """
    text = text.removesuffix(";")
    if not text:
        raise failure("E10004", parameter="dynamic_dims")
    gears: list[tuple[int, ...]] = []
    for group in text.split(";"):
        values = group.split(",")
        if open_axes is not None and len(values) != open_axes:
            raise failure(
                "E10003",
                parameter="dynamic_dims",
                value=text,
                reason=f"every gear gives one value for each -1 in the input shape: {open_axes}, not {len(values)}",
            )
        gears.append(tuple(_dynamic_dim(value) for value in values))
    return tuple(gears)


def check_gears(gears: Sequence[Sequence[int]]) -> None:
    """What the compiler asks of a list of gears, once it looks at them (after the model's parse).

    Raises:
        AtcFailure: E10035 (less than two), E10037 (of different length), E10038 (negative), E10039 (two the same).
    """
    if len(gears) < _MINIMUM_GEARS:
        raise failure("E10035", shapesize=str(len(gears)), minshapesize=str(_MINIMUM_GEARS))
    for gear in gears:
        if len(gear) != len(gears[0]):
            raise failure("E10037", shapesize1=str(len(gears[0])), shapesize2=str(len(gear)))
        for dim in gear:
            if dim < 0:
                raise failure("E10038", dim=str(dim))
    if len({tuple(gear) for gear in gears}) != len(gears):
        raise failure("E10039")


def _split_name(entry: str) -> tuple[str, str]:
    name, colon, dims = entry.rpartition(":")
    if not colon:
        raise failure(
            "E10002",
            shape=entry,
            reason="an entry has a name and a value, with a colon between them",
            sample=_SHAPE_SAMPLE,
        )
    return name, dims


def _static_dim(dim: str, entry: str, *, gears: bool) -> int:
    if "." in dim:
        raise failure("E10002", shape=entry, reason="a dimension is no floating-point number", sample=_VALUE_SAMPLE)
    start = re.match(r"[+-]?\d+", dim, re.ASCII)
    if start is None:
        raise failure("E10014", parameter="input_shape", value=dim)
    value = int(start.group())
    if not -_INT64 <= value < _INT64:
        raise failure("E10013", parameter="input_shape", value=dim)
    if not re.fullmatch(r"-?\d+", dim, re.ASCII):
        raise failure("E10002", shape=entry, reason="a dimension is made of digits", sample=_VALUE_SAMPLE)
    if value <= 0 and not gears:
        raise failure("E10011", shape=entry, result=str(value))
    return value


def _check_range_characters(text: str) -> None:
    for entry in text.split(";"):
        if is_by_index(text):
            dims = entry
        else:
            name, dims = _split_name(entry)
            if not name:
                raise failure("E10002", shape=entry, reason="the input's name is empty", sample=_RANGE_SAMPLE)
        if re.search(r"[^0-9 ,~-]", dims):
            raise failure(
                "E10002", shape=dims, reason="a range holds digits, commas, ~ and -1 only", sample=_RANGE_SAMPLE
            )


def _parse_range(text: str) -> Shapes:
    _check_range_characters(text)
    shapes: dict[str, tuple[Dim, ...]] = {}
    for position, entry in enumerate(text.split(";")):
        name, dims = (str(position), entry) if is_by_index(text) else _split_name(entry)
        shapes.setdefault(name.strip(), _range_dims(dims))
    return shapes


def _range_dims(dims: str) -> tuple[Dim, ...]:
    return tuple(_range_dim(dim, dims) for dim in dims.split(",")) if dims.strip() else ()


def _range_dim(dim: str, dims: str) -> Dim:
    ends = [_range_end(end.strip()) for end in dim.split("~")]
    if len(ends) == 1:
        return -1 if ends[0] < 0 else ends[0]
    if len(ends) > 2 or min(ends) < 0:
        raise _bad_range(dims, "a range is two sizes with one ~ between them")
    least, greatest = ends
    return least if least == greatest else (least, greatest)


def _range_end(end: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", end, re.ASCII) or not -_INT64 <= int(end) < _INT64:
        raise failure("E10048", shape_range=end, reason="it cannot be read as a number", sample='"16"')
    return int(end)


def _bad_range(text: str, reason: str) -> AtcFailure:
    return failure("E10048", shape_range=text, reason=reason, sample=_BRACKET_SAMPLE)


def _gear_value(flag: str, value: str) -> int:
    if not value.isdecimal():
        raise failure("E10014", parameter=flag, value=value)
    return _bounded(flag, value)


def _dynamic_dim(value: str) -> int:
    value = value.strip()
    if not value.isdecimal():
        raise failure(
            "E10001", parameter="--dynamic_dims", value=value, reason="a value of a gear is a positive integer"
        )
    return _bounded("dynamic_dims", value)


def _bounded(flag: str, value: str) -> int:
    number = int(value)
    if number >= _INT64:
        raise failure("E10013", parameter=flag, value=value)
    return number
