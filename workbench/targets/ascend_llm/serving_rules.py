"""What vLLM-Ascend makes of a description, as rules with reasons (msmodelslim.md §8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench.quantization.llm.checkpoint import LlmModel, block_shapes
from workbench.quantization.llm.recipe import LlmRecipe, Quantize, Smooth, Survey

FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Linears that the engine loads as one, which has one type."""


def types_of(recipe: LlmRecipe, model: LlmModel) -> dict[str, str]:
    """Full name of every linear → its type in the description."""
    types = dict.fromkeys(model.linears(), "FLOAT")
    for stage in recipe.stages:
        if isinstance(stage, Quantize):
            types.update({name: how.type for name, how in stage.linears.items()})
    return types


def refused_by_engine(recipe: LlmRecipe, model: LlmModel) -> tuple[str, ...]:
    """Sentences on what the engine would refuse, or compute wrongly, of a checkpoint of this recipe."""
    types = types_of(recipe, model)
    return (
        *_mixed(types, model),
        *_asymmetric(recipe),
        *_of_one_scale(recipe),
        *_skipped_biases(recipe, types, model),
        *_cache_before_rotation(recipe),
        *_tied_and_rotated(recipe, model),
        *_of_dtype(types, model),
        *_ruined(recipe, model),
    )


def _mixed(types: Mapping[str, str], model: LlmModel) -> list[str]:
    found = []
    for fused, parts in FUSED.items():
        for block in range(model.config.layers):
            kinds = {part: types[f"{model.prefix(block)}.{part}"] for part in parts}
            if len(set(kinds.values())) > 1:
                told = ", ".join(f"{part.rpartition('.')[2]} {kind}" for part, kind in kinds.items())
                found.append(
                    f"{model.prefix(block)}: {told}. vLLM-Ascend loads them as one {fused} and needs one type."
                )
    return _few(found)


def _asymmetric(recipe: LlmRecipe) -> list[str]:
    for stage in recipe.stages:
        if isinstance(stage, Quantize) and any(
            how.type == "W8A16" and not how.weight_symmetric for how in stage.linears.values()
        ):
            return [
                "W8A16 with asymmetric weights: vLLM-Ascend hands weight_offset to a kernel that adds it, while the "
                "file means a subtraction."
            ]
    return []


def _of_one_scale(recipe: LlmRecipe) -> list[str]:
    quantized = (stage for stage in recipe.stages if isinstance(stage, Quantize))
    if any(how.type != "FLOAT" and not how.by_channel for stage in quantized for how in stage.linears.values()):
        return ["one scale for a whole weight: vLLM-Ascend reads one for each output channel. Set mm_tensor: False."]
    return []


def _skipped_biases(recipe: LlmRecipe, types: Mapping[str, str], model: LlmModel) -> list[str]:
    """A shift becomes a bias of the linears behind a norm; only a static linear holds it in integers as well."""
    if not any(isinstance(stage, Smooth) and stage.shift for stage in recipe.stages):
        return []
    shapes = block_shapes(model.config)
    lost = [
        f"{name} ({kind})"
        for name, kind in types.items()
        for linear in [name.partition("layers.")[2].partition(".")[2]]
        if kind != "W8A8" and any(linear in parts for parts in FUSED.values()) and f"{linear}.bias" not in shapes
    ]
    if not lost:
        return []
    return [f"{lost[0]} and {len(lost) - 1} more: the shift is in a bias that vLLM-Ascend skips. Use W8A8 there."]


def _cache_before_rotation(recipe: LlmRecipe) -> list[str]:
    if any(isinstance(stage, Survey) and stage.cache for stage in recipe.stages):
        return [
            "use_kvcache_quant takes the ranges of keys before rotation; vLLM-Ascend quantizes keys after it. Use "
            "dynamic_cache of modelslim_v1."
        ]
    return []


def _tied_and_rotated(recipe: LlmRecipe, model: LlmModel) -> list[str]:
    if recipe.rotate is None or not model.config.tied:
        return []
    return [
        "a rotation changes embedding and head in different ways, and config.json ties them: vLLM-Ascend would take "
        "the embedding for both. Write tie_word_embeddings: false into the checkpoint's config.json."
    ]


def _of_dtype(types: Mapping[str, str], model: LlmModel) -> list[str]:
    if model.config.dtype == torch.float32 and {"W8A8", "W8A8_MIX"} & set(types.values()):
        return [
            "a float32 model: vLLM-Ascend knows no deq_scale for it. Convert the model to bfloat16 or float16 first."
        ]
    return []


def _ruined(recipe: LlmRecipe, model: LlmModel) -> list[str]:
    config = model.config
    for stage in recipe.stages:
        shared = isinstance(stage, Smooth) and stage.generation == "v1" and stage.method == "awq" and config.group > 1
        if shared and isinstance(stage, Smooth) and "ov" in stage.groups and not config.qkv_bias:
            return [
                "awq from v_proj to o_proj where query heads share values: the vendor's tool scales o_proj and leaves "
                "v_proj, so the model computes something else. Give enable_subgraph_type norm-linear and up-down alone."
            ]
    return []


def _few(found: Sequence[str], most: int = 3) -> list[str]:
    return [*found[:most], f"… and {len(found) - most} more blocks."] if len(found) > most else list(found)
