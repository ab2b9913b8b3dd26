"""Journal: the folder of one sweep, from which everything about it can be rebuilt after a kill -9.

    .workbench/sweeps/<experiment>/<number>/
      sweep.json                     identity of the experiment it belongs to, and when it began
      contents.json                  which evaluations there are
      queue.json                     which candidates were asked for, in that order
      evaluations/<id>.json          one per candidate on the validation split, written once, by rename
      confirmations/<id>.json        front members on the holdout split
      outcomes/<id>.<split>.npz      per-sample outcomes, for paired tests between any two candidates
      latency/<id>.<split>.npz       every timed call
      records/<id>.<split>.json      the QuantizationRecord; <id>.json of an export
      logs/<id>.<split>.log          what a failing stage printed; <id>.log in a command beside the sweep
      anchors.json                   the baseline's median when this sweep first timed it, by split and shape
      damaged/                       files that were found damaged, set aside by the next sweep
      lock                           held while a sweep runs

A file is there whole or not at all. One process writes (it holds the lock); any number may read.

Every file is checked when it is read. The JSON files of the sweep itself carry their own digest (`sealed_json`); an
evaluation carries its own and those of its files, and it names the sweep; contents.json says what must be there. So a
flipped bit, a cut, a swap and a deletion are told from what was written (`Journal.damage`). A candidate with a damaged
file counts as not evaluated; readers change nothing, and the next sweep evaluates it again. What is lost besides is
written again from the evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.evaluation.journal_entries import (
    FOLDERS,
    VERSION,
    Damaged,
    entry_damage,
    entry_ids,
    entry_path,
    read_entry,
    side_path,
    stated,
    write_entry,
)
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.damage import Damage
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ToolchainError
from workbench.values.measurement import Split
from workbench.values.results import Evaluation

SWEEP, CONTENTS, ANCHORS, QUEUE = "sweep.json", "contents.json", "anchors.json", "queue.json"
DAMAGED = "damaged"

_HELD: Mapping[str, str] = {
    SWEEP: "which question this sweep answers",
    CONTENTS: "which candidates were evaluated",
    ANCHORS: "how fast the machine was when the sweep began",
    QUEUE: "which candidates were asked for",
}

NOTHING: Mapping[str, Any] = {
    "version": VERSION,
    "sweep": None,
    "evaluations": {},
    "confirmations": [],
    "anchors": False,
    "queue": False,
}
"""contents.json: what sweep.json says, candidate id → its settings, ids, whether there are anchors and a queue yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Paths and whole-file reads and writes of one sweep's folder."""

    root: Path

    def outcomes(self, candidate_id: str, split: Split) -> Path:
        return _with_folder(side_path(self.root, "outcomes", candidate_id, split))

    def latency(self, candidate_id: str, split: Split) -> Path:
        return _with_folder(side_path(self.root, "latency", candidate_id, split))

    def record(self, candidate_id: str, split: Split | None = None) -> Path:
        """Of an evaluation; without a split, of a command beside the sweep, such as an export."""
        return _with_folder(side_path(self.root, "records", candidate_id, split))

    def log(self, candidate_id: str, split: Split | None = None) -> Path:
        """As `record`."""
        return _with_folder(side_path(self.root, "logs", candidate_id, split))

    # --- evaluations ----------------------------------------------------------------------------------------------

    def write(self, evaluation: Evaluation) -> None:
        """Keep an evaluation, after all its files: validation results under evaluations/, holdout results under
        confirmations/."""
        candidate, contents = evaluation.candidate, self._contents()
        write_entry(self.root, evaluation, self._sweep())
        if evaluation.split == "holdout":
            confirmed = sorted({*contents["confirmations"], candidate.id})
            self._write_contents({**contents, "confirmations": confirmed})
        else:
            evaluated = {**contents["evaluations"], candidate.id: candidate.to_json()}
            self._write_contents({**contents, "evaluations": evaluated})

    def evaluation(self, candidate_id: str, split: Split = "validation") -> Evaluation | None:
        """None where there is none, or one with a damaged file."""
        try:
            return read_entry(self.root, candidate_id, split, self._stated_sweep())
        except Damaged:
            return None

    def evaluations(self, split: Split = "validation") -> dict[str, Evaluation]:
        """candidate id → evaluation, in the order they began; without those that have a damaged file."""
        return self._inspect(split)[0]

    def lost(self) -> dict[str, Candidate | None]:
        """Candidates that were evaluated, but whose evaluation is gone or has a damaged file; None where not even
        their settings are known any more."""
        listed, known = self._contents()["evaluations"], self.evaluations()
        return {
            candidate_id: None if settings is None else candidate_from_json(settings)
            for candidate_id, settings in listed.items()
            if candidate_id not in known
        }

    def forget(self, candidate_id: str) -> None:
        """Do not miss an evaluation any longer, because nobody can repeat it."""
        contents = self._contents()
        kept = {i: settings for i, settings in contents["evaluations"].items() if i != candidate_id}
        self._write_contents({**contents, "evaluations": kept})

    # --- what the whole sweep shares ------------------------------------------------------------------------------

    def anchor(self, split: Split, batch: int, baseline_p50_ms: float, *, keep: bool) -> float:
        """The baseline's first median on these data at this batch size, or the given one when there is none yet.

        Args:
            keep: make the given one the first when there is none.
        """
        return self._first(f"{split} {batch}", baseline_p50_ms, keep=keep)

    def curve_anchor(self, split: Split, batch: int, length: int, baseline_p50_ms: float) -> float:
        """The baseline's first median at this shape among the calls of a curve, where it meets other caches than when
        its calls take turns with those of one other shape; the given one becomes it when there is none yet."""
        return self._first(_of_curves(split, batch, length), baseline_p50_ms, keep=True)

    def _first(self, name: str, baseline_p50_ms: float, *, keep: bool) -> float:
        path = self.root / ANCHORS
        try:
            anchors = read_sealed(path)
        except Unsound:
            anchors = self._anchors_again()
        if name not in anchors and keep:
            write_sealed(path, {**anchors, name: baseline_p50_ms})
        return float(anchors.get(name, baseline_p50_ms))

    def identity(self) -> str | None:
        """Of the experiment that this sweep belongs to; None where nothing sound is left that says it."""
        sweep = self._sweep()
        return None if sweep is None else str(sweep["identity"])

    def queue(self) -> dict[str, Any]:
        """What `write_queue` was given last; empty where that is gone or damaged, or never was."""
        try:
            return read_sealed(self.root / QUEUE)
        except Unsound:
            return {}

    def write_queue(self, queue: Mapping[str, object]) -> None:
        """Keep who was asked for, before it is evaluated."""
        write_sealed(self.root / QUEUE, queue)

    # --- damage ---------------------------------------------------------------------------------------------------

    def damage(self) -> tuple[Damage, ...]:
        """Every damaged or missing file, as far as evaluations and contents.json know what there should be."""
        found = [self._damage(name, problem) for name in (SWEEP, CONTENTS) if (problem := _problem(self.root / name))]
        for name, key in ((ANCHORS, "anchors"), (QUEUE, "queue")):
            if self._contents().get(key) and (problem := _problem(self.root / name)):
                found.append(self._damage(name, problem))
        return (*found, *(damage for split in FOLDERS for damage in self._inspect(split)[1]))

    def set_aside(self) -> tuple[Damage, ...]:
        """Move damaged files to damaged/ and write again what the evaluations tell; returns what was found.

        Needs the sweep's lock. A kill in between changes nothing about what is found the next time.

        Raises:
            ToolchainError: nothing sound is left that says which question the sweep answers.
        """
        found = self.damage()
        if not found:
            return ()
        sweep, contents = self._sweep(), self._contents()
        if sweep is None:
            raise unknown_question(self)
        contents["confirmations"] = sorted(self.evaluations("holdout"))
        contents["anchors"], contents["queue"] = bool(anchors := self._anchors_again()), False
        for damage in found:
            self._move_aside(self.root / damage.file)
            if damage.candidate_id is not None and damage.split is not None:
                self._move_aside(entry_path(self.root, damage.candidate_id, damage.split))
        damaged = {damage.file for damage in found}
        if SWEEP in damaged:
            write_sealed(self.root / SWEEP, sweep)
        if ANCHORS in damaged and anchors:
            write_sealed(self.root / ANCHORS, anchors)
        self._write_contents(contents)
        return found

    # --- inside ---------------------------------------------------------------------------------------------------

    def _inspect(self, split: Split) -> tuple[dict[str, Evaluation], list[Damage]]:
        contents, sweep = self._contents(), self._stated_sweep()  # before the files: a running sweep adds to both
        known: dict[str, Evaluation] = {}
        damaged: list[Damage] = []
        for candidate_id in sorted({*entry_ids(self.root, split), *contents[FOLDERS[split]]}):
            try:
                evaluation = read_entry(self.root, candidate_id, split, sweep)
            except Damaged as error:
                damaged.append(error.damage)
                continue
            if evaluation is not None:
                known[candidate_id] = evaluation
            else:
                damaged.append(entry_damage(f"{FOLDERS[split]}/{candidate_id}.json", "is missing", candidate_id, split))
        return dict(sorted(known.items(), key=lambda item: (item[1].started_at, item[0]))), damaged

    def _sweep(self) -> dict[str, Any] | None:
        """What sweep.json says, or else contents.json, or else all evaluations together."""
        return self._stated_sweep() or self._contents()["sweep"]

    def _stated_sweep(self) -> dict[str, Any] | None:
        try:
            return read_sealed(self.root / SWEEP)
        except Unsound:
            return None

    def _contents(self) -> dict[str, Any]:
        """What contents.json says; where it is damaged, what is there."""
        try:
            return read_sealed(self.root / CONTENTS)
        except Unsound:
            sound = {split: stated(self.root, split) for split in FOLDERS}
            settings = dict.fromkeys(entry_ids(self.root, "validation"))
            settings |= {i: body["evaluation"]["candidate"] for i, body in sound["validation"].items()}
            told: list[dict[str, Any]] = []
            for body in (body for bodies in sound.values() for body in bodies.values()):
                told += [body["sweep"]] if body["sweep"] not in told else []
            sweep = self._stated_sweep() or (told[0] if len(told) == 1 else None)
            confirmed = entry_ids(self.root, "holdout")
            return {**NOTHING, "sweep": sweep, "evaluations": settings, "confirmations": confirmed}

    def _write_contents(self, contents: Mapping[str, Any]) -> None:
        there = {key: contents.get(key) or (self.root / f"{key}.json").exists() for key in ("anchors", "queue")}
        write_sealed(self.root / CONTENTS, {name: ({**contents, **there})[name] for name in NOTHING})

    def _anchors_again(self) -> dict[str, Any]:
        """The anchors as the evaluations know them: their drift is the baseline's median over the anchor."""
        found: dict[str, Any] = {}
        for split in FOLDERS:
            for evaluation in self.evaluations(split).values():
                latency = evaluation.measurement.latency
                if evaluation.status == "complete" and latency is not None:
                    found.setdefault(f"{split} {latency.batch}", latency.baseline_p50_ms / latency.drift)
                service = evaluation.measurement.service
                if service is not None and (seen := service.curve.baseline) is not None:
                    name = _of_curves(split, seen.batch, seen.length)
                    found.setdefault(name, service.curve.baseline_first_ms)
        return found

    def _damage(self, name: str, problem: str) -> Damage:
        mended = {
            SWEEP: "writes it again from what the others say",
            CONTENTS: "lists what is there; an evaluation that is gone as well will not be missed",
            ANCHORS: "computes it again from the evaluations",
            QUEUE: "lists the known evaluations again; what was in flight may come later",
        }[name]
        if name == SWEEP and self._sweep() is None:
            mended = "cannot go on here, since no other file says it either: start one with --fresh"
        return Damage(file=name, held=_HELD[name], problem=problem, mended=mended)

    def _move_aside(self, path: Path) -> None:
        if path.exists():
            (self.root / DAMAGED).mkdir(exist_ok=True)
            path.replace(self.root / DAMAGED / path.relative_to(self.root).as_posix().replace("/", "-"))


def unknown_question(journal: Journal) -> ToolchainError:
    problem = _problem(journal.root / SWEEP)
    return ToolchainError(
        f"{journal.root / SWEEP} ({_HELD[SWEEP]}) {problem}, and no other file says it either. Start a new sweep with "
        "--fresh; what is there stays."
    )


def _problem(path: Path) -> str | None:
    try:
        read_sealed(path)
    except Unsound as error:
        return str(error)
    return None


def _of_curves(split: Split, batch: int, length: int) -> str:
    return f"{split} {batch} curve {length}"


def _with_folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
