"""MLflow: one experiment per experiment file, one flat run per candidate, one summary run per sweep.

MLflow is a window on the sweep, not its memory: everything here can be written again from the journal. So a store
that cannot be used is refused before any work, and one that fails later is caught up with at the end. Runs are found
again by their tags (sweep, candidate), so the same sweep run twice writes each run once.

    mlruns/mlflow.db            SQLite, in WAL mode: a third of the time per run, and the UI reads while a sweep writes
    mlruns/artifacts/<run>/     candidate.json, evaluation.json, record.json, log.txt; models of the front
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.candidate import Candidate
from workbench.canonical import canonical_json, encode, file_digest
from workbench.errors import ToolchainError
from workbench.journal import Journal
from workbench.objectives import METRICS
from workbench.report import Summary, lines, to_json
from workbench.report.importance import importance
from workbench.report.page import pareto_html
from workbench.report.summary import best_known_drop, best_known_speedup
from workbench.report.words import title
from workbench.results import Evaluation, metrics

if TYPE_CHECKING:  # importing mlflow takes a second and reads the environment: `_mlflow_errors`, `_client`
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger(__name__)

HOST, PORT = "127.0.0.1", 5000
LOCK_WAIT_S = 5.0
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SKIP_PIP_REQUIREMENTS_CHECK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Nothing leaves the machine, and the UI needs 2 processes and 0.45 GB instead of 15 and 2.3 (reference: stack.md §2).
MLflow reads some of them when it is imported."""

HOLDOUT_METRICS = ("accuracy", "accuracy_drop_pp", "latency_p50_ms", "latency_p99_ms", "speedup")
"""Logged a second time as `holdout_<name>` for confirmed candidates; few, because the UI shows a chart for each."""

