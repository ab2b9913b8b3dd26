"""Writing a sweep into MLflow, so that it may be killed at any moment and run again."""

from __future__ import annotations

import contextlib
import datetime
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.evaluation.journal import Journal
from workbench.report import Summary, lines, to_json
from workbench.report.factors import taken_apart
from workbench.report.importance import importance
from workbench.report.page import pareto_html
from workbench.tracking.links import HOST, PORT, compared_runs, link_lines, save_view
from workbench.tracking.run import (
    NOTE,
    candidate_tags,
    factor_metrics,
    file_metrics,
    flag,
    marked_name,
    note,
    pretty,
    rounded,
    run_name,
    shown,
    sweep_metrics,
    sweep_name,
)
from workbench.tracking.store import find_runs, mlflow_errors, open_client, open_experiment, prepare
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import encode, file_digest
from workbench.values.errors import ToolchainError
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

HOLDOUT_METRICS = (
    *("accuracy", "accuracy_drop_pp", "accuracy_drop", "latency_p50_ms", "latency_p99_ms", "speedup"),
    *("service_throughput_per_s", "service_p99_ms", "service_predicted_throughput_per_s", "service_predicted_p99_ms"),
)
"""Logged a second time as `holdout_<name>` for confirmed candidates; few, because the UI shows a chart for each."""

ModelFiles = Callable[[Candidate], Path | None]
"""Candidate → directory with its compiled files, None where there is none."""


@dataclass(slots=True)
class _Known:
    """A run that is in the store, with the tags that may still change."""

    run_id: str
    finished: bool
    tags: dict[str, str] = field(default_factory=dict)


