"""Language models: a float model and a recipe in, a checkpoint for serving out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from workbench.targets.ascend_llm.calibrate import CalibratedLlm
from workbench.targets.ascend_llm.calibrate import calibrate_llm as _calibrate

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
