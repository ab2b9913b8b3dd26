"""One evaluation on disk: a sealed JSON file that names its sweep and carries the digests of the files it refers to.

    evaluations/<id>.json      {"version", "sweep", "evaluation", "files": {"outcomes/<id>.validation.npz": "<sha256>"}}

Whatever is not as it was written is a `Damage`: a flipped bit, a cut, a file that is gone, files of two candidates
swapped, an evaluation of another sweep.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from workbench.values.damage import Damage
from workbench.values.documents.sealed_json import Unsound, read_bytes, read_sealed, write_sealed
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.results import Evaluation, evaluation_from_json

VERSION = 2
"""Of every file of a sweep that the workbench itself writes as JSON."""

Side = Literal["outcomes", "latency", "records", "logs"]
FOLDERS: Mapping[Split, str] = {"validation": "evaluations", "holdout": "confirmations"}
_ENDINGS: Mapping[Side, str] = {"outcomes": "npz", "latency": "npz", "records": "json", "logs": "log"}
_HELD: Mapping[str, str] = {
    "evaluations": "the evaluation",
    "confirmations": "the confirmation on held-out data",
    "outcomes": "the per-sample outcomes",
    "latency": "the raw times",
    "records": "the quantization record",
    "logs": "what the failing stage printed",
}


class Damaged(Exception):
    """An entry cannot be relied on; `damage` says why."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.words())
        self.damage = damage


def entry_path(root: Path, candidate_id: str, split: Split) -> Path:
    return root / FOLDERS[split] / f"{candidate_id}.json"


def side_path(root: Path, side: Side, candidate_id: str, split: Split | None) -> Path:
    """Where a file that an evaluation refers to lies; none refers to one without a split."""
    name = candidate_id if split is None else f"{candidate_id}.{split}"
    return root / side / f"{name}.{_ENDINGS[side]}"


def entry_ids(root: Path, split: Split) -> list[str]:
    """Candidates with an entry, sound or not."""
    return sorted(path.stem for path in (root / FOLDERS[split]).glob("[!.]*.json"))


def write_entry(root: Path, evaluation: Evaluation, sweep: Mapping[str, Any] | None) -> None:
    """Write an evaluation and the digests of its files, which are there already.

    A failed one refers to its log alone: nothing else of it is used, and a second attempt may be writing there.

    Args:
        sweep: what sweep.json says.
    """
    candidate_id, split = evaluation.candidate.id, evaluation.split
    sides: tuple[Side, ...] = ("logs",) if evaluation.failure is not None else ("outcomes", "latency", "records")
    paths = [side_path(root, side, candidate_id, split) for side in sides]
    body = {
        "version": VERSION,
        "sweep": sweep,
        "evaluation": _with_log(evaluation, lambda log: log.removeprefix(f"{root}/")).to_json(),
        "files": {path.relative_to(root).as_posix(): sha256(path.read_bytes()) for path in paths if path.exists()},
    }
    path = entry_path(root, candidate_id, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, body)


def read_entry(root: Path, candidate_id: str, split: Split, sweep: Mapping[str, Any] | None) -> Evaluation | None:
    """An evaluation whose own file and every file it refers to are as they were written; None where there is none.

    Args:
        sweep: what it must belong to; None where that is not known.

    Raises:
        Damaged: not as they were written.
        ConfigError: sound, but of a form that this revision does not know.
    """
    path = entry_path(root, candidate_id, split)
    if not path.exists():
        return None
    file = path.relative_to(root).as_posix()
    try:
        body = read_sealed(path)
    except Unsound as error:
        raise Damaged(entry_damage(file, str(error), candidate_id, split)) from error
    try:
        evaluation = evaluation_from_json(body["evaluation"])
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"was written by another revision of the workbench: {error}.",
            file=path,
            hint="Start a new sweep with --fresh (the old results are kept).",
        ) from error
    if evaluation.candidate.id != candidate_id or evaluation.split != split:
        whose = f"{evaluation.candidate.short_id} on {evaluation.split}"
        raise Damaged(entry_damage(file, f"holds the evaluation of {whose}", candidate_id, split))
    if sweep is not None and body["sweep"] != sweep:
        raise Damaged(entry_damage(file, "belongs to another sweep", candidate_id, split))
    for name, wanted in body["files"].items():
        try:
            data = read_bytes(root / name)
            problem = None if sha256(data) == wanted else "does not match its sha256" if data else "is empty"
        except Unsound as error:
            problem = str(error)
        if problem is not None:
            raise Damaged(entry_damage(name, problem, candidate_id, split))
    return _with_log(evaluation, lambda log: str(root / log))


def stated(root: Path, split: Split) -> dict[str, dict[str, Any]]:
    """Candidate id → what its entry says, of those whose own file is sound."""
    found = {}
    for candidate_id in entry_ids(root, split):
        with contextlib.suppress(Unsound):
            found[candidate_id] = read_sealed(entry_path(root, candidate_id, split))
    return found


def entry_damage(file: str, problem: str, candidate_id: str, split: Split) -> Damage:
    return Damage(
        file=file,
        held=_HELD[file.partition("/")[0]],
        problem=problem,
        mended="evaluates it again" if split == "validation" else "confirms it again if it is on the front",
        candidate_id=candidate_id,
        split=split,
    )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _with_log(evaluation: Evaluation, change: Callable[[str], str]) -> Evaluation:
    """The place of its log changed: on disk it is relative to the sweep's folder, so that a workspace may be moved."""
    failure = evaluation.failure
    if failure is None or failure.log_path is None:
        return evaluation
    return replace(evaluation, failure=replace(failure, log_path=change(failure.log_path)))