VIEW = "workbench"
VIEW_TAGS = ("pareto", "recommended", "same", "status")
VIEW_METRICS = ("accuracy", "accuracy_drop_pp", "latency_p50_ms", "latency_p99_ms", "speedup")

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
        for run in _runs(client, experiment_id, f"tags.sweep = '{sweep_id}'"):
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
            with _mlflow_errors():
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
        with _mlflow_errors():
            for evaluation in summary.evaluations:
                known = self._candidates.get(evaluation.candidate.id)
                if known is None or not known.finished or evaluation.candidate.id in self._late:
                    self._write(evaluation)
            self._late.clear()
            self._mark(summary)
            for member in summary.front:
                self._confirm(summary, member.id)
                if models is not None:
                    self._keep_model(member.evaluation.candidate, models)
            self._write_summary(summary, plan, seed)
            _set_view(self._client, self.experiment_id, summary.objectives[0].metric)
        return self.links(summary)

    def links(self, summary: Summary, host: str = HOST, port: int = PORT) -> list[str]:
        """Sentences with addresses: all candidates, three of the front side by side, the Pareto page."""
        order = [m.id for m in summary.front]
        if summary.recommended is not None:
            order.sort(key=lambda candidate_id: candidate_id != summary.recommended.candidate_id)  # type: ignore[union-attr]  # checked above
        front = [self._candidates[i].run_id for i in order if i in self._candidates]
        sweep = self._sweep.run_id if self._sweep is not None else None
        return _links(self.experiment_id, front, sweep, host, port)

    def _write(self, evaluation: Evaluation) -> None:
        from mlflow.entities import Metric, Param, RunTag

        candidate = evaluation.candidate
        began_ms = round(datetime.datetime.fromisoformat(evaluation.started_at).timestamp() * 1000)
        ended_ms = began_ms + round(evaluation.seconds * 1000)
        tags = _candidate_tags(evaluation, self.sweep_id, self._is_feasible(evaluation))
        known = self._candidates.get(candidate.id)
        if known is None:
            run = self._client.create_run(
                self.experiment_id, start_time=began_ms, tags=tags, run_name=_run_name(candidate)
            )
            known = _Known(run_id=run.info.run_id, finished=False, tags=dict(run.data.tags))
            self._candidates[candidate.id] = known
        with tempfile.TemporaryDirectory() as folder:
            self._write_artifacts(evaluation, Path(folder))
            self._client.log_artifacts(known.run_id, folder)
        numbers = metrics(evaluation)
        now_ms = round(time.time() * 1000)  # of two values of a metric, MLflow shows the later one
        self._client.log_batch(
            known.run_id,
            metrics=[Metric(name, _rounded(value), now_ms, 0) for name, value in numbers.items()],
            params=[Param(name, _shown(value)) for name, value in candidate.parameters().items()],
            tags=[RunTag(name, value) for name, value in tags.items() if known.tags.get(name) != value],
        )
        known.tags.update(tags)
        status = "FAILED" if evaluation.status == "failed" else "FINISHED"
        self._client.set_terminated(known.run_id, status=status, end_time=ended_ms)
        known.finished = True

    def _write_artifacts(self, evaluation: Evaluation, folder: Path) -> None:
        candidate = evaluation.candidate
        (folder / "candidate.json").write_text(_pretty(candidate.to_json()), encoding="utf-8")
        (folder / "evaluation.json").write_text(_pretty(evaluation.to_json()), encoding="utf-8")
        for source, name in (
            (self._journal.record(candidate.id), "record.json"),
            (self._journal.log(candidate.id), "log.txt"),
        ):
            if source.exists():
                shutil.copyfile(source, folder / name)

    def _mark(self, summary: Summary) -> None:
        """Bring the tags that only the whole sweep knows up to date, touching no run that has them right."""
        letters = {m.id: m.letters for m in summary.front}
        chosen = summary.recommended.candidate_id if summary.recommended is not None else None
        for candidate_id, known in self._candidates.items():
            wanted = {
                "pareto": _flag(candidate_id in letters),
                "recommended": _flag(candidate_id == chosen),
                "same": letters.get(candidate_id, ""),
                "mlflow.runName": _marked_name(
                    known.tags.get("mlflow.runName", ""), candidate_id in letters, candidate_id == chosen
                ),
            }
            for name, value in wanted.items():
                if known.tags.get(name, "") != value:
                    self._client.set_tag(known.run_id, name, value)
                    known.tags[name] = value

    def _confirm(self, summary: Summary, candidate_id: str) -> None:
        from mlflow.entities import Metric

        confirmed, known = summary.confirmations.get(candidate_id), self._candidates.get(candidate_id)
        if confirmed is None or known is None or known.tags.get("confirmed") == confirmed.started_at:
            return
        numbers = {name: value for name, value in summary.numbers(confirmed).items() if name in HOLDOUT_METRICS}
        now_ms = round(time.time() * 1000)
        self._client.log_batch(
            known.run_id,
            metrics=[Metric(f"holdout_{name}", _rounded(value), now_ms, 0) for name, value in numbers.items()],
        )
        self._client.log_text(known.run_id, _pretty(confirmed.to_json()), "confirmation.json")
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
            "emulated": _flag(summary.emulated),
            "mlflow.note.content": _note(summary),
        }
        if self._sweep is None:
            run = self._client.create_run(self.experiment_id, tags=tags, run_name=f"sweep {summary.experiment_name}")
            self._sweep = _Known(run_id=run.info.run_id, finished=False)
        ranked = importance(summary.evaluations, summary.objectives, seed=seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "pareto.html").write_text(pareto_html(summary, ranked), encoding="utf-8")
            (folder / "report.txt").write_text(lines(summary) + "\n", encoding="utf-8")
            (folder / "report.json").write_text(_pretty(to_json(summary)), encoding="utf-8")
            (folder / "importance.json").write_text(_pretty(encode(ranked)), encoding="utf-8")
            if plan:
                (folder / "plan.txt").write_text(plan + "\n", encoding="utf-8")
            self._client.log_artifacts(self._sweep.run_id, name)
        now_ms = round(time.time() * 1000)
        numbers = _sweep_metrics(summary)
        self._client.log_batch(
            self._sweep.run_id,
            metrics=[Metric(name, _rounded(value), now_ms, 0) for name, value in numbers.items()],
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
    _prepare(store)
    with _mlflow_errors():
        client = _client(store / "mlflow.db")
        experiment_id = _experiment(client, experiment_name, store / "artifacts", about)
        _set_view(client, experiment_id, "latency_p50_ms")
        tracker = Tracker(client, experiment_id, _sweep_id(journal), journal, is_feasible)
    yield tracker


def deep_link(experiment_id: str, *, host: str = HOST, port: int = PORT) -> str:
    """The flat list of all candidates, best first, with the columns that matter (see `_view`).

    Without `workflowType` the UI opens on traces and token usage, as for a language model's application.
    """
    query = {"workflowType": "machine_learning", "viewStateShareKey": VIEW}
    return f"http://{host}:{port}/#/experiments/{experiment_id}/runs?{_quoted(query)}"


def compare_link(experiment_id: str, run_ids: Sequence[str], *, host: str = HOST, port: int = PORT) -> str:
    """The page that puts runs side by side: differing parameters, metrics, parallel coordinates."""
    # MLflow 3.17 reads this query by position: runs first, experiments second.
    query = {"runs": json.dumps(list(run_ids)), "experiments": json.dumps([experiment_id])}
    query["workflowType"] = "machine_learning"
    return f"http://{host}:{port}/#/compare-runs?{_quoted(query)}"


def page_link(experiment_id: str, run_id: str, *, host: str = HOST, port: int = PORT) -> str:
    """The Pareto page, shown by the UI among the artifacts of a sweep's summary run."""
    page = f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/pareto.html"
    return f"http://{host}:{port}/{page}?workflowType=machine_learning"


def links_of(workspace: Path, experiment_name: str, host: str = HOST, port: int = PORT) -> list[str]:
    """Links into the last sweep of an experiment, from what is in the store; none when nothing was logged.

    Raises:
        ToolchainError: the store cannot be read.
    """
    store = workspace / "mlruns"
    if not (store / "mlflow.db").exists():
        return []
    _check_database(store / "mlflow.db")
    with _mlflow_errors():
        client = _client(store / "mlflow.db")
        experiment = client.get_experiment_by_name(experiment_name)
        if experiment is None:
            return []
        sweeps = _runs(client, experiment.experiment_id, "tags.kind = 'sweep'")
        if not sweeps:
            return _links(experiment.experiment_id, [], None, host, port)
        last = max(sweeps, key=lambda run: run.info.start_time)
        chosen = f"tags.sweep = '{last.data.tags['sweep']}' and tags.pareto = 'true'"
        front = _runs(client, experiment.experiment_id, chosen, order="metrics.latency_p50_ms ASC")
        front.sort(key=lambda run: run.data.tags.get("recommended") != "true")
        ids = [run.info.run_id for run in front]
        return _links(experiment.experiment_id, ids, last.info.run_id, host, port)


def ui_command(workspace: Path, host: str = HOST, port: int = PORT) -> tuple[list[str], dict[str, str]]:
    """The command that serves the UI on this workspace's store, and what to add to its environment.

    Raises:
        ToolchainError: there is no store yet, or it cannot be read.
    """
    database = workspace / "mlruns" / "mlflow.db"
    if not database.exists():
        raise ToolchainError(f"{database} does not exist: nothing was logged here. Run a sweep first.")
    _check_database(database)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", _uri(database)]
    return [*command, "--host", host, "--port", str(port), "--workers", "1"], dict(ENVIRONMENT)


# --- the store -----------------------------------------------------------------------------------------------------


def _prepare(store: Path) -> None:
    """Make the folder and the database, whole or not at all.

    A killed migration leaves a database that MLflow refuses for good. So a new one is made under a temporary name and
    linked into place, which also lets two first sweeps start at once: the slower one finds the file there.
    """
    database = store / "mlflow.db"
    try:
        (store / "artifacts").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as folder:
            if not database.exists():
                fresh = Path(folder) / "mlflow.db"
                with _mlflow_errors():
                    _client(fresh)
                with contextlib.suppress(FileExistsError):
                    os.link(fresh, database)
    except OSError as error:
        raise ToolchainError(
            f"{store} cannot be written: {error.strerror or error}. "
            "Check its owner, its mount and free space, or choose another folder with --workspace."
        ) from error
    _check_database(database, write=True)


def _check_database(database: Path, *, write: bool = False) -> None:
    """Ask SQLite itself, in milliseconds, what MLflow would say in a page of traceback.

    Args:
        write: also that it can be written, and in WAL mode from now on (a property of the file).
    """
    mode = "rw" if write else "ro"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{database.as_uri()}?mode={mode}", uri=True, timeout=LOCK_WAIT_S)
        ) as connection:
            connection.execute("SELECT version_num FROM alembic_version").fetchone()
            if write:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if "locked" in str(error) or "busy" in str(error):
            todo = "Another process is writing to it; stop it or wait, then run again."
        elif "readonly" in str(error) or "unable to open" in str(error):
            todo = "Check the owner and the mount of the folder, or choose another one with --workspace."
        else:
            todo = "Move it away; the next sweep makes a new one and logs again what it knows."
        raise ToolchainError(f"{database} cannot be used: {error}. {todo}") from error


