"""What vLLM-Ascend makes of a description, as rules with reasons (msmodelslim.md §8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from workbench.quantization.llm.checkpoint import LlmModel, block_shapes
from workbench.quantization.llm.recipe import LlmRecipe, Quantize, Smooth, Survey
from workbench.targets.ascend_llm.settings import GROUPS, STATIC

FUSED = {f"{group}_proj": linears for group, linears in GROUPS.items() if len(linears) > 1}
"""Linears that the engine loads as one, which has one type."""
_MOST_BLOCKS = 3


def types_of(recipe: LlmRecipe, model: LlmModel) -> dict[str, str]:
    """Full name of every linear → its type in the description."""
    types = dict.fromkeys(model.linears(), "FLOAT")
    for stage in recipe.stages:
        if isinstance(stage, Quantize):
            types.update({name: how.type for name, how in stage.linears.items()})
    return types


def refused_by_engine(recipe: LlmRecipe, model: LlmModel) -> tuple[str, ...]:
    """Sentences on what the engine would refuse, or compute wrongly, of a checkpoint of this recipe."""
    types, config = types_of(recipe, model), model.config
    linears = [how for stage in recipe.stages if isinstance(stage, Quantize) for how in stage.linears.values()]
    smooths = [stage for stage in recipe.stages if isinstance(stage, Smooth)]
    mixed = [f"{prefix}: {sentence}" for prefix, sentence in mixed_types(types, config.layers)]
    said = mixed[:_MOST_BLOCKS]
    if len(mixed) > _MOST_BLOCKS:
        said.append(f"… and {len(mixed) - _MOST_BLOCKS} more blocks.")
    if any(how.type == "W8A16" and not how.weight_symmetric for how in linears):
        said.append(
            "W8A16 with asymmetric weights: vLLM-Ascend hands weight_offset to a kernel that adds it, while the "
            "file means a subtraction."
        )
    if any(how.type != "FLOAT" and not how.by_channel for how in linears):
        said.append(
            "one scale for a whole weight: vLLM-Ascend reads one for each output channel. Set mm_tensor: False."
        )
    if lost := _skipped_biases(types, model) if any(stage.shift for stage in smooths) else []:
        said.append(
            f"{lost[0]} and {len(lost) - 1} more: the shift is in a bias that vLLM-Ascend skips. Use W8A8 there."
        )
    if any(isinstance(stage, Survey) and stage.cache for stage in recipe.stages):
        said.append(
            "use_kvcache_quant takes the ranges of keys before rotation; vLLM-Ascend quantizes keys after it. Use "
            "dynamic_cache of modelslim_v1."
        )
    if recipe.rotate is not None and config.tied:
        said.append(
            "a rotation changes embedding and head in different ways, and config.json ties them: vLLM-Ascend would "
            "take the embedding for both. Write tie_word_embeddings: false into the checkpoint's config.json."
        )
    if config.dtype == torch.float32 and set(STATIC) & set(types.values()):
        said.append(
            "a float32 model: vLLM-Ascend knows no deq_scale for it. Convert the model to bfloat16 or float16 first."
        )
    if config.group > 1 and not config.qkv_bias and any(_ruins(stage) for stage in smooths):
        said.append(
            "awq from v_proj to o_proj where query heads share values: the vendor's tool scales o_proj and leaves "
            "v_proj, so the model computes something else. Give enable_subgraph_type norm-linear and up-down alone."
        )
    return tuple(said)


def mixed_types(types: Mapping[str, str], layers: int) -> Iterator[tuple[str, str]]:
    """(block, sentence) for linears that the engine loads as one and that have several types."""
    for fused, parts in FUSED.items():
        for block in range(layers):
            kinds = {part: types[f"model.layers.{block}.{part}"] for part in parts}
            if len(set(kinds.values())) > 1:
                told = ", ".join(f"{part.rpartition('.')[2]} {kind}" for part, kind in kinds.items())
                yield (
                    f"model.layers.{block}",
                    f"{told}. vLLM-Ascend loads them as one {fused} and needs one type.",
                )


def _skipped_biases(types: Mapping[str, str], model: LlmModel) -> list[str]:
    """A shift becomes a bias of the linears behind a norm; only a static linear holds it in integers as well."""
    shapes, behind_norms = block_shapes(model.config), {name for parts in FUSED.values() for name in parts}
    return [
        f"{name} ({kind})"
        for name, kind in types.items()
        for linear in [name.partition("layers.")[2].partition(".")[2]]
        if kind != "W8A8" and linear in behind_norms and f"{linear}.bias" not in shapes
    ]


def _ruins(stage: Smooth) -> bool:
    return stage.generation == "v1" and stage.method == "awq" and "ov" in stage.groups
