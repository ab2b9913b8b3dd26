"""Outcomes of windows that were judged before, by the digest of all that decides them: a killed run goes on, and
further checkpoints are judged beside those that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forwards import Stage
from workbench.quantization.llm.outcomes import TextOutcomes, Window
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.tensors import DESCRIPTION
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.system.source_closure import closure_digest

_MOST_FILES = 4096
_COLUMNS = ("nll", "predictions", "kl", "agreed")


def judged_key(model: LlmModel, served: Served, stage: Stage) -> str:
    """Digest of what decides a checkpoint's outcomes but for the windows: models, code, torch's kernels."""
    files = {held.file for held in served.tensors.values()}
    ours = {served.folder / DESCRIPTION, served.folder / "config.json", *files}
    theirs = {model.folder / "config.json", *model.places.values()}
    return digest(
        {
            "served": {file.name: file_digest(file) for file in ours},
            "float": {file.name: file_digest(file) for file in theirs},
            "stage": stage,
            "code": closure_digest("workbench.targets.ascend_llm.execution", "workbench.quantization.llm.reference"),
            "scoring": closure_digest("workbench.quantization.llm.outcomes"),
            "kernels": kernels(),
        }
    )


def outcomes_file(folder: Path, key: str, windows: Sequence[Window]) -> Path:
    """Where the outcomes of these windows are kept."""
    what = [[window.first, window.ids[0].tolist()] for window in windows]
    return folder / f"{digest([key, what])}.outcomes.json"


def kept_outcomes(file: Path, count: int) -> TextOutcomes | None:
    """What such a file holds of `count` windows; None where there is none or it is damaged."""
    try:
        found = read_sealed(file)
    except Unsound:
        return None
    if not _whole(found, count):
        return None
    file.touch()
    return TextOutcomes(
        nll=np.array(found["nll"], dtype=np.float64),
        predictions=np.array(found["predictions"], dtype=np.int64),
        kl=np.array(found["kl"], dtype=np.float64),
        agreed=np.array(found["agreed"], dtype=np.int64),
    )


def keep_outcomes(file: Path, outcomes: TextOutcomes) -> None:
    """Write them; of more than 4096 such files the oldest leave."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(file, {name: getattr(outcomes, name).tolist() for name in _COLUMNS})
    others = sorted(file.parent.glob("*.outcomes.json"), key=lambda each: -each.stat().st_mtime)
    for old in others[_MOST_FILES:]:
        old.unlink(missing_ok=True)


def _whole(found: Mapping[str, object], count: int) -> bool:
    columns = [found.get(name) for name in _COLUMNS]
    return all(isinstance(column, list) and len(column) == count for column in columns)
