"""Which shapes a model is compiled for: one, a list of gears, or a range (atc.md §3.3).

Gears are looked at when the compile begins: ge v8.5.0 compiler/graph/passes/multi_batch/multi_batch_clone_pass.cc and
compiler/graph/preprocess/multi_batch_options.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.requests import Requests
from workbench.cann_emulator.atc.shape_flags import Gears, check_gears, parse_gears
from workbench.cann_emulator.atc.shapes import INT64_MAX, Dim

GearKind = Literal["", "dynamic_batch_size", "dynamic_image_size", "dynamic_dims", "range"]

_KINDS: Mapping[str, GearKind] = {
    "dynamic_batch_size": "dynamic_batch_size",
    "dynamic_image_size": "dynamic_image_size",
    "dynamic_dims": "dynamic_dims",
}
_UNBOUNDED = (1, 128)
"""What an axis without an upper bound is modelled at: the first axis, the others [emulated]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePlan:
    """The shapes of a compile.

    Attributes:
        boundary: input → shape, -1 where it is open.
        gears: (values of the open axes, input → shape at them); one for a static model and for a range, which is
            modelled at its upper bounds; otherwise in the order of the command line (atc.md §13a).
    """

    kind: GearKind
    boundary: Mapping[str, Shape]
    gears: tuple[tuple[tuple[int, ...], Mapping[str, Shape]], ...]


def plan_shapes(
    shapes: Mapping[str, tuple[Dim, ...]], requests: Requests, *, input_format: str, quantized: bool
) -> ShapePlan:
    """The shapes to compile for.

    Args:
        shapes: of the model's inputs, in their order.
        quantized: the model is a deploy model of AMCT.

    Raises:
        AtcFailure: E10035, E10037, E10039 (the list of gears); E10001, E10018, E10003, E10019 (an input that is open
            and has no shape); E10045, E10046 (gears that do not fit the shapes); E19999 (the same, or a tensor that no
            memory holds); E10055 (a quantized model with open shapes).
    """
    boundary = {name: tuple(_or_open(dim) for dim in shape) for name, shape in shapes.items()}
    is_open = any(-1 in shape for shape in boundary.values())
    if quantized and (requests.gear_flag or is_open):
        # atctool_0040, General Restrictions: conversion fails; with which code is not established [inferred]
        raise failure("E10055", reason="a quantized model cannot be converted with dynamic shapes")
    gears = parse_gears(requests.gear_flag, requests.gear_text) if requests.gear_flag else ()
    if gears:
        plan = _gear_plan(gears, boundary, requests, input_format)
    elif is_open:  # a dynamic flag whose parts are all empty makes no gears [inferred: then the axes stay open]
        upper = {name: tuple(_upper(d, axis) for axis, d in enumerate(shape)) for name, shape in shapes.items()}
        dims = tuple(upper[name][i] for name, shape in boundary.items() for i, d in enumerate(shape) if d < 0)
        plan = ShapePlan(kind="range", boundary=boundary, gears=((dims, upper),))
    else:
        plan = ShapePlan(kind="", boundary=boundary, gears=(((), boundary),))
    for _, shapes_at in plan.gears:
        _check_sizes(shapes_at)
    return plan


def _or_open(dim: Dim) -> int:
    return dim if isinstance(dim, int) and dim >= 0 else -1


def _upper(dim: Dim, axis: int) -> int:
    if isinstance(dim, tuple):
        return dim[1]
    return dim if dim >= 0 else _UNBOUNDED[min(axis, 1)]


def _gear_plan(gears: Gears, boundary: Mapping[str, Shape], requests: Requests, input_format: str) -> ShapePlan:
    asked = [(name, tuple(_or_open(size) for size in sizes)) for name, sizes in requests.shapes]
    if requests.gear_flag == "dynamic_dims":
        minus_ones = sum(sizes.count(-1) for _, sizes in requests.shapes)
        wrong = next((gear for gear in gears if len(gear) != minus_ones), None)
        if wrong is not None:
            raise failure("E19999", message=f"A gear has {len(wrong)} values, the input shapes have {minus_ones} -1.")
    check_gears(gears)
    names = {name for name, _ in asked}
    for name, shape in boundary.items():
        if name not in names and -1 in shape:
            _check_unasked(name, shape, requests.gear_flag, input_format)
            asked.append((name, shape))
    filled = [_filled(boundary, _values(gear, asked)) for gear in gears]
    if all(-1 not in shape for shape in boundary.values()) and requests.gear_flag != "dynamic_dims":
        raise failure("E10040")
    plans = [(_open_values(boundary, shapes), shapes) for shapes in filled]
    kind = _KINDS[requests.gear_flag]
    if kind != "dynamic_dims":
        plans = [(gear, shapes) for gear, (_, shapes) in zip(gears, plans, strict=True)]
    return ShapePlan(kind=kind, boundary=boundary, gears=tuple(plans))


def _check_unasked(name: str, shape: Shape, flag: str, input_format: str) -> None:
    """An input that the file leaves open and --input_shape does not name."""
    if flag == "dynamic_batch_size":
        other = next((axis for axis, size in enumerate(shape) if axis and size < 0), None)
        if shape[0] != -1:
            raise failure("E19999", message=f"The input {name} is open behind its batch, and has no --input_shape.")
        if other is not None:
            raise failure("E10018", index=str(other), shape=str(shape[other]))
    elif flag == "dynamic_image_size":
        axes = {"NCHW": (2, 3), "NHWC": (1, 2)}.get(input_format)
        if tuple(axis for axis, size in enumerate(shape) if size < 0) != axes:
            raise failure("E10019")
    else:
        reason = "every input with an open axis has its shape in --input_shape"
        raise failure("E10001", parameter="--dynamic_dims", value=name, reason=reason)


def _values(gear: Sequence[int], asked: Sequence[tuple[str, Shape]]) -> dict[str, list[int]]:
    """Input → what a gear gives its open axes. Values are dealt out in the order of --input_shape, except that an
    input with as many open axes as there are values takes them all."""
    dealt: dict[str, list[int]] = {}
    start = 0
    for name, shape in asked:
        count = shape.count(-1)
        text = ",".join(map(str, shape))
        if count > len(gear):
            raise failure("E10046", name=name, shape=text)
        if 0 < count < len(gear) < start + count:
            raise failure("E10045", name=name, shape=text)
        dealt[name] = list(gear) if count == len(gear) else list(gear[start : start + count])
        start += count
    return dealt


def _filled(boundary: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> Mapping[str, Shape]:
    """
    Raises:
        AtcFailure: E19999, an input has other open axes than values.
    """
    shapes = {}
    for name, shape in boundary.items():
        given = list(values.get(name, ()))
        if len(given) != shape.count(-1):
            raise failure("E19999", message=f"{len(given)} values of a gear do not fit the input {name}, {shape}.")
        shapes[name] = tuple(given.pop(0) if size < 0 else size for size in shape)
    return shapes


def _open_values(boundary: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> tuple[int, ...]:
    """The sizes of the open axes, in the order of the model's inputs."""
    return tuple(
        size for name, shape in boundary.items() for size, dim in zip(shapes[name], shape, strict=True) if dim < 0
    )


def _check_sizes(shapes: Mapping[str, Shape]) -> None:
    """
    Raises:
        AtcFailure: E19999, an input whose elements cannot be counted [inferred: the compile fails, its code is not
            established].
    """
    for name, shape in shapes.items():
        if prod(shape) > INT64_MAX:
            raise failure("E19999", message=f"The input {name} of shape {list(shape)} is too large.")
