"""Graph fusion passes, by the vendor's names: small operators that together are one of the library's.

That 8.5.0 has each of these names, and matches just these patterns, is [inferred] (atc.md §4.3): the names are of a
9.x tree, the patterns those of the documentation where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion import (
    BATCH_MATMULS,
    MATMULS,
    Match,
    Pass,
    is_private,
    is_vector_constant,
    other_input,
    reduces_last_axis,
    same_shape,
)
from workbench.cann_emulator.atc.fusion_ub import scaled_and_masked

Pattern = tuple[Any, ...] | str | float
"""How a tensor is made: an operator's type and what it reads; a name, for one tensor wherever it stands; the value of a
constant of one element, NaN for any."""

_ANY, _CLOSE = math.nan, 1e-3
_COMMUTES = ("Add", "Mul")
_CENTRED: Pattern = ("Sub", "x", ("ReduceMeanD", "x"))
_POWER: Pattern = ("Exp", ("Sub", "x", ("ReduceMaxD", "x")))
_CUBES: tuple[Pattern, ...] = (("Pow", "x", 3.0), ("Mul", ("Mul", "x", "x"), "x"))
_CURVES: tuple[Pattern, ...] = (
    ("Erf", ("RealDiv", "x", 1 / 0.70710678)),
    ("Erf", ("Mul", "x", 0.70710678)),
    *(("Tanh", ("Mul", ("Add", "x", ("Mul", cube, 0.044715)), 0.79788456)) for cube in _CUBES),
)
_SOFTMAX: tuple[Pattern, ...] = (("RealDiv", _POWER, ("ReduceSumD", _POWER)),)
_GELU: tuple[Pattern, ...] = tuple(
    pattern
    for plus in (("Add", curve, 1.0) for curve in _CURVES)
    for pattern in (
        ("Mul", ("Mul", "x", plus), 0.5),
        ("Mul", ("Mul", plus, 0.5), "x"),
        ("Mul", ("Mul", "x", 0.5), plus),
    )
)
"""x · (1 + erf(x / √2)) / 2 or with tanh, in any order (atlasrr_30_0011; the form with erf [inferred])."""


def _deviation(square: Pattern) -> Pattern:
    """(x - mean) / sqrt(mean((x - mean)²) + epsilon)"""
    return ("RealDiv", _CENTRED, ("Sqrt", ("Add", ("ReduceMeanD", square), _ANY)))


@dataclass(slots=True)
class _Found:
    ops: list[Op] = field(default_factory=list)
    absorbed: set[str] = field(default_factory=set)  # constants that become attributes
    tensors: dict[str, str] = field(default_factory=dict)  # by the pattern's names


def _matched(graph: AscendGraph, tensor: str, pattern: Pattern, before: _Found) -> _Found | None:
    if isinstance(pattern, str):
        known = before.tensors.get(pattern, tensor)
        return _Found(before.ops, before.absorbed, {**before.tensors, pattern: tensor}) if known == tensor else None
    if isinstance(pattern, float):
        value = graph.scalar(tensor)
        if value is None or abs(value - pattern) > _CLOSE * abs(pattern):  # nothing is greater than NaN
            return None
        return _Found(before.ops, {*before.absorbed, tensor}, before.tensors)
    kind, *reads = pattern
    op = graph.producer(tensor)
    if op is None or op.type != kind:
        return None
    inputs, absorbed = op.inputs, set[str]()
    if kind.startswith("Reduce"):
        if not reduces_last_axis(graph, op, kind):
            return None
        inputs, absorbed = op.inputs[:1], set(op.inputs[1:])
    for order in (inputs, inputs[::-1]) if kind in _COMMUTES else (inputs,):
        found: _Found | None = before
        for name, read in zip(order, reads, strict=False):
            found = _matched(graph, name, read, found) if found is not None else None
        if found is not None and len(order) == len(reads):
            ops = found.ops if any(one is op for one in found.ops) else [*found.ops, op]
            return _Found(ops, found.absorbed | absorbed, found.tensors)
    return None


def _library(patterns: Sequence[Pattern], kind: str, graph: AscendGraph, last: Op) -> Match | None:
    """One operator of the library, where nobody else needs what is inside."""
    for pattern in patterns:
        found = _matched(graph, last.outputs[0], pattern, _Found())
        if found is None:
            continue
        group = found.ops
        for scale in ("Mul", "Add") if kind == "LayerNorm" else ():  # gamma and beta
            result = group[-1].outputs[0]
            following = graph.only_reader(result)
            parameter = other_input(following, result) if following and following.type == scale else None
            width = graph.shapes[found.tensors["x"]][-1]
            if following is None or parameter is None or not is_vector_constant(graph, parameter, width):
                break
            group.append(following)
        if is_private(graph, group, group[-1]):
            return Match(group, kind, "vector", found.absorbed, whole=True)
    return None


def _add_layer_norm(graph: AscendGraph, norm: Op) -> Match | None:
    """The sum of two activations before a LayerNorm; the sum itself is a second result."""
    add = graph.producer(norm.inputs[0]) if norm.type == "LayerNorm" else None
    if add is None or add.type != "Add" or any(graph.is_constant(t) for t in add.inputs):
        return None
    return Match([add, norm], "AddLayerNorm", "vector", whole=True) if same_shape(graph, *add.inputs) else None


# --- MatMul, Conv and layout ---------------------------------------------------------------------------------------


def _retyped(types: Mapping[str, str], graph: AscendGraph, op: Op, *, name: str, integers: bool = False) -> bool:
    """Another kernel for the same work; products of integers have no third version [inferred]."""
    if op.type not in types or not (integers or graph.dtypes[op.inputs[0]] != "int8"):
        return False
    op.parts = tuple(types.get(part, part) for part in op.parts)
    op.type = types[op.type]
    op.passes = (*op.passes, name)
    return True


def _retyping(name: str, types: Mapping[str, str], *, integers: bool = False) -> Pass:
    return Pass(name, partial(_retyped, types, name=name, integers=integers))


def _bias_add(graph: AscendGraph, product: Op) -> Match | None:
    """A constant of one value per column, behind a product with a matrix of weights that has no bias yet."""
    if product.type not in MATMULS or product.parts != (product.type,) or len(product.inputs) > 2:
        return None
    result = product.outputs[0]
    add = graph.only_reader(result)
    bias = other_input(add, result) if add is not None and add.type == "Add" else None
    if add is None or bias is None or not is_vector_constant(graph, bias, graph.shapes[result][-1]):
        return None
    return Match([product, add], product.type, "cube")


def _pair(
    first: Collection[str], second: Collection[str], graph: AscendGraph, op: Op, *, library: str = ""
) -> Match | None:
    """An operator and what reads it: the kernel of the first, or an operator of the library."""
    follower = graph.only_reader(op.outputs[0]) if op.type in first else None
    if follower is None or follower.type not in second or graph.producer(follower.inputs[0]) is not op:
        return None
    return Match([op, follower], library or op.type, "vector" if library else op.core, whole=bool(library))


def _transposed_operand(graph: AscendGraph, product: Op) -> Match | None:
    """A transpose of the last two axes before a product: it reads its operand the other way."""
    for tensor in product.inputs if product.type in BATCH_MATMULS else ():
        transpose = graph.producer(tensor)
        if transpose is None or transpose.type != "TransposeD" or graph.only_reader(tensor) is not product:
            continue
        rank = len(graph.shapes[tensor])
        if list(transpose.attributes.get("perm", ())) == [*range(rank - 2), rank - 1, rank - 2]:
            inputs = [transpose.inputs[0] if name == tensor else name for name in product.inputs]
            return Match([transpose, product], product.type, "cube", inputs=inputs)
    return None


_BOTH = "ConfusionTransposeD"
GRAPH_PASSES: tuple[Pass, ...] = (
    _retyping("GemmToMatmulFusionPass", {"GEMM": "MatMulV2"}, integers=True),
    Pass("ConvBatchnormFusionPass", partial(_pair, {"Conv2D", "Conv3D", "DepthwiseConv2D"}, {"BNInference"})),
    Pass("LayerNormONNXFusionPass", partial(_library, [_deviation(("Pow", _CENTRED, 2.0))], "LayerNorm")),
    Pass("LayerNormFusionPass", partial(_library, [_deviation(("Mul", _CENTRED, _CENTRED))], "LayerNorm")),
    Pass("GeluFusionPass", partial(_library, _GELU, "Gelu")),
    Pass("SoftmaxFusionPass", partial(_library, _SOFTMAX, "SoftmaxV2")),
    Pass("MatMulBiasAddFusionPass", _bias_add),
    Pass("AddLayerNormFusionPass", _add_layer_norm),
    Pass("BatchMatMulTransposeFusionPass", _transposed_operand, again=True),
    Pass("ReshapeTransposeFusionPass", partial(_pair, {"Reshape"}, {"TransposeD"}, library=_BOTH)),
    Pass("TransposeReshapeFusionPass", partial(_pair, {"TransposeD"}, {"Reshape"}, library=_BOTH)),
    Pass("MatmulReshapeFusionPass", partial(_pair, MATMULS, {"Reshape"}), built_in="off"),
)
"""Before the dtypes are settled: what they join is one operator for the precision lists."""

LATE_GRAPH_PASSES: tuple[Pass, ...] = (
    Pass("BatchMatMulDequantElemwiseFusionPass", partial(scaled_and_masked, True, False), quant=True),
    _retyping("MatMulToMatmulV3FusionPass", {"MatMulV2": "MatMulV3"}),
    _retyping("BatchMatMulToBatchMatmulV3FusionPass", {"BatchMatMulV2": "BatchMatMulV3"}),
)
"""After the dtypes are settled, so that white lists speak of V2 [inferred]."""
