"""From statistics to a record: every recipe is a pure function of what one pass has seen.

    clip_range   one tensor's statistics → clip range        minmax, moving_average, percentile, kl, mse
    ifmr.py, hfmg.py                                         AMCT's two searches, on our histogram
    record.py    clip range → scale, zero point
    weights.py   weight → scales                             minmax, arq, mse
    choose       Statistics + recipe → QuantizationRecord

Zero is inside every range and is always represented exactly, so exact zeros cost nothing and take no part in the
searches (a ReLU's or a mask's zeros would otherwise decide the threshold); AMCT's two, IFMR and HFMG, count them.

`calibrate.py` follows AMCT's own procedure instead, in several passes over the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from workbench.graph.layers import Layer
from workbench.quantization.hfmg import hfmg_range
from workbench.quantization.histogram import BINS_PER_SIDE, Doubles, Histogram, density_of, int8_errors
from workbench.quantization.ifmr import ifmr_range
from workbench.quantization.recipe import ActivationRecipe, ModelRecipe
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    Range,
    WeightScale,
    int8_parameters,
)
from workbench.quantization.statistics import Statistics, TensorStatistics
from workbench.quantization.weights import Floats, weight_scale, weights_of
from workbench.values.system.source_closure import closure_digest

Request = tuple[str, ActivationRecipe]
"""A tensor, and how its scale is to be found."""


def choose(
    statistics: Statistics,
    recipe: ModelRecipe,
    proto: ModelProto,
    *,
    balance: Mapping[str, tuple[float, ...]] | None = None,
) -> QuantizationRecord:
    """Scales and zero points of every layer that a recipe quantizes.

    Args:
        proto: the observed graph. The weight algorithm 'adaround' leaves the rounding to `rounding.learn_rounding`.
        balance: layer name → factors that the observed graph was balanced with; they go into the record.

    Raises:
        ValueError: the recipe names a layer that the graph does not have, or a weight holds NaN or infinity.
    """
    layers = quantized_layers(statistics.layers, recipe)
    wanted = requests(layers, recipe)
    outputs: dict[str, Request] = {}
    for layer in layers:
        if layer.op_type == "Conv":  # its output as the first layer that reads it asks for, or else as its own input
            own = (layer.output, recipe.layers[layer.name].activation)
            outputs[layer.name] = next((request for request in wanted if request[0] == layer.output), own)
    scales = {
        (tensor, settings): scale_of(
            tensor, *clip_range(statistics.tensors[tensor], settings), symmetric=settings.symmetric
        )
        for tensor, settings in (*wanted, *outputs.values())
    }
    found = weight_scales(weights_of(proto, layers), layers, recipe)
    return QuantizationRecord(
        model_sha256=statistics.model_sha256,
        layers=layer_records(layers, recipe, scales, found, balance or {}, outputs),
        float_layers=recipe.float_layers,
        provenance=Provenance(
            engine="native",
            recipe=dict(recipe.source),
            statistics=statistics.digest,
            code_revision=closure_digest("workbench.quantization"),
        ),
    )


def layer_records(
    layers: Sequence[Layer],
    recipe: ModelRecipe,
    scales: Mapping[Request, ActivationScale],
    weights: Mapping[str, WeightScale],
    balance: Mapping[str, tuple[float, ...]],
    outputs: Mapping[str, Request],
) -> tuple[LayerRecord, ...]:
    """Args: weights, balance, outputs: by layer name, of those that have one."""
    records = []
    for layer in layers:
        settings = recipe.layers[layer.name].activation
        records.append(
            LayerRecord(
                layer=layer.name,
                op_type=layer.op_type,
                activation=scales[layer.activation, settings],
                weight=weights.get(layer.name),
                second=scales[layer.second, settings] if layer.second is not None else None,
                output=scales[outputs[layer.name]] if layer.name in outputs else None,
                balance=balance.get(layer.name),
            )
        )
    return tuple(records)


def weight_scales(
    weights: Mapping[str, Floats], layers: Sequence[Layer], recipe: ModelRecipe
) -> dict[str, WeightScale]:
    """Layer name → scale, of the layers with a weight that the recipe quantizes."""
    return {
        layer.name: weight_scale(weights[layer.name], settings, layer)
        for layer in layers
        if (settings := recipe.layers[layer.name].weight) is not None and layer.name in weights
    }


def quantized_layers(layers: Sequence[Layer], recipe: ModelRecipe) -> list[Layer]:
    """The layers that the recipe names, in graph order.

    Raises:
        ValueError: the recipe names a layer that the graph does not have.
    """
    if unknown := recipe.layers.keys() - {layer.name for layer in layers}:
        raise ValueError(f"the recipe names {min(unknown)!r}, which is no quantizable layer of this model")
    return [layer for layer in layers if layer.name in recipe.layers]


def requests(layers: Sequence[Layer], recipe: ModelRecipe) -> list[Request]:
    """Every scale that the layers' inputs need, once, in graph order.

    Layers that read one tensor share its scale where their settings are equal. Where they are not, each has a scale
    of its own and the tensor is quantized twice, as AMCT does for an override of one of several readers.
    """
    found: dict[Request, None] = {}
    for layer in layers:
        settings = recipe.layers[layer.name].activation
        for tensor in (layer.activation, layer.second):
            if tensor is not None:
                found[tensor, settings] = None
    return list(found)


def scale_of(tensor: str, low: float, high: float, *, symmetric: bool) -> ActivationScale:
    """Of a clip range (`int8_parameters`)."""
    scale, zero_point = int8_parameters(low, high, symmetric=symmetric)
    return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


# --- clip ranges -----------------------------------------------------------------------------------------------------

_KL_BINS = 2048
_OCTAVES, _STEPS_PER_OCTAVE, _REFINEMENTS = 9, 8, 9


def clip_range(tensor: TensorStatistics, recipe: ActivationRecipe) -> Range:
    """The clip range that the recipe's algorithm finds; (0, 0) for a tensor that was never seen."""
    histogram = tensor.histogram
    match recipe.algorithm:
        case "minmax":
            return minmax_range(histogram)
        case "moving_average":
            return moving_average_range(tensor)
        case "percentile" if recipe.percentile is not None:
            return percentile_range(histogram, recipe.percentile)
        case "kl":
            return kl_range(histogram, symmetric=recipe.symmetric)
        case "mse":
            return mse_range(histogram, symmetric=recipe.symmetric)
        case "ifmr":
            return ifmr_range(histogram, recipe)
        case "hfmg":
            return hfmg_range(histogram, recipe.bins)
    raise ValueError(f"algorithm {recipe.algorithm!r} with percentile {recipe.percentile!r} has no clip range")


