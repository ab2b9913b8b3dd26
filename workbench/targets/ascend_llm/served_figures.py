"""What serving a float model or a checkpoint takes: its files, a card's memory, and modelled times."""

from __future__ import annotations

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.config import LlmConfig
from workbench.targets.ascend_llm.judgement import ServedFigures
from workbench.targets.ascend_llm.roofline import ModelledTimes, ServedShape, modelled_times, served_size, time_ratio
from workbench.targets.ascend_llm.served import Served


def float_figures(model: LlmModel, shape: ServedShape) -> tuple[ServedFigures, ModelledTimes]:
    """Of the float model, and its modelled times."""
    times = modelled_times(model.config, {}, quantized_cache=False, shape=shape)
    figures = ServedFigures(
        disk_bytes=sum(file.stat().st_size for file in dict.fromkeys(model.places.values())),
        size=served_size(model.config, {}, quantized_cache=False),
        prefill_ms=times.prefill_ms,
        decode_ms=times.decode_ms,
    )
    return figures, times


def served_figures(served: Served, config: LlmConfig, shape: ServedShape, base: ModelledTimes) -> ServedFigures:
    """Of a checkpoint.

    Args:
        base: the float model's times, for the ratios.
    """
    times = modelled_times(config, served.types, quantized_cache=bool(served.cached), shape=shape)
    return ServedFigures(
        disk_bytes=sum(file.stat().st_size for file in dict.fromkeys(held.file for held in served.tensors.values())),
        size=served_size(config, served.types, quantized_cache=bool(served.cached)),
        prefill_ms=times.prefill_ms,
        decode_ms=times.decode_ms,
        prefill_ratio=time_ratio(times.prefill, base.prefill),
        decode_ratio=time_ratio(times.decode, base.decode),
    )
