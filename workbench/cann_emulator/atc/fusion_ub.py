"""Fusion in the on-chip buffer (UB): kernels that hand their result on without writing it to memory.

Names as in fusion_graph.py, with the same reservation. A pass of the vendor's goes by templates of operator types;
here: a product and what follows it, an element-wise chain, a quantization behind either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion import Pass, Settings
from workbench.cann_emulator.atc.fusion_patterns import (
    BATCH_MATMULS,
    CONVOLUTIONS,
    MATMULS,
    is_elementwise,
    same_shape,
    with_scalar,
)

_LONGEST_CHAIN = 8
"""Parts of one element-wise kernel: the buffer of 192 KiB holds only so many operands [inferred]."""

_Counted = tuple[int, int]
_PRODUCTS = MATMULS | BATCH_MATMULS
_CUBES = _PRODUCTS | CONVOLUTIONS


def _follower(graph: AscendGraph, op: Op) -> Op | None:
    """The only reader of an operator's result, which nobody else needs."""
    return graph.only_reader(op.outputs[0]) if len(op.outputs) == 1 else None


def _elementwise_behind(graph: AscendGraph, op: Op) -> Op | None:
    follower = _follower(graph, op)
    if follower is None or not is_elementwise(follower) or len(follower.parts) > 1:
        return None
    fits = same_shape(graph, op.outputs[0], follower.outputs[0]) and graph.dtypes[op.outputs[0]] == follower.reads
    return follower if fits else None


def _joined(graph: AscendGraph, name: str, group: list[Op]) -> int:
    return graph.join(group, name, type=group[0].type, core="mix") is not None


# --- behind a product ----------------------------------------------------------------------------------------------


