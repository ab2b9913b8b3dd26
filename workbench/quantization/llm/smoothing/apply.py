"""One smoothing stage on one block: from what was seen of its inputs to folded weights, by scales that are searched for
where the method says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from workbench.quantization.llm.affine import (
    HIGHEST,
    LOWEST,
    SMALLEST_SCALE,
    affine,
    extremes,
    fake_quantized,
    quantized_linear,
)
from workbench.quantization.llm.config import Family, LlmConfig
from workbench.quantization.llm.fixed_order import causal_attention, linear_product
from workbench.quantization.llm.forward import attention_half, feed_forward
from workbench.quantization.llm.observers import observing
from workbench.quantization.llm.recipe import Generation, LinearRecipe, Smooth
from workbench.quantization.llm.smoothing.groups import (
    SMALLEST,
    Block,
    ChannelStatistics,
    SmoothingGroup,
    fold,
    grouped_power_scale,
    groups_of,
    outlier_scale,
    power_scale,
    widest_weights,
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
        if group.kind != "ov" or len(scale) <= config.kv_heads * config.head_dim:
            fold(block, group, config, scale, shift, stage.generation)
        elif f"{group.source}.bias" not in block:
            # the tool's awq, where query heads share values, scales o_proj and not v_proj, which ruins a model; with a
            # bias of v_proj it stops before. `refused_by_engine` warns
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


# --- scales that are searched for: the error of a group's output decides (msmodelslim.md §5 m2, m3, m6; §6) -----------


# The order of operations, and what is rounded in a comparison and what is not, was found by watching which tensor
# operations the vendor's tool carries out.

_STEP = 0.05
_EXPONENTS = 21
_THRESHOLDS = 100
_ALIKE = 3
"""Deviations within which the largest value of an input must lie for its channels to be alike."""


def searched_exponents(
    weights: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], *, per_token: bool
) -> tuple[float, float]:
    """(alpha, beta) with the least relative output error: alpha first with beta = 1 − alpha, then beta; ties go late.

    Tried is always a^alpha · w^−beta of every input channel, also where heads will share a scale afterwards.

    Args:
        weights: [N, K] of the group's linears.
        inputs: [batch, tokens, K] of every sample.
        per_token: inputs by token and symmetric; else by tensor, neither widened to hold zero nor clipped.
    """
    weight = torch.cat(list(weights), 0)
    x = all_rows(inputs, weight.dtype)
    exact = linear_product(x, weight)
    size = exact.pow(2).mean().pow(0.5)
    largest, widest = x.abs().amax(0, keepdim=True), weight.abs().amax(0, keepdim=True)

    def error(alpha: float, beta: float) -> float:
        by = largest.pow(alpha) * widest.pow(-beta)
        given = _by_row(x / by) if per_token else _by_tensor(x / by)
        out = linear_product(given, _by_row(weight * by))
        return float((out - exact).pow(2).mean().pow(0.5) / size)

    alpha = best_exponent(lambda value: error(value, 1 - value))
    return alpha, best_exponent(lambda value: error(alpha, value))


def best_exponent(error: Callable[[float], float]) -> float:
    """Of 0, 0.05 … 1 the one with the least error; of equal ones the last, and 0 where every error is NaN."""
    found, least = 0.0, float("inf")
    for step in range(_EXPONENTS):
        value = round(step * _STEP, 2)
        if (now := error(value)) <= least:
            found, least = value, now
    return found


def all_rows(inputs: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The tokens of all samples, [tokens, K]."""
    return torch.cat([each.reshape(-1, each.shape[-1]) for each in inputs], 0).to(dtype)


def _by_row(values: torch.Tensor) -> torch.Tensor:
    """Symmetric, −127 … 127, without a floor of the step."""
    step = values.abs().amax(-1, keepdim=True) / HIGHEST
    return torch.round(values / step).clamp_(-HIGHEST, HIGHEST) * step


def _by_tensor(values: torch.Tensor) -> torch.Tensor:
    low, high = torch.aminmax(values)
    step = ((high - low) / 255).clamp(min=SMALLEST_SCALE)
    offset = torch.round(-low / step) + LOWEST
    return (torch.round(values / step + offset) - offset) * step


def threshold_scale(
    seen: ChannelStatistics,
    widest: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor | None],
) -> torch.Tensor:
    """m2, after Outlier Suppression+: √above / √widest for channels beyond a threshold, 1 for the others.

    Of 100 thresholds from the deviation up to the largest value, the one with the least squared error for the first
    sample; of equal errors the first. The input is shifted and quantized by tensor, weights are scaled to integers but
    not rounded; nothing is shifted in the result. Compared are the outputs of three linears after an attention without
    mask and positions, in which keys are one head, else those of the first linear. Where the largest value is within
    three deviations, every channel is scaled by √largest / √widest, as m1 does.
    """
    most, deviation = seen.above.max(), seen.deviation
    if bool(deviation * _ALIKE >= most):
        return power_scale(seen.largest, widest, 0.5, 0.5)
    x = seen.inputs[0]
    if len(weights) < 3:
        weights, biases = weights[:1], biases[:1]
    exact = _compared([linear_product(x, w, b) for w, b in zip(weights, biases, strict=True)])
    moved = [(seen.shift[None] @ weight.T)[0] for weight in weights]
    given_back = [m if b is None else m + b for m, b in zip(moved, biases, strict=True)]
    ones = torch.ones_like(widest)

    def scales() -> Iterator[torch.Tensor]:
        before = None
        for number in range(_THRESHOLDS):
            threshold = (most - deviation) * number / (_THRESHOLDS - 1) + deviation
            beyond = torch.maximum(ones, seen.above / threshold)
            scaled = ((beyond * threshold).pow(0.5) / widest.pow(0.5)).clamp(min=SMALLEST)
            by = torch.where(beyond <= 1, beyond, scaled)
            if before is None or not torch.equal(by, before):
                yield by
            before = by

    def error(by: torch.Tensor) -> float:
        given = (x - seen.shift) / by
        fake = fake_quantized(given, affine(*extremes(given), symmetric=False, generation="v0"))
        outs = [linear_product(fake, _unrounded(w * by), b) for w, b in zip(weights, given_back, strict=True)]
        return float(F.mse_loss(exact, _compared(outs)))

    return _least(scales(), error)


