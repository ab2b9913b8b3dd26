"""The overflow check (acl.json with `dump_debug: on`): a file appears only when something overflowed (pyacl.md §5.6).

    <dump_path>/<time>/<device>/<model>/<model id>/<data index>/Opdebug.Node_OpDebug.<task>.<stream>.<time stamp>

What is watched: an output of the model that is not finite (an infinity, or what became of one) although all its
inputs are. The emulator sees no tensors inside, so it tells less than a device. The content is JSON with the fields
that the vendor's parser gives, and says that it is emulated; the vendor's own files are binary.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel

FLOAT_TO_HALF = 0x100
FLOATING_POINT = 0x20
_MAGIC = 0x5A5A5A5A
_FOLDER: dict[str, Path] = {}


def configure(folder: Path | None) -> None:
    _FOLDER.clear()
    if folder is not None:
        _FOLDER["path"] = folder


def on() -> bool:
    return bool(_FOLDER)


def watch(
    entry: LoadedModel, feeds: Mapping[str, npt.NDArray[Any]], results: Mapping[str, npt.NDArray[Any]]
) -> Path | None:
    """The file that was written, when an output overflowed."""
    if not _FOLDER or any(_overflowed(values) for values in feeds.values()):
        return None
    for index, tensor in enumerate(entry.model.outputs):
        if _overflowed(results[tensor.name]):
            return _write(entry, index, FLOAT_TO_HALF if tensor.dtype == "float16" else FLOATING_POINT)
    return None


def _overflowed(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and not bool(np.isfinite(values).all())


def _write(entry: LoadedModel, task: int, status: int) -> Path:
    stamp = time.time()
    folder = _FOLDER["path"] / time.strftime("%Y%m%d%H%M%S", time.localtime(stamp))
    folder = folder / str(entry.context.device.index) / entry.name / str(entry.id) / str(entry.executions - 1)
    folder.mkdir(parents=True, exist_ok=True)
    nothing = {"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0, "pc_start": "0x0", "para_base": "0x0"}
    core = {"model_id": entry.id, "stream_id": 0, "task_id": task, "task_type": 0, "kernel_code": "0x0", "block_id": 0}
    body = {
        "emulated": True,
        "magic": _MAGIC,
        "DHA Atomic Add": {**nothing, "status": 0},
        "L2 Atomic Add": {**nothing, "status": 0},
        "AI Core": {**core, "pc_start": "0x0", "para_base": "0x0", "status": status},
    }
    file = folder / f"Opdebug.Node_OpDebug.{task}.0.{int(stamp * 1e6)}"
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(json.dumps(body, indent=2), encoding="utf-8")
    return temporary.replace(file)
