"""Finished checkpoints of tiny models, made once for each recipe of a test session."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.targets.ascend_llm.folders import STATIC, write_llm, write_texts, write_v0
from workbench.targets.ascend_llm.calibrate import calibrate_llm

DYNAMIC = "calib_cfg: {w_bit: 8, a_bit: 8, mm_tensor: False, is_dynamic: True}"
MIXED = "calib_params: {mix_cfg: {'*.down_proj': w8a8_dynamic}}"


@cache
def checkpoint(family: str = "qwen2", dtype: str = "bfloat16", lines: tuple[str, ...] = (STATIC,)) -> Path:
    """A folder that nobody may change; `copied` gives one's own."""
    base = Path(tempfile.mkdtemp(prefix="tiny-checkpoint-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    recipe = write_v0(base / "recipe.yaml", *lines)
    write_llm(base / "model", family, dtype)
    calibrate_llm(base / "model", base / "checkpoint", cfg=recipe, data=write_texts(base / "texts.jsonl"))
    return base / "checkpoint"


def copied(to: Path, family: str = "qwen2", dtype: str = "bfloat16", lines: tuple[str, ...] = (STATIC,)) -> Path:
    """The same to be changed."""
    return Path(shutil.copytree(checkpoint(family, dtype, lines), to))