def _compared(outs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of a norm's linears what the tool compares: q, k and v [batch, tokens, N] through an attention, or the first."""
    if len(outs) == 1:
        return outs[0]
    query, key, value = outs
    size = key.shape[-1]
    root = torch.tensor(float(size), dtype=key.dtype).sqrt()
    scores = [part @ key.transpose(-2, -1) / root for part in query.view(*query.shape[:2], -1, size).unbind(2)]
    return torch.cat([torch.softmax(each, -1) @ value for each in scores], -1).to(torch.float32)


def _unrounded(weight: torch.Tensor) -> torch.Tensor:
    step = affine(*extremes(weight), symmetric=True, generation="v0").scale
    return (weight / step).clamp(LOWEST, HIGHEST) * step


_RATIOS = 20
_SMALLEST = 1e-4


def _of_mean(mean: torch.Tensor, ratio: float) -> torch.Tensor:
    """mean^ratio / √(largest · least of mean^ratio)."""
    raised = mean.pow(ratio).clamp(min=_SMALLEST)
    return raised / (raised.max() * raised.min()).sqrt()


def ratio_scale(
    seen: ChannelStatistics,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor | None],
    *,
    symmetric: bool,
) -> torch.Tensor:
    """m3: of 20 ratios from 0 the one with the least sum of mean squared errors of the linears' outputs.

    Weights are quantized by channel while they are compared; mean and errors are of the first sample. Of equal errors
    the first.
    """
    x = seen.inputs[0]
    exact = [linear_product(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]

    def error(by: torch.Tensor) -> float:
        total = 0.0
        for weight, bias, out in zip(weights, biases, exact, strict=True):
            fake = _as_integers(weight, by, symmetric, "v0")
            total += float((out - linear_product(x, fake, bias)).to(torch.float32).pow(2).mean())
        return total

    return _least((_of_mean(seen.first_mean, step / _RATIOS) for step in range(_RATIOS)), error)


def inspected_scale(
    seen: ChannelStatistics,
    weights: Sequence[torch.Tensor],
    inspected: Callable[[Sequence[torch.Tensor], torch.Tensor], torch.Tensor],
    steps: int,
) -> torch.Tensor:
    """awq of v1: of so many ratios from 0 the one with the least mean squared error of what the linears are part of.

    The mean is of all samples; of equal errors the first. The tool runs on float32 models alone; here others are
    computed in their own dtype.

    Args:
        inspected: (weights in place of the group's, a sample [batch, tokens, K]) → what is compared.
    """
    exact = [inspected(weights, x) for x in seen.inputs]
    size = sum(out.numel() for out in exact)

    def scale(step: int) -> torch.Tensor:
        by = _of_mean(seen.running_mean, step * 1 / steps)
        by[~torch.isfinite(by)] = 1
        return by

    def error(by: torch.Tensor) -> float:
        fake = [_as_integers(weight, by, True, "v1") for weight in weights]
        pairs = zip(seen.inputs, exact, strict=True)
        return sum(float(F.mse_loss(inspected(fake, x), out, reduction="sum")) for x, out in pairs) / size

    return _least(map(scale, range(steps)), error)


def _as_integers(weight: torch.Tensor, by: torch.Tensor, symmetric: bool, generation: Generation) -> torch.Tensor:
    """A weight as it is where it is scaled, quantized by channel and scaled back."""
    scaled = weight * by
    return fake_quantized(scaled, affine(*extremes(scaled, -1), symmetric=symmetric, generation=generation)) / by


def _least(scales: Iterable[torch.Tensor], error: Callable[[torch.Tensor], float]) -> torch.Tensor:
    """The scale with the least error; of equal ones the first, and ones where no error is a number."""
    found: torch.Tensor | None = None
    least = float("inf")
    for by in scales:
        if found is None:
            found = torch.ones_like(by)
        if (now := error(by)) < least:
            found, least = by, now
    assert found is not None  # there is a scale
    return found


def flex_awq_exponent(
    inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], bias: torch.Tensor | None, how: LinearRecipe
) -> float:
    """flex_awq_ssz: the exponent of the largest |x| with the least relative error, both sides quantized by a recipe.

    What is applied afterwards is the mean |x| to that power; the tool looks with the largest and applies the mean. The
    float output is compared without the bias that the quantized one has, as there. A dynamic input is quantized along
    the token axis (msmodelslim.md §9).
    """
    weight = torch.cat(list(weights), 0)
    x = all_rows(inputs, weight.dtype)
    exact = linear_product(x, weight)
    size = exact.pow(2).mean().pow(0.5)
    largest = x.abs().amax(0, keepdim=True)

    def error(alpha: float) -> float:
        by = largest.pow(alpha)
        given, scaled = x / by, weight * by
        errors = given.dtype if how.static else torch.float32
        linear = quantized_linear(scaled, bias, how, "v1", errors=errors)
        if how.static:
            low, high = observing(how.observer, None).update(given)
            linear = replace(linear, input=affine(low, high, symmetric=how.symmetric, generation="v1"))
        out = linear.wide(given[None])[0]
        return float((out - exact).abs().pow(2).mean().pow(0.5) / size)

    return best_exponent(error)
