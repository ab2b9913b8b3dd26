"""Memory, disk and time that a run will need, estimated before it starts."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection
from pathlib import Path
from time import perf_counter

import torch

from workbench.quantization.llm.checkpoint import LlmModel, block_bytes, read_block, tensor_shapes
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.forward import run_block
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


def memory_bytes(config: LlmConfig, *, tokens: int, longest: int, scored: bool = False) -> int:
    """At the peak, estimated: one block, embedding or head beside a copy, hidden states in and out, one input's values.

    Args:
        tokens: whose hidden states are kept.
        longest: tokens of the longest input.
        scored: logits of two models are compared.
    """
    state, table = (config.dtype.itemsize * config.hidden * each for each in (1, config.vocabulary))
    values = 4 * 4 * longest * max(config.intermediate, config.heads * config.head_dim)
    logits = 2 * longest * config.vocabulary * config.dtype.itemsize + _SCORING_BYTES if scored else 0
    outer = table * (2 if config.tied or scored else 3)
    blocks = _BLOCK_FACTOR * block_bytes(config)
    return _BASE_BYTES + (outer + blocks if scored else max(outer, blocks)) + 2 * tokens * state + values + logits


def calibration_needs(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> tuple[int, int, int]:
    """(bytes of memory, bytes of disk, passes of all blocks over all samples) of a recipe with these samples."""
    config = model.config
    searched = any(isinstance(stage, Smooth) and keeps_every_sample(stage) for stage in recipe.stages)
    kept = sum(each.numel() for each in samples["calibration"]) if searched else 0
    streams = 0
    for phase in recipe.phases:
        if any(map(needs_data, phase.stages)):
            streams += sum(each.numel() for each in samples.get(phase.data) or samples["calibration"])
    stages = [stage for stage in recipe.stages if isinstance(stage, Quantize)]
    integers = {name for stage in stages for name, how in stage.linears.items() if how.type != "FLOAT"}
    longest = max(each.numel() for found in samples.values() for each in found)
    of_a_token = config.dtype.itemsize * (2 * config.hidden + config.heads * config.head_dim + config.intermediate)
    memory = memory_bytes(config, tokens=streams, longest=longest) + kept * (of_a_token + 6 * 4 * config.intermediate)
    # finished blocks stay until the checkpoint is whole; the embedding and the head are written once
    state = config.dtype.itemsize * config.hidden
    disk = 2 * (checkpoint_bytes(config, integers) + (2 * streams - config.vocabulary) * state)
    return memory, disk, sum(map(needs_data, recipe.stages))


def checkpoint_bytes(config: LlmConfig, integers: Collection[str]) -> int:
    """Of the weights of a checkpoint with these linears of 8 bits, estimated; a tied head is written once more."""
    return sum(
        math.prod(shape) * (1 if name.removesuffix(".weight") in integers else config.dtype.itemsize)
        for name, shape in tensor_shapes(config).items()
    )


def window_ms(model: LlmModel, tokens: int) -> float:
    """Roughly, of the float model over so many tokens: by one of its blocks, and the head in proportion."""
    config, block = model.config, read_block(model, 0)
    hidden = torch.ones(1, tokens, config.hidden, dtype=config.dtype)
    taken_ms = []
    for _ in range(2):  # the first call also prepares kernels
        began = perf_counter()
        with torch.inference_mode():
            run_block(config, block, hidden)
        taken_ms.append((perf_counter() - began) * 1000)
    head = config.vocabulary * config.hidden * config.dtype.itemsize / block_bytes(config)
    return min(taken_ms) * (config.layers + head)


def check_memory(needed_bytes: int, key: str) -> None:
    """Raises ConfigError before any work where memory cannot hold it."""
    available = available_memory_bytes()
    if available is not None and needed_bytes > available:
        raise ConfigError(
            f"the run needs about {size_text(needed_bytes)} of memory, {size_text(available)} can be had.",
            key=key,
            hint="Give fewer or shorter texts, or a larger machine.",
        )


def check_disk(needed_bytes: int, to: Path) -> None:
    """Raises ToolchainError before any work where the disk cannot hold it."""
    place = next(folder for folder in (to, *to.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed_bytes > free:
        raise ToolchainError(
            f"the run needs about {size_text(needed_bytes)} on the disk of {to}, {size_text(free)} are free. "
            "Free space or choose another disk."
        )
