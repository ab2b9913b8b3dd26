"""Fusion passes, by the vendor's names.

In the on-chip buffer (UB): kernels that hand their result on without writing it to memory. A pass of the vendor's goes
by templates of operator types; here: a product and what follows it, an element-wise chain, a quantization behind
either. In the graph: small operators that together are one of the library's.

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
    CONVOLUTIONS,
    MATMULS,
    Match,
    Pass,
    is_elementwise,
    is_private,
    is_vector_constant,
    other_input,
    reduces_last_axis,
    same_shape,
    scales,
)

_LONGEST_CHAIN = 8
"""Parts of one element-wise kernel: the buffer of 192 KiB holds only so many operands [inferred]."""

_PRODUCTS = MATMULS | BATCH_MATMULS
_BINARY = frozenset({"Add", "Sub", "Mul", "RealDiv", "Maximum", "Minimum"})
_CASTS = "TbeEltwiseCastFusionPass"


def _follower(graph: AscendGraph, op: Op) -> Op | None:
    """The only reader of an operator's result, which nobody else needs."""
    return graph.only_reader(op.outputs[0]) if len(op.outputs) == 1 else None


def _elementwise_behind(graph: AscendGraph, op: Op) -> Op | None:
    follower = _follower(graph, op)
    if follower is None or not is_elementwise(follower) or len(follower.parts) > 1:
        return None
    fits = same_shape(graph, op.outputs[0], follower.outputs[0]) and graph.dtypes[op.outputs[0]] == follower.reads
    return follower if fits else None


# --- behind a product ----------------------------------------------------------------------------------------------


def _joined(
    types: Collection[str], dequantized: bool, least: int, most: int, graph: AscendGraph, product: Op
) -> Match | None:
    """A product, in INT8 with its AscendDequant, and so many element-wise operators behind it."""
    if product.type not in types or not (dequantized or _is_float(graph, product, ("cube",))):
        return None
    group = _with_dequant(graph, product, dequantized)
    least, most = len(group) + least, len(group) + most
    while 0 < len(group) < most and (following := _elementwise_behind(graph, group[-1])) is not None:
        group.append(following)
    return Match(group, product.type, "mix") if group and len(group) >= least else None


def scaled_and_masked(dequantized: bool, masked: bool, graph: AscendGraph, product: Op) -> Match | None:
    """Attention scores: a product of activations, in INT8 with its AscendDequant, times a constant and plus the mask,
    which need not be there where it is not `masked`."""
    group = _with_dequant(graph, product, dequantized) if product.type in BATCH_MATMULS else []
    scaled = _elementwise_behind(graph, group[-1]) if group else None
    if scaled is None or not scales(graph, scaled):
        return None
    added = _elementwise_behind(graph, scaled)
    if added is not None and added.type == "Add":
        return Match([*group, scaled, added], product.type, "mix")
    return None if masked else Match([*group, scaled], product.type, "mix")


def _with_dequant(graph: AscendGraph, product: Op, dequantized: bool) -> list[Op]:
    """None of them where the AscendDequant is asked for and is not there."""
    dequant = _follower(graph, product) if dequantized else None
    if not dequantized:
        return [product]
    return [product, dequant] if dequant is not None and dequant.type == "AscendDequant" else []


def _is_float(graph: AscendGraph, product: Op, cores: Collection[str]) -> bool:
    return product.core in cores and graph.dtypes[product.outputs[0]] != "int32"


def _transposed_writing(types: Collection[str], graph: AscendGraph, product: Op) -> Match | None:
    """A product writes its result in the order that the ConfusionTransposeD behind it would."""
    following = _follower(graph, product) if product.type in types else None
    if following is None or following.type != "ConfusionTransposeD" or not _is_float(graph, product, ("cube", "mix")):
        return None
    return Match([product, following], product.type, product.core)


# --- quantization behind something ---------------------------------------------------------------------------------


def _quantized(binary: bool, graph: AscendGraph, quant: Op) -> Match | None:
    """AscendQuant in the kernel of the element-wise operator before it, which may be the tail of a product."""
    before = graph.producer(quant.inputs[0]) if quant.type == "AscendQuant" else None
    if before is None or (before.parts[-1] in _BINARY) is not binary:
        return None
    mixed = before.core == "mix" and before.parts[-1] in (*_BINARY, "Gelu", "Relu", "Tanh", "Sigmoid")
    if not (mixed or is_elementwise(before)):
        return None
    if graph.dtypes[quant.inputs[0]] != before.writes:
        return None
    return Match([before, quant], before.type, before.core)


def _requantized(graph: AscendGraph, quant: Op) -> Match | None:
    """AscendQuant straight behind the AscendDequant of a product: integers go in and out."""
    before = graph.producer(quant.inputs[0]) if quant.type == "AscendQuant" else None
    if before is None or before.core != "mix" or before.parts[-1] != "AscendDequant":
        return None
    return Match([before, quant], before.type, "mix")


