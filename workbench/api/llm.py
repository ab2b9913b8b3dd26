"""Language models: a float model and a recipe in, a checkpoint for serving out; and which checkpoint keeps answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.quantization.llm.differences import FEW_WINDOWS
from workbench.targets.ascend_llm.calibrate import CalibratedLlm
from workbench.targets.ascend_llm.calibrate import calibrate_llm as _calibrate
from workbench.targets.ascend_llm.judge import Alike, JudgedModel, Judgement, Judging
from workbench.targets.ascend_llm.judge import judge as _judge
from workbench.targets.ascend_llm.roofline import ServedShape

__all__ = [
    "FEW_WINDOWS",
    "Alike",
    "CalibratedLlm",
    "JudgedModel",
    "Judgement",
    "Judging",
    "ServedShape",
    "calibrate_llm",
    "judge_llm",
]

_log = logging.getLogger(__name__)


def calibrate_llm(
    model: Path | str,
    to: Path | str,
    *,
    cfg: Path | str,
    data: Path | str | None = None,
    anti_data: Path | str | None = None,
    strict: bool = False,
    on_message: Callable[[str], None] = _log.info,
) -> CalibratedLlm:
    """Quantize a language model by a recipe of msModelSlim and write its checkpoint into `to`.

    Args:
        model: folder of a Llama, Qwen2 or Qwen3 model in Hugging Face's format.
        cfg: the tool's YAML, of either generation.
        data: calibration texts; what the recipe names when None.
        anti_data: texts for smoothing alone.
        strict: refuse what vLLM-Ascend would not serve.
        on_message: told in a sentence which block is done.

    Raises:
        ConfigError: a file is missing, damaged or does not fit the model, or there is too little memory.
        ToolchainError: the folder cannot be written.
    """
    return _calibrate(
        Path(model),
        Path(to),
        cfg=Path(cfg),
        data=None if data is None else Path(data),
        anti_data=None if anti_data is None else Path(anti_data),
        strict=strict,
        report=on_message,
    )


def judge_llm(
    model: Path | str,
    checkpoints: Sequence[Path | str],
    judging: Judging,
    *,
    on_message: Callable[[str], None] = _log.info,
) -> Judgement:
    """Judge checkpoints of a float model by texts, questions and prompts, paired with intervals; with their sizes and
    modelled times.

    The float model's states and the outcomes of windows are kept in the user's cache: a killed run goes on, and further
    checkpoints cost theirs alone.

    Args:
        judging: what to judge on.
        on_message: told in a sentence how far it is.

    Raises:
        ConfigError: a file is missing, damaged or of another model, or there is too little memory.
        MeasureError: a model gives values that are NaN or infinite; names it and the window.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = judging.kept_in or home / "workbench" / "judged"
    return _judge(Path(model), [Path(each) for each in checkpoints], replace(judging, kept_in=kept), report=on_message)
