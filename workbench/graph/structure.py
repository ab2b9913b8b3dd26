"""What a graph holds besides plain operators: bodies of If, Loop and Scan, noise, sizes that depend on the data, and
outputs that nothing is computed for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from workbench.graph.intake.random_operators import random_nodes
from workbench.graph.nodes import DEFAULT_DOMAINS, all_nodes, bodies, called
from workbench.graph.read import stored_graph
from workbench.values.model import Model

_BY_VALUE = ("NonZero", "NonMaxSuppression", "Unique", "Compress", "StringSplit")
"""How much these give depends on the values they see."""
_SIZED = {
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "Pad": (1,),
    "Slice": (1, 2, 4),
    "Resize": (2, 3),
    "Upsample": (1,),
    "TopK": (1,),
    "OneHot": (1,),
    "Split": (1,),
}
"""Operator → inputs that say how large its output is."""
_HAND_ON = (
    *("Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements"),
    *("GatherND", "Identity", "Pad", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
    *("Transpose", "Unsqueeze", "Where"),
)
"""Operators that give values as they were, of several tensors or at other places."""
_FLOATS = (
    *(onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16),
    onnx.TensorProto.UNDEFINED,
)
_LAYERS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A node of the top graph that holds graphs of its own.

    Attributes:
        node: as messages name it.
        operators: operator → nodes in all its bodies, at any depth.
        layers: of those, the ones with weights that INT8 could serve at the top.
    """

    node: str
    operator: str
    operators: Mapping[str, int]
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """
    Attributes:
        random: nodes that draw random numbers, at any depth.
        sized_by_data: output → the node that first makes its size depend on what is fed.
        foreign: domain → its operators, besides ONNX's own.
    """

    bodies: tuple[Body, ...]
    random: tuple[str, ...]
    sized_by_data: Mapping[str, str]
    foreign: Mapping[str, tuple[str, ...]]


def structure_of(proto: onnx.ModelProto) -> Structure:
    found = []
    for node in proto.graph.node:
        inside = [inner for _, body in bodies(node) for inner in all_nodes(body)]
        if inside:
            counts = Counter(inner.op_type for inner in inside)
            layers = sum(counts[kind] for kind in _LAYERS)
            found.append(Body(node=called(node), operator=node.op_type, operators=dict(counts), layers=layers))
    foreign: dict[str, set[str]] = {}
    for node in all_nodes(proto.graph):
        if node.domain not in DEFAULT_DOMAINS:
            foreign.setdefault(node.domain, set()).add(node.op_type)
    return Structure(
        bodies=tuple(found),
        random=tuple(called(node) for node in random_nodes(proto.graph)),
        sized_by_data=sized_by_data(proto.graph),
        foreign={domain: tuple(sorted(names)) for domain, names in sorted(foreign.items())},
    )


def layers_inside(model: Model) -> str:
    """'3 of 7 layers lie inside If '/a' and stay in float', with where to look; empty where none does."""
    proto = stored_graph(model)
    found = [body for body in structure_of(proto).bodies if body.layers]
    if not found:
        return ""
    inside = sum(body.layers for body in found)
    layers = inside + sum(node.op_type in _LAYERS for node in proto.graph.node)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{inside} of {layers} layers lie inside {found[0].node}{more} and stay in float: INT8 goes no further than "
        "the top graph. `workbench inspect` says what to declare, so that they come out of it."
    )


def sized_by_data(graph: onnx.GraphProto) -> dict[str, str]:
    """Output → the node from which on its size depends on values that are fed, and not on their shapes alone."""
    stored = {tensor.name for tensor in graph.initializer}
    valued: dict[str, str] = {value.name: "" for value in graph.input if value.name not in stored}
    sized: dict[str, str] = {}
    for node in graph.node:
        inside = [inner for _, body in bodies(node) for inner in all_nodes(body)]
        reads = [name for name in (*node.input, *(n for inner in inside for n in inner.input)) if name]
        seen = [valued[name] for name in reads if name in valued]
        cause = next((sized[name] for name in reads if name in sized), "")
        if node.op_type in ("Shape", "Size"):
            if cause:
                valued[node.output[0]] = cause
            continue
        if seen and not cause:
            places = _SIZED.get(node.op_type, ())
            sizing = [valued[n] for n in (node.input[i] for i in places if i < len(node.input)) if n in valued]
            if sizing:
                cause = next(filter(None, sizing), called(node))
            elif any(each.op_type in _BY_VALUE for each in (node, *inside)):
                cause = called(node)
        for name in filter(None, node.output):
            if cause:
                sized[name] = cause
            if seen:
                valued[name] = next(filter(None, seen), "")
    return {value.name: sized[value.name] for value in graph.output if value.name in sized}


def handed_through(proto: onnx.ModelProto) -> frozenset[str]:
    """Outputs that depend on no arithmetic in floating point: echoes of inputs, sizes, sums of whole numbers.

    Args:
        proto: with the types of its tensors, as `load_graph` gives them; one without counts as floating point.
    """
    graph = proto.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input, *graph.output)}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}

    def passed(output: str) -> bool:
        seen, waiting = set(), [(output, False)]
        while waiting:
            name, size = waiting.pop()  # what of it counts: its values, or only how many there are
            node = makers.get(name)
            if node is None or (name, size) in seen:
                continue
            seen.add((name, size))
            floats = any(kinds.get(n, onnx.TensorProto.UNDEFINED) in _FLOATS for n in (*node.input, *node.output) if n)
            if any(True for _ in bodies(node)) or (size and node.op_type in _BY_VALUE):
                return False
            if not size and floats and node.op_type not in _HAND_ON:
                return False
            sizing = _SIZED.get(node.op_type, ())
            alone = node.op_type in ("Shape", "Size")
            waiting += [(n, alone or (size and place not in sizing)) for place, n in enumerate(node.input) if n]
        return True

    return frozenset(value.name for value in graph.output if passed(value.name))
