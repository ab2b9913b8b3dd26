"""From statistics to scales: every calibration algorithm is a pure function of a histogram.

    clip range   minmax_range, percentile_range, kl_range, mse_range   Histogram → (low, high), low <= 0 <= high
    parameters   int8_parameters                                       (low, high) → scale, zero point
    record       choose                                                Statistics + recipe → QuantizationRecord

Zero is inside every range and is always represented exactly, so exact zeros cost nothing and take no part in the
searches (a ReLU's or a mask's zeros would otherwise decide the threshold).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from workbench.candidate import Quantization
from workbench.canonical import encode, source_digest
from workbench.graph import Layer
from workbench.quantization.histogram import BINS_PER_SIDE, Histogram
from workbench.quantization.observe import Statistics, WeightStatistics
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
)

Range = tuple[float, float]
_Doubles = npt.NDArray[np.float64]

SMALLEST_SCALE = 1.1920929e-7
"""float32 epsilon; a smaller scale becomes 1.0, since the tensor is as good as constant zero (amct.md §4)."""

_KL_BINS = 2048
_OCTAVES, _STEPS_PER_OCTAVE, _REFINEMENTS = 9, 8, 9


# --- clip ranges ---------------------------------------------------------------------------------------------------


def minmax_range(histogram: Histogram) -> Range:
    """Smallest and largest value, both moved to contain zero; (0, 0) for a tensor that was never seen."""
    return min(histogram.minimum, 0.0), max(histogram.maximum, 0.0)


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
    moments = _Moments(histogram)
    factors = 2.0 ** (-np.arange(_OCTAVES * _STEPS_PER_OCTAVE + 1) / _STEPS_PER_OCTAVE)
    fine = 2.0 ** (np.linspace(1, -1, 2 * _REFINEMENTS + 1) / _STEPS_PER_OCTAVE)
    best = _best(moments, low * factors, high * factors, symmetric)
    if symmetric:
        return _best(moments, *_capped(low, high, best[0] * fine, best[1] * fine), symmetric)
    for grid in (factors, factors, fine):
        best = _best(moments, *_capped(low, high, np.full_like(grid, best[0]), best[1] * grid), symmetric)
        best = _best(moments, *_capped(low, high, best[0] * grid, np.full_like(grid, best[1])), symmetric)
    return best


def clip_range(histogram: Histogram, recipe: Quantization) -> Range:
    """The clip range that a static recipe's algorithm finds."""
    symmetric = bool(recipe.activation_symmetric)
    match recipe.algorithm:
        case "minmax":
            return minmax_range(histogram)
        case "percentile" if recipe.percentile is not None:
            return percentile_range(histogram, recipe.percentile)
        case "kl":
            return kl_range(histogram, symmetric=symmetric)
        case "mse":
            return mse_range(histogram, symmetric=symmetric)
    raise ValueError(f"scheme {recipe.scheme!r} with algorithm {recipe.algorithm!r} has no clip range")


# --- scales --------------------------------------------------------------------------------------------------------


def int8_parameters(low: float, high: float, *, symmetric: bool) -> tuple[float, int]:
    """Scale (a float32 value) and zero point for a clip range; AMCT's rule (amct.md §4.1).

    Asymmetric: scale = (high - low) / 255, zero point = round(-128 - low / scale). Symmetric: the larger side B over
    127, or over 128 where it is the negative one, zero point 0. A range of (nearly) nothing gets scale 1.
    """
    if symmetric:
        scale = float(np.float32(-low / 128 if -low > high else high / 127))
        return (scale, 0) if scale >= SMALLEST_SCALE else (1.0, 0)
    scale = float(np.float32((high - low) / 255))
    if scale < SMALLEST_SCALE:
        return 1.0, -128
    return scale, min(max(round(-128 - low / scale), -128), 127)


def expected_error(histogram: Histogram, scale: float, zero_point: int) -> float:
    """Mean squared error of quantizing all values seen, exact for values spread evenly inside each bin."""
    if histogram.count == 0:
        return 0.0
    return float(_Moments(histogram).errors(np.array([scale]), np.array([float(zero_point)]))[0]) / histogram.count


