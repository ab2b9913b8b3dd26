"""Writing a sweep into MLflow, so that it may be killed at any moment and run again."""

from __future__ import annotations

import contextlib
import datetime
import logging
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from workbench.evaluation.journal import Journal
from workbench.report import Summary, lines, to_json
from workbench.report.factors import taken_apart
from workbench.report.page import pareto_html
from workbench.tracking.links import links_in, save_view
from workbench.tracking.run import (
    NOTE,
    USER,
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
    sweep_id_of,
    sweep_metrics,
    sweep_name,
    whose,
)
from workbench.tracking.server import Place, if_permitted, patient, place_of
from workbench.tracking.store import client_of, find_runs, mlflow_errors, open_experiment, prepare
from workbench.values.candidate import Candidate
from workbench.values.errors import ToolchainError
from workbench.values.metrics import metrics, shown_in
from workbench.values.results import Evaluation
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 600.0

ModelFiles = Callable[[Candidate], Path | None]
"""Candidate → directory with its compiled files, None where there is none."""


@dataclass(slots=True)
class _Known:
    """A run that is in the store, with the tags that may still change."""

    run_id: str
    finished: bool
    tags: dict[str, str] = field(default_factory=dict)


class Tracker:
    """Writes one sweep into MLflow. Made by `open_tracker`; a listener of the sweep. One thread.

    A server that fails is asked again after a pause and at the end, and told what it has missed.
    """

    def __init__(
        self,
        place: Place,
        experiment_name: str,
        journal: Journal,
        is_feasible: Callable[[Evaluation], bool],
        about: str = "",
    ) -> None:
        self.sweep_id, self.experiment_id = sweep_id_of(journal), ""
        self._place, self._name, self._about = place, experiment_name, about
        self._journal, self._is_feasible = journal, is_feasible
        self._client: MlflowClient
        self._who = {USER: whose()} if place.server else {}
        self._candidates: dict[str, _Known] = {}
        self._sweep: _Known | None = None
        self._late: dict[str, Evaluation] = {}
        self._pause_s = self._again = 0.0

    def open(self) -> None:
        """Open the experiment and read which runs of this sweep are in it; again after a failure, when nobody knows
        what was written.

        Raises:
            ToolchainError: the store cannot be used.
            ConfigError: the experiment of that name is somebody else's.
        """
        with mlflow_errors(self._place):
            self._client = client_of(self._place)
            artifacts = None if self._place.server else self._place.artifacts
            if not self.experiment_id:
                self.experiment_id = open_experiment(self._client, self._name, artifacts, self._about)
                self._save_view("latency_p50_ms")
            self._read_runs()

    def _save_view(self, metric: str) -> None:
        save_view(self._client, self.experiment_id, metric, users=bool(self._place.server))

    def _read_runs(self) -> None:
        """Which runs are there. A run that was asked for twice, because its first answer was lost, is deleted."""
        self._candidates.clear()
        self._sweep = None
        for run in find_runs(self._client, self.experiment_id, f"tags.sweep = '{self.sweep_id}'"):
            known = _Known(run_id=run.info.run_id, finished=run.info.status != "RUNNING", tags=dict(run.data.tags))
            is_sweep = known.tags.get("kind") == "sweep"
            earlier = self._sweep if is_sweep else self._candidates.get(known.tags.get("candidate", ""))
            if earlier is not None:
                with if_permitted() as refused:
                    self._client.delete_run(known.run_id)
                for tag in ("kind", "sweep") if refused else ():
                    self._client.set_tag(known.run_id, tag, "twice")
            elif is_sweep:
                self._sweep = known
            else:
                self._candidates[known.tags.get("candidate", "")] = known

    def failed(self, error: ToolchainError) -> None:
        """Warn, once until it works again; a server is then left alone for a pause twice as long as the one before."""
        if not self._pause_s:
            again = "from time to time and when the sweep ends" if self._place.server else "when the sweep ends"
            _log.warning("MLflow: %s The results are kept; it is tried again %s.", error, again)
        self._pause_s = min(2 * self._pause_s or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._again = monotonic() + self._pause_s

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        """Log one candidate; one that is there already is left alone unless it was evaluated anew.

        Never raises for MLflow's sake: what cannot be written now is written later.
        """
        if evaluation.split == "holdout":
            return
        known = self._candidates.get(evaluation.candidate.id)
        if reused and known is not None and known.finished:
            return
        self._late[evaluation.candidate.id] = evaluation
        if self._place.server and monotonic() < self._again:
            return
        try:
            if self._place.server and self._pause_s:
                self.open()
            with mlflow_errors(self._place):
                for candidate_id, late in list(self._late.items()):
                    self._write(late)
                    del self._late[candidate_id]
            self._pause_s = self._again = 0.0
        except ToolchainError as error:
            self.failed(error)

    def conclude(self, summary: Summary, plan: str = "", models: ModelFiles | None = None) -> list[str]:
        """Mark the front and the recommended candidate, write the summary run, and give links into the UI.

        Args:
            plan: the plan as it was shown before the sweep.
            models: gives the compiled files that are logged for members of the front, and for no other.

        Returns:
            Sentences: links into the UI, or what a server could not be told and how to do that later.

        Raises:
            ToolchainError: the workspace's store cannot be written; the sweep's own results are not concerned.
        """
        try:
            return self.complete(summary, plan, models)
        except ToolchainError as error:
            if not self._place.server:
                raise
            later = ["workbench", "log", summary.experiment_file, "--workspace", str(self._place.store.parent)]
            return [f"not logged:      {error}", f"to log it later: {shlex.join(later)}"]

    def complete(self, summary: Summary, plan: str = "", models: ModelFiles | None = None) -> list[str]:
        """As `conclude`, but what a server could not be told is an error too."""
        if self._place.server:
            self.open()
        with mlflow_errors(self._place):
            self._complete(summary, plan, models)
        self._pause_s = self._again = 0.0
        with mlflow_errors(self._place):
            return links_in(self._client, self._place, self._name, self.sweep_id)

    def _complete(self, summary: Summary, plan: str, models: ModelFiles | None) -> None:
        for evaluation in summary.evaluations:
            known = self._candidates.get(evaluation.candidate.id)
            if known is None or not known.finished or evaluation.candidate.id in self._late:
                self._write(evaluation)
        self._late.clear()
        self._mark(summary)
        for candidate_id in summary.confirmations:
            self._confirm(summary, candidate_id)
        for member in summary.front:
            if models is not None:
                self._keep_model(member.evaluation.candidate, models)
        self._write_summary(summary, plan)
        self._save_view(summary.objectives[0].metric)

    def _tell(
        self,
        known: _Known,
        tags: Mapping[str, str],
        numbers: Mapping[str, float] = MappingProxyType({}),
        parameters: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """What a run does not have yet, in one call."""
        from mlflow.entities import Metric, Param, RunTag

        changed = {name: value for name, value in tags.items() if known.tags.get(name) != value}
        if changed or numbers or parameters:
            now_ms = round(time.time() * 1000)  # of two values of a metric, MLflow shows the later one
            self._client.log_batch(
                known.run_id,
                metrics=[Metric(name, rounded(value), now_ms, 0) for name, value in numbers.items()],
                params=[Param(name, shown(value)) for name, value in parameters.items()],
                tags=[RunTag(name, value) for name, value in changed.items()],
            )
            known.tags.update(changed)

    def _write(self, evaluation: Evaluation) -> None:
        candidate = evaluation.candidate
        began_ms = round(datetime.datetime.fromisoformat(evaluation.started_at).timestamp() * 1000)
        ended_ms = began_ms + round(evaluation.seconds * 1000)
        tags = candidate_tags(evaluation, self.sweep_id, self._is_feasible(evaluation))
        known = self._candidates.get(candidate.id)
        if known is not None and NOTE in known.tags:
            tags.setdefault(NOTE, "")  # why the attempt before this one failed, or whose times it had taken
        if known is None:
            run = self._client.create_run(
                self.experiment_id, start_time=began_ms, tags=tags | self._who, run_name=run_name(evaluation)
            )
            known = _Known(run_id=run.info.run_id, finished=False, tags=dict(run.data.tags))
            self._candidates[candidate.id] = known
        with scratch_folder("mlflow") as folder:
            (folder / "candidate.json").write_text(pretty(candidate.to_json()), encoding="utf-8")
            (folder / "evaluation.json").write_text(pretty(evaluation.to_json()), encoding="utf-8")
            for source, kept in ((self._journal.record, "record.json"), (self._journal.log, "log.txt")):
                if (file := source(candidate.id, evaluation.split)).exists():
                    shutil.copyfile(file, folder / kept)
            self._client.log_artifacts(known.run_id, str(folder))
        numbers = metrics(evaluation) | file_metrics(evaluation)
        self._tell(known, tags, numbers, candidate.parameters())
        status = "FAILED" if evaluation.status == "failed" else "FINISHED"
        self._client.set_terminated(known.run_id, status=status, end_time=ended_ms)
        known.finished = True

    def _mark(self, summary: Summary) -> None:
        """Bring what only the whole sweep knows up to date, touching no run that has it right: tags, and the factors of
        the recommended run's speed-up, which one that was recommended before loses."""
        letters = {m.id: m.letters for m in summary.front}
        chosen, factors = summary.recommended, taken_apart(summary)
        mark = "among equals" if chosen is not None and chosen.among else flag(True)
        levels = {e.candidate.id: summary.evidence(e) for e in summary.evaluations}
        for candidate_id, known in self._candidates.items():
            on_front, level = candidate_id in letters, levels.get(candidate_id)
            is_chosen = chosen is not None and candidate_id == chosen.candidate_id
            name = marked_name(known.tags.get("mlflow.runName", ""), on_front, is_chosen, level)
            parts = factors if factors is not None and factors.candidate_id == candidate_id else None
            wanted = {
                "baseline": flag(candidate_id == summary.baseline_id),
                "evidence": level or "",
                "pareto": flag(on_front),
                "recommended": mark if is_chosen else flag(False),
                "same": letters.get(candidate_id, ""),
                "mlflow.runName": name,
                "factors": "" if parts is None else parts.words(),
            }
            changed = {tag: value for tag, value in wanted.items() if known.tags.get(tag, "") != value}
            self._tell(known, changed, factor_metrics(parts) if parts is not None and "factors" in changed else {})

    def _confirm(self, summary: Summary, candidate_id: str) -> None:
        confirmed, known = summary.confirmations.get(candidate_id), self._candidates.get(candidate_id)
        if confirmed is None or known is None or known.tags.get("confirmed") == confirmed.started_at:
            return
        numbers = {f"holdout_{n}": value for n, value in summary.numbers(confirmed).items() if n in shown_in("holdout")}
        self._client.log_text(known.run_id, pretty(confirmed.to_json()), "confirmation.json")
        self._tell(known, {"confirmed": confirmed.started_at}, numbers)

    def _keep_model(self, candidate: Candidate, models: ModelFiles) -> None:
        known = self._candidates[candidate.id]
        if known.tags.get("model") == "kept":
            return
        directory = models(candidate)
        if directory is None:
            return
        with patient():
            self._client.log_artifacts(known.run_id, str(directory), artifact_path="model")
        self._tell(known, {"model": "kept"})

    def _write_summary(self, summary: Summary, plan: str) -> None:
        tags = {
            "kind": "sweep",
            "sweep": self.sweep_id,
            "emulated": flag(summary.emulated),
            NOTE: note(summary),
        }
        if self._sweep is None:
            run = self._client.create_run(self.experiment_id, tags=tags | self._who, run_name=sweep_name(summary))
            self._sweep = _Known(run_id=run.info.run_id, finished=False)
        with scratch_folder("mlflow") as folder:
            texts = {"pareto.html": pareto_html(summary), "report.txt": lines(summary) + "\n"}
            texts |= {"report.json": pretty(to_json(summary))} | ({"plan.txt": plan + "\n"} if plan else {})
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            self._client.log_artifacts(self._sweep.run_id, str(folder))
        self._tell(self._sweep, tags, sweep_metrics(summary))
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
    later: bool = True,
) -> Iterator[Tracker]:
    """The tracker of one sweep, on the server that the environment names, or else in the workspace's own store, which
    is checked and, the first time, created (2 to 6 s).

    Args:
        later: a server that cannot be used is warned of and caught up with.

    Raises:
        ToolchainError: `mlruns/` or its database cannot be written, is locked, damaged, or belongs elsewhere.
        ConfigError: what the environment names is no server, or the experiment of that name is somebody else's.
    """
    place = place_of(workspace)
    if not place.server:
        prepare(place.store)
    tracker = Tracker(place, experiment_name, journal, is_feasible, about)
    try:
        tracker.open()
    except ToolchainError as error:
        if not place.server or not later:
            raise
        tracker.failed(error)
    yield tracker
