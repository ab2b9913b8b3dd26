"""What is learned on calibration data once the scales are chosen: rounding of weights (AdaRound), and biases.

learn_rounding     one pass for the second moments of every layer's input, then a search per layer
bias_corrections   one pass for the means of every layer's input, rounded and not
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.activations import activations, ordinary_rows, patches, windows
from workbench.quantization.lowering.prepare import balanced_as
from workbench.quantization.lowering.surgery import float_constant
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord, WeightScale
from workbench.quantization.weights import encoded_bits, grouped_weight, rounded_weight, scales_along
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]


def learn_rounding(
    model: Model, batches: Callable[[], Iterable[Feeds]], record: QuantizationRecord, recipe: ModelRecipe
) -> QuantizationRecord:
    """The record with the rounding of every 'adaround' weight learned; scales and all else stay as they are.

    One pass over the data in the record's balanced model collects E[x xᵀ] of every distinct layer input, from float
    activations; where the recipe corrects biases, the covariance, since the mean is taken out there. Rows of massive
    activations are left out (`activations.ordinary_rows`), and what is seen between channels is shrunk by
    rows / (rows + K), so that few samples do not mislead. Memory is 4·K² bytes per input, K = Cin (times the kernel's
    elements for a Conv), and does not grow with the data. `best_rounding` says how the rounding is found, and why
    AdaRound's iterations count nothing.

    Raises:
        CalibrationError: see `activations`; a record that does not fit the model; or a ConvTranspose, whose output
            positions read different parts of the kernel.
    """
    learns = {n for n, settings in recipe.layers.items() if settings.weight and settings.weight.algorithm == "adaround"}
    chosen = [one for one in record.layers if one.weight is not None and one.layer in learns]
    if refused := [one.layer for one in chosen if one.op_type == "ConvTranspose"]:
        rule = f"{refused[0]}: rounding of a ConvTranspose is not learned. Give it the algorithm 'arq'."
        raise CalibrationError(rule)
    learned: dict[str, WeightScale] = {}
    for seen, weights in _inputs_of(model, batches() if chosen else (), record, chosen, _Moments):
        moments = seen.of_rows(centred=recipe.bias_correction)
        for layer, weight, stored in weights:
            steps = np.broadcast_to(scales_along(weight, stored.shape), stored.shape)
            bits = [
                best_rounding(task, moment) > task.lower
                for task, moment in zip(
                    map(problem, _by_group(stored, layer), _by_group(steps, layer)[:, :, :1]), moments, strict=True
                )
            ]
            plain = layer.op_type == "Conv" or layer.transposed
            found = np.stack(bits).reshape(stored.shape) if plain else np.ascontiguousarray(bits[0].T)
            learned[layer.name] = replace(weight, rounding=encoded_bits(found))
    layers = (replace(one, weight=learned.get(one.layer, one.weight)) for one in record.layers)
    return replace(record, layers=tuple(layers))


def bias_corrections(model: Model, batches: Iterable[Feeds], record: QuantizationRecord) -> dict[str, _Floats]:
    """E[W x] - E[Ŵ Q(x)] per output channel of every recorded layer with a weight, for `LayerRecord.bias_correction`:
    the mean error that INT8 puts on each channel.

    Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction",
    arXiv:1906.04721, the empirical variant. Here it is local: every layer sees the activations of the float model.

    One pass over the data in the record's balanced model. The mean over samples and positions is linear, so only the
    channel means of x and of Q(x) are kept: memory does not grow with the data. A convolution needs them per kernel
    element, since padding hides positions from some. Samples count by their positions, tokens of massive activations
    not at all (`ordinary_rows`). Corrections that the record has already are not applied first: the result replaces
    them.

    Returns:
        Layer name → float32 [Cout].

    Raises:
        CalibrationError: see `activations`, or a record that does not fit the model.
    """
    found: dict[str, _Floats] = {}
    weighted = [one for one in record.layers if one.weight is not None]
    for seen, weights in _inputs_of(model, batches, record, weighted, _Sums):
        means, rounded_means = seen.means()
        for layer, weight, stored in weights:
            quantized = rounded_weight(stored, weight, layer)
            error = _mean_output(stored, layer, means) - _mean_output(quantized, layer, rounded_means)
            found[layer.name] = error.astype(np.float32)
    return found


# --- a pass over the data --------------------------------------------------------------------------------------------


def _inputs_of(
    model: Model, batches: Iterable[Feeds], record: QuantizationRecord, chosen: Collection[LayerRecord], kind: type[Any]
) -> Iterator[tuple[Any, Iterator[tuple[Layer, WeightScale, _Floats]]]]:
    """Every distinct input of the chosen layers (of a convolution its own, for its windows), after one pass over the
    data in the record's balanced model: what a `kind` collected of it, and who reads it with which stored weight."""
    if not chosen:
        return
    proto = balanced_as(load_graph(model), record)
    nodes = {node.name: node for node in proto.graph.node}
    layers = {layer.name: layer for layer in quantizable_layers(proto)}
    if missing := sorted({one.layer for one in chosen} - layers.keys()):
        raise CalibrationError(f"layer {missing[0]!r} of the record is none of this model. Calibrate again.")
    readers: dict[tuple[str, ActivationScale, str], list[LayerRecord]] = {}
    for one in chosen:
        window = one.layer if one.op_type in ("Conv", "ConvTranspose") else ""
        readers.setdefault((layers[one.layer].activation, one.activation, window), []).append(one)
    collected = {key: kind() for key in readers}
    for run in activations(model, proto, [tensor for tensor, _, _ in readers], batches):
        for key, some in readers.items():
            first = some[0].layer
            collected[key].add(run.values[key[0]], nodes[first], layers[first], key[1])
    known = constants(proto)

    def weights(some: list[LayerRecord]) -> Iterator[tuple[Layer, WeightScale, _Floats]]:
        for one in some:
            layer, weight = layers[one.layer], one.weight
            assert layer.weight is not None
            assert weight is not None
            yield layer, weight, float_constant(layer.weight, known[layer.weight], layer.name)

    for key, some in readers.items():
        yield collected.pop(key), weights(some)


