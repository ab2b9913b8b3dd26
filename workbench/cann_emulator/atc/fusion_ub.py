"""Fusion in the on-chip buffer (UB): kernels that hand their result on without writing it to memory.

Names as in fusion_graph.py, with the same reservation. A pass of the vendor's goes by templates of operator types;
here: a product and what follows it, an element-wise chain, a quantization behind either.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion import (
    BATCH_MATMULS,
    CONVOLUTIONS,
    MATMULS,
    Match,
    Pass,
    is_elementwise,
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
