"""Evaluations as flat rows for a table: one dict each, units in the names, and how well each figure is known."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.report import Summary
from workbench.values.evidence import level_of
from workbench.values.results import Evaluation

Row = dict[str, str | int | float | bool | None]


def search_rows(summary: Summary) -> list[Row]:
    """Every evaluation of the search, each followed by its confirmation where it has one."""
    found = []
    for evaluation in summary.evaluations:
        found.append(_row(summary, evaluation))
        confirmed = summary.confirmations.get(evaluation.candidate.id)
        if confirmed is not None:
            found.append(_row(summary, confirmed))
    return _filled(found)


def front_rows(summary: Summary) -> list[Row]:
    """One row for each member of the front: its confirmation where that is complete, else its evaluation."""
    found = []
    for member in summary.front:
        confirmed = member.confirmation
        best = confirmed if confirmed is not None and confirmed.status == "complete" else member.evaluation
        found.append(_row(summary, best))
    return _filled(found)


def _row(summary: Summary, evaluation: Evaluation) -> Row:
    candidate, measured = evaluation.candidate, evaluation.measurement
    recommended = summary.recommended
    member = summary.member(candidate.id)
    searched = summary.find(candidate.id) or evaluation
    row: Row = {
        "candidate": candidate.id,
        "what": summary.title(candidate),
        "split": evaluation.split,
        "status": evaluation.status,
        "standing": summary.standing(searched),
        "recommended": recommended is not None and recommended.candidate_id == candidate.id,
        "baseline": candidate.id == summary.baseline_id,
        "same": member.letters if member is not None else "",
        "emulated": evaluation.toolchain.emulated,
        "accuracy_evidence": level_of(evaluation, "accuracy"),
        "latency_evidence": level_of(evaluation, "latency_p50_ms"),
        "service_evidence": level_of(evaluation, "service_p99_ms"),
    }
    row.update(summary.numbers(evaluation))
    if measured.latency is not None:
        row["quiet"] = measured.latency.quiet
    row["seconds"] = evaluation.seconds
    row.update(candidate.parameters())
    return row


def _filled(rows: Iterable[Row]) -> list[Row]:
    """The same columns in every row, None where a row has no such figure or setting."""
    known = list(rows)
    columns: Row = {name: None for row in known for name in row}
    return [{**columns, **row} for row in known]
