"""What a run keeps so that a killed one goes on: finished blocks and the streams behind the last, with digests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file

from workbench.quantization.llm.walk import Stream
from workbench.targets.ascend_llm.tensors import Stored, write_weights
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.system.files import temporary_beside

_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The folder of one run."""

    folder: Path
    key: str

    def resume(self) -> tuple[int, list[Stream] | None]:
        """How many blocks are finished and sound, and the streams behind them; (0, None) to begin anew."""
        state = self._state()
        if state.get("key") != self.key:
            return 0, None
        try:
            if any(file_digest(self.folder / name) != known for name, known in state["files"].items()):
                return 0, None
        except OSError:
            return 0, None
        read = load_file(self.folder / _streams(state["done"]))
        streams: list[Stream] = [[] for _ in range(state["phases"])]
        for name in sorted(read, key=lambda each: tuple(map(int, each.split(".")))):
            streams[int(name.split(".")[0])].append(read[name])
        return state["done"], streams

    def keep(self, index: int, tensors: Sequence[Stored], streams: Sequence[Stream]) -> None:
        """Keep a block and the streams behind it; what was kept before stays until this is whole."""
        files = self._state().get("files", {}) if index else {}
        files.pop(_streams(index), None)
        types = {each.name: each.type for each in tensors}
        with temporary_beside(self.folder / block_file(index)) as draft:
            write_weights(tensors, draft, {"types": json.dumps(types)})
        hidden = [Stored(f"{p}.{n}", x) for p, stream in enumerate(streams) for n, x in enumerate(stream)]
        with temporary_beside(self.folder / _streams(index + 1)) as draft:
            write_weights(hidden, draft)
        for name in (block_file(index), _streams(index + 1)):
            files[name] = file_digest(self.folder / name)
        state = {"key": self.key, "done": index + 1, "phases": len(streams), "files": files}
        write_sealed(self.folder / _STATE, state)
        (self.folder / _streams(index)).unlink(missing_ok=True)

    def _state(self) -> dict[str, Any]:
        try:
            return read_sealed(self.folder / _STATE)
        except Unsound:
            return {}


def block_file(index: int) -> str:
    """Name of a finished block's file."""
    return f"block_{index:05}.safetensors"


def stored_block(file: Path) -> list[Stored]:
    """The tensors of a kept block, mapped from its file."""
    with safe_open(file, framework="pt") as block:
        types = json.loads(block.metadata()["types"])
        return [Stored(name, block.get_tensor(name), kind) for name, kind in types.items()]


def _streams(done: int) -> str:
    return f"streams_{done:05}.safetensors"
