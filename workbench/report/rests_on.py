"""What a report rests on: what was confirmed, what became of reused measurements, what modelled times assume; and how
the recipes of a language model compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.report.summary import Summary
from workbench.report.table import Line, wrapped
from workbench.report.words import count_of, interval
from workbench.values.evidence import SHORT
from workbench.values.modelled_times.figures import ErrorShare, error_shares
from workbench.values.results import Evaluation
from workbench.values.reuse import Audit


def confirmation_sentences(summary: Summary) -> list[str]:
    """Nothing where the whole front was confirmed in full."""
    run, front = summary.run, [member.id for member in summary.front]
    missing = [i for i in front if i not in summary.confirmations]
    if not front or (not summary.confirmations and run is None):
        return []
    found = []
    late = run is not None and run.seconds > run.limit_s / 2  # with more left, time is not what it lacked
    limit_s = 0.0 if run is None else run.limit_s
    limit = f"{limit_s:g} s" if limit_s < 600 else f"{limit_s / 60:g} min"
    why = f"the time limit of {limit}" if late else ""
    why = "the run was stopped" if run is not None and run.reason == "interrupted" else why
    if missing:
        done = f"Confirmed {len(front) - len(missing)} of {count_of(len(front), 'front member')} on held-out data"
        found.append(f"{done}{f': {why}' if why else ''}. The same sweep again goes on with {_listed(missing)}.")
    for candidate_id, confirmed in summary.confirmations.items():
        if confirmed.cut:
            found.append(f"Confirmed with less, to keep the time: {candidate_id[:12]} by {', '.join(confirmed.cut)}.")
    if run is not None and run.unloaded:
        found.append(f"Not loaded for real{f': {why}' if why else ''}: {_listed(run.unloaded)}.")
    return found


_KINDS = {"latency": "Times of calls", "curve": "Batch curves", "accuracy": "Answers"}
_LISTED = 5


def stopped_reuse(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Reused measurements of one kind and target that nobody takes any more, each by its first wrong audit: target,
    kind, finder (whose audit found it), audit, anew (who had reused one and was measured since), doubtful (who still
    reuses one)."""
    wrong: dict[tuple[str, str], tuple[str, Audit]] = {}
    for evaluation in sorted(evaluations, key=lambda e: e.started_at):
        for reuse in evaluation.reuse:
            if reuse.audit is not None and reuse.audit.agrees is False:
                wrong.setdefault((evaluation.candidate.target, reuse.kind), (evaluation.candidate.id, reuse.audit))
    found = []
    for (target, kind), (finder, audit) in wrong.items():
        same = [
            (e.candidate.id, r) for e in evaluations for r in e.reuse if (e.candidate.target, r.kind) == (target, kind)
        ]
        anew, doubtful = ([i for i, r in same if getattr(r, name) is not None] for name in ("replaces", "source"))
        found.append(
            {"target": target, "kind": kind, "finder": finder, "audit": audit, "anew": anew, "doubtful": doubtful}
        )
    return found


def reuse_sentences(evaluations: Sequence[Evaluation]) -> list[str]:
    """One sentence for each kind, with the audit's ratio and what was measured anew."""
    found = []
    for stopped in stopped_reuse(evaluations):
        kind, audit, anew, doubtful = (stopped[name] for name in ("kind", "audit", "anew", "doubtful"))
        words = f"{_KINDS[kind]} are no longer shared on {stopped['target']}: {stopped['finder'][:SHORT]} "
        source = f"{audit.source[:SHORT]} of the same class"
        if kind == "accuracy":
            words += f"answered other than {source}; its accuracy is {audit.ratio.value:.4f} times as high."
        else:
            words += f"took {interval(audit.ratio, 'x', 2)} what {source} took."
        if anew:
            words += f" Measured anew: {_listed(anew)}."
        if doubtful:
            words += f" Not measured yet, and doubtful: {_listed(doubtful)}; the same sweep again begins with them."
        found.append(words)
    return found


def _listed(ids: Sequence[str]) -> str:
    named = ", ".join(each[:SHORT] for each in ids[:_LISTED])
    return named if len(ids) <= _LISTED else f"{named} and {count_of(len(ids) - _LISTED, 'other')}"


MOST = 10
"""Errors that are named: what measurements on a card would narrow intervals most."""
REFIT = "workbench emulator fit op_summary.csv --om model.om --to file.yaml"
"""Fits the timing model to kernels that were profiled on a card, which narrows its errors."""


def modelled_errors(summary: Summary, chosen: Evaluation | None = None) -> tuple[ErrorShare, ...]:
    """Of the recommended candidate, else of the first on the front; none where times were measured."""
    found = chosen or summary.chosen or next((member.evaluation for member in summary.front), None)
    if found is None or not summary.emulated or found.measurement.latency is None:
        return ()
    return error_shares(found.measurement.latency)[:MOST]


def error_lines(summary: Summary) -> list[Line]:
    """For a terminal; nothing where times were measured."""
    found = modelled_errors(summary)
    if not found:
        return []
    lines: list[Line] = [("Modelled, not measured; what its time rests on, by what that may be off by:", "bold")]
    for number, one in enumerate(found, 1):
        lines += wrapped(f"  {number}. {one.about}: {one.words()}", indent=" " * 5)
    return [*lines, (f"     {REFIT}", "dim")]


_FEW_WINDOWS = 10
"""With fewer, intervals over windows are rough."""


def recipe_sentences(summary: Summary) -> list[str]:
    """What the recipes come to beside the best preset; nothing where there is none."""
    best = next((r for r in summary.recipes if r.preset and r.against_preset is None), None)
    if best is None:
        return []
    against = [r.against_preset for r in summary.recipes if r.against_preset is not None]
    better, worse = sum(known.high < 0 for known in against), sum(known.low > 0 for known in against)
    found = [
        f"Of {count_of(len(against), 'recipe')} beside the best preset ({best.preset!r}), {better} lose less for "
        f"certain, {len(against) - better - worse} cannot be told apart from it, and the rest lose more; these "
        "intervals hold for all pairs at once."
    ]
    windows = summary.find(best.candidate_id)
    count = windows.measurement.accuracy.samples if windows and windows.measurement.accuracy else 0
    if count < _FEW_WINDOWS:
        found.append(f"With {count_of(count, 'window')} these intervals are rough: give more text.")
    return found