def _client(database: Path) -> MlflowClient:
    """A client on a database file, created by MLflow when it is not there. Call it inside `_mlflow_errors`."""
    with warnings.catch_warnings():
        # MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 has deprecated; gone when MLflow drops it.
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=_uri(database))


@contextlib.contextmanager
def _mlflow_errors() -> Iterator[None]:
    """MLflow's and the file system's errors as ToolchainError; sets MLflow's environment before it is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise ToolchainError(
            f"MLflow's store failed: {first}. Free space, or stop what holds mlruns/mlflow.db, then run the sweep "
            "again: it logs what is missing and measures nothing twice."
        ) from error


def _experiment(client: MlflowClient, name: str, artifacts: Path, about: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        tags = {"mlflow.note.content": about} if about else {}
        return str(client.create_experiment(name, artifact_location=artifacts.as_uri(), tags=tags))
    if found.artifact_location != artifacts.as_uri():
        raise ToolchainError(
            f"{artifacts.parent / 'mlflow.db'} was made in another place: its artifacts lie in "
            f"{found.artifact_location}. Move the workspace back, or move mlruns/ away; the next sweep logs again."
        )
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _set_view(client: MlflowClient, experiment_id: str, order: str) -> None:
    """Save the list of candidates as a shared view: which runs, which columns, which order.

    By default the UI shows names and durations, with every metric out of sight to the right. The form of the tag is
    that of MLflow 3.17's own "share this view"; another version that does not know it shows its default list.
    """
    state = {
        "searchFilter": "tags.kind = 'candidate'",
        "orderByKey": f"metrics.`{order}`",
        "orderByAsc": METRICS[order].direction == "minimize",
        "selectedColumns": [*(f"tags.`{n}`" for n in VIEW_TAGS), *(f"metrics.`{n}`" for n in VIEW_METRICS)],
    }
    client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{VIEW}", json.dumps(state))


def _runs(client: MlflowClient, experiment_id: str, chosen: str, order: str = "attributes.start_time ASC") -> list[Run]:
    found: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], chosen, max_results=1000, order_by=[order], page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _uri(database: Path) -> str:
    return f"sqlite:///{database.resolve()}"


def _sweep_id(journal: Journal) -> str:
    """Number of the sweep and eight digits of its own identity, so that a deleted journal's number is not met again."""
    return f"{journal.root.name}-{file_digest(journal.root / 'sweep.json')[:8]}"


