"""One smoothing stage on one block: from what was seen of its inputs to folded weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.quantization.llm.config import Family, LlmConfig
from workbench.quantization.llm.recipe import Smooth
from workbench.quantization.llm.smoothing.groups import (
    Block,
    SmoothingGroup,
    fold,
    groups_of,
    widest_weights,
)
from workbench.quantization.llm.smoothing.outliers import outlier_scale
from workbench.quantization.llm.smoothing.scales import grouped_power_scale
from workbench.quantization.llm.smoothing.search import ratio_scale, searched_exponents, threshold_scale
from workbench.quantization.llm.smoothing.statistics import ChannelStatistics

_KEPT = {"power": 0, "cbq": 0, "outlier_suppression": 1, "awq": 1, "search": None}
"""Samples whose inputs a method needs again; None for all."""
_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")


def wanted_inputs(stage: Smooth, family: Family, prefix: str) -> dict[str, int | None]:
    """Tensors that a stage wants to see, and how many samples of each it keeps."""
    return {group.reads: _KEPT[stage.method] for group in groups_of(stage, family, prefix)}


def smooth_block(
    stage: Smooth, config: LlmConfig, prefix: str, block: Block, seen: Mapping[str, ChannelStatistics]
) -> None:
    """Scale and fold the groups of a block, one after another; `block` is changed."""
    for group in groups_of(stage, config.family, prefix):
        statistics = seen[group.reads]
        shift = statistics.shift if stage.shift and group.kind == "norm-linear" else None
        fold(block, group, config, _scale(stage, config, block, group, statistics), shift, stage.generation)


def bias_norms(block: Block) -> None:
    """A bias for every norm that has none: float32 zeros."""
    for name in _NORMS:
        if (weight := block.get(f"{name}.weight")) is not None:
            block.setdefault(f"{name}.bias", torch.zeros(weight.shape, dtype=torch.float32))


def _scale(
    stage: Smooth, config: LlmConfig, block: Block, group: SmoothingGroup, seen: ChannelStatistics
) -> torch.Tensor:
    widest = widest_weights(block, group, signed=stage.signed_weights and group.kind != "norm-linear")
    if stage.method == "power":
        largest = seen.largest
        return grouped_power_scale(stage, config, group, largest, widest, stage.alpha, stage.beta)
    if stage.method == "cbq":
        return outlier_scale(seen)
    weights = [block[f"{name}.weight"] for name in group.linears]
    biases = [block.get(f"{name}.bias") for name in group.linears]
    if stage.method == "search":
        alpha, beta = searched_exponents(weights, seen.inputs, per_token=stage.per_token)
        return grouped_power_scale(stage, config, group, seen.largest, widest, alpha, beta)
    if stage.method == "awq":
        return ratio_scale(seen, weights, biases, symmetric=stage.symmetric_weights)
    return threshold_scale(seen, widest, weights, biases)