def _scale_and_mask(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """Attention scores: a product of activations, times a constant, plus the mask."""
    return _scaled_and_added(graph, name, lambda product: [product])


def _dequant_scale_and_mask(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    def start(product: Op) -> list[Op]:
        dequant = _follower(graph, product)
        return [product, dequant] if dequant is not None and dequant.type == "AscendDequant" else []

    return (0, 0) if settings.quant_dumpable else _scaled_and_added(graph, name, start)


def _scaled_and_added(graph: AscendGraph, name: str, start: Callable[[Op], list[Op]]) -> _Counted:
    matched = done = 0
    for product in graph.ops():
        if product not in graph or product.type not in BATCH_MATMULS:
            continue
        group = start(product)
        scaled = _elementwise_behind(graph, group[-1]) if group else None
        if scaled is None or scaled.type not in ("Mul", "RealDiv") or not with_scalar(graph, scaled, scaled.type):
            continue
        added = _elementwise_behind(graph, scaled)
        if added is None or added.type != "Add":
            continue
        matched += 1
        done += _joined(graph, name, [*group, scaled, added])
    return matched, done


def _dequant_elementwise(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    return (0, 0) if settings.quant_dumpable else _dequantized(graph, name, _PRODUCTS, more=2)


def _dequant_alone(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    return (0, 0) if settings.quant_dumpable else _dequantized(graph, name, _PRODUCTS, more=0)


def _conv_dequant(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    return (0, 0) if settings.quant_dumpable else _dequantized(graph, name, CONVOLUTIONS, more=0)


def _conv_dequant_elementwise(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    return (0, 0) if settings.quant_dumpable else _dequantized(graph, name, CONVOLUTIONS, more=2)


def _dequantized(graph: AscendGraph, name: str, types: Collection[str], *, more: int) -> _Counted:
    """INT8: AscendDequant behind a product, and with `more` up to so many element-wise operators (at least one)."""
    matched = done = 0
    for product in graph.ops():
        dequant = _follower(graph, product) if product in graph and product.type in types else None
        if dequant is None or dequant.type != "AscendDequant":
            continue
        group = [product, dequant]
        while len(group) < 2 + more and (following := _elementwise_behind(graph, group[-1])) is not None:
            group.append(following)
        if more and len(group) == 2:
            continue
        matched += 1
        done += _joined(graph, name, group)
    return matched, done


def _elementwise_after(types: Collection[str]) -> Callable[[AscendGraph, str, Settings], _Counted]:
    """One element-wise operator behind a product in floating point."""

    def apply(graph: AscendGraph, name: str, _: Settings) -> _Counted:
        matched = done = 0
        for product in graph.ops():
            if product not in graph or product.type not in types or product.core != "cube":
                continue
            following = _elementwise_behind(graph, product)
            if following is None or graph.dtypes[product.outputs[0]] == "int32":
                continue
            matched += 1
            done += _joined(graph, name, [product, following])
        return matched, done

    return apply


def _transposed_writing(types: Collection[str]) -> Callable[[AscendGraph, str, Settings], _Counted]:
    """A product writes its result in the order that the ConfusionTransposeD behind it would."""

    def apply(graph: AscendGraph, name: str, _: Settings) -> _Counted:
        matched = done = 0
        for product in graph.ops():
            following = _follower(graph, product) if product in graph and product.type in types else None
            if following is None or following.type != "ConfusionTransposeD" or product.core not in ("cube", "mix"):
                continue
            if graph.dtypes[product.outputs[0]] == "int32":
                continue
            matched += 1
            done += graph.join([product, following], name, type=product.type, core=product.core) is not None
        return matched, done

    return apply


# --- quantization behind something ---------------------------------------------------------------------------------


def _quantized(binary: bool) -> Callable[[AscendGraph, str, Settings], _Counted]:
    """AscendQuant in the kernel of the element-wise operator before it, which may be the tail of a product."""

    def apply(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
        matched = done = 0
        for quant in graph.ops() if not settings.quant_dumpable else ():
            before = graph.producer(quant.inputs[0]) if quant.type == "AscendQuant" else None
            if before is None or not _ends_elementwise(before) or (before.parts[-1] in _BINARY) is not binary:
                continue
            if graph.dtypes[quant.inputs[0]] != before.writes:
                continue
            matched += 1
            done += graph.join([before, quant], name, type=before.type, core=before.core) is not None
        return matched, done

    return apply


_BINARY = frozenset({"Add", "Sub", "Mul", "RealDiv", "Maximum", "Minimum"})


def _ends_elementwise(op: Op) -> bool:
    return is_elementwise(op) or (op.core == "mix" and op.parts[-1] in (*_BINARY, "Gelu", "Relu", "Tanh", "Sigmoid"))


def _requantized(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    """AscendQuant straight behind the AscendDequant of a product: integers go in and out."""
    matched = done = 0
    for quant in graph.ops() if not settings.quant_dumpable else ():
        before = graph.producer(quant.inputs[0]) if quant.type == "AscendQuant" else None
        if before is None or before.core != "mix" or before.parts[-1] != "AscendDequant":
            continue
        matched += 1
        done += graph.join([before, quant], name, type=before.type, core="mix") is not None
    return matched, done


# --- element-wise chains -------------------------------------------------------------------------------------------


def _chains(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    matched = done = 0
    for op in graph.ops():
        if op not in graph or not is_elementwise(op):
            continue
        group, parts = [op], len(op.parts)
        while True:
            following = _follower(graph, group[-1])
            if following is None or not is_elementwise(following) or parts + len(following.parts) > _LONGEST_CHAIN:
                break
            if not same_shape(graph, group[-1].outputs[0], following.outputs[0]):
                break
            if group[-1].writes != following.reads or group[-1].dtype != following.dtype:
                break
            group.append(following)
            parts += len(following.parts)
        if len(group) > 1:
            matched += 1
            done += graph.join(group, name, type=group[-1].type, core="vector") is not None
    return matched, done


def _several_results(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """An element-wise operator whose result others need too, with the element-wise one that reads it next."""
    matched = done = 0
    for op in graph.ops():
        if op not in graph or not is_elementwise(op) or len(op.outputs) > 1:
            continue
        readers = graph.readers(op.outputs[0])
        following = next((r for r in readers if is_elementwise(r) and len(r.outputs) == 1), None)
        if following is None or len(readers) < 2 or len(op.parts) + len(following.parts) > _LONGEST_CHAIN:
            continue
        if not same_shape(graph, op.outputs[0], following.outputs[0]) or op.dtype != following.dtype:
            continue
        matched += 1
        done += graph.join([op, following], name, type=following.type, core="vector") is not None
    return matched, done


def _casts(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """A Cast of the compiler's own, in the kernel of the element-wise operator before or behind it.

    The tensor keeps the name it has in the model; it is stored in what the Cast made, or read as it was.
    """
    matched = done = 0
    for cast in graph.ops():
        if cast.type != "Cast" or cast.nodes:
            continue
        source, target = cast.inputs[0], cast.outputs[0]
        before, behind = graph.producer(source), graph.only_reader(target)
        if is_elementwise(before) and before is not None and graph.readers(source) == [cast]:
            if len(before.outputs) > 1 or (source in graph.outputs and graph.readers(target)):
                continue
            matched, done = matched + 1, done + 1
            graph.remove(cast)
            for reader in graph.readers(target):
                graph.replace_input(reader, target, source)
            graph.dtypes[source] = before.writes = cast.dtype
            before.parts = (*before.parts, "Cast") if before.parts[-1] != "Cast" else before.parts
            before.passes = (*before.passes, name)
        elif behind is not None and is_elementwise(behind):
            matched, done = matched + 1, done + 1
            graph.remove(cast)
            graph.replace_input(behind, target, source)
            behind.passes = (*behind.passes, name)
    return matched, done


def _ub(name: str, apply: Callable[[AscendGraph, str, Settings], _Counted]) -> Pass:
    return Pass(name=name, group="UBFusion", apply=apply)


UB_PASSES: tuple[Pass, ...] = (
    _ub("BatchmatmulV2DequantMulAddFusionPass", _dequant_scale_and_mask),
    _ub("TbeFullyconnectionElemwiseDequantFusionPass", _dequant_elementwise),
    _ub("TbeMatmulDequantFusionPass", _dequant_alone),
    _ub("TbeConvDequantVaddReluFusionPass", _conv_dequant_elementwise),
    _ub("TbeConvDequantQuantFusionPass", _conv_dequant),
    _ub("TbeBatchMatmulFusedMulAddFusionPass", _scale_and_mask),
    _ub("BatchMatmulConfusiontransposeUbFusion", _transposed_writing(BATCH_MATMULS)),
    _ub("MatmulConfusiontransposeUbFusion", _transposed_writing(MATMULS)),
    _ub("ATbeMatmulElemwiseFusionPass", _elementwise_after(_PRODUCTS)),
    _ub("TbeConvCommonRules2FusionPass", _elementwise_after(CONVOLUTIONS)),
    _ub("TbeMatmulRequantFusionPass", _requantized),
    _ub("TbeEltwiseFusionPass", _chains),
    _ub("TbeEltwiseQuantFusionPass", _quantized(binary=True)),
    _ub("TbeElemwiseQuantFusionPass", _quantized(binary=False)),
    _ub("TbeEltwiseCastFusionPass", _casts),
    _ub("TbeMultiOutputFusionPass", _several_results),
)
