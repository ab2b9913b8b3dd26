"""How well a figure is known: the levels of evidence, strongest first, and which of them a figure stands on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from workbench.values.measurement import Latency, ServiceResult
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


def rank(level: Evidence) -> int:
    """0 for the strongest."""
    return LEVELS.index(level)


def cell(level: Evidence, *, held_out: bool) -> str:
    """For a narrow column: the level, and the split where it does not tell."""
    if level == "measured held-out":
        return "held-out"
    return f"{level[:3]}. held-out" if held_out else level


def weakest(levels: Iterable[Evidence]) -> Evidence | None:
    """What a statement is worth that rests on figures of these levels; None for none."""
    return max(levels, key=rank, default=None)


def level_of(evaluation: Evaluation, metric: str) -> Evidence | None:
    """Of one of `metrics`; None where the evaluation does not have what it is of.

    On an emulated toolchain everything is modelled: times by the timing model of the device, accuracy by arithmetic.
    """
    known, m = declared(metric.removesuffix("_low").removesuffix("_high")), evaluation.measurement
    if known is None:
        return measured_level(evaluation)
    if part_of(evaluation, known.source) is None:
        return None
    if known.source == "service" and m.service is not None:
        return service_level(evaluation, m.service)
    if known.source == "latency" and m.latency is not None:
        return latency_level(evaluation, m.latency)
    if known.source == "language":
        return "modelled"
    return accuracy_level(evaluation) if metric.startswith("accuracy") else measured_level(evaluation)


def measured_level(evaluation: Evaluation) -> Evidence:
    """Of what its evaluation itself measured, such as accuracy and sizes."""
    if evaluation.toolchain.emulated:
        return "modelled"
    return "measured held-out" if evaluation.split == "holdout" else "measured"


def accuracy_level(evaluation: Evaluation) -> Evidence:
    level = measured_level(evaluation)
    return "shared" if level == "measured" and source_of(evaluation, "accuracy") is not None else level


def latency_level(evaluation: Evaluation, latency: Latency) -> Evidence:
    if latency.clock == "modelled":
        return "modelled"
    return "shared" if source_of(evaluation, "latency") is not None else measured_level(evaluation)


def source_of(evaluation: Evaluation, kind: ReuseKind) -> str | None:
    """Id of the candidate whose measurement it took; None where it measured itself."""
    return next((reuse.source for reuse in evaluation.reuse if reuse.kind == kind), None)


def is_shared(evaluation: Evaluation) -> bool:
    """Whether some of its figures were measured on another candidate."""
    return bool(sources_of(evaluation))


def sources_of(evaluation: Evaluation) -> dict[str, str]:
    """What it took from others: kind → id of the candidate that was measured."""
    return {reuse.kind: reuse.source for reuse in evaluation.reuse if reuse.source is not None}


def said_of(evaluation: Evaluation, metric: str) -> str | None:
    """The level of a figure in words, with the candidate that it was measured on: 'shared with 0123456789ab'."""
    level = level_of(evaluation, metric)
    if level == "shared":
        return f"shared with {_source(evaluation, 'accuracy' if metric.startswith('accuracy') else 'latency')}"
    if level == "predicted" and source_of(evaluation, "curve") is not None:
        return f"predicted from times shared with {_source(evaluation, 'curve')}"
    return level


def _source(evaluation: Evaluation, kind: ReuseKind) -> str:
    return str(source_of(evaluation, kind))[:SHORT]


def service_level(evaluation: Evaluation, service: ServiceResult) -> Evidence:
    """Of the figures that `results.metrics` gives: under real load where that was done, else simulated."""
    figures = service.confirmed or service.best or service.closest
    if figures.clock == "modelled" or evaluation.toolchain.emulated:
        return "modelled"
    return measured_level(evaluation) if figures.kind == "measured" else "predicted"


def level_for(evaluation: Evaluation, names: Iterable[str]) -> Evidence | None:
    """The weakest level among those metrics that it has."""
    return weakest(level for name in names if (level := level_of(evaluation, name)) is not None)