class _Moments:
    """Σ x xᵀ and Σ x of rows: per group of channels float32 [K, K] and [K]."""

    def __init__(self) -> None:
        self._squares: _Floats | None = None
        self._sums: _Floats | None = None
        self._count = 0

    def add(self, values: _Floats, node: NodeProto, layer: Layer, scale: ActivationScale) -> None:
        conv = layer.op_type == "Conv"
        rows = patches(node, values, layer.weight_shape[2:]) if conv else ordinary_rows(values)[None]
        if self._squares is None or self._sums is None:
            groups, _, size = rows.shape
            self._squares, self._sums = np.zeros((groups, size, size), np.float32), np.zeros((groups, size), np.float32)
        for group, x in enumerate(rows):
            self._squares[group] += x.T @ x
            self._sums[group] += x.sum(axis=0)
        self._count += rows.shape[1]

    def of_rows(self, *, centred: bool) -> _Floats:
        """float32 [groups, K, K]: E[x xᵀ], or the covariance."""
        assert self._squares is not None
        assert self._sums is not None
        count = np.float32(max(self._count, 1))
        moments = self._squares / count
        if centred:
            means = self._sums / count
            moments -= means[:, :, None] * means[:, None, :]
        # with few rows, what seems to cancel between channels is chance: shrink that towards independent channels
        size = moments.shape[-1]
        kept = count / (count + np.float32(size))
        diagonal = np.arange(size)
        own = moments[:, diagonal, diagonal].copy()
        moments *= kept
        moments[:, diagonal, diagonal] = own
        return moments