# --- what a run says -----------------------------------------------------------------------------------------------


def _candidate_tags(evaluation: Evaluation, sweep_id: str, feasible: bool) -> dict[str, str]:
    tags = {
        "kind": "candidate",
        "sweep": sweep_id,
        "candidate": evaluation.candidate.id,
        "status": evaluation.status,
        "stage_reached": evaluation.stage_reached,
        "feasible": _flag(feasible),
        "emulated": _flag(evaluation.toolchain.emulated),
        "cached": _flag(any(s.cached for s in evaluation.stages)),
        "toolchain": evaluation.toolchain.fingerprint[:12],
        "pareto": "false",
        "recommended": "false",
    }
    if evaluation.stop is not None:
        tags["mlflow.note.content"] = f"Stopped at {evaluation.stop.stage}: {evaluation.stop.reason}."
    if evaluation.failure is not None:
        failure = evaluation.failure
        tags["mlflow.note.content"] = (
            f"{failure.kind} at {failure.stage}: {failure.message}\n\nAgain: `{failure.reproduce}`"
        )
    return tags


def _sweep_metrics(summary: Summary) -> dict[str, float]:
    found: dict[str, float] = {
        "candidates": len(summary.evaluations),
        "front_members": len(summary.front),
        "stopped": sum(summary.stops.values()),
        "failed": sum(summary.failures.values()),
    }
    chosen = summary.find(summary.recommended.candidate_id) if summary.recommended is not None else None
    if chosen is not None:
        speedup, drop = best_known_speedup(summary, chosen), best_known_drop(summary, chosen)
        found |= {"recommended_speedup": speedup.value} if speedup is not None else {}
        found |= {"recommended_accuracy_drop_pp": drop.value} if drop is not None else {}
    return found


