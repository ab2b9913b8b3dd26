"""Which shapes a model is compiled for: one, a list of gears, or a range (atc.md §3.3).

What the command line asks of inputs and outputs is read between the start of the engines and the model's parse (ge
v8.5.0 api/atc/omg.cc, InitDomiOmgContext and ParseOutNodes; in --mode=3 too). Three places of the vendor's sequence
look at the shapes: the parse of an input, the names behind it, and the ranges last (atc.md §3.3, §13a). Gears are
looked at when the compile begins: compiler/graph/passes/multi_batch/multi_batch_clone_pass.cc and
compiler/graph/preprocess/multi_batch_options.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from onnx import TypeProto

from workbench.cann_emulator.atc.boundary import OutNodes, check_layouts, parse_out_nodes
from workbench.cann_emulator.atc.failure import AtcFailure, failure, inner_error, invalid
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.shapes import (
    INT64_MAX,
    Dim,
    Entries,
    Gears,
    check_gears,
    gear_flag,
    parse_gears,
    parse_ranges,
    parse_shapes,
    ranges_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """
    Attributes:
        shapes: of a static --input_shape, or of one with gears; empty for a range and where nothing is said.
        ranges: what is asked for as a range, in the form of --input_shape_range, read once the model is there.
        gear_flag: the dynamic flag that is given, "" for none.
        gear_text: its value.
    """

    shapes: Entries
    ranges: str
    gear_flag: str
    gear_text: str
    out_nodes: OutNodes


def read_requests(options: Mapping[str, str]) -> Requests:
    """
    Raises:
        AtcFailure: E10002, E10011, E10013, E10014 with E19999 (a static shape); E10005 (layouts of the outputs);
            E10001, E10013, E10014 (--out_nodes).
    """
    ranges, flag = ranges_of(options), gear_flag(options)
    text = "" if ranges else options.get("input_shape", "")
    shapes: Entries = ()
    if text:
        try:
            shapes = parse_shapes(text, gears=bool(flag))
        except AtcFailure as error:
            inner = inner_error(f"The input shape {text} cannot be read.")
            raise AtcFailure(*error.records, inner) from error
    check_layouts("is_output_adjust_hw_layout", options.get("is_output_adjust_hw_layout", ""))
    return Requests(
        shapes=shapes,
        ranges=ranges,
        gear_flag=flag,
        gear_text=options.get(flag, ""),
        out_nodes=parse_out_nodes(options.get("out_nodes", "")),
    )


# --- held against what the model has ----------------------------------------------------------------------------------


def check_ranks(parsed: Parsed, requests: Requests) -> None:
    """A static shape, or one with gears, has as many sizes as the model's input; the sizes themselves may differ. An
    input that the model gives no sizes takes any shape (ge v8.5.0 parser/parser/onnx/onnx_data_parser.cc:130).

    Raises:
        AtcFailure: E19999.
    """
    asked = dict(reversed(requests.shapes))  # of a name written twice the first counts
    for value in parsed.inputs:
        declared = declared_shape(value.type)
        if value.name in asked and declared and len(asked[value.name]) != len(declared):
            text = f"The input {value.name} has {len(declared)} dimensions, not {len(asked[value.name])}."
            raise AtcFailure(
                inner_error(text),
                inner_error("The graph cannot be made of the model."),
            )


def check_names(parsed: Parsed, requests: Requests) -> None:
    """That every input has its shape, if it is to be static, and that every shape has its input (omg.cc:86-135).

    Raises:
        AtcFailure: E10001 (an open axis of a static model), E10016 (no such node), E10017 (a node that is no input).
    """
    asked = dict(reversed(requests.shapes))
    if not requests.ranges and not requests.gear_flag:
        for value in parsed.inputs:
            if any(size < 0 for size in asked.get(value.name, declared_shape(value.type))):
                reason = "the model has shapes with -1: give --input_shape for each of its inputs"
                raise invalid("input_shape", "NULL", reason)
    _check_inputs(parsed, [name for name, _ in requests.shapes])


def input_shapes(parsed: Parsed, requests: Requests) -> dict[str, tuple[Dim, ...]]:
    """Input → its shape: what was asked for, else what the file says.

    Raises:
        AtcFailure: E10048 (ranges by position, or of another form), E10016, E10017 (names of ranges), E10049 (another
            rank), E10050 (a size of the model lies outside).
    """
    asked: Mapping[str, tuple[Dim, ...]] = dict(reversed(requests.shapes))
    if requests.ranges:
        asked = parse_ranges(requests.ranges)
        _check_inputs(parsed, sorted(asked))  # the order of a C++ map
        for value in parsed.inputs:
            _check_range(asked.get(value.name, ()), declared_shape(value.type))
    return {value.name: asked.get(value.name, declared_shape(value.type)) for value in parsed.inputs}


def declared_shape(kind: TypeProto) -> Shape:
    """The file's shape of an input, -1 where an axis is open; () where it says nothing, as for a scalar."""
    return tuple(max(int(d.dim_value), -1) if d.HasField("dim_value") else -1 for d in kind.tensor_type.shape.dim)


def _check_inputs(parsed: Parsed, names: Sequence[str]) -> None:
    inputs = {value.name for value in parsed.inputs}
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in names:
        if name not in inputs:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_shape")


def _check_range(asked: tuple[Dim, ...], declared: Shape) -> None:
    """ge v8.5.0 graph_metadef/graph/utils/tensor_utils.cc:391. A fixed size is a range with equal ends."""
    if not asked or not declared:
        return
    if len(asked) != len(declared):
        raise failure("E10049", shape_range_size=str(len(asked)), cur_dim_size=str(len(declared)))
    for dim, size in zip(asked, declared, strict=True):
        if size < 0:
            continue
        least, greatest = dim if isinstance(dim, tuple) else (dim if dim >= 0 else 1, dim)
        outside = size < least or 0 <= greatest < size
        if not outside and greatest < -1:
            reason = "it is neither a size nor -1"
            raise failure("E10048", shape_range=f"{least}~{greatest}", reason=reason, sample='"1~20"')
        if outside:
            raise failure("E10050", cur_dim=str(size), shape_range_left=str(least), shape_range_right=str(greatest))


# --- the shapes to compile for ---

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
        raise invalid("dynamic_dims", name, "every input with an open axis has its shape in --input_shape")


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