def _by_group(stored: _Floats, layer: Layer) -> _Floats:
    """A weight as [groups, Cout / groups, K]."""
    grouped = grouped_weight(stored, layer)
    return np.ascontiguousarray(grouped.reshape(*grouped.shape[:2], -1))


def _quantize_dequantize(values: _Floats, scale: ActivationScale) -> _Floats:
    """Q(x): what an INT8 layer reads in place of x (record.py)."""
    step = np.float32(scale.scale)
    integers = np.rint(values / step)
    np.clip(integers, -128 - scale.zero_point, 127 - scale.zero_point, out=integers)
    rounded: _Floats = integers * step
    return rounded


class _Sums:
    """Sums of one input and of its rounded form: float64 [Cin, kernel elements], over `count` output positions."""

    def __init__(self) -> None:
        self._x: _Doubles | float = 0.0
        self._rounded: _Doubles | float = 0.0
        self._count = 0

    def add(self, values: _Floats, node: NodeProto, layer: Layer, scale: ActivationScale) -> None:
        if layer.op_type not in ("Conv", "ConvTranspose"):
            rows = ordinary_rows(values)
            self._count += len(rows)
            self._x += _channel_sums(rows, -1)[:, None]
            self._rounded += _channel_sums(_quantize_dequantize(rows, scale), -1)[:, None]
            return
        rounded = _quantize_dequantize(values, scale)
        positions, elements = windows(node, values.shape[2:], layer.weight_shape[2:])
        self._count += values.shape[0] * positions
        selections = [(slice(None), slice(None), *element) for element in elements]
        self._x += np.stack([_channel_sums(values[selection], 1) for selection in selections], axis=1)
        self._rounded += np.stack([_channel_sums(rounded[selection], 1) for selection in selections], axis=1)

    def means(self) -> tuple[_Doubles, _Doubles]:
        count = max(self._count, 1)
        return np.asarray(self._x) / count, np.asarray(self._rounded) / count


def _channel_sums(values: _Floats, axis: int) -> _Doubles:
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    sums: _Doubles = values.sum(axis=others, dtype=np.float64)
    return sums


def _mean_output(weight: _Floats, layer: Layer, means: _Doubles) -> _Doubles:
    grouped = grouped_weight(weight, layer).astype(np.float64)
    groups, _, cin, taps = grouped.shape
    outputs: _Doubles = np.einsum("goct,gct->go", grouped, means.reshape(groups, cin, taps)).reshape(-1)
    return outputs


# --- the search ------------------------------------------------------------------------------------------------------
#
# For weights W [Cout, K], step s per row and inputs with second moments G = E[x xᵀ], the mean squared change of the
# output is tr(E G Eᵀ) with E = s·q - W. It is AdaRound's loss (Nagel et al. 2020, arXiv:2004.10568; amct.md §4.6) over
# all rows of the data at once; each row of W is a problem of its own. Two ways to a q between ⌊w/s⌋ and ⌊w/s⌋ + 1:
#
#     sequential   column by column, the error so far compensated in the columns not rounded yet (Frantar et al. 2022,
#                  "GPTQ", arXiv:2210.17323), with only these two integers allowed
#     descended    change single integers while that lowers the loss
#
# Everything is deterministic. BLAS may sum in another order with another number of threads; a near-tie may then fall
# the other way.

_SWEEPS = 20
_DAMPING = 0.01
_BLOCK = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounding:
    """One weight matrix and its two integers per weight; all arrays are float32 [Cout, K].

    Attributes:
        steps: float32 [Cout, 1].
        lower, upper: ⌊w/s⌋ and ⌊w/s⌋ + 1, both clipped to [-128, 127]; equal for clipped weights.
    """

    weights: _Floats
    steps: _Floats
    lower: _Floats
    upper: _Floats


def problem(weights: _Floats, steps: _Floats) -> Rounding:
    """Args: float32 [Cout, K] and [Cout, 1]."""
    floors = np.floor(weights / steps)
    return Rounding(
        weights=weights, steps=steps, lower=np.clip(floors, -128, 127), upper=np.clip(floors + 1, -128, 127)
    )


