"""Scales from the mean |x| of every channel, after AWQ: m3, and v1's awq and flex_awq_ssz (msmodelslim.md §5, §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from workbench.quantization.llm.affine import affine, extremes, fake_quantized
from workbench.quantization.llm.fixed_order import linear_product
from workbench.quantization.llm.observers import observing
from workbench.quantization.llm.quantized import quantized_linear, weight_affine
from workbench.quantization.llm.recipe import LinearRecipe
from workbench.quantization.llm.smoothing.search import all_rows, best_exponent
from workbench.quantization.llm.smoothing.statistics import ChannelStatistics

_RATIOS = 20
_SMALLEST = 1e-4


def _scale(mean: torch.Tensor, ratio: float) -> torch.Tensor:
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

    Args:
        biases: of the linears.
        symmetric: of the weights.
    """
    x = seen.inputs[0]
    exact = [linear_product(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    found, least = torch.ones_like(seen.first_mean), float("inf")
    for step in range(_RATIOS):
        by = _scale(seen.first_mean, step / _RATIOS)
        error = 0.0
        for weight, bias, out in zip(weights, biases, exact, strict=True):
            scaled = weight * by
            fake = fake_quantized(scaled, affine(*extremes(scaled, -1), symmetric=symmetric, generation="v0")) / by
            error += float((out - linear_product(x, fake, bias)).to(torch.float32).pow(2).mean())
        if error < least:
            found, least = by, error
    return found


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
    found, least = torch.ones_like(seen.running_mean), float("inf")
    for step in range(steps):
        by = _scale(seen.running_mean, step * 1 / steps)
        by[~torch.isfinite(by)] = 1
        fake = []
        for weight in weights:
            scaled = weight * by
            fake.append(fake_quantized(scaled, affine(*extremes(scaled, -1), symmetric=True, generation="v1")) / by)
        error = sum(
            float(F.mse_loss(inspected(fake, x), out, reduction="sum"))
            for x, out in zip(seen.inputs, exact, strict=True)
        )
        if error / size < least:
            found, least = by, error / size
    return found


def flex_awq_exponent(
    inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], bias: torch.Tensor | None, how: LinearRecipe
) -> float:
    """flex_awq_ssz: the exponent of the largest |x| with the least relative error, both sides quantized by a recipe.

    What is applied afterwards is the mean |x| to that power; the tool looks with the largest and applies the mean. The
    float output is compared without the bias that the quantized one has, as there. A dynamic input is quantized along
    the token axis (msmodelslim.md §9).

    Args:
        bias: of a single linear, else None.
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
        quantized = weight_affine(scaled, how, "v1", None, errors)
        linear = quantized_linear(scaled, bias, quantized, how, "v1", None)
        if how.static:
            low, high = observing(how.observer, None).update(given)
            linear = linear.with_input(affine(low, high, symmetric=how.symmetric, generation="v1"))
        out = linear.wide(given[None])[0]
        return float((out - exact).abs().pow(2).mean().pow(0.5) / size)

    return best_exponent(error)
