"""What the graph looks like: the questions that fusion passes ask."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.operator_types import ELEMENTWISE

MATMULS = frozenset({"MatMulV2", "MatMulV3", "GEMM"})
BATCH_MATMULS = frozenset({"BatchMatMulV2", "BatchMatMulV3"})
CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2D", "Conv2DTranspose", "Conv3DTranspose"})

_CLOSE = 1e-3


def is_elementwise(op: Op | None) -> bool:
    """A single element-wise operator of the vector unit, or a chain of them."""
    return op is not None and op.core == "vector" and op.parts[-1] in ELEMENTWISE and op.parts[0] in ELEMENTWISE


def with_scalar(graph: AscendGraph, op: Op | None, kind: str, value: float | None = None) -> str | None:
    """The other input of a binary operator of type `kind` with a constant of one element; None where it is none.

    Args:
        value: what the constant must be, to three digits; None for any.
    """
    if op is None or op.type != kind or len(op.inputs) != 2:
        return None
    for constant, other in ((1, 0), (0, 1)):
        found = graph.scalar(op.inputs[constant])
        if found is None or (constant == 0 and kind in ("RealDiv", "Pow", "Sub")):
            continue
        if value is None or abs(found - value) <= _CLOSE * abs(value):
            return op.inputs[other]
    return None


def scalar_name(graph: AscendGraph, op: Op) -> str:
    """The input of `with_scalar`'s operator that is the constant."""
    return next(name for name in reversed(op.inputs) if graph.scalar(name) is not None)


def other_input(op: Op, tensor: str) -> str | None:
    """Of a binary operator; None where it does not read the tensor."""
    if len(op.inputs) != 2 or tensor not in op.inputs:
        return None
    return op.inputs[1] if op.inputs[0] == tensor else op.inputs[0]


def reduces_last_axis(graph: AscendGraph, op: Op | None, kind: str) -> bool:
    """Over the last axis alone, which stays as 1."""
    if op is None or op.type != kind or op.onnx == "GlobalAveragePool" or not op.attributes.get("keepdims", 1):
        return False
    if len(op.inputs) > 1:
        if not graph.is_constant(op.inputs[1]):
            return False
        axes = [int(a) for a in np.asarray(graph.constants[op.inputs[1]]).reshape(-1)]
    else:
        axes = [int(a) for a in op.attributes.get("axes", ())]
    return axes in ([-1], [len(graph.shapes[op.inputs[0]]) - 1])


def is_private(graph: AscendGraph, group: Iterable[Op], result: Op) -> bool:
    """Whether nobody outside reads what the group makes, its result aside."""
    members = {id(op) for op in group}
    return all(
        name not in graph.outputs and all(id(reader) in members for reader in graph.readers(name))
        for op in group
        if op is not result
        for name in op.outputs
    )


def is_vector_constant(graph: AscendGraph, tensor: str, width: int) -> bool:
    """A constant of one value per column."""
    return graph.is_constant(tensor) and graph.constants.size(tensor) == width == graph.constants.shape(tensor)[-1]


def same_shape(graph: AscendGraph, first: str, second: str) -> bool:
    return graph.shapes[first] == graph.shapes[second]
