"""Journal: the folder of one sweep, from which everything about it can be rebuilt after a kill -9.

    .workbench/sweeps/<experiment>/<number>/
      sweep.json           identity of the experiment it belongs to, and when it began
      study.log            Optuna's own append-only journal
      evaluations/<id>.json      one per candidate on the validation split, written once, by rename
      confirmations/<id>.json    front members on the holdout split
      outcomes/<id>.<split>.npz  per-sample outcomes, for paired tests between any two candidates
      latency/<id>.<split>.npz   every timed call
      records/<id>.json    the QuantizationRecord
      logs/<id>.log        what a failing stage printed
      anchors.json         the baseline's median when this sweep first timed it, by split and batch size
      lock                 held while a sweep runs

A file is there whole or not at all. One process writes (it holds the lock); any number may read.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, ToolchainError
from workbench.files import lock_file, write_json_atomically
from workbench.results import Evaluation, Split, evaluation_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Paths and whole-file reads and writes of one sweep's folder."""

    root: Path

    @property
    def study(self) -> Path:
        return self.root / "study.log"

    def outcomes(self, candidate_id: str, split: Split) -> Path:
        return self._file("outcomes", f"{candidate_id}.{split}.npz")

    def latency(self, candidate_id: str, split: Split) -> Path:
        return self._file("latency", f"{candidate_id}.{split}.npz")

    def record(self, candidate_id: str) -> Path:
        return self._file("records", f"{candidate_id}.json")

    def log(self, candidate_id: str) -> Path:
        return self._file("logs", f"{candidate_id}.log")

    def write(self, evaluation: Evaluation) -> None:
        """Keep an evaluation: validation results under evaluations/, holdout results under confirmations/."""
        write_json_atomically(self._evaluation(evaluation.candidate.id, evaluation.split), evaluation.to_json())

    def evaluation(self, candidate_id: str, split: Split = "validation") -> Evaluation | None:
        path = self._evaluation(candidate_id, split)
        return _read_evaluation(path) if path.exists() else None

    def evaluations(self, split: Split = "validation") -> dict[str, Evaluation]:
        """candidate id → evaluation, in the order they began."""
        folder = self._evaluation("x", split).parent
        found = [e for path in folder.glob("*.json") if (e := _read_evaluation(path)) is not None]
        return {e.candidate.id: e for e in sorted(found, key=lambda e: (e.started_at, e.candidate.id))}

    def anchor(self, split: Split, batch: int, baseline_p50_ms: float, *, keep: bool) -> float:
        """The baseline's first median on these data at this batch size, or the given one when there is none yet.

        Args:
            keep: make the given one the first when there is none.
        """
        path = self.root / "anchors.json"
        anchors: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        name = f"{split} {batch}"
        if name not in anchors and keep:
            write_json_atomically(path, {**anchors, name: baseline_p50_ms})
        return anchors.get(name, baseline_p50_ms)

    def _evaluation(self, candidate_id: str, split: Split) -> Path:
        return self._file("confirmations" if split == "holdout" else "evaluations", f"{candidate_id}.json")

    def _file(self, folder: str, name: str) -> Path:
        directory = self.root / folder
        directory.mkdir(parents=True, exist_ok=True)
        return directory / name


def current_journal(workspace: Path, experiment_name: str) -> Journal | None:
    """The newest sweep of an experiment, or None when there was none."""
    numbers = _numbers(_folder(workspace, experiment_name))
    return Journal(root=_folder(workspace, experiment_name) / f"{numbers[-1]:04d}") if numbers else None


def open_journal(workspace: Path, experiment_name: str, identity: str, *, fresh: bool = False) -> Journal:
    """The sweep to go on with: the newest one, or a new one when there is none or `fresh` asks for it.

    Raises:
        ConfigError: the newest sweep answered another question (its identity differs); nothing is touched.
        ToolchainError: the workspace cannot be written.
    """
    journal = None if fresh else current_journal(workspace, experiment_name)
    if journal is not None:
        found = read_identity(journal)
        if found != identity:
            raise ConfigError(
                f"the sweep in {journal.root} was made with another model, data, space, objective or constraint.",
                key=experiment_name,
                hint="Start a new one with --fresh (the old results are kept), or give the experiment another name.",
            )
        return journal
    folder = _folder(workspace, experiment_name)
    numbers = _numbers(folder)
    root = folder / f"{(numbers[-1] + 1) if numbers else 1:04d}"
    try:
        root.mkdir(parents=True)
        stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        write_json_atomically(root / "sweep.json", {"version": 1, "identity": identity, "began": stamp})
    except OSError as error:
        raise ToolchainError(f"{root} cannot be written: {error.strerror}. Check its owner and free space.") from error
    return Journal(root=root)


def read_identity(journal: Journal) -> str:
    data: dict[str, Any] = json.loads((journal.root / "sweep.json").read_text(encoding="utf-8"))
    return str(data["identity"])


@contextlib.contextmanager
def exclusive(journal: Journal) -> Iterator[None]:
    """Hold the sweep's lock; the kernel releases it when the process dies, however it dies.

    Raises:
        ToolchainError: another process runs this sweep; the message names it.
    """
    with lock_file(journal.root / "lock", owner=str(os.getpid())) as lock:
        if not lock.held:
            raise ToolchainError(
                f"process {lock.holder or 'unknown'} is running this sweep already ({journal.root}). "
                "Wait for it, or stop it; its results are kept."
            )
        yield


def _read_evaluation(path: Path) -> Evaluation | None:
    """None for a file that does not decode: it is moved aside, so that the candidate is evaluated again."""
    try:
        return evaluation_from_json(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        path.replace(path.with_suffix(".corrupt"))
        return None


def _folder(workspace: Path, experiment_name: str) -> Path:
    return workspace / ".workbench" / "sweeps" / experiment_name


def _numbers(folder: Path) -> list[int]:
    return sorted(int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit() and (p / "sweep.json").exists())
