"""A recipe over a whole model, block by block.

streams = start(model, recipe, samples)
for block in blocks(model, recipe, streams):      # `streams` stand behind the block that was yielded
    ...                                           # so that keeping both is enough to go on later
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from workbench.quantization.llm.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LlmModel,
    head_name,
    read_block,
    read_tensors,
)
from workbench.quantization.llm.forward import check_ids, embed
from workbench.quantization.llm.quantized import SOURCES
from workbench.quantization.llm.recipe import Data, LlmRecipe, Phase, Quantize, Survey
from workbench.quantization.llm.rotation import Rotation, read_rotated, rotate_block, rotation_of
from workbench.quantization.llm.walk import Stream, WorkingBlock, needs_data, take_phase

Samples = Mapping[Data, Sequence[torch.Tensor]]
"""Ids [batch, tokens] of every sample; without 'smoothing' that is the same as 'calibration'."""


def start(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> list[Stream]:
    """One stream for each phase, before the first block; empty where a phase needs no data."""
    rotation = rotation_of_recipe(model, recipe)
    embedded: dict[Data, Stream] = {}
    for phase in recipe.phases:
        if phase.data not in embedded and any(map(needs_data, phase.stages)):
            chosen = samples.get(phase.data) or samples["calibration"]
            check_ids(model.config, chosen)
            with torch.inference_mode():
                hidden = embed(model, chosen)
                embedded[phase.data] = hidden if rotation is None else [read_rotated(x, rotation) for x in hidden]
    return [list(embedded[phase.data]) if any(map(needs_data, phase.stages)) else [] for phase in recipe.phases]


def blocks(model: LlmModel, recipe: LlmRecipe, streams: list[Stream], *, first: int = 0) -> Iterator[WorkingBlock]:
    """The blocks from `first` on, quantized one after another.

    Args:
        streams: those of `start`, or as they stood behind block first − 1; changed on the way.
    """
    rotation = rotation_of_recipe(model, recipe)
    for index in range(first, model.config.layers):
        tensors = read_block(model, index)
        if rotation is not None:
            rotate_block(tensors, model.config, rotation)
        block = WorkingBlock(config=model.config, index=index, prefix=model.prefix(index), tensors=tensors)
        with torch.inference_mode():
            for phase, stream in zip(recipe.phases, streams, strict=True):
                take_phase(block, phase, stream)
        for name in block.linears:
            for part in ("weight", "bias"):
                tensors.pop(f"{name}.{part}", None)
        yield block


def left_float(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> tuple[str, ...]:
    """Full names of the linears whose inputs stand out most, as many as the recipe leaves float (`disable_level`).

    Linears with the same input have the same spread; the earlier comes first. Those that the recipe leaves float by
    name are not counted.
    """
    if not recipe.worst:
        return ()
    place = next(n for n, phase in enumerate(recipe.phases) if any(isinstance(s, Survey) for s in phase.stages))
    looking = replace(recipe, phases=recipe.phases[: place + 1])
    spreads: dict[str, float] = {}
    for block in blocks(model, looking, start(model, looking, samples)):
        spreads |= {f"{block.prefix}.{name}": block.spreads[source] for name, source in SOURCES.items()}
    quantized = {name for stage in recipe.stages if isinstance(stage, Quantize) for name in stage.linears}
    ranked = sorted((name for name in spreads if name in quantized), key=lambda name: -spreads[name])
    return tuple(ranked[: recipe.worst])


def without(recipe: LlmRecipe, names: Sequence[str]) -> LlmRecipe:
    """The same recipe with these linears left float."""
    phases = []
    for phase in recipe.phases:
        stages = [
            replace(stage, linears={name: how for name, how in stage.linears.items() if name not in names})
            if isinstance(stage, Quantize)
            else stage
            for stage in phase.stages
        ]
        phases.append(Phase(stages=tuple(stages), data=phase.data))
    return replace(recipe, phases=tuple(phases))


def outer_tensors(model: LlmModel, recipe: LlmRecipe) -> dict[str, torch.Tensor]:
    """Embedding, final norm and head by their full names, as the recipe leaves them."""
    read = read_tensors(model, [f"{EMBEDDING}.weight", f"{FINAL_NORM}.weight", head_name(model)])
    read[f"{HEAD}.weight"] = read[head_name(model)]
    norm = f"{FINAL_NORM}.weight"
    if (rotation := rotation_of_recipe(model, recipe)) is not None:
        read[f"{HEAD}.weight"] = read_rotated(read[f"{HEAD}.weight"] * read[norm], rotation)
        read[f"{EMBEDDING}.weight"] = read_rotated(read[f"{EMBEDDING}.weight"], rotation)
        read[norm] = torch.ones_like(read[norm])
    if recipe.norm_bias:
        read[f"{FINAL_NORM}.bias"] = torch.zeros(model.config.hidden, dtype=torch.float32)
    return read


def rotation_of_recipe(model: LlmModel, recipe: LlmRecipe) -> Rotation | None:
    """The matrices that a recipe rotates by."""
    return None if recipe.rotate is None else rotation_of(model.config, recipe.rotate)
