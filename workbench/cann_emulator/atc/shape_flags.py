"""The shape flags against each other (atc.md §1 step 11, §3.3; ge v8.5.0 compiler/api/aclgrph/option_utils.cc)."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.shapes import (
    GEAR_FLAGS,
    Shapes,
    parse_dynamic_batch,
    parse_dynamic_dims,
    parse_dynamic_image_size,
    parse_input_shape,
    parse_input_shape_range,
)


def check_shape_flags(options: Mapping[str, str]) -> None:
    """The shape flags against each other, in ATC's order (atc.md §1 step 11).

    Raises:
        AtcFailure: E10040, E10009, E10004, E10002, E10011 to E10014, E10018 to E10020, E10031, E10012, E10048.
    """
    text, ranges = options.get("input_shape", ""), options.get("input_shape_range", "")
    given = [flag for flag in GEAR_FLAGS if options.get(flag)]
    if not ranges and given and "~" in text:
        raise failure("E10040")
    if options.get("input_hint_shape") and given:
        raise failure(
            "E10001",
            parameter="--input_hint_shape",
            value=options["input_hint_shape"],
            reason="it cannot be used with dynamic_batch_size, dynamic_image_size or dynamic_dims",
        )
    if len(given) + bool(ranges) > 1:
        raise failure("E10009")
    if ranges:
        parse_input_shape_range(ranges)
        return
    if not given:
        if text:
            parse_input_shape(text)
        return
    if not text:
        raise failure("E10004", parameter="input_shape")
    shapes = parse_input_shape(text, gears=True)
    if given[0] == "dynamic_batch_size":
        _check_batch(shapes)
        parse_dynamic_batch(options["dynamic_batch_size"])
    elif given[0] == "dynamic_image_size":
        _check_image(shapes, options.get("input_format", "") or "NCHW")
        parse_dynamic_image_size(options["dynamic_image_size"])
    else:
        open_axes = sum(shape.count(-1) for shape in shapes.values())
        if not open_axes:
            raise failure(
                "E10001",
                parameter="--input_shape's dynamic dim num",
                value="0",
                reason="with --dynamic_dims at least one dimension is -1",
            )
        parse_dynamic_dims(options["dynamic_dims"], open_axes=open_axes)


def _check_batch(shapes: Shapes) -> None:
    """Inputs with another -1 than the first are not counted, so that two records may come of one mistake."""
    open_inputs, records = 0, list[Record]()
    for name in sorted(shapes):  # the order of a C++ map
        shape = shapes[name]
        if not shape:
            raise failure("E10012")
        if shape[0] != -1:
            continue
        other = next((axis for axis, dim in enumerate(shape) if axis and isinstance(dim, int) and dim < 0), None)
        if other is None:
            open_inputs += 1
        else:
            records += failure("E10018", index=str(other), shape=str(shape[other])).records
    if not open_inputs:
        records += failure("E10031").records
    if records:
        raise AtcFailure(*records)


def _check_image(shapes: Shapes, input_format: str) -> None:
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