def minmax_range(histogram: Histogram) -> Range:
    """Smallest and largest value, both moved to contain zero."""
    return min(histogram.minimum, 0.0), max(histogram.maximum, 0.0)


def moving_average_range(tensor: TensorStatistics) -> Range:
    """The mean over the samples of each sample's smallest and largest value, both moved to contain zero.

    ONNX Runtime's moving average takes the mean over batches instead; with one sample per batch the two are equal.
    """
    count = max(tensor.samples, 1)
    return min(tensor.minimum_sum[0] / count, 0.0), max(tensor.maximum_sum[0] / count, 0.0)


def percentile_range(histogram: Histogram, percent: float) -> Range:
    """Clip at the threshold below which `percent` % of all non-zero |x| lie, the same one on both sides.

    One threshold for |x| keeps the definition independent of symmetric or asymmetric scales; a side that does not
    reach it keeps its own extreme. Inside a bin the values are taken as evenly spread. 100 gives `minmax_range`.

    Args:
        percent: in (0, 100].
    """
    if not 0 < percent <= 100:
        raise ValueError(f"percentile {percent} is outside (0, 100]")
    magnitudes = _magnitudes(histogram)
    total = np.cumsum(magnitudes)
    wanted = int(total[-1]) * percent / 100
    if percent == 100 or total[-1] == 0:
        return minmax_range(histogram)
    at = int(np.searchsorted(total, wanted))
    inside = (wanted - (total[at] - magnitudes[at])) / magnitudes[at]
    return _clipped(histogram, (at + float(inside)) * histogram.width)


