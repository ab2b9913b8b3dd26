"""What a run keeps so that a killed one goes on: finished blocks and the streams behind the last, with digests; and
outcomes of windows by the digest of all that decides them, so that further checkpoints are judged beside known ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.outcomes import Window
from workbench.quantization.llm.walk import Stream
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.tensors import DESCRIPTION, STORED_TYPES, Entry, Stored, stored, write_weights
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.paired_scores import WindowOutcomes
from workbench.values.system.files import temporary_beside, write_json_atomically
from workbench.values.system.source_closure import closure_digest

_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The folder of one run."""

    folder: Path
    key: str

    def resume(self) -> tuple[int, list[Stream] | None]:
        """How many blocks are finished and sound, and the streams behind them; (0, None) to begin anew."""
        state = self._state()
        if state is None or state.get("key") != self.key:
            return 0, None
        done, files = state.get("done"), state.get("files")
        if not isinstance(done, int) or not isinstance(files, dict):
            return 0, None
        try:
            if any(file_digest(self.folder / name) != digest for name, digest in files.items()):
                return 0, None
            read = load_file(self.folder / _streams(done))
        except (OSError, SafetensorError):
            return 0, None
        streams: list[Stream] = [[] for _ in range(int(state.get("phases", 0)))]
        for name in sorted(read, key=lambda each: tuple(map(int, each.split(".")))):
            streams[int(name.split(".")[0])].append(read[name])
        return done, streams

    def keep(self, index: int, entries: Sequence[Entry], streams: Sequence[Stream]) -> None:
        """Keep a block and the streams behind it; what was kept before stays until this is whole."""
        files = dict((self._state() or {}).get("files", {})) if index else {}
        files.pop(_streams(index), None)
        types = {entry.name: entry.type for entry in entries}
        with temporary_beside(self.folder / block_file(index)) as draft:
            write_weights([stored(e.name, e.value) for e in entries], draft, {"types": json.dumps(types)})
        hidden = [stored(f"{p}.{n}", x) for p, stream in enumerate(streams) for n, x in enumerate(stream)]
        with temporary_beside(self.folder / _streams(index + 1)) as draft:
            write_weights(hidden, draft)
        for name in (block_file(index), _streams(index + 1)):
            files[name] = file_digest(self.folder / name)
        state = {"key": self.key, "done": index + 1, "phases": len(streams), "files": files}
        write_json_atomically(self.folder / _STATE, state)
        (self.folder / _streams(index)).unlink(missing_ok=True)

    def _state(self) -> dict[str, Any] | None:
        try:
            value = loads((self.folder / _STATE).read_bytes())
        except (OSError, JsonError):
            return None
        return value if isinstance(value, dict) else None


def block_file(index: int) -> str:
    """Name of a finished block's file."""
    return f"block_{index:05}.safetensors"


def stored_block(file: Path) -> tuple[list[Stored], dict[str, str]]:
    """The tensors of a kept block, read when they are written, and their types."""
    with safe_open(file, framework="pt") as block:
        types: dict[str, str] = json.loads(block.metadata()["types"])
        pieces = {name: block.get_slice(name) for name in types}
        found = [
            Stored(
                name=name,
                dtype=STORED_TYPES[piece.get_dtype()],
                shape=tuple(piece.get_shape()),
                read=partial(_read, file, name),
            )
            for name, piece in pieces.items()
        ]
    return found, types


def _read(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as block:
        value: torch.Tensor = block.get_tensor(name)
        return value


def _streams(done: int) -> str:
    return f"streams_{done:05}.safetensors"


# --- outcomes of windows that were judged before ----------------------------------------------------------------------


_MOST_FILES = 4096
_COLUMNS = ("nll", "predictions", "kl", "agreed")


def judged_key(model: LlmModel, served: Served) -> str:
    """Digest of what decides a checkpoint's outcomes but for the windows: models, code, torch's kernels."""
    files = {held.file for held in served.tensors.values()}
    ours = {served.folder / DESCRIPTION, served.folder / "config.json", *files}
    theirs = {model.folder / "config.json", *model.places.values()}
    return digest(
        {
            "served": {file.name: file_digest(file) for file in ours},
            "float": {file.name: file_digest(file) for file in theirs},
            "stage": "decode",
            "code": closure_digest("workbench.targets.ascend_llm.execution", "workbench.quantization.llm.reference"),
            "scoring": closure_digest("workbench.quantization.llm.outcomes"),
            "kernels": kernels(),
        }
    )


def outcomes_file(folder: Path, key: str, windows: Sequence[Window]) -> Path:
    """Where the outcomes of these windows are kept."""
    what = [[window.first, window.ids[0].tolist()] for window in windows]
    return folder / f"{digest([key, what])}.outcomes.json"


def kept_outcomes(file: Path, count: int) -> WindowOutcomes | None:
    """What such a file holds of `count` windows; None where there is none or it is damaged."""
    try:
        found = read_sealed(file)
    except Unsound:
        return None
    if not _whole(found, count):
        return None
    file.touch()
    return WindowOutcomes(
        nll=np.array(found["nll"], dtype=np.float64),
        predictions=np.array(found["predictions"], dtype=np.int64),
        kl=np.array(found["kl"], dtype=np.float64),
        agreed=np.array(found["agreed"], dtype=np.int64),
    )


def keep_outcomes(file: Path, outcomes: WindowOutcomes) -> None:
    """Write them; of more than 4096 such files the oldest leave."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(file, {name: getattr(outcomes, name).tolist() for name in _COLUMNS})
    others = sorted(file.parent.glob("*.outcomes.json"), key=lambda each: -each.stat().st_mtime)
    for old in others[_MOST_FILES:]:
        old.unlink(missing_ok=True)


def _whole(found: Mapping[str, object], count: int) -> bool:
    columns = [found.get(name) for name in _COLUMNS]
    return all(isinstance(column, list) and len(column) == count for column in columns)