class Tracker:
    """Writes one sweep into MLflow. Made by `open_tracker`; a listener of the sweep. One thread."""

    def __init__(
        self,
        client: MlflowClient,
        experiment_id: str,
        sweep_id: str,
        journal: Journal,
        is_feasible: Callable[[Evaluation], bool],
    ) -> None:
        self.experiment_id, self.sweep_id = experiment_id, sweep_id
        self._client, self._journal, self._is_feasible = client, journal, is_feasible
        self._candidates: dict[str, _Known] = {}
        self._sweep: _Known | None = None
        self._late: dict[str, Evaluation] = {}
        for run in find_runs(client, experiment_id, f"tags.sweep = '{sweep_id}'"):
            known = _Known(run_id=run.info.run_id, finished=run.info.status != "RUNNING", tags=dict(run.data.tags))
            if known.tags.get("kind") == "sweep":
                self._sweep = known
            else:
                self._candidates[known.tags.get("candidate", "")] = known

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        """Log one candidate; one that is there already is left alone unless it was evaluated anew.

        Never raises for MLflow's sake: what cannot be written now is written by `conclude`.
        """
        if evaluation.split == "holdout":
            return
        known = self._candidates.get(evaluation.candidate.id)
        if reused and known is not None and known.finished:
            return
        try:
            with mlflow_errors():
                self._write(evaluation)
        except ToolchainError as error:
            if not self._late:
                _log.warning("MLflow: %s The results are kept; it is tried again when the sweep ends.", error)
            self._late[evaluation.candidate.id] = evaluation
        else:
            self._late.pop(evaluation.candidate.id, None)

    def conclude(self, summary: Summary, plan: str = "", models: ModelFiles | None = None, seed: int = 0) -> list[str]:
        """Mark the front and the recommended candidate, write the summary run, and give links into the UI.

        Args:
            plan: the plan as it was shown before the sweep.
            models: gives the compiled files that are logged for members of the front, and for no other.

        Raises:
            ToolchainError: the store cannot be written; the sweep's own results are not concerned.
        """
        with mlflow_errors():
            for evaluation in summary.evaluations:
                known = self._candidates.get(evaluation.candidate.id)
                if known is None or not known.finished or evaluation.candidate.id in self._late:
                    self._write(evaluation)
            self._late.clear()
            self._mark(summary)
            self._take_apart(summary)
            for candidate_id in summary.confirmations:
                self._confirm(summary, candidate_id)
            for member in summary.front:
                if models is not None:
                    self._keep_model(member.evaluation.candidate, models)
            self._write_summary(summary, plan, seed)
            save_view(self._client, self.experiment_id, summary.objectives[0].metric)
        return self.links(summary)

    def links(self, summary: Summary, host: str = HOST, port: int = PORT) -> list[str]:
        """Sentences with addresses: all candidates, the best of the front beside the baseline, the Pareto page."""
        order = [m.id for m in summary.front]
        if summary.recommended is not None:
            order.sort(key=lambda candidate_id: candidate_id != summary.recommended.candidate_id)  # type: ignore[union-attr]  # checked above
        front = [self._candidates[i].run_id for i in order if i in self._candidates]
        sweep = self._sweep.run_id if self._sweep is not None else None
        baseline = self._candidates.get(summary.baseline_id)
        compared = compared_runs(front, None if baseline is None else baseline.run_id)
        return link_lines(self.experiment_id, compared, sweep, host, port)

    def _write(self, evaluation: Evaluation) -> None:
        from mlflow.entities import Metric, Param, RunTag

        candidate = evaluation.candidate
        began_ms = round(datetime.datetime.fromisoformat(evaluation.started_at).timestamp() * 1000)
        ended_ms = began_ms + round(evaluation.seconds * 1000)
        tags = candidate_tags(evaluation, self.sweep_id, self._is_feasible(evaluation))
        known = self._candidates.get(candidate.id)
        if known is not None and NOTE in known.tags:
            tags.setdefault(NOTE, "")  # why the attempt before this one failed, or whose times it had taken
        if known is None:
            run = self._client.create_run(
                self.experiment_id, start_time=began_ms, tags=tags, run_name=run_name(evaluation)
            )
            known = _Known(run_id=run.info.run_id, finished=False, tags=dict(run.data.tags))
            self._candidates[candidate.id] = known
        with scratch_folder("mlflow") as folder:
            self._write_artifacts(evaluation, folder)
            self._client.log_artifacts(known.run_id, str(folder))
        numbers = metrics(evaluation) | file_metrics(evaluation)
        now_ms = round(time.time() * 1000)  # of two values of a metric, MLflow shows the later one
        self._client.log_batch(
            known.run_id,
            metrics=[Metric(name, rounded(value), now_ms, 0) for name, value in numbers.items()],
            params=[Param(name, shown(value)) for name, value in candidate.parameters().items()],
            tags=[RunTag(name, value) for name, value in tags.items() if known.tags.get(name) != value],
        )
        known.tags.update(tags)
        status = "FAILED" if evaluation.status == "failed" else "FINISHED"
        self._client.set_terminated(known.run_id, status=status, end_time=ended_ms)
        known.finished = True

    def _write_artifacts(self, evaluation: Evaluation, folder: Path) -> None:
        candidate = evaluation.candidate
        (folder / "candidate.json").write_text(pretty(candidate.to_json()), encoding="utf-8")
        (folder / "evaluation.json").write_text(pretty(evaluation.to_json()), encoding="utf-8")
        for source, name in (
            (self._journal.record(candidate.id, evaluation.split), "record.json"),
            (self._journal.log(candidate.id, evaluation.split), "log.txt"),
        ):
            if source.exists():
                shutil.copyfile(source, folder / name)

    def _mark(self, summary: Summary) -> None:
        """Bring the tags that only the whole sweep knows up to date, touching no run that has them right."""
        letters = {m.id: m.letters for m in summary.front}
        chosen = summary.recommended.candidate_id if summary.recommended is not None else None
        levels = {e.candidate.id: summary.evidence(e) for e in summary.evaluations}
        for candidate_id, known in self._candidates.items():
            wanted = {
                "baseline": flag(candidate_id == summary.baseline_id),
                "evidence": levels.get(candidate_id) or "",
                "pareto": flag(candidate_id in letters),
                "recommended": flag(candidate_id == chosen),
                "same": letters.get(candidate_id, ""),
                "mlflow.runName": marked_name(
                    known.tags.get("mlflow.runName", ""), candidate_id in letters, candidate_id == chosen
                ),
            }
            for name, value in wanted.items():
                if known.tags.get(name, "") != value:
                    self._client.set_tag(known.run_id, name, value)
                    known.tags[name] = value

    def _take_apart(self, summary: Summary) -> None:
        """The factors of the recommended run's speed-up; a run that was recommended before loses the tag."""
        from mlflow.entities import Metric

        factors = taken_apart(summary)
        for candidate_id, known in self._candidates.items():
            words = factors.words() if factors is not None and factors.candidate_id == candidate_id else ""
            if known.tags.get("factors", "") == words:
                continue
            self._client.set_tag(known.run_id, "factors", words)
            known.tags["factors"] = words
            if factors is not None and words:
                now_ms = round(time.time() * 1000)
                found = factor_metrics(factors)
                self._client.log_batch(
                    known.run_id, metrics=[Metric(name, rounded(value), now_ms, 0) for name, value in found.items()]
                )

    def _confirm(self, summary: Summary, candidate_id: str) -> None:
        from mlflow.entities import Metric

        confirmed, known = summary.confirmations.get(candidate_id), self._candidates.get(candidate_id)
        if confirmed is None or known is None or known.tags.get("confirmed") == confirmed.started_at:
            return
        numbers = {name: value for name, value in summary.numbers(confirmed).items() if name in HOLDOUT_METRICS}
        now_ms = round(time.time() * 1000)
        self._client.log_batch(
            known.run_id,
            metrics=[Metric(f"holdout_{name}", rounded(value), now_ms, 0) for name, value in numbers.items()],
        )
        self._client.log_text(known.run_id, pretty(confirmed.to_json()), "confirmation.json")
        self._client.set_tag(known.run_id, "confirmed", confirmed.started_at)
        known.tags["confirmed"] = confirmed.started_at

    def _keep_model(self, candidate: Candidate, models: ModelFiles) -> None:
        known = self._candidates[candidate.id]
        if known.tags.get("model") == "kept":
            return
        directory = models(candidate)
        if directory is None:
            return
        self._client.log_artifacts(known.run_id, str(directory), artifact_path="model")
        self._client.set_tag(known.run_id, "model", "kept")
        known.tags["model"] = "kept"

    def _write_summary(self, summary: Summary, plan: str, seed: int) -> None:
        from mlflow.entities import Metric, RunTag

        tags = {
            "kind": "sweep",
            "sweep": self.sweep_id,
            "emulated": flag(summary.emulated),
            NOTE: note(summary),
        }
        if self._sweep is None:
            run = self._client.create_run(self.experiment_id, tags=tags, run_name=sweep_name(summary))
            self._sweep = _Known(run_id=run.info.run_id, finished=False)
        ranked = importance(summary.evaluations, summary.objectives, seed=seed)
        with scratch_folder("mlflow") as folder:
            (folder / "pareto.html").write_text(pareto_html(summary, ranked), encoding="utf-8")
            (folder / "report.txt").write_text(lines(summary) + "\n", encoding="utf-8")
            (folder / "report.json").write_text(pretty(to_json(summary)), encoding="utf-8")
            (folder / "importance.json").write_text(pretty(encode(ranked)), encoding="utf-8")
            if plan:
                (folder / "plan.txt").write_text(plan + "\n", encoding="utf-8")
            self._client.log_artifacts(self._sweep.run_id, str(folder))
        now_ms = round(time.time() * 1000)
        numbers = sweep_metrics(summary)
        self._client.log_batch(
            self._sweep.run_id,
            metrics=[Metric(name, rounded(value), now_ms, 0) for name, value in numbers.items()],
            tags=[RunTag(name, value) for name, value in tags.items()],
        )
        self._client.set_terminated(self._sweep.run_id, status="FINISHED")
        self._sweep.finished = True


@contextlib.contextmanager
def open_tracker(
    workspace: Path,
    experiment_name: str,
    journal: Journal,
    *,
    is_feasible: Callable[[Evaluation], bool],
    about: str = "",
) -> Iterator[Tracker]:
    """The tracker of one sweep, its store checked and, the first time, created (2 to 6 s).

    Raises:
        ToolchainError: `mlruns/` or its database cannot be written, is locked, damaged, or belongs elsewhere.
    """
    store = workspace / "mlruns"
    prepare(store)
    with mlflow_errors():
        client = open_client(store / "mlflow.db")
        experiment_id = open_experiment(client, experiment_name, store / "artifacts", about)
        save_view(client, experiment_id, "latency_p50_ms")
        tracker = Tracker(client, experiment_id, _sweep_id(journal), journal, is_feasible)
    yield tracker


def _sweep_id(journal: Journal) -> str:
    """Number of the sweep and eight digits of its own identity, so that a deleted journal's number is not met again."""
    return f"{journal.root.name}-{file_digest(journal.root / 'sweep.json')[:8]}"
