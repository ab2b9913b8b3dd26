"""A verdict, and what an interval says of a limit: kept, broken, or not provable with this much data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.load.text import short
from workbench.values.documents.canonical import added_later, encode
from workbench.values.documents.json_reader import read_document
from workbench.values.evidence import Evidence, weakest
from workbench.values.measurement import Estimate
from workbench.values.significance import times_the_data

Outcome = Literal["passed", "failed", "not provable", "not measured", "no limit", "does not apply"]
Bound = Literal["at least", "at most"]
Key = Literal[
    "throughput",
    "p50",
    "p95",
    "p99",
    "memory",
    "power",
    "int8 throughput",
    "accuracy drop",
    "top-1 change",
    "cosine",
    "served cosine",
    "max abs",
    "mae",
]
"""What a criterion is about, whatever it is called; several loads give one criterion each."""
_MOST_TIMES = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One line of a verdict.

    Attributes:
        name: for people, with the load where there are several.
        figure: ours; None when not measured, or not under the baseline's conditions.
        published: theirs; None where the criterion is against our own float model.
        bound, limit: the figure must be so; None when nobody set a limit.
        share_percent: our figure in percent of theirs, its interval made of both; None where no share is limited.
        level: how well our figure is known; None without one.
        note: under what conditions it was measured, or why it was not and what to do.
        needed: of 'not provable', how much data would decide it; else ''.
    """

    key: Key
    name: str
    unit: str
    figure: Estimate | None = None
    published: float | None = None
    bound: Bound
    limit: float | None
    outcome: Outcome = "not measured"
    share_percent: Estimate | None = None
    level: Evidence | None = None
    note: str = ""
    needed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All criteria.

    Attributes:
        baseline, source: whom it is against, and what is known of that one's figures.
        theirs: whether those were 'measured' here, or 'published'.
        answers: file of that one's answers, as the baseline names it; '' where it has none.
        command: the command line that asked for it; '' where there was none.
    """

    baseline: str
    source: str
    criteria: tuple[Criterion, ...]
    theirs: Literal["published", "measured"] = "published"
    answers: str = added_later("")
    command: str = added_later("")

    @property
    def outcome(self) -> Literal["passed", "failed", "not decided"]:
        """'passed' when every criterion with a limit is, or does not apply; 'failed' when one failed; else open."""
        found = {c.outcome for c in self.criteria if c.limit is not None}
        if "failed" in found:
            return "failed"
        return "passed" if found and found <= {"passed", "does not apply"} else "not decided"

    @property
    def level(self) -> Evidence | None:
        """How well the worst known figure is known that decides; 'modelled' makes it a rehearsal."""
        return weakest(c.level for c in self.criteria if c.limit is not None and c.level is not None)

    def to_json(self) -> dict[str, Any]:
        return {"version": 2, "outcome": self.outcome, "level": self.level, **encode(self)}


def decided(figure: Estimate, bound: Bound, limit: float) -> Outcome:
    """'passed' or 'failed' where the whole interval is on one side of the limit, else 'not provable'."""
    if bound == "at least":
        kept, broken = figure.low >= limit, figure.high < limit
    else:
        kept, broken = figure.high <= limit, figure.low > limit
    return "passed" if kept else "failed" if broken else "not provable"


def data_needed(figure: Estimate, limit: float, have: float, unit: str) -> str:
    """How much data would decide a figure whose interval holds the limit, if its value stays.

    Args:
        have: of the data now, in `unit`; 0 where nobody said it.
    """
    if figure.value == limit:
        return "no amount of data decides it: the figure is the limit itself"
    times = times_the_data(figure, limit)
    if times > _MOST_TIMES:
        return f"more than {_MOST_TIMES:.0f} times as much data would be needed"
    whole = f", {_rounded_up(have * times)} {unit} instead of {have:.4g}" if have else ""
    more = f"{max(times, 1.1):.2g}" if times < 10 else f"{float(f'{times:.2g}'):.0f}"
    return f"about {more} times as much data would decide it{whole}"


def share(ours: Estimate, theirs: Estimate) -> Estimate:
    """Ours in percent of theirs. The two were measured apart, so relative errors add in quadrature, on a log scale."""

    def part(end: float, value: float) -> float:
        return math.log(end / value) if end > 0 and value > 0 else -math.inf if end < value else 0.0

    value = 100 * ours.value / theirs.value
    down = math.hypot(part(ours.low, ours.value), part(theirs.high, theirs.value))
    up = math.hypot(part(ours.high, ours.value), part(theirs.low, theirs.value))
    return Estimate(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def exact(value: float) -> Estimate:
    """A figure without an interval."""
    return Estimate(value=value, low=value, high=value)


def _rounded_up(value: float) -> str:
    digits = 10 ** max(0, math.floor(math.log10(max(value, 1.0))) - 2)
    return f"{math.ceil(value / digits) * digits:.0f}"


def read_verdict(path: Path) -> Verdict:
    """From `verdict.json` of `workbench load --to`, or from what `workbench load --json` printed.

    Raises:
        ConfigError: it holds no verdict, or one of another version.
    """
    hint = "Write one: workbench load … --baseline … --to DIR"
    return read_document(Verdict, path, "verdict", version=2, derived=("outcome", "level"), hint=hint)


_ERRORS = "passed and failed is said of whole intervals: false pass and false alarm at most 2.5 % each at the limit"
_REHEARSAL = "a rehearsal: figures of the device are modelled, and prove nothing of one"


def verdict_lines(verdict: Verdict) -> list[str]:
    """One line for each criterion, then the outcome."""
    rows = [("criterion", "ours", "level", "theirs", "limit", "", "")]
    for c in verdict.criteria:
        unit = f" {c.unit}" if c.unit else ""
        ours = "–" if c.figure is None else _interval(c.figure) + unit
        if c.share_percent is not None and c.limit is not None:
            ours += f" = {_interval(c.share_percent)} %"
        published = "–" if c.published is None else f"{short(c.published)}{unit}"
        limit = "–" if c.limit is None else f"{c.bound} {_number(c.limit)}"
        rows.append(
            (c.name, ours, c.level or "–", published, limit, c.outcome, "; ".join(filter(None, (c.note, c.needed))))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    answers = f"; its answers: {verdict.answers}" if verdict.answers else ""
    lines = [f"against {verdict.baseline} ({verdict.theirs}; {verdict.source}{answers})"]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)]
        lines.append(("  " + "  ".join([*cells, row[6]])).rstrip())
    mark = f" ({_REHEARSAL})" if verdict.level == "modelled" else ""
    lines.append(_ERRORS)
    lines.append(f"verdict: {verdict.outcome}{mark}")
    return lines


def _interval(value: Estimate) -> str:
    if value.low == value.high:
        return _number(value.value)
    return f"{_number(value.value)} ({_number(value.low)} to {_number(value.high)})"


def _number(value: float) -> str:
    """Enough digits to see on which side of a limit it is: a cosine near 1 needs more than three."""
    if 0.99 < value < 1:
        return f"{value:.6f}"
    return f"{value:.3g}" if 0 < abs(value) < 0.01 else short(value)
