"""Operators → kernels of the offline model, and the device memory they need."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.om import ITEM_BYTES, Kernel, Tensor

_ALIGNMENT = 512


def kernels_of(graph: AscendGraph, positions: Mapping[str, int]) -> tuple[Kernel, ...]:
    """The kernels in execution order.

    Args:
        positions: ONNX node → place in the model's graph; nodes it lacks were folded there and are left out.
    """
    return tuple(_kernel(graph, op, positions) for op in graph.ops())


def tensor_bytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def weight_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...]) -> int:
    """Of all constants that kernels read, each dtype of one counted once."""
    constants = {(t.name, t.dtype): tensor_bytes(t) for k in kernels for t in k.inputs if graph.is_constant(t.name)}
    return sum(_aligned(size) for size in constants.values())


def work_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...], *, reuse: bool) -> int:
    """Of activations: the most that lives at a time, or all of them where memory is not used again."""
    last_use: dict[str, int] = {}
    for index, kernel in enumerate(kernels):
        for tensor in (*kernel.inputs, *kernel.outputs):
            last_use[tensor.name] = index
    for name in graph.outputs:
        last_use[name] = len(kernels)
    live = peak = total = 0
    ends: dict[int, int] = {}
    for index, kernel in enumerate(kernels):
        if kernel.core != "none":
            size = sum(_aligned(tensor_bytes(tensor)) for tensor in kernel.outputs)
            for tensor in kernel.outputs:
                end = last_use[tensor.name]
                ends[end] = ends.get(end, 0) + _aligned(tensor_bytes(tensor))
            live += size
            total += size
            peak = max(peak, live)
        live -= ends.get(index, 0)
    return peak if reuse else total


def _kernel(graph: AscendGraph, op: Op, positions: Mapping[str, int]) -> Kernel:
    nodes = sorted((name for name in op.nodes if name in positions), key=positions.__getitem__)
    return Kernel(
        name=op.name,
        op_type=op.type,
        core=op.core,
        nodes=tuple(nodes),
        dtype=op.dtype,
        inputs=tuple(
            Tensor(name=name, dtype=graph.stored_dtype(op, name), shape=graph.shapes[name])
            for name in dict.fromkeys(op.inputs)
        ),
        outputs=tuple(Tensor(name=name, dtype=graph.dtypes[name], shape=graph.shapes[name]) for name in op.outputs),
        macs=sum(prod(product) for product in op.cube),
        cube=op.cube,
        passes=op.passes,
        implementation=op.implementation,
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
