"""How well a figure is known: the levels of evidence, strongest first, and which of them a figure stands on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from workbench.values.measurement import ServiceResult
from workbench.values.metrics import declared, part_of
from workbench.values.results import Evaluation
from workbench.values.reuse import ReuseKind

Evidence = Literal["measured held-out", "measured", "shared", "predicted", "modelled"]
"""How well a figure is known, best first: on data the search never saw and timed afresh; in the search; measured on
another candidate that by its content behaves alike; simulated from measurements; by a model of a device, which is no
measurement at all."""

LEVELS: tuple[Evidence, ...] = get_args(Evidence)
MEASURED: tuple[Evidence, ...] = ("measured held-out", "measured")
"""Levels whose figures were measured on the candidate itself."""

MEANINGS: dict[Evidence, str] = {
    "measured held-out": "measured afresh on data the search never saw",
    "measured": "measured in the search",
    "shared": "measured on a candidate whose files behave alike",
    "predicted": "simulated from measurements",
    "modelled": "by a model of the device, measured nowhere",
}

GLYPHS: dict[Evidence, str] = {
    "measured held-out": "●",
    "measured": "○",
    "shared": "□",
    "predicted": "◇",
    "modelled": "⬡",
}
"""Beside a figure, where there is no room for the word: full for what is known best."""

SHORT = 12
"""Digits of a candidate's id in a sentence."""


def cell(level: Evidence, *, held_out: bool) -> str:
    """For a narrow column: the level, and the split where it does not tell."""
    if level == "measured held-out":
        return "held-out"
    return f"{level[:3]}. held-out" if held_out else level


def weakest(levels: Iterable[Evidence]) -> Evidence | None:
    """What a statement is worth that rests on figures of these levels; None for none."""
    return max(levels, key=LEVELS.index, default=None)


def level_of(evaluation: Evaluation, metric: str) -> Evidence | None:
    """Of one of `metrics`; None where the evaluation does not have what it is of.

    On an emulated toolchain everything is modelled: times by the timing model of the device, accuracy by arithmetic.
    """
    known, m = declared(metric.removesuffix("_low").removesuffix("_high")), evaluation.measurement
    measured = _measured_level(evaluation)
    if known is None:
        return measured
    if part_of(evaluation, known.source) is None:
        return None
    if m.service is not None and known.source == "service":
        return service_level(evaluation, m.service)
    if known.source == "language":
        return "modelled"
    if m.latency is not None and known.source == "latency":
        if m.latency.clock == "modelled":
            return "modelled"
        return "shared" if source_of(evaluation, "latency") is not None else measured
    reused = metric.startswith("accuracy") and source_of(evaluation, "accuracy") is not None
    return "shared" if reused and measured == "measured" else measured


def service_level(evaluation: Evaluation, service: ServiceResult) -> Evidence:
    """Of the figures that `results.metrics` gives: under real load where that was done, else simulated."""
    figures = service.confirmed or service.best or service.closest
    if figures.clock == "modelled":
        return "modelled"
    measured = _measured_level(evaluation)
    return measured if figures.kind == "measured" or measured == "modelled" else "predicted"


def _measured_level(evaluation: Evaluation) -> Evidence:
    """Of what its evaluation itself measured, such as sizes."""
    if evaluation.toolchain.emulated:
        return "modelled"
    return "measured held-out" if evaluation.split == "holdout" else "measured"


def level_for(evaluation: Evaluation, names: Iterable[str]) -> Evidence | None:
    """The weakest level among those metrics that it has."""
    return weakest(level for name in names if (level := level_of(evaluation, name)) is not None)


def said_of(evaluation: Evaluation, metric: str) -> str | None:
    """The level of a figure in words, with the candidate that it was measured on: 'shared with 0123456789ab'."""
    level, sources = level_of(evaluation, metric), sources_of(evaluation)
    if level == "shared":
        return f"shared with {sources['accuracy' if metric.startswith('accuracy') else 'latency'][:SHORT]}"
    if level == "predicted" and "curve" in sources:
        return f"predicted from times shared with {sources['curve'][:SHORT]}"
    return level


def source_of(evaluation: Evaluation, kind: ReuseKind) -> str | None:
    """Id of the candidate whose measurement it took; None where it measured itself."""
    return sources_of(evaluation).get(kind)


def sources_of(evaluation: Evaluation) -> dict[str, str]:
    """What it took from others: kind → id of the candidate that was measured."""
    return {reuse.kind: reuse.source for reuse in evaluation.reuse if reuse.source is not None}