def kl_range(histogram: Histogram, *, symmetric: bool) -> Range:
    """Clip at the threshold whose quantized distribution of |x| loses the least information.

    For every number of bins `i` from the number of levels to all of them: P is the distribution over the first `i`
    bins with everything beyond in the last one; Q is the same bins without what lies beyond, merged into the levels
    and spread again over the bins of each level that are not empty; the threshold with the smallest KL(P‖Q) wins
    (the first one at a tie). Levels: 128 for both signs, 255 where an asymmetric scale spends all on one sign.
    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017. Unlike there, bins divide evenly among the levels
    (level j ends at bin ⌊(j + 1)·i / levels⌋), and exact zeros take no part.
    """
    counts = _magnitudes(histogram).reshape(_KL_BINS, -1).sum(axis=1).astype(np.float64)
    bin_width = histogram.width * (BINS_PER_SIDE // _KL_BINS)
    filled = np.flatnonzero(counts)
    one_sided = histogram.minimum >= 0 or histogram.maximum <= 0
    levels = 255 if one_sided and not symmetric else 128
    if filled.size == 0 or filled[-1] < levels:
        return minmax_range(histogram)
    candidates = np.arange(levels, filled[-1] + 2)
    best = int(candidates[np.argmin(_kl_divergences(counts, candidates, levels))])
    return _clipped(histogram, best * bin_width)


def mse_range(histogram: Histogram, *, symmetric: bool) -> Range:
    """Clip where the expected squared error of quantizing is smallest.

    The error is exact for values spread evenly inside each bin, clipping and the rounding of the zero point
    included. Searched is a grid: both ends scaled together from 1 down to 1/512 in eighths of an octave, then each
    end on its own (asymmetric), then finer steps around the best; a tie keeps the wider range.
    """
    low, high = minmax_range(histogram)
    if low == high:
        return low, high
    density, width = density_of(histogram), histogram.width
    factors = 2.0 ** (-np.arange(_OCTAVES * _STEPS_PER_OCTAVE + 1) / _STEPS_PER_OCTAVE)
    fine = 2.0 ** (np.linspace(1, -1, 2 * _REFINEMENTS + 1) / _STEPS_PER_OCTAVE)

    def best(lows: Doubles, highs: Doubles) -> Range:
        lows, highs = np.maximum(lows, low), np.minimum(highs, high)
        pairs = [int8_parameters(*ends, symmetric=symmetric) for ends in zip(lows, highs, strict=True)]
        scales, zero_points = np.array(pairs, np.float64).T
        # differences below this are rounding of the sums, not of the tensor; the first, widest range keeps a tie
        errors = int8_errors(density, width, scales, zero_points)
        at = int(np.argmax(errors <= errors.min() * (1 + 1e-9)))
        return float(lows[at]), float(highs[at])

    found = best(low * factors, high * factors)
    if symmetric:
        return best(found[0] * fine, found[1] * fine)
    for grid in (factors, factors, fine):
        found = best(np.full_like(grid, found[0]), found[1] * grid)
        found = best(found[0] * grid, np.full_like(grid, found[1]))
    return found


# --- arithmetic on histograms --------------------------------------------------------------------------------------


def _magnitudes(histogram: Histogram) -> npt.NDArray[np.int64]:
    """Counts of |x| per bin, zeros left out: the negative side folded onto the positive one."""
    negative, positive = histogram.counts[:BINS_PER_SIDE], histogram.counts[BINS_PER_SIDE:]
    folded: npt.NDArray[np.int64] = positive + negative[::-1]
    return folded


def _clipped(histogram: Histogram, threshold: float) -> Range:
    low, high = minmax_range(histogram)
    return max(low, -threshold), min(high, threshold)


def _kl_divergences(counts: Doubles, candidates: npt.NDArray[np.int64], levels: int) -> Doubles:
    """KL(P‖Q) for every candidate number of bins, from prefix sums; infinite where Q misses what P has.

    With n bins' counts c, N all of them, `beyond` those past the threshold and M = N - beyond:
    KL = Σ p·log p - Σ p·log q,   p = c/N (last bin: (c + beyond)/N),   q = (level's sum / level's filled bins)/M.
    """
    total = counts.sum()
    sums, fills, entropies = (np.concatenate([[0.0], np.cumsum(x)]) for x in (counts, counts > 0, _x_log_x(counts)))
    inside = sums[candidates]
    beyond = total - inside
    last = counts[candidates - 1]
    p_log_p = entropies[candidates - 1] + _x_log_x(last + beyond)

    ends = (np.arange(levels + 1) * candidates[:, None]) // levels
    level_sums = np.diff(sums[ends], axis=1)
    level_fills = np.diff(fills[ends], axis=1)
    level_fills[:, -1] += (last == 0) & (beyond > 0)  # the outliers fill the last bin, so Q has to reach it
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(level_sums / level_fills)
        p_log_q = np.where(level_sums > 0, level_sums * log_q, 0.0).sum(axis=1)
        p_log_q += np.where(beyond > 0, beyond * log_q[:, -1], 0.0)
        divergence = (p_log_p - p_log_q) / total - np.log(total) + np.log(inside)
    return np.where(np.isfinite(divergence), divergence, np.inf)


def _x_log_x(x: Doubles) -> Doubles:
    product: Doubles = x * np.log(np.where(x > 0, x, 1.0))
    return product
