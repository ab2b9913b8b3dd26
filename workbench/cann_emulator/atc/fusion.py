"""Running the fusion passes that are on, and counting what they did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workbench.cann_emulator.atc.ascend_graph import AscendGraph
from workbench.cann_emulator.atc.fusion_switch import Group, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What passes may ask about the compile.

    Attributes:
        static: the shapes are fixed.
        quant_dumpable: quantization operators stay apart, so that dumps can be compared.
    """

    static: bool
    quant_dumpable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One fusion pass, by the vendor's name.

    Attributes:
        apply: changes the graph; returns (times its pattern matched, times it was joined).
    """

    name: str
    group: Group
    apply: Callable[[AscendGraph, str, Settings], tuple[int, int]]


Counts = Mapping[str, tuple[int, int]]


def run_passes(passes: Sequence[Pass], graph: AscendGraph, switches: Switches, settings: Settings) -> Counts:
    """Pass → (match_times, effect_times), of those that are on and matched."""
    counts: dict[str, tuple[int, int]] = {}
    for fusion in passes:
        if not switches.is_on(fusion.name, fusion.group):
            continue
        matched, effective = fusion.apply(graph, fusion.name, settings)
        if matched:
            before = counts.get(fusion.name, (0, 0))
            counts[fusion.name] = (before[0] + matched, before[1] + effective)
    return counts
