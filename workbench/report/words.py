"""How every report names a candidate and writes a number."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.values.candidate import Candidate
from workbench.values.candidate_words import describe
from workbench.values.evidence import MEANINGS, Evidence
from workbench.values.installed_targets import installed_target
from workbench.values.measurement import SAME_ANSWERS, Estimate, Latency
from workbench.values.metrics import METRICS


def title(candidate: Candidate, baseline_id: str, *, engine: bool = False) -> str:
    """What a candidate is, for a row: its description, its threads, and its batch where it is not 1.

    Threads are always said: a row that left out a default would leave its reader to guess next to one that has them.

    Args:
        engine: say every engine's name, where candidates of several engines stand side by side.
    """
    target = installed_target(candidate.target)
    words = f"{target.title}, " if engine and not target.named else ""
    words += describe(candidate) + (" (float baseline)" if candidate.id == baseline_id else "")
    if candidate.has("serving.intra_op_threads"):
        words += f", {count_of(candidate.serving.intra_op_threads, 'thread')}"
    if candidate.serving.streams not in (None, 1):
        words += f", {candidate.serving.streams} streams"
    if candidate.serving.batch != 1:
        words += f", batch {candidate.serving.batch}"
    return words


def differing_parameters(candidates: Sequence[Candidate]) -> list[str]:
    """Names of the settings in which the candidates are not all alike, in the order of `Candidate.parameters`."""
    tables = [c.parameters() for c in candidates]
    names = dict.fromkeys(name for table in tables for name in table)
    parts = list(dict.fromkeys(name.split(".")[0] for name in names))
    differing = [name for name in names if len({repr(table.get(name)) for table in tables}) > 1]
    return sorted(differing, key=lambda name: parts.index(name.split(".")[0]))


def p50_words(latency: Latency) -> str:
    """Its median in milliseconds, corrected for drift: '1.20', modelled with its error '1.20 [0.80, 2.10]'."""
    p50 = latency.undrifted_p50_ms
    return f"{p50.value:.2f}" if latency.modelled is None else interval(p50, "", 2)


def interval(estimate: Estimate, unit: str, digits: int, *, signed: bool = False) -> str:
    """'1.52x [1.48, 1.56]'."""
    sign = "+" if signed else ""
    low, high = (f"{v:{sign}.{digits}f}" for v in (estimate.low, estimate.high))
    return f"{estimate.value:{sign}.{digits}f}{unit} [{low}, {high}]"


def drop_cell(drop: Estimate) -> str:
    """'+0.40 [+0.10, +0.70]'; in words where there is none at all, which no samples could show."""
    return SAME_ANSWERS if drop.low == drop.high == 0 else interval(drop, "", 2, signed=True)


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def over(metric: str, by: float) -> str:
    """'accuracy_drop_pp by 0.3 pp'; a metric of one of the model's outputs stands as it is called."""
    unit = METRICS[metric].unit if metric in METRICS else ""
    return f"{metric} by {by:.3g}" + (f" {unit}" if unit else "")


def evidence_sentence(level: Evidence) -> str:
    """'Evidence: predicted (simulated from measurements).'"""
    return f"Evidence: {level} ({MEANINGS[level]})."


def compiled_words(compiled: int, shared: int) -> str:
    """'3 compiler runs, 9 more files shared'; nothing where a target does not compile a file for each shape."""
    runs = count_of(compiled, "compiler run")
    if not shared:
        return runs if compiled else ""
    return f"{runs}, {count_of(shared, 'file')} shared"
