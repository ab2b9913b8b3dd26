"""Two services under the same load, in turns, so that what the machine does in between meets both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.bundle import Bundle
from workbench.shipping.promotion.verdict import Check, CheckOutcome, Limits, LoadRound
from workbench.values.errors import BundleError, MeasureError
from workbench.values.measurement import ServiceFigures

LoadOnce = Callable[[Path], ServiceFigures]
"""Serve a bundle, load it, stop it. Raises MeasureError or BundleError where it does not serve."""

_ERRORS, _THROUGHPUT, _P99 = "errors under load", "throughput under load", "P99 under load"


def not_loaded(why: str) -> list[Check]:
    return [Check(name=name, outcome="not checked", reason=why) for name in (_ERRORS, _THROUGHPUT, _P99)]


def load_checks(
    new: Bundle, old: Bundle, limits: Limits, load: LoadOnce, rounds: int
) -> tuple[list[Check], tuple[LoadRound, ...]]:
    """Load both in each round; shares are of figures of one round, and their median is held against the limit."""
    found: list[LoadRound] = []
    for number in range(rounds):
        figures: dict[str, ServiceFigures] = {}
        # whoever comes second meets a warmer machine: each comes first as often
        for name, bundle in (("new", new), ("old", old)) if number % 2 else (("old", old), ("new", new)):
            try:
                figures[name] = load(bundle.directory)
            except (MeasureError, BundleError) as error:
                failed = Check(name=_ERRORS, outcome="failed", reason=f"{bundle.directory} does not serve: {error}")
                return [failed, *not_loaded("a service failed")[1:]], tuple(found)
        found.append(LoadRound(candidate=figures["new"], current=figures["old"]))
    return [_errors(found), _throughput(found, limits), _p99(found, limits)], tuple(found)


def _errors(rounds: Sequence[LoadRound]) -> Check:
    count, asked = sum(r.candidate.errors for r in rounds), sum(r.candidate.requests for r in rounds)
    return Check(
        name=_ERRORS,
        outcome="failed" if count else "passed",
        reason=f"{count} of {asked} requests had no success ({rounds[0].candidate.load})",
        figure=float(count),
        limit=0.0,
    )


def _throughput(rounds: Sequence[LoadRound], limits: Limits) -> Check:
    shares = [100 * r.candidate.throughput_per_s.value / r.current.throughput_per_s.value for r in rounds]
    mine, theirs = (
        statistics.median(f.throughput_per_s.value for f in side)
        for side in ([r.candidate for r in rounds], [r.current for r in rounds])
    )
    share, limit = statistics.median(shares), 100 * limits.min_throughput
    words = f"{mine:.4g} against {theirs:.4g} requests/s; {_by_round(shares)}"
    return _measured(rounds, _THROUGHPUT, words, share, limit, passed=share >= limit)


def _p99(rounds: Sequence[LoadRound], limits: Limits) -> Check:
    increases = [100 * (r.candidate.p99_ms.value / r.current.p99_ms.value - 1) for r in rounds]
    mine, theirs = (
        statistics.median(f.p99_ms.value for f in side)
        for side in ([r.candidate for r in rounds], [r.current for r in rounds])
    )
    increase, limit = statistics.median(increases), 100 * limits.max_p99_increase
    words = f"{mine:.3g} against {theirs:.3g} ms; {_by_round(increases)}"
    return _measured(rounds, _P99, words, increase, limit, passed=increase <= limit)


def _measured(
    rounds: Sequence[LoadRound], name: str, words: str, figure: float, limit: float, *, passed: bool
) -> Check:
    """A figure that must not be relied on passes nothing."""
    doubts = dict.fromkeys(f.note for r in rounds for f in (r.candidate, r.current) if not f.reliable)
    if doubts:
        words += f"; not to be relied on: {'; '.join(doubts)}. Load longer (--load-seconds), or on a quieter machine"
    outcome: CheckOutcome = "passed" if passed and not doubts else "failed"
    return Check(name=name, outcome=outcome, reason=words, figure=figure, limit=limit, unit="%")


def _by_round(values: Sequence[float]) -> str:
    return f"by round {', '.join(f'{value:.0f}' for value in values)} %"