# --- record --------------------------------------------------------------------------------------------------------


def choose(statistics: Statistics, recipe: Quantization, ranking: Sequence[str] = ()) -> QuantizationRecord:
    """Scales and zero points of every layer that a static recipe quantizes.

    Args:
        ranking: layer names, most sensitive first; the first `recipe.keep_float` of those that the recipe would
            quantize stay in float. Names of layers that stay in float anyway are passed over.

    Raises:
        ValueError: the recipe is not static, or the ranking is too short or names an unknown layer.
    """
    if recipe.scheme != "static":
        raise ValueError(f"a {recipe.scheme!r} recipe needs no record")
    applicable = [layer for layer in statistics.layers if recipe.attention_matmul or layer.second is None]
    kept = _kept_in_float(statistics.layers, applicable, recipe.keep_float or 0, ranking)
    quantized = [layer for layer in applicable if layer.name not in kept]
    scales: dict[str, ActivationScale] = {}
    for name in _tensors(quantized):
        scales[name] = _activation(name, statistics.tensors[name].histogram, recipe)
    return QuantizationRecord(
        model_sha256=statistics.model_sha256,
        layers=tuple(_layer_record(layer, scales, statistics, recipe) for layer in quantized),
        float_layers=kept,
        provenance=Provenance(
            engine="native",
            recipe={name: value for name, value in encode(recipe).items() if value is not None},
            statistics=statistics.digest,
            code_revision=source_digest("quantization", "graph"),
        ),
    )


def _kept_in_float(
    layers: Sequence[Layer], applicable: Sequence[Layer], keep: int, ranking: Sequence[str]
) -> tuple[str, ...]:
    if unknown := set(ranking) - {layer.name for layer in layers}:
        raise ValueError(f"the ranking names {min(unknown)!r}, which is no quantizable layer of this model")
    names = {layer.name for layer in applicable}
    kept = tuple(name for name in ranking if name in names)[:keep]
    if len(kept) < min(keep, len(names)):
        raise ValueError(f"{keep} layers are to stay in float, the ranking has only {len(kept)} that apply")
    return kept


def _tensors(layers: Iterable[Layer]) -> dict[str, None]:
    """Every tensor that needs a scale, once, in graph order."""
    found: dict[str, None] = {}
    for layer in layers:
        found[layer.activation] = None
        if layer.second is not None:
            found[layer.second] = None
        if layer.op_type == "Conv":
            found[layer.output] = None
    return found


def _activation(tensor: str, histogram: Histogram, recipe: Quantization) -> ActivationScale:
    low, high = clip_range(histogram, recipe)
    scale, zero_point = int8_parameters(low, high, symmetric=bool(recipe.activation_symmetric))
    return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


def _layer_record(
    layer: Layer, scales: dict[str, ActivationScale], statistics: Statistics, recipe: Quantization
) -> LayerRecord:
    weight = None
    if layer.second is None:
        weight = _weight(layer, statistics.weights[layer.name], per_channel=recipe.weight_granularity == "channel")
    return LayerRecord(
        layer=layer.name,
        op_type=layer.op_type,
        activation=scales[layer.activation],
        weight=weight,
        second=scales[layer.second] if layer.second is not None else None,
        output=scales[layer.output] if layer.op_type == "Conv" else None,
    )


def _weight(layer: Layer, seen: WeightStatistics, *, per_channel: bool) -> WeightScale:
    if per_channel:
        ranges = zip(seen.minima.tolist(), seen.maxima.tolist(), strict=True)
    else:
        ranges = zip([float(seen.minima.min())], [float(seen.maxima.max())], strict=True)
    scales = tuple(int8_parameters(min(low, 0.0), max(high, 0.0), symmetric=True)[0] for low, high in ranges)
    return WeightScale(scales=scales, axis=layer.output_axis if per_channel else None)


