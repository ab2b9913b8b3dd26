"""The files of a run, written into a folder that is logged as a whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.evaluation.journal import Journal
from workbench.report import Summary, lines, to_json
from workbench.report.importance import Importance
from workbench.report.page import pareto_html
from workbench.tracking.run import pretty
from workbench.values.documents.canonical import encode
from workbench.values.results import Evaluation


def candidate_files(evaluation: Evaluation, journal: Journal, folder: Path) -> None:
    candidate = evaluation.candidate
    (folder / "candidate.json").write_text(pretty(candidate.to_json()), encoding="utf-8")
    (folder / "evaluation.json").write_text(pretty(evaluation.to_json()), encoding="utf-8")
    for source, name in (
        (journal.record(candidate.id, evaluation.split), "record.json"),
        (journal.log(candidate.id, evaluation.split), "log.txt"),
    ):
        if source.exists():
            shutil.copyfile(source, folder / name)


def summary_files(summary: Summary, ranked: Importance, plan: str, folder: Path) -> None:
    """Args: plan: as it was shown before the sweep; '' for none."""
    (folder / "pareto.html").write_text(pareto_html(summary, ranked), encoding="utf-8")
    (folder / "report.txt").write_text(lines(summary) + "\n", encoding="utf-8")
    (folder / "report.json").write_text(pretty(to_json(summary)), encoding="utf-8")
    (folder / "importance.json").write_text(pretty(encode(ranked)), encoding="utf-8")
    if plan:
        (folder / "plan.txt").write_text(plan + "\n", encoding="utf-8")
