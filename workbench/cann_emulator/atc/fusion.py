"""Fusion: a pass finds what of the graph it joins, one operator at a time; this module walks, joins and counts.

Behind the runner stand the questions that passes ask of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion_switch import Group, Switches
from workbench.cann_emulator.atc.operator_types import ELEMENTWISE
from workbench.cann_emulator.om import Core


@dataclass(frozen=True, slots=True)
class Match:
    """Operators to join, the last of which gives the result; what they become; see `AscendGraph.join`."""

    group: Sequence[Op]
    type: str
    core: Core
    absorbed: Collection[str] = ()
    whole: bool = False
    inputs: Sequence[str] = ()
    """In this order, where that is not the order of the group's."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One fusion pass, by the vendor's name.

    Attributes:
        find: the match that begins at an operator; True where the pass has changed the operator itself.
        only: "static" for static shapes, "quant" for what --quant_dumpable keeps apart.
        again: what was joined may be joined once more.
    """

    name: str
    find: Callable[[AscendGraph, Op], Match | bool | None]
    only: Literal["", "static", "quant"] = ""
    again: bool = False


Counts = Mapping[str, tuple[int, int]]


def run_passes(
    passes: Sequence[Pass], group: Group, graph: AscendGraph, switches: Switches, left_out: Collection[str]
) -> Counts:
    """Pass → (match_times, effect_times), of those that are on and matched.

    Args:
        left_out: what passes may be `only` for, and this compile is not.
    """
    counts: dict[str, tuple[int, int]] = {}
    for fusion in passes:
        if fusion.only in left_out or not switches.is_on(fusion.name, group):
            continue
        matched = effective = 0
        for begin in graph.ops():
            op: Op | None = begin
            while op is not None and op in graph and (found := fusion.find(graph, op)):
                matched += 1
                op = None if found is True else _joined(graph, found, fusion.name)
                effective += found is True or op is not None
                if not fusion.again:
                    break
        if matched:
            counts[fusion.name] = matched, effective
    return counts


def _joined(graph: AscendGraph, found: Match, name: str) -> Op | None:
    joined = graph.join(found.group, name, type=found.type, core=found.core, absorbed=found.absorbed, whole=found.whole)
    if joined is not None and found.inputs:
        joined.inputs = list(found.inputs)
    return joined


# --- what the graph looks like -------------------------------------------------------------------------------------

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