# --- element-wise chains -------------------------------------------------------------------------------------------


def _chain(graph: AscendGraph, op: Op) -> Match | None:
    if not is_elementwise(op):
        return None
    group, parts = [op], len(op.parts)
    while True:
        last, following = group[-1], _follower(graph, group[-1])
        if following is None or not is_elementwise(following) or parts + len(following.parts) > _LONGEST_CHAIN:
            break
        if not same_shape(graph, last.outputs[0], following.outputs[0]):
            break
        if last.writes != following.reads or last.dtype != following.dtype:
            break
        group.append(following)
        parts += len(following.parts)
    return Match(group, group[-1].type, "vector") if len(group) > 1 else None


def _several_results(graph: AscendGraph, op: Op) -> Match | None:
    """An element-wise operator whose result others need too, with the element-wise one that reads it next."""
    if not is_elementwise(op) or len(op.outputs) > 1:
        return None
    readers = graph.readers(op.outputs[0])
    following = next((r for r in readers if is_elementwise(r) and len(r.outputs) == 1), None)
    if following is None or len(readers) < 2 or len(op.parts) + len(following.parts) > _LONGEST_CHAIN:
        return None
    if not same_shape(graph, op.outputs[0], following.outputs[0]) or op.dtype != following.dtype:
        return None
    return Match([op, following], following.type, "vector")


def _cast(graph: AscendGraph, cast: Op) -> bool:
    """A Cast of the compiler's own, in the kernel of the element-wise operator before or behind it.

    The tensor keeps the name it has in the model; it is stored in what the Cast made, or read as it was.
    """
    if cast.type != "Cast" or cast.nodes:
        return False
    source, target = cast.inputs[0], cast.outputs[0]
    before, behind = graph.producer(source), graph.only_reader(target)
    if is_elementwise(before) and before is not None and graph.readers(source) == [cast]:
        if len(before.outputs) > 1 or (source in graph.outputs and graph.readers(target)):
            return False
        graph.remove(cast)
        for reader in graph.readers(target):
            graph.replace_input(reader, target, source)
        graph.dtypes[source] = before.writes = cast.dtype
        before.parts = (*before.parts, "Cast") if before.parts[-1] != "Cast" else before.parts
        before.passes = (*before.passes, _CASTS)
        return True
    if behind is None or not is_elementwise(behind):
        return False
    graph.remove(cast)
    graph.replace_input(behind, target, source)
    behind.passes = (*behind.passes, _CASTS)
    return True


UB_PASSES: tuple[Pass, ...] = (
    Pass("BatchmatmulV2DequantMulAddFusionPass", partial(scaled_and_masked, True, True), quant=True),
    Pass("TbeFullyconnectionElemwiseDequantFusionPass", partial(_joined, _PRODUCTS, True, 1, 2), quant=True),
    Pass("TbeMatmulDequantFusionPass", partial(_joined, _PRODUCTS, True, 0, 0), quant=True),
    Pass("TbeConvDequantVaddReluFusionPass", partial(_joined, CONVOLUTIONS, True, 1, 2), quant=True),
    Pass("TbeConvDequantQuantFusionPass", partial(_joined, CONVOLUTIONS, True, 0, 0), quant=True),
    Pass("TbeBatchMatmulFusedMulAddFusionPass", partial(scaled_and_masked, False, True)),
    Pass("BatchMatmulConfusiontransposeUbFusion", partial(_transposed_writing, BATCH_MATMULS)),
    Pass("MatmulConfusiontransposeUbFusion", partial(_transposed_writing, MATMULS)),
    Pass("ATbeMatmulElemwiseFusionPass", partial(_joined, _PRODUCTS, False, 1, 1)),
    Pass("TbeConvCommonRules2FusionPass", partial(_joined, CONVOLUTIONS, False, 1, 1), built_in="fixed"),
    Pass("TbeMatmulRequantFusionPass", _requantized, quant=True),
    Pass("TbeEltwiseFusionPass", _chain),
    Pass("TbeEltwiseQuantFusionPass", partial(_quantized, True), quant=True),
    Pass("TbeElemwiseQuantFusionPass", partial(_quantized, False), quant=True),
    Pass(_CASTS, _cast),
    Pass("TbeMultiOutputFusionPass", _several_results),
)


# --- graph passes: small operators that together are one of the library's ---------------------------------------------


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


def _retyping(name: str, types: Mapping[str, str], *, integers: bool = False) -> Pass:
    """Another kernel for the same work; products of integers have no third version [inferred]."""

    def retyped(graph: AscendGraph, op: Op) -> bool:
        if op.type not in types or not (integers or graph.dtypes[op.inputs[0]] != "int8"):
            return False
        op.parts = tuple(types.get(part, part) for part in op.parts)
        op.type = types[op.type]
        op.passes = (*op.passes, name)
        return True

    return Pass(name, retyped)


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
