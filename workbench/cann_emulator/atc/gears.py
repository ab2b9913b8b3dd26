"""Which shapes a model is compiled for: one, a list of gears, or a range (atc.md §3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from onnx import TypeProto

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.shapes import (
    GEAR_FLAGS,
    Dim,
    check_gears,
    parse_dynamic_batch,
    parse_dynamic_dims,
    parse_dynamic_image_size,
    requested_shapes,
)

GearKind = Literal["", "dynamic_batch_size", "dynamic_image_size", "dynamic_dims", "range"]

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


def plan_shapes(parsed: Parsed, options: Mapping[str, str]) -> ShapePlan:
    """The shapes that the flags ask for and the model allows.

    Raises:
        AtcFailure: E10016, E10017 (names), E10001 (open axes and no --input_shape), E10049 (another rank), E10050 (a
            fixed axis outside the range), E10035 to E10039 (the list of gears), E10055 (a quantized model with open
            shapes).
    """
    shapes = _merged(parsed, options)
    given = next((flag for flag in GEAR_FLAGS if options.get(flag)), "")
    is_open = any(not isinstance(dim, int) or dim < 0 for shape in shapes.values() for dim in shape)
    if parsed.quantized and (given or is_open):
        # atctool_0040, General Restrictions: conversion fails; with which code is not established [inferred]
        raise failure("E10055", reason="a quantized model cannot be converted with dynamic shapes")
    if given:
        return _gear_plan(given, shapes, options)
    if is_open:
        boundary = {name: tuple(d if isinstance(d, int) else -1 for d in shape) for name, shape in shapes.items()}
        upper = {name: tuple(_upper(d, axis) for axis, d in enumerate(shape)) for name, shape in shapes.items()}
        dims = tuple(upper[name][i] for name, shape in boundary.items() for i, d in enumerate(shape) if d < 0)
        return ShapePlan(kind="range", boundary=boundary, gears=((dims, upper),))
    static = {name: tuple(d for d in shape if isinstance(d, int)) for name, shape in shapes.items()}
    return ShapePlan(kind="", boundary=static, gears=(((), static),))


def _merged(parsed: Parsed, options: Mapping[str, str]) -> dict[str, tuple[Dim, ...]]:
    """Input → shape: what was asked for, else what the file says."""
    declared = {value.name: _declared(value.type) for value in parsed.inputs}
    requested, by_index = requested_shapes(options)
    flag = "input_shape_range" if options.get("input_shape_range") else "input_shape"
    shapes: dict[str, tuple[Dim, ...]] = {}
    names = list(declared)
    for key, shape in requested.items():
        if by_index:
            if int(key) >= len(names):
                raise failure("E10016", opname=key, parameter=flag)
            key = names[int(key)]
        if key not in declared:
            nodes = {node.name for node in parsed.proto.graph.node}
            raise failure("E10017" if key in nodes else "E10016", opname=key, parameter=flag)
        _check_rank(shape, declared[key])
        shapes[key] = shape
    if not requested and any(shape is None or -1 in shape for shape in declared.values()):
        raise failure(
            "E10001",
            parameter="--input_shape",
            value="NULL",
            reason="the model has shapes with -1 and says nothing of them: give --input_shape",
        )
    return {name: shapes.get(name, declared[name] or ()) for name in names}


def _declared(kind: TypeProto) -> Shape | None:
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(int(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else -1 for d in tensor.shape.dim)


def _check_rank(shape: Sequence[Dim], declared: Shape | None) -> None:
    if declared is None:
        return
    if len(shape) != len(declared):
        raise failure("E10049", shape_range_size=str(len(shape)), cur_dim_size=str(len(declared)))
    for dim, fixed in zip(shape, declared, strict=True):
        if isinstance(dim, tuple) and fixed >= 0 and not dim[0] <= fixed <= dim[1]:
            raise failure("E10050", cur_dim=str(fixed), shape_range_left=str(dim[0]), shape_range_right=str(dim[1]))


def _upper(dim: Dim, axis: int) -> int:
    if isinstance(dim, tuple):
        return dim[1]
    return dim if dim >= 0 else _UNBOUNDED[min(axis, 1)]


def _gear_plan(flag: str, shapes: Mapping[str, tuple[Dim, ...]], options: Mapping[str, str]) -> ShapePlan:
    boundary = {name: tuple(d if isinstance(d, int) else -1 for d in shape) for name, shape in shapes.items()}
    open_axes = sum(shape.count(-1) for shape in boundary.values())
    kind: GearKind
    values: list[tuple[int, ...]]
    filled: list[tuple[int, ...]]
    if flag == "dynamic_batch_size":
        kind, values = "dynamic_batch_size", [(size,) for size in parse_dynamic_batch(options[flag])]
        filled = [size * open_axes for size in values]
    elif flag == "dynamic_image_size":
        kind, values = "dynamic_image_size", [tuple(pair) for pair in parse_dynamic_image_size(options[flag])]
        filled = [pair * (open_axes // 2) for pair in values]
    else:
        kind = "dynamic_dims"
        filled = values = list(parse_dynamic_dims(options[flag], open_axes=open_axes))
    check_gears(values)
    gears = tuple((dims, _filled(boundary, iter(fill))) for dims, fill in zip(values, filled, strict=True))
    return ShapePlan(kind=kind, boundary=boundary, gears=gears)


def _filled(boundary: Mapping[str, Shape], values: Iterator[int]) -> Mapping[str, Shape]:
    return {
        name: tuple(next(islice(values, 1)) if dim < 0 else dim for dim in shape) for name, shape in boundary.items()
    }
