"""Activation balancing: factors per input channel that move large activations into the weights.

    y = W x = (W · s) (x / s)        s per input channel; exact in float, and kinder to one scale per tensor

DMQ (amct.md §4.5) and SmoothQuant (Xiao et al. 2022, arXiv:2211.10438) are the same formula. `prepare.balanced`
applies factors to a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.graph.layers import Layer
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.statistics import Statistics
from workbench.quantization.weights import grouped_weight

_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]

SMALLEST_FACTOR = float(np.finfo(np.float32).eps)
"""AMCT refuses factors outside [eps, 1 / eps] of float32 (amct.md §3.2)."""

STRENGTHS = tuple(round(0.05 * step, 2) for step in range(21))
"""What `best_strengths` tries besides no balancing at all."""


def dmq_factors(activation_maxima: _Floats, weight_maxima: _Floats, strength: float) -> _Floats:
    """max|X_c|^m / max|W_c|^(1-m) per input channel c, in float32 (amct.md §4.5).

    A channel where both are zero gets 1. Where only the activation is zero: the factor that makes the balanced weight
    as large as the largest one of the other channels. Where only the weight is zero: the factor that makes the
    balanced activation as large as theirs. Without any other channel: 1 [inferred].

    Args:
        activation_maxima, weight_maxima: float32 [C], largest magnitude per input channel.
        strength: m, in [0, 1]; the larger, the more goes from the activations into the weights.
    """
    if not 0 <= strength <= 1:
        raise ValueError(f"migration strength {strength!r} is outside [0, 1]")
    activations, weights = np.asarray(activation_maxima, np.float32), np.asarray(weight_maxima, np.float32)
    if activations.shape != weights.shape:
        raise ValueError(f"maxima of shapes {activations.shape} and {weights.shape} are not of the same channels")
    factors = np.ones_like(activations)
    live_x, live_w = activations > 0, weights > 0
    both = live_x & live_w
    if not both.any():
        return factors
    m = np.float32(strength)
    factors[both] = _ratio(activations[both] ** m, weights[both] ** (np.float32(1) - m))
    largest_w = _single(weights[both].astype(np.float64) * factors[both]).max()
    largest_x = _ratio(activations[both], factors[both]).max()
    silent, unread = live_w & ~live_x, live_x & ~live_w
    factors[silent] = _ratio(np.full_like(weights[silent], largest_w), weights[silent])
    factors[unread] = _ratio(activations[unread], largest_x)
    return factors


def _ratio(above: _Floats, below: _Floats) -> _Floats:
    """The quotient of positive float32 numbers as float32 rounds it, at most its largest and never zero."""
    return _single(above.astype(np.float64) / below)


def _single(values: npt.NDArray[Any]) -> _Floats:
    """float64 results of one operation on float32 numbers, rounded as float32 arithmetic would (53 bits suffice)."""
    limits = np.finfo(np.float32)
    rounded: _Floats = np.clip(values, float(limits.smallest_subnormal), float(limits.max)).astype(np.float32)
    return rounded


def input_channel_maxima(values: _Floats, layer: Layer) -> _Floats:
    """Largest |w| per input channel: float32 [Cin], the channels of all groups in order."""
    maxima: _Floats = np.abs(grouped_weight(values, layer)).max(axis=(1, 3)).reshape(-1)
    return maxima


def balance_factors(
    statistics: Statistics, layers: Sequence[Layer], weights: Mapping[str, _Floats], recipe: ModelRecipe
) -> dict[str, tuple[float, ...]]:
    """Factors of every layer whose recipe asks for balancing, from the activation ranges per channel.

    Layers that share an input and a strength share one vector, from the largest weights over all of them: one
    balanced tensor serves them all. Factors are kept inside [2⁻²³, 2²³].

    Args:
        weights: layer name → the weight's float32 values, as stored.
    """
    shared: dict[tuple[str, float], list[Layer]] = {}
    for layer, strength in _balanced(statistics, layers, recipe):
        shared.setdefault((layer.activation, strength), []).append(layer)
    factors: dict[str, tuple[float, ...]] = {}
    for (_, strength), readers in shared.items():
        vector = tuple(_factors(statistics, readers, weights, strength).tolist())
        factors |= dict.fromkeys((layer.name for layer in readers), vector)
    return factors


def best_strengths(
    statistics: Statistics,
    layers: Sequence[Layer],
    weights: Mapping[str, _Floats],
    recipe: ModelRecipe,
) -> dict[str, float | None]:
    """The strength with the smallest estimated output error, for every input that balanced layers share.

    The recipe's layers with a strength take part; the strengths themselves do not matter. The estimate, relative to
    the power of each layer's output and summed over the layers that share an input, takes channels as uncorrelated
    and rounding errors as uniform:

        ( Σ_c min(Δx²/12, E[x_c²]/s_c²) · Σ_o (W_oc·s_c)²  +  Σ_o Δw_o²/12 · Σ_c E[x_c²]/s_c² ) / Σ_oc W_oc²·E[x_c²]

    with Δx = (max_c x_c/s_c - min_c x_c/s_c) / 255 over the observed range with zero (the larger side / 127 where
    the recipe is symmetric), and Δw_o the weight's step: max|W_o·s| / 127 per output channel, or of the tensor.

    Returns:
        Layer name → strength; None where no balancing is estimated to be best.
    """
    shared: dict[str, list[Layer]] = {}
    for layer, _ in _balanced(statistics, layers, recipe):
        shared.setdefault(layer.activation, []).append(layer)
    chosen: dict[str, float | None] = {}
    for readers in shared.values():
        best: float | None = None
        smallest = math.inf
        for strength in (None, *STRENGTHS):
            vector = np.ones(1) if strength is None else _factors(statistics, readers, weights, strength)
            error = _estimated_error(statistics, readers, weights, recipe, vector.astype(np.float64))
            if error < smallest:
                best, smallest = strength, error
        chosen |= dict.fromkeys((layer.name for layer in readers), best)
    return chosen


def _balanced(statistics: Statistics, layers: Sequence[Layer], recipe: ModelRecipe) -> Iterator[tuple[Layer, float]]:
    """The layers that take part and their strengths; of a vector without rows nothing is known per channel."""
    for layer in layers:
        settings = recipe.layers.get(layer.name)
        if settings is not None and settings.balance is not None and layer.weight is not None:
            channels = statistics.tensors[layer.activation].channels
            if channels is not None and channels.rows:
                yield layer, settings.balance


def _factors(
    statistics: Statistics, readers: Sequence[Layer], weights: Mapping[str, _Floats], strength: float
) -> _Floats:
    channels = statistics.tensors[readers[0].activation].channels
    assert channels is not None
    maxima = [input_channel_maxima(weights[layer.name], layer) for layer in readers]
    largest = np.maximum(np.abs(channels.minima), np.abs(channels.maxima))
    factors = dmq_factors(largest, np.maximum.reduce(maxima, dtype=np.float32), strength)
    return np.clip(factors, SMALLEST_FACTOR, 1 / SMALLEST_FACTOR).astype(np.float32)


def _estimated_error(
    statistics: Statistics,
    readers: Sequence[Layer],
    weights: Mapping[str, _Floats],
    recipe: ModelRecipe,
    factors: _Doubles,
) -> float:
    channels = statistics.tensors[readers[0].activation].channels
    assert channels is not None
    own_power = channels.squares / channels.rows
    power = own_power / factors**2
    high = max(0.0, float((channels.maxima / factors).max()))
    low = min(0.0, float((channels.minima / factors).min()))
    error = 0.0
    for layer in readers:
        settings = recipe.layers[layer.name]
        step = max(high, -low) / 127 if settings.activation.symmetric else (high - low) / 255
        values = grouped_weight(weights[layer.name], layer)
        groups, _, cin, taps = values.shape
        column_power = np.einsum("goct,goct->gc", values, values, dtype=np.float64, casting="unsafe").reshape(-1)
        magnitudes = np.abs(values).max(axis=3) * np.broadcast_to(factors, groups * cin).reshape(groups, 1, cin)
        maxima = magnitudes.max(axis=2)
        if settings.weight is None or not settings.weight.per_channel:
            maxima = np.full_like(maxima, maxima.max())
        from_activation = np.sum(np.minimum(step**2 / 12, power) * column_power * factors**2)
        weight_noise = (maxima**2).sum(axis=1) / 127**2 / 12
        from_weight = taps * np.sum(weight_noise * power.reshape(groups, cin).sum(axis=1))
        signal = np.sum(column_power * own_power)
        error += float((from_activation + from_weight) / signal) if signal > 0 else 0.0
    return error