def best_rounding(rounding: Rounding, moments: _Floats) -> _Floats:
    """The best integers found per output channel, never worse than rounding to nearest in `losses`.

    Candidates are `nearest` and `sequential`, each descended. On MiniLM's layers descended sequential rounding left
    0.20 to 0.30 of nearest rounding's loss in about a second; 200 steps of AdaRound's own relaxation, a rectified
    sigmoid per weight, left 0.47 (descended 0.28) in ten times as long, and are not done.

    Args:
        moments: float32 [K, K], symmetric, E[x xᵀ] (or the covariance, where a bias correction takes the mean out).
    """
    best = nearest(rounding)
    smallest = losses(rounding, moments, best)
    for start in (best, sequential(rounding, moments)):
        found = descended(rounding, moments, start)
        loss = losses(rounding, moments, found)
        better = loss < smallest
        best, smallest = np.where(better[:, None], found, best), np.where(better, loss, smallest)
    return best


def nearest(rounding: Rounding) -> _Floats:
    """Half to even, as without learned rounding."""
    integers: _Floats = np.clip(np.rint(rounding.weights / rounding.steps), -128, 127)
    return integers


def losses(rounding: Rounding, moments: _Floats, integers: _Floats) -> _Doubles:
    """E[(ŵx - wx)²] of every row: float64 [Cout]."""
    errors = _errors(rounding, integers)
    found: _Doubles = np.einsum("oi,oi->o", errors @ moments, errors, dtype=np.float64)
    return found


def descended(rounding: Rounding, moments: _Floats, integers: _Floats) -> _Floats:
    """Change single integers to their other choice, column by column, until no change lowers a row's loss."""
    integers = integers.copy()
    steps, diagonal = rounding.steps[:, 0], np.diag(moments)
    slopes = _errors(rounding, integers) @ moments
    for _ in range(_SWEEPS):
        changes = 0
        for column in range(integers.shape[1]):
            low, high, current = rounding.lower[:, column], rounding.upper[:, column], integers[:, column]
            change = (np.where(current > low, low, high) - current) * steps
            gain = change * (2 * slopes[:, column] + change * diagonal[column])
            # a gain below float32's noise would flip back and forth
            rows = np.flatnonzero(gain < -1e-6 * change * change * diagonal[column])
            if rows.size:
                slopes[rows] += change[rows, None] * moments[column]
                integers[rows, column] = np.where(current > low, low, high)[rows]
                changes += rows.size
        if changes == 0:
            break
    return integers


def sequential(rounding: Rounding, moments: _Floats) -> _Floats:
    """Column by column; what a column's rounding costs is made up for in the columns behind it."""
    size = len(moments)
    damped = moments.astype(np.float64)
    level = float(np.mean(np.diag(damped)))
    damped[np.diag_indices(size)] += _DAMPING * level if level > 0 else 1.0
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    weights = rounding.weights.copy()
    integers = np.empty_like(weights)
    steps = rounding.steps[:, 0]
    for start in range(0, size, _BLOCK):
        end = min(size, start + _BLOCK)
        scaled = np.zeros((len(weights), end - start), np.float32)
        for column in range(start, end):
            wanted = np.rint(weights[:, column] / steps)
            integers[:, column] = np.clip(wanted, rounding.lower[:, column], rounding.upper[:, column])
            error = (weights[:, column] - integers[:, column] * steps) / factor[column, column]
            scaled[:, column - start] = error
            weights[:, column + 1 : end] -= error[:, None] * factor[column, column + 1 : end]
        weights[:, end:] -= scaled @ factor[start:end, end:]
    return integers


def _errors(rounding: Rounding, integers: _Floats) -> _Floats:
    errors: _Floats = rounding.steps * integers - rounding.weights
    return errors
