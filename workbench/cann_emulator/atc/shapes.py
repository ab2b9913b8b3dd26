"""Shapes on atc's command line as text: --input_shape and --input_shape_range.

Names are not looked up here: what a name means needs the model (atc.md §3.3, §13a; rules of ge v8.5.0
compiler/api/aclgrph/option_utils.cc:262-830). A text is static, one with gears (a dynamic flag fills its -1), or a
range; each of the three is read by rules of its own. Every shape has its input's name: the manual also shows shapes by
position (`1,128;1,128`), which v8.5.0 refuses (option_utils.cc:757,476).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure, invalid

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


# --- the shape flags against each other, and the lists of gears as text (atc.md §1 step 11, §3.3, §13a) ---

GEAR_FLAGS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")

Gears = tuple[tuple[int, ...], ...]

_MINIMUM = 2
_Shapes = Mapping[str, tuple[int, ...]]


def check_shape_flags(options: Mapping[str, str]) -> None:
    """What is judged of the shape flags before the engines start, in ATC's order.

    A static --input_shape is read later, and so is a range by position. --input_hint_shape is not looked at.

    Raises:
        AtcFailure: E10040, E10002, E10009, E10048, E10004, E10013, E10014, E10012, E10018 to E10020, E10031, E10001,
            E10003.
    """
    given = [flag for flag in GEAR_FLAGS if options.get(flag)]
    text = options.get("input_shape", "")
    if not options.get("input_shape_range") and given and "~" in text:
        raise failure("E10040")
    ranges = ranges_of(options)
    if len(given) + bool(ranges) > 1:
        raise failure("E10009")
    if not given:
        if ":" in ranges:
            parse_ranges(ranges)
        return
    if not text:
        raise failure("E10004", parameter="input_shape")
    shapes = dict(reversed(parse_shapes(text, gears=True)))  # of a name written twice the first counts
    if given[0] == "dynamic_batch_size":
        _check_batch(shapes)
        check_dynamic_batch(options["dynamic_batch_size"])
    elif given[0] == "dynamic_image_size":
        _check_image(shapes, options.get("input_format", "") or "NCHW")
        check_dynamic_image_size(options["dynamic_image_size"])
    else:
        open_axes = sum(shape.count(-1) for shape in shapes.values())
        if not open_axes:
            raise invalid("input_shape's dynamic dim num", "0", "with --dynamic_dims at least one dimension is -1")
        check_dynamic_dims(options["dynamic_dims"], open_axes=open_axes)


def ranges_of(options: Mapping[str, str]) -> str:
    """The ranges that a command line asks for, in the form of --input_shape_range; "" for none.

    --input_shape_range replaces --input_shape; without a dynamic flag --input_shape may itself be one.

    Raises:
        AtcFailure: E10002.
    """
    if options.get("input_shape_range"):
        return options["input_shape_range"]
    text = options.get("input_shape", "")
    if any(options.get(flag) for flag in GEAR_FLAGS) or not is_range(text):
        return ""
    return as_range(text)


def _check_batch(shapes: _Shapes) -> None:
    """Inputs with another -1 than the first are not counted, so that two records may come of one mistake."""
    open_inputs, records = 0, list[Record]()
    for name in sorted(shapes):  # the order of a C++ map
        shape = shapes[name]
        if not shape:
            raise AtcFailure(*records, *failure("E10012").records)
        if shape[0] != -1:
            continue
        other = next((axis for axis, dim in enumerate(shape) if axis and dim < 0), None)
        if other is None:
            open_inputs += 1
        else:
            records += failure("E10018", index=str(other), shape=str(shape[other])).records
    if not open_inputs:
        records += failure("E10031").records
    if records:
        raise AtcFailure(*records)


def _check_image(shapes: _Shapes, input_format: str) -> None:
    axes = {"NCHW": (2, 3), "NHWC": (1, 2)}.get(input_format)
    open_inputs = 0
    for name in sorted(shapes):
        shape = shapes[name]
        if -1 not in shape:
            continue
        if len(shape) == 4 and axes is None:
            of_format = failure(
                "E10003",
                parameter="input_format",
                value=input_format,
                reason="with --dynamic_image_size it is NCHW or NHWC",
            )
            raise AtcFailure(*of_format.records, *failure("E10019").records)
        if len(shape) != 4 or tuple(axis for axis, dim in enumerate(shape) if dim == -1) != axes:
            raise failure("E10019")
        open_inputs += 1
    if not open_inputs:
        raise failure("E10019")


# --- lists of gears -------------------------------------------------------------------------------------------------


def gear_flag(options: Mapping[str, str]) -> str:
    """The dynamic flag that is given, "" for none; at most one passes the flag check."""
    return next((flag for flag in GEAR_FLAGS if options.get(flag)), "")


def check_dynamic_batch(text: str) -> None:
    """
    Raises:
        AtcFailure: E10003, a character that is neither digit nor comma.
    """
    if re.search(r"[^0-9,]", text):
        raise failure("E10003", parameter="dynamic_batch_size", value=text, reason="it may hold digits and commas only")


def check_dynamic_image_size(text: str) -> None:
    """
    Raises:
        AtcFailure: E10003 (another character), E10020 (a group that is no pair).
    """
    text = text.removesuffix(";")
    if re.search(r"[^0-9,; ]", text):
        reason = "it may hold digits, commas, blanks and semicolons only"
        raise failure("E10003", parameter="dynamic_image_size", value=text, reason=reason)
    if any(len(group.split(",")) != 2 for group in text.split(";")):
        raise failure("E10020", dynamic_image_size=text)


def check_dynamic_dims(text: str, *, open_axes: int) -> None:
    """
    Args:
        open_axes: number of -1 over all inputs, which every gear must fill. A part counts although it is empty.

    Raises:
        AtcFailure: E10001 (nothing, or another character than a digit), E10003 (another number of parts).
    """
    text = text.removesuffix(";")
    if not text:
        raise invalid("dynamic_dims", text, "it is empty")
    for group in text.split(";"):
        parts = group.split(",")
        if len(parts) != open_axes:
            reason = f"every gear gives one value for each -1 in the input shape: {open_axes}, not {len(parts)}"
            raise failure("E10003", parameter="dynamic_dims", value=text, reason=reason)
        for part in parts:
            if re.search(r"[^0-9]", part):
                raise invalid("dynamic_dims", part, "a value of a gear is a positive integer")


def parse_gears(flag: str, text: str) -> Gears:
    """The values of every gear, in the order written. Empty parts are no values, and empty groups no gears.

    Raises:
        AtcFailure: E19999, a blank: only that of an image size comes so far.
    """
    groups = text.split(",") if flag == "dynamic_batch_size" else text.split(";")
    gears = [tuple(_value(part) for part in group.split(",") if part) for group in groups]
    return tuple(gear for gear in gears if gear)


def check_gears(gears: Sequence[Sequence[int]]) -> None:
    """
    Raises:
        AtcFailure: E10035 (less than two), E10037 (of different length), E10039 (two the same). E10038, a negative
            value, is defined and out of reach: a gear holds digits only.
    """
    if len(gears) < _MINIMUM:
        raise failure("E10035", shapesize=str(len(gears)), minshapesize=str(_MINIMUM))
    for gear in gears:
        if len(gear) != len(gears[0]):
            raise failure("E10037", shapesize1=str(len(gears[0])), shapesize2=str(len(gear)))
    if len({tuple(gear) for gear in gears}) != len(gears):
        raise failure("E10039")


def _value(part: str) -> int:
    if re.search(r"[^0-9]", part):
        raise _no_number(part)
    significant = part.lstrip("0")
    # a number that does not fit becomes the greatest, as strtol gives it
    return INT64_MAX if len(significant) > len(str(INT64_MAX)) else min(int(part), INT64_MAX)


def _no_number(part: str) -> AtcFailure:
    return failure("E19999", message=f"A gear's value {part!r} is not made of digits.")
