"""Fusion: which passes run, by the switch file and what comes before it (atc.md §4.1, §4.2), and how.

A pass finds what of the graph it joins, one operator at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.operator_types import ELEMENTWISE
from workbench.cann_emulator.om import Core
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import loads

Group = Literal["GraphFusion", "UBFusion"]

_States = Mapping[str, Literal["on", "off"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    GraphFusion: _States = field(default_factory=dict)
    UBFusion: _States = field(default_factory=dict)


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
        quant: --quant_dumpable keeps apart what it joins.
        again: what was joined may be joined once more.
        built_in: "off" where the built-in file says so, which "ALL" does not change; "fixed" for one that cannot be
            closed (ge v8.5.0 inc/common/fusion_pass_util.h:18-115).
    """

    name: str
    find: Callable[[AscendGraph, Op], Match | bool | None]
    quant: bool = False
    again: bool = False
    built_in: Literal["", "off", "fixed"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switch file, by its keys. Of Priority only the form is looked at: the order is our own."""

    Switch: _Groups = field(default_factory=_Groups)  # group → pass or "ALL" → on or off
    ExceptionalPassOfO1Level: tuple[str, ...] = ()  # passes that stay on at O1
    Priority: Mapping[str, Any] = field(default_factory=dict)

    def is_on(self, fusion: Pass, group: Group, oo_level: str) -> bool:
        """First hit wins, in the order of atc.md §4.2; the chip's white list is not public and left out."""
        if fusion.name in self.ExceptionalPassOfO1Level or fusion.built_in == "fixed":
            return True
        chosen: Mapping[str, str] = getattr(self.Switch, group)
        by_all = "off" if fusion.built_in else chosen.get("ALL", "on")
        return oo_level != "O1" and chosen.get(fusion.name, by_all) == "on"


def read_switches(path: str) -> Switches:
    """The switches of a file, "" for none. Names that no pass has are taken without a word."""
    if not path:
        return Switches()
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    if not text:
        raise failure("E21001", file_name=path)
    try:
        return decode(Switches, loads(text, once=False), "the file")
    except DecodeError as error:
        raise failure("E21002", file_name=path, reason=str(error)) from error
    except ValueError as error:
        why = "it is no JSON, and this atc is emulated and reads no lines of PassName:on"
        raise failure("E20003", parameter="fusion_switch_file", filepath=path, reason=why) from error


def run_passes(
    passes: Sequence[Pass],
    group: Group,
    graph: AscendGraph,
    switches: Switches,
    options: Mapping[str, str],
    fusions: dict[str, dict[str, tuple[int, int]]],
) -> None:
    """
    Args:
        options: --quant_dumpable keeps some apart, --oo_level switches off.
        fusions: group → pass → (match_times, effect_times), of those that are on and matched; added to.
    """
    for fusion in passes:
        apart = fusion.quant and options.get("quant_dumpable") == "1"
        if apart or not switches.is_on(fusion, group, options.get("oo_level") or "O3"):
            continue
        matched = effective = 0
        for begin in graph.ops():
            op: Op | None = begin
            while op is not None and op in graph and (found := fusion.find(graph, op)):
                matched += 1
                op = None
                if isinstance(found, Match):
                    how: dict[str, Any] = {"type": found.type, "core": found.core, "absorbed": found.absorbed}
                    op = graph.join(found.group, fusion.name, whole=found.whole, **how)
                    if op is not None and found.inputs:
                        op.inputs = list(found.inputs)
                effective += found is True or op is not None
                if not fusion.again:
                    break
        if matched:
            before = fusions[group].get(fusion.name, (0, 0))
            fusions[group][fusion.name] = before[0] + matched, before[1] + effective


# --- what the graph looks like -------------------------------------------------------------------------------------

MATMULS = frozenset({"MatMulV2", "MatMulV3", "GEMM"})
BATCH_MATMULS = frozenset({"BatchMatMulV2", "BatchMatMulV3"})
CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2D", "Conv2DTranspose", "Conv3DTranspose"})


def is_elementwise(op: Op | None) -> bool:
    """A single element-wise operator of the vector unit, or a chain of them."""
    return op is not None and op.core == "vector" and op.parts[-1] in ELEMENTWISE and op.parts[0] in ELEMENTWISE


def scales(graph: AscendGraph, op: Op | None) -> bool:
    """Whether it multiplies with, or divides by, a constant of one element."""
    constants = {"Mul": (0, 1), "RealDiv": (1,)}.get(op.type, ()) if op is not None and len(op.inputs) == 2 else ()
    return op is not None and any(graph.scalar(op.inputs[place]) is not None for place in constants)


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
        axes = [int(a) for a in graph.constants[op.inputs[1]].reshape(-1)]
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
    values = graph.constants.get(tensor)
    return values is not None and values.size == width == values.shape[-1]


def same_shape(graph: AscendGraph, first: str, second: str) -> bool:
    return graph.shapes[first] == graph.shapes[second]