# --- arithmetic on histograms --------------------------------------------------------------------------------------


def _magnitudes(histogram: Histogram) -> npt.NDArray[np.int64]:
    """Counts of |x| per bin, zeros left out: the negative side folded onto the positive one."""
    negative, positive = histogram.counts[:BINS_PER_SIDE], histogram.counts[BINS_PER_SIDE:]
    folded: npt.NDArray[np.int64] = positive + negative[::-1]
    return folded


def _clipped(histogram: Histogram, threshold: float) -> Range:
    low, high = minmax_range(histogram)
    return max(low, -threshold), min(high, threshold)


def _kl_divergences(counts: _Doubles, candidates: npt.NDArray[np.int64], levels: int) -> _Doubles:
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


def _x_log_x(x: _Doubles) -> _Doubles:
    product: _Doubles = x * np.log(np.where(x > 0, x, 1.0))
    return product


class _Moments:
    """Integrals of x⁰, x¹ and x² over a histogram whose values are spread evenly inside each bin.

    In units of the bin width: every quantity stays near 1 whatever the tensor's magnitude.
    """

    def __init__(self, histogram: Histogram) -> None:
        filled = np.flatnonzero(histogram.counts)
        first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (BINS_PER_SIDE, BINS_PER_SIDE)
        self.width = histogram.width
        self.counts = np.append(histogram.counts[first:last], 0).astype(np.float64)  # the last: past the end
        self.start, self.stop = float(first - BINS_PER_SIDE), float(last - BINS_PER_SIDE)
        left = np.arange(first - BINS_PER_SIDE, last - BINS_PER_SIDE, dtype=np.float64)
        inside = self.counts[:-1]
        powers = (inside, inside * (left + 0.5), inside * (left * left + left + 1 / 3))
        self.prefixes = tuple(np.concatenate([[0.0], np.cumsum(p)]) for p in powers)

    def errors(self, scales: _Doubles, zero_points: _Doubles) -> _Doubles:
        """Summed squared error, one entry per pair of scale and zero point, in squared units of the tensor."""
        steps = (scales / self.width)[:, None]
        values = (np.arange(-128.0, 128.0) - zero_points[:, None]) * steps  # what each integer stands for
        borders = np.empty((scales.size, 257))
        borders[:, 1:-1] = (values[:, 1:] + values[:, :-1]) / 2
        borders[:, 0], borders[:, -1] = self.start, self.stop  # beyond the range everything is clipped to its ends
        np.clip(borders, self.start, self.stop, out=borders)
        zeroth, first, second = (np.diff(part, axis=1) for part in self._up_to(borders))
        errors: _Doubles = (second - 2 * values * first + values * values * zeroth).sum(axis=1)
        return np.maximum(errors, 0.0) * self.width**2

    def _up_to(self, x: _Doubles) -> tuple[_Doubles, _Doubles, _Doubles]:
        floors = np.floor(x)
        bins = (floors - self.start).astype(np.int64)
        count, extent = self.counts[bins], x - floors
        zeroth, first, second = (prefix[bins] for prefix in self.prefixes)
        mass = count * extent
        middle = (floors + x) / 2
        return zeroth + mass, first + mass * middle, second + mass * (middle * middle + extent * extent / 12)


def _capped(low: float, high: float, lows: _Doubles, highs: _Doubles) -> tuple[_Doubles, _Doubles]:
    return np.maximum(lows, low), np.minimum(highs, high)


def _best(moments: _Moments, lows: _Doubles, highs: _Doubles, symmetric: bool) -> Range:
    pairs = [int8_parameters(low, high, symmetric=symmetric) for low, high in zip(lows, highs, strict=True)]
    scales, zero_points = np.array(pairs, np.float64).T
    # differences below this are rounding of the sums, not of the tensor; the first, widest range keeps a tie
    errors = moments.errors(scales, zero_points)
    at = int(np.argmax(errors <= errors.min() * (1 + 1e-9)))
    return float(lows[at]), float(highs[at])
