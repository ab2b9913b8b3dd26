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
evaluation is {"version", "sweep", "evaluation", "files": {"outcomes/<id>.validation.npz": "<sha256>"}} and so names the
sweep and carries the digests of its files; contents.json says what must be there. So a flipped bit, a cut, a swap and a
deletion are told from what was written (`Journal.damage`). A candidate with a damaged
file counts as not evaluated; readers change nothing, and the next sweep evaluates it again. What is lost besides is
written again from the evaluations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.sealed_json import Unsound, read_bytes, read_sealed, write_sealed
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.measurement import Split
from workbench.values.results import Damage, Evaluation, evaluation_from_json

VERSION = 2
"""Of every file of a sweep that the workbench itself writes as JSON."""
SWEEP, CONTENTS, ANCHORS, QUEUE = "sweep.json", "contents.json", "anchors.json", "queue.json"
DAMAGED = "damaged"
_FOLDERS: Mapping[Split, str] = {"validation": "evaluations", "holdout": "confirmations"}
_Side = Literal["outcomes", "latency", "records", "logs"]
_ENDINGS: Mapping[_Side, str] = {"outcomes": "npz", "latency": "npz", "records": "json", "logs": "log"}
_HELD: Mapping[str, str] = {
    SWEEP: "which question this sweep answers",
    CONTENTS: "which candidates were evaluated",
    ANCHORS: "how fast the machine was when the sweep began",
    QUEUE: "which candidates were asked for",
    "evaluations": "the evaluation",
    "confirmations": "the confirmation on held-out data",
    "outcomes": "the per-sample outcomes",
    "latency": "the raw times",
    "records": "the quantization record",
    "logs": "what the failing stage printed",
}
_MENDED: Mapping[str, str] = {
    SWEEP: "writes it again from what the others say",
    CONTENTS: "lists what is there; an evaluation that is gone as well will not be missed",
    ANCHORS: "computes it again from the evaluations",
    QUEUE: "lists the known evaluations again; what was in flight may come later",
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
        return self._side("outcomes", candidate_id, split)

    def latency(self, candidate_id: str, split: Split) -> Path:
        return self._side("latency", candidate_id, split)

    def record(self, candidate_id: str, split: Split | None = None) -> Path:
        """Of an evaluation; without a split, of a command beside the sweep, such as an export."""
        return self._side("records", candidate_id, split)

    def log(self, candidate_id: str, split: Split | None = None) -> Path:
        """As `record`."""
        return self._side("logs", candidate_id, split)

    # --- evaluations ----------------------------------------------------------------------------------------------

    def write(self, evaluation: Evaluation) -> None:
        """Keep an evaluation, after all its files: validation results under evaluations/, holdout results under
        confirmations/.

        A failed one refers to its log alone: nothing else of it is used, and a second attempt may be writing there.
        """
        candidate, split, contents = evaluation.candidate, evaluation.split, self._contents()
        sides: tuple[_Side, ...] = ("outcomes", "latency", "records") if evaluation.failure is None else ("logs",)
        paths = [path for side in sides if (path := self._side(side, candidate.id, split)).exists()]
        body = {
            "version": VERSION,
            "sweep": self._sweep(),
            "evaluation": _with_log(evaluation, lambda log: log.removeprefix(f"{self.root}/")).to_json(),
            "files": {
                path.relative_to(self.root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
            },
        }
        (path := self._entry(candidate.id, split)).parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, body)
        if split == "holdout":
            confirmed = sorted({*contents["confirmations"], candidate.id})
            self._write_contents({**contents, "confirmations": confirmed})
        else:
            evaluated = {**contents["evaluations"], candidate.id: candidate.to_json()}
            self._write_contents({**contents, "evaluations": evaluated})

    def evaluation(self, candidate_id: str, split: Split = "validation") -> Evaluation | None:
        """None where there is none, or one with a damaged file."""
        found = self._read(candidate_id, split, sound(self.root / SWEEP))
        return found if isinstance(found, Evaluation) else None

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

    def anchor(
        self, split: Split, batch: int, baseline_p50_ms: float, *, length: int | None = None, keep: bool = True
    ) -> float:
        """The baseline's first median on these data at this batch size, or the given one when there is none yet.

        Args:
            length: of the calls of a curve, where it meets other caches than when its calls take turns with those of
                one other shape.
            keep: make the given one the first when there is none.
        """
        known, name = sound(self.root / ANCHORS), _anchor_name(split, batch, length)
        anchors = self._anchors_again() if known is None else known
        if name not in anchors and keep:
            write_sealed(self.root / ANCHORS, {**anchors, name: baseline_p50_ms})
        return float(anchors.get(name, baseline_p50_ms))

    def identity(self) -> str | None:
        """Of the experiment that this sweep belongs to; None where nothing sound is left that says it."""
        return (self._sweep() or {}).get("identity")

    def sweep(self) -> dict[str, Any]:
        """What sweep.json says, such as the identity of the experiment that this sweep belongs to.

        Raises:
            ToolchainError: nothing sound is left that says it.
        """
        if (known := self._sweep()) is None:
            raise ToolchainError(
                f"{self.root / SWEEP} ({_HELD[SWEEP]}) {_problem(self.root / SWEEP)}, and no other file says it "
                "either. Start a new sweep with --fresh; what is there stays."
            )
        return known

    def queue(self) -> dict[str, Any]:
        """What `write_queue` was given last; empty where that is gone or damaged, or never was."""
        return sound(self.root / QUEUE) or {}

    def write_queue(self, queue: Mapping[str, object]) -> None:
        """Keep who was asked for, before it is evaluated."""
        write_sealed(self.root / QUEUE, queue)

    # --- damage ---------------------------------------------------------------------------------------------------

    def damage(self) -> tuple[Damage, ...]:
        """Every damaged or missing file, as far as evaluations and contents.json know what there should be."""
        contents = self._contents()
        wanted = (SWEEP, CONTENTS, *(name for name in (ANCHORS, QUEUE) if contents.get(name.removesuffix(".json"))))
        found = [self._damage(name, problem) for name in wanted if (problem := _problem(self.root / name))]
        return (*found, *(damage for split in _FOLDERS for damage in self._inspect(split)[1]))

    def set_aside(self) -> tuple[Damage, ...]:
        """Move damaged files to damaged/ and write again what the evaluations tell; returns what was found.

        Needs the sweep's lock. A kill in between changes nothing about what is found the next time.

        Raises:
            ToolchainError: nothing sound is left that says which question the sweep answers.
        """
        found = self.damage()
        if not found:
            return ()
        sweep, contents = self.sweep(), self._contents()
        contents["confirmations"] = sorted(self.evaluations("holdout"))
        contents["anchors"], contents["queue"] = bool(anchors := self._anchors_again()), False
        for damage in found:
            self._move_aside(self.root / damage.file)
            if damage.candidate_id is not None and damage.split is not None:
                self._move_aside(self._entry(damage.candidate_id, damage.split))
        damaged = {damage.file for damage in found}
        if SWEEP in damaged:
            write_sealed(self.root / SWEEP, sweep)
        if ANCHORS in damaged and anchors:
            write_sealed(self.root / ANCHORS, anchors)
        self._write_contents(contents)
        return found

    # --- inside ---------------------------------------------------------------------------------------------------

    def _inspect(self, split: Split) -> tuple[dict[str, Evaluation], list[Damage]]:
        contents, sweep = self._contents(), sound(self.root / SWEEP)  # before the files: a running sweep adds to both
        every = sorted({*self._ids(split), *contents[_FOLDERS[split]]})
        found = [self._read(candidate_id, split, sweep) for candidate_id in every]
        known = [one for one in found if isinstance(one, Evaluation)]
        known.sort(key=lambda evaluation: (evaluation.started_at, evaluation.candidate.id))
        return {one.candidate.id: one for one in known}, [one for one in found if isinstance(one, Damage)]

    def _read(self, candidate_id: str, split: Split, sweep: Mapping[str, Any] | None) -> Evaluation | Damage:
        """An evaluation whose own file and every file it refers to are as they were written, or what is not.

        Args:
            sweep: what it must belong to; None where that is not known.

        Raises:
            ConfigError: sound, but of a form that this revision does not know.
        """
        path = self._entry(candidate_id, split)

        def damage(problem: str, file: str = path.relative_to(self.root).as_posix()) -> Damage:
            return self._damage(file, problem, candidate_id, split)

        try:
            body = read_sealed(path)
            evaluation = evaluation_from_json(body["evaluation"])
        except Unsound as error:
            return damage(str(error))
        except (ValueError, KeyError) as error:
            raise ConfigError(
                f"was written by another revision of the workbench: {error}.",
                file=path,
                hint="Start a new sweep with --fresh (the old results are kept).",
            ) from error
        if evaluation.candidate.id != candidate_id or evaluation.split != split:
            return damage(f"holds the evaluation of {evaluation.candidate.short_id} on {evaluation.split}")
        if sweep is not None and body["sweep"] != sweep:
            return damage("belongs to another sweep")
        for name, wanted in body["files"].items():
            try:
                data = read_bytes(self.root / name)
            except Unsound as error:
                return damage(str(error), name)
            if hashlib.sha256(data).hexdigest() != wanted:
                return damage("does not match its sha256" if data else "is empty", name)
        return _with_log(evaluation, lambda log: str(self.root / log))

    def _entry(self, candidate_id: str, split: Split) -> Path:
        return self.root / _FOLDERS[split] / f"{candidate_id}.json"

    def _side(self, side: _Side, candidate_id: str, split: Split | None) -> Path:
        """Where a file that an evaluation refers to lies, in a folder that is there; none refers to one without a
        split."""
        name = candidate_id if split is None else f"{candidate_id}.{split}"
        path = self.root / side / f"{name}.{_ENDINGS[side]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _ids(self, split: Split) -> list[str]:
        """Candidates with an entry, sound or not."""
        return sorted(path.stem for path in (self.root / _FOLDERS[split]).glob("[!.]*.json"))

    def _sweep(self) -> dict[str, Any] | None:
        """What sweep.json says, or else contents.json, or else all evaluations together."""
        return sound(self.root / SWEEP) or self._contents()["sweep"]

    def _contents(self) -> dict[str, Any]:
        """What contents.json says; where it is damaged, what is there."""
        if (known := sound(self.root / CONTENTS)) is not None:
            return known
        settings: dict[str, Any] = dict.fromkeys(self._ids("validation"))
        told: list[dict[str, Any]] = []
        for split in _FOLDERS:
            for candidate_id in self._ids(split):
                if (body := sound(self._entry(candidate_id, split))) is not None:
                    told += [body["sweep"]] if body["sweep"] not in told else []
                    settings |= {candidate_id: body["evaluation"]["candidate"]} if split == "validation" else {}
        sweep = sound(self.root / SWEEP) or (told[0] if len(told) == 1 else None)
        return {**NOTHING, "sweep": sweep, "evaluations": settings, "confirmations": self._ids("holdout")}

    def _write_contents(self, contents: Mapping[str, Any]) -> None:
        there = {key: contents.get(key) or (self.root / f"{key}.json").exists() for key in ("anchors", "queue")}
        write_sealed(self.root / CONTENTS, {name: ({**contents, **there})[name] for name in NOTHING})

    def _anchors_again(self) -> dict[str, Any]:
        """The anchors as the evaluations know them: their drift is the baseline's median over the anchor."""
        found: dict[str, Any] = {}
        for split in _FOLDERS:
            for evaluation in self.evaluations(split).values():
                latency = evaluation.measurement.latency
                if evaluation.status == "complete" and latency is not None:
                    found.setdefault(_anchor_name(split, latency.batch), latency.baseline_p50_ms / latency.drift)
                service = evaluation.measurement.service
                if service is not None and (seen := service.curve.baseline) is not None:
                    found.setdefault(_anchor_name(split, seen.batch, seen.length), service.curve.baseline_first_ms)
        return found

    def _damage(self, file: str, problem: str, candidate_id: str | None = None, split: Split | None = None) -> Damage:
        mended = _MENDED.get(file, "evaluates it again")
        if file == SWEEP and self._sweep() is None:
            mended = "cannot go on here, since no other file says it either: start one with --fresh"
        elif split == "holdout":
            mended = "confirms it again if it is on the front"
        held = _HELD[file.partition("/")[0]]
        return Damage(file=file, held=held, problem=problem, mended=mended, candidate_id=candidate_id, split=split)

    def _move_aside(self, path: Path) -> None:
        if path.exists():
            (self.root / DAMAGED).mkdir(exist_ok=True)
            path.replace(self.root / DAMAGED / path.relative_to(self.root).as_posix().replace("/", "-"))


def _problem(path: Path) -> str | None:
    try:
        read_sealed(path)
    except Unsound as error:
        return str(error)
    return None


def sound(path: Path) -> dict[str, Any] | None:
    """What a file says; None where it is gone or damaged."""
    try:
        return read_sealed(path)
    except Unsound:
        return None


def _anchor_name(split: Split, batch: int, length: int | None = None) -> str:
    return f"{split} {batch}" if length is None else f"{split} {batch} curve {length}"


def _with_log(evaluation: Evaluation, change: Callable[[str], str]) -> Evaluation:
    """The place of its log changed: on disk it is relative to the sweep's folder, so that a workspace may be moved."""
    failure = evaluation.failure
    if failure is None or failure.log_path is None:
        return evaluation
    return replace(evaluation, failure=replace(failure, log_path=change(failure.log_path)))
