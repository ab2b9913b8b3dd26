"""Memory, disk and time that a run will need, estimated before it starts."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from workbench.quantization.llm.checkpoint import LlmModel, block_bytes, read_block, tensor_shapes
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.forward import rope_of, run_block
from workbench.quantization.llm.recipe import LlmRecipe, Quantize, Smooth
from workbench.quantization.llm.run import Samples
from workbench.quantization.llm.smoothing.apply import keeps_every_sample
from workbench.quantization.llm.walk import needs_data
from workbench.values.documents.input_files import size_text
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.cpu import available_memory_bytes

_BASE_BYTES = 400 << 20
"""Of the interpreter with torch, transformers and this package: 335 MiB were resident before work began, in one run."""
_BLOCK_FACTOR = 4
"""A block's weights stand beside what they mean as integers, the integers, and one float32 copy of the largest."""
_SCORING_BYTES = 6 << 25
"""Of a block of logits in float64, half a dozen times, where a window is scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Attributes:
    memory_bytes: at the peak, estimated.
    disk_bytes: of the checkpoint and of what a run keeps on the way, estimated.
    passes: of all blocks over all samples, while smoothing and ranges are found.
    """

    memory_bytes: int
    disk_bytes: int
    passes: int = 0


def forecast_of(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> Forecast:
    """What a recipe needs on a model with these samples: one block, the embedding, streams and one sample's values."""
    config = model.config
    token = config.dtype.itemsize * config.hidden
    streams = 0
    for phase in recipe.phases:
        if any(map(needs_data, phase.stages)):
            chosen = samples.get(phase.data) or samples["calibration"]
            streams += 2 * token * sum(each.numel() for each in chosen)
    integers = {
        name
        for stage in recipe.stages
        if isinstance(stage, Quantize)
        for name, how in stage.linears.items()
        if how.type != "FLOAT"
    }
    longest = max(each.numel() for found in samples.values() for each in found)
    values = 4 * 4 * longest * max(config.intermediate, config.heads * config.head_dim)
    kept = 0
    if any(isinstance(stage, Smooth) and keeps_every_sample(stage) for stage in recipe.stages):
        tokens = sum(each.numel() for each in samples["calibration"])
        kept = (
            tokens * config.dtype.itemsize * (2 * config.hidden + config.heads * config.head_dim + config.intermediate)
        )
        kept += 6 * 4 * tokens * config.intermediate
    table = config.dtype.itemsize * config.vocabulary * config.hidden
    outer = table * (1 if config.tied else 2)
    return Forecast(
        memory_bytes=_BASE_BYTES + max(_BLOCK_FACTOR * block_bytes(config), outer + table) + streams + values + kept,
        # finished blocks stay until the checkpoint is whole; the embedding and the head are written once
        disk_bytes=2 * (checkpoint_bytes(config, integers) - table + streams),
        passes=sum(map(needs_data, recipe.stages)),
    )


def checkpoint_bytes(config: LlmConfig, integers: Collection[str]) -> int:
    """Of the weights of a checkpoint with these linears of 8 bits, estimated; a tied head is written once more."""
    return sum(
        math.prod(shape) * (1 if name.removesuffix(".weight") in integers else config.dtype.itemsize)
        for name, shape in tensor_shapes(config).items()
    )


def window_ms(model: LlmModel, tokens: int) -> float:
    """Roughly, of the float model over so many tokens: by one of its blocks, and the head in proportion."""
    config, rope, block = model.config, rope_of(model.config), read_block(model, 0)
    hidden = torch.ones(1, tokens, config.hidden, dtype=config.dtype)
    taken_ms = []
    for _ in range(2):  # the first call also prepares kernels
        began = perf_counter()
        with torch.inference_mode():
            run_block(config, rope, block, hidden)
        taken_ms.append((perf_counter() - began) * 1000)
    head = config.vocabulary * config.hidden * config.dtype.itemsize / block_bytes(config)
    return min(taken_ms) * (config.layers + head)


def judging_bytes(config: LlmConfig, *, tokens: int, longest: int) -> int:
    """Memory that judging needs at the peak, estimated: a block, the head, hidden states, two windows' logits.

    Args:
        tokens: of all windows, whose states of the float model are kept.
        longest: tokens of the longest input.
    """
    state = config.dtype.itemsize * config.hidden
    table = config.dtype.itemsize * config.vocabulary * config.hidden
    values = 4 * 4 * longest * max(config.intermediate, config.heads * config.head_dim)
    logits = 2 * longest * config.vocabulary * config.dtype.itemsize
    return (
        _BASE_BYTES
        + 2 * table
        + _BLOCK_FACTOR * block_bytes(config)
        + 2 * tokens * state
        + values
        + logits
        + _SCORING_BYTES
    )


def check_memory(needed_bytes: int, key: str) -> None:
    """Raises ConfigError before any work where memory cannot hold it."""
    available = available_memory_bytes()
    if available is not None and needed_bytes > available:
        raise ConfigError(
            f"the run needs about {size_text(needed_bytes)} of memory, {size_text(available)} can be had.",
            key=key,
            hint="Give fewer or shorter texts, or a larger machine.",
        )


def check_room(forecast: Forecast, to: Path) -> None:
    """Raises ConfigError or ToolchainError before any work where memory or disk cannot hold it."""
    check_memory(forecast.memory_bytes, "--data")
    place = next(folder for folder in (to, *to.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if forecast.disk_bytes > free:
        raise ToolchainError(
            f"the run needs about {size_text(forecast.disk_bytes)} on the disk of {to}, {size_text(free)} are free. "
            "Free space or choose another disk."
        )
