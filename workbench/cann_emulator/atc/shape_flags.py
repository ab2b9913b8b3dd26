"""The shape flags against each other (atc.md §1 step 11, §3.3; ge v8.5.0 compiler/api/aclgrph/option_utils.cc)."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.gear_lists import (
    GEAR_FLAGS,
    check_dynamic_batch,
    check_dynamic_dims,
    check_dynamic_image_size,
)
from workbench.cann_emulator.atc.shapes import as_range, is_range, parse_ranges, parse_shapes

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
            raise failure(
                "E10001",
                parameter="--input_shape's dynamic dim num",
                value="0",
                reason="with --dynamic_dims at least one dimension is -1",
            )
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
