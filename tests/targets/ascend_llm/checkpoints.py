"""Finished checkpoints of tiny models: made once for each recipe of a test session, or to be changed by tensors."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.targets.ascend_llm.folders import STATIC, WEIGHT, write_llm, write_texts, write_v0, write_v1
from workbench.targets.ascend_llm.calibrate import calibrate_llm

DYNAMIC = "calib_cfg: {w_bit: 8, a_bit: 8, mm_tensor: False, is_dynamic: True}"
MIXED = "calib_params: {mix_cfg: {'*.down_proj': w8a8_dynamic}}"
PER_TOKEN = f"{{type: linear_quant, qconfig: {{act: {{scope: per_token, symmetric: True}}, {WEIGHT}}}}}"
MIX = f"{{type: linear_quant, qconfig: {{act: {{scope: pd_mix, symmetric: False}}, {WEIGHT}}}}}"
CACHE = "{type: dynamic_cache, qconfig: {scope: per_channel, dtype: int8, symmetric: True, method: minmax}}"


@cache
def checkpoint(family: str = "qwen2", dtype: str = "bfloat16", lines: tuple[str, ...] = (STATIC,)) -> Path:
    """A folder that nobody may change; `copied` gives one's own."""
    base = Path(tempfile.mkdtemp(prefix="tiny-checkpoint-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    return write_checkpoint(base, v0="\n  ".join(lines), family=family, dtype=dtype)


def write_checkpoint(
    folder: Path, *processes: str, v0: str = STATIC, family: str = "qwen2", dtype: str = "bfloat16", **changes: Any
) -> Path:
    """A checkpoint below `folder`: by processes of v1, or by v0's lines, static W8A8 unless given."""
    model = write_llm(folder / "model", family, dtype, **changes)
    data = write_texts(folder / "texts.jsonl")
    cfg = folder / "recipe.yaml"
    cfg = write_v1(cfg, *processes) if processes else write_v0(cfg, v0)
    return calibrate_llm(model, folder / "checkpoint", cfg=cfg, data=data).folder


def copied(checkpoint: Path, to: Path) -> Path:
    shutil.copytree(checkpoint, to)
    return to


def weight_file(folder: Path) -> Path:
    return next(folder.glob("quant_model_weight*.safetensors"))


def change(folder: Path, name: str, new: torch.Tensor | Callable[[torch.Tensor], torch.Tensor] | None) -> Path:
    """Replace a tensor, or take it out of its file."""
    file = weight_file(folder)
    tensors = load_file(file)
    if new is None:
        tensors.pop(name)
    else:
        tensors[name] = new if isinstance(new, torch.Tensor) else new(tensors[name])
    file.unlink()  # the old file may be mapped still
    save_file({key: value.clone() for key, value in tensors.items()}, file)
    return folder


def describe(folder: Path, changes: Mapping[str, object]) -> Path:
    """Change keys of the description; None takes one out."""
    file = folder / "quant_model_description.json"
    found = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))
    return folder