def _note(summary: Summary) -> str:
    """The verdict as the run's description (Markdown, in which the UI draws no tables)."""
    recommended = summary.recommended
    chosen = summary.find(recommended.candidate_id) if recommended is not None else None
    if recommended is None or chosen is None:
        return "**No candidate meets every constraint.** See report.txt among the artifacts."
    parts = [f"**Recommended: {title(chosen.candidate, summary.baseline_id)}** (`{chosen.candidate.short_id}`)"]
    parts += [
        recommended.reason,
        *recommended.warnings,
        "Open `pareto.html` among the artifacts for the whole picture.",
    ]
    return "\n\n".join(parts)


def _links(experiment_id: str, front: Sequence[str], sweep: str | None, host: str, port: int) -> list[str]:
    found = [f"all candidates:  {deep_link(experiment_id, host=host, port=port)}"]
    if len(front) > 1:
        found.append(f"front compared:  {compare_link(experiment_id, front[:3], host=host, port=port)}")
    if sweep is not None:
        found.append(f"Pareto page:     {page_link(experiment_id, sweep, host=host, port=port)}")
    return found


def _quoted(query: Mapping[str, str]) -> str:
    return urllib.parse.urlencode(query, quote_via=urllib.parse.quote)


def _run_name(candidate: Candidate) -> str:
    return f"{candidate.short_id[:6]} {title(candidate, '')}"


def _rounded(value: float) -> float:
    """Six digits: the UI prints every digit it gets, and evaluation.json keeps them all."""
    return float(f"{value:.6g}")


def _marked_name(name: str, on_front: bool, is_chosen: bool) -> str:
    """A star for the recommended run, a diamond for the rest of the front: names are what the list shows first."""
    mark = "★ " if is_chosen else "◆ " if on_front else ""
    return mark + name.removeprefix("★ ").removeprefix("◆ ")


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _pretty(value: Mapping[str, object]) -> str:
    return json.dumps(json.loads(canonical_json(value)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
