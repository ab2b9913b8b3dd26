"""One smoothing stage on one block: from what was seen of its inputs to folded weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from workbench.quantization.llm.config import Family, LlmConfig
from workbench.quantization.llm.fixed_order import causal_attention, linear_product
from workbench.quantization.llm.forward import attention_half, feed_forward
from workbench.quantization.llm.recipe import Smooth
from workbench.quantization.llm.smoothing.groups import (
    Block,
    ChannelStatistics,
    SmoothingGroup,
    fold,
    grouped_power_scale,
    groups_of,
    outlier_scale,
    widest_weights,
)
from workbench.quantization.llm.smoothing.search import (
    all_rows,
    flex_awq_exponent,
    inspected_scale,
    ratio_scale,
    searched_exponents,
    threshold_scale,
)

_FIRST_AGAIN = ("outlier_suppression", "awq")
"""Methods that need the inputs of the first sample again."""
_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")


def keeps_every_sample(stage: Smooth) -> bool:
    """Whether a stage needs the inputs of all samples again, and so holds them in memory."""
    return stage.method in ("search", "flex_awq") or (stage.method == "awq" and stage.generation == "v1")


def wanted_inputs(stage: Smooth, family: Family, prefix: str) -> dict[str, int | None]:
    """Tensors that a stage wants to see, and how many samples of each it keeps."""
    kept = None if keeps_every_sample(stage) else int(stage.method in _FIRST_AGAIN)
    return {group.reads: kept for group in groups_of(stage, family, prefix)}


def smooth_block(
    stage: Smooth, config: LlmConfig, prefix: str, block: Block, seen: Mapping[str, ChannelStatistics]
) -> None:
    """Scale and fold the groups of a block, one after another; `block` is changed."""
    for group in groups_of(stage, config.family, prefix):
        statistics = seen[group.reads]
        shift = statistics.shift if stage.shift and group.kind == "norm-linear" else None
        if stage.norm_bias and group.kind == "norm-linear":
            _bias(block, group.source)
        scale = _scale(stage, config, block, group, statistics)
        if group.kind == "ov" and len(scale) > config.kv_heads * config.head_dim:
            _scale_outputs_alone(block, group, scale)
        else:
            fold(block, group, config, scale, shift, stage.generation)


def _scale_outputs_alone(block: Block, group: SmoothingGroup, scale: torch.Tensor) -> None:
    """What the tool's awq does where query heads share values: o_proj is scaled and v_proj is not, which ruins a model.

    With a bias of v_proj it stops before. `refused_by_engine` warns.
    """
    if f"{group.source}.bias" not in block:
        for name in group.linears:
            block[f"{name}.weight"] = block[f"{name}.weight"] * scale


def bias_norms(block: Block) -> None:
    """A bias for every norm that has none: float32 zeros."""
    for name in _NORMS:
        if f"{name}.weight" in block:
            _bias(block, name)


def _bias(block: Block, norm: str) -> None:
    block.setdefault(f"{norm}.bias", torch.zeros(block[f"{norm}.weight"].shape, dtype=torch.float32))


def _scale(
    stage: Smooth, config: LlmConfig, block: Block, group: SmoothingGroup, seen: ChannelStatistics
) -> torch.Tensor:
    widest = widest_weights(block, group, signed=stage.signed_weights and group.kind != "norm-linear")
    shifted = stage.shift and group.kind == "norm-linear"
    if stage.method == "power":
        # the tool's v0 takes |x| where it shifts, v1 what is left of it
        largest = seen.largest_shifted if shifted and stage.generation == "v1" else seen.largest
        return grouped_power_scale(stage, config, group, largest, widest, stage.alpha, stage.beta)
    if stage.method == "cbq":
        return outlier_scale(seen)
    weights = [block[f"{name}.weight"] for name in group.linears]
    biases = [block.get(f"{name}.bias") for name in group.linears]
    if stage.method == "search":
        alpha, beta = searched_exponents(weights, seen.inputs, per_token=stage.per_token)
        return grouped_power_scale(stage, config, group, seen.largest, widest, alpha, beta)
    if stage.method == "flex_awq":
        alpha = stage.alpha
        if stage.judged is not None:
            bias = biases[0] if len(weights) == 1 else None
            alpha = flex_awq_exponent(seen.inputs, weights, bias, stage.judged)
        mean = all_rows(seen.inputs, weights[0].dtype).abs().mean(0)
        return grouped_power_scale(stage, config, group, mean, widest, alpha, 0.0)
    if stage.method == "awq" and stage.generation == "v1":
        return inspected_scale(seen, weights, _inspected(config, block, group), stage.steps)
    if stage.method == "awq":
        return ratio_scale(seen, weights, biases, symmetric=stage.symmetric_weights)
    return threshold_scale(seen, widest, weights, biases)


def _inspected(
    config: LlmConfig, block: Block, group: SmoothingGroup
) -> Callable[[Sequence[torch.Tensor], torch.Tensor], torch.Tensor]:
    """What a group is part of: the whole attention or feed-forward half for those behind a norm, else the linear."""

    def run(weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        replaced = dict(zip(group.linears, weights, strict=True))

        def linear(name: str, x: torch.Tensor) -> torch.Tensor:
            return linear_product(x, replaced.get(name, block[f"{name}.weight"]), block.get(f"{name}.bias"))

        if group.kind != "norm-linear":
            return linear(group.linears[0], x)
        if group.reads != "attention":
            return feed_forward(x, linear)
        return attention_half(config, block, x, linear, attention=causal_attention)

    return run
