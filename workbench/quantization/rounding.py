"""Learned rounding (AdaRound): whether each weight is better rounded down or up, found on calibration data.

learn_rounding   one pass for the second moments of every layer's input, then a search per layer
integers_of      what every lowering writes, with learned rounding or without
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.activations import activations, ordinary_rows
from workbench.quantization.balance import grouped_weight
from workbench.quantization.lowering.prepare import balanced_as
from workbench.quantization.lowering.surgery import float_constant
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.record import LayerRecord, QuantizationRecord, WeightScale
from workbench.quantization.weights import scale_groups, scales_along, scales_over
from workbench.quantization.windows import patches
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_Floats = npt.NDArray[np.float32]


def learn_rounding(
    model: Model,
    batches: Iterable[Feeds],
    record: QuantizationRecord,
    recipe: ModelRecipe,
) -> QuantizationRecord:
    """The record with the rounding of every 'adaround' weight learned; scales and all else stay as they are.

    One pass over the data in the record's balanced model collects E[x xᵀ] of every distinct layer input, from float
    activations; where the recipe corrects biases, the covariance, since the mean is taken out there. Rows of massive
    activations are left out (`activations.ordinary_rows`), and what is seen between channels is shrunk by
    rows / (rows + K), so that few samples do not mislead. Memory is 4·K² bytes per input, K = Cin (times the kernel's
    elements for a Conv), and does not grow with the data. `adaround.best_rounding` says how the rounding is found, and
    why AdaRound's iterations count nothing.

    Raises:
        CalibrationError: see `activations`; a record that does not fit the model; or a ConvTranspose, whose output
            positions read different parts of the kernel.
    """
    chosen = {
        layer.layer: layer for layer in record.layers if layer.weight is not None and _learns(recipe, layer.layer)
    }
    if not chosen:
        return record
    proto = balanced_as(load_graph(model), record)
    nodes = {node.name: node for node in proto.graph.node}
    layers = {layer.name: layer for layer in quantizable_layers(proto)}
    for name, recorded in chosen.items():
        if name not in layers:
            raise CalibrationError(f"layer {name!r} of the record is none of this model. Calibrate again.")
        if recorded.op_type == "ConvTranspose":
            raise CalibrationError(f"{name}: rounding of a ConvTranspose is not learned. Give it the algorithm 'arq'.")
    inputs: dict[tuple[str, str], list[str]] = {}
    for name, recorded in chosen.items():
        window = name if recorded.op_type == "Conv" else ""
        inputs.setdefault((layers[name].activation, window), []).append(name)
    collected = {key: _Moments() for key in inputs}
    for run in activations(model, proto, [tensor for tensor, _ in inputs], batches):
        for key, names in inputs.items():
            collected[key].add(_rows(run.values[key[0]], nodes[names[0]], layers[names[0]]))
    known = constants(proto)
    learned: dict[str, WeightScale] = {}
    for key, names in inputs.items():
        moments = collected.pop(key).of_rows(centred=recipe.bias_correction)
        for name in names:
            layer, weight = layers[name], chosen[name].weight
            assert layer.weight is not None
            assert weight is not None
            stored = float_constant(layer.weight, known[layer.weight], name)
            weights = _by_group(stored, layer)
            steps = _by_group(np.broadcast_to(scales_along(weight, stored.shape), stored.shape), layer)[:, :, :1]
            bits = [
                best_rounding(task, moment) > task.lower
                for task, moment in zip(map(problem, weights, steps), moments, strict=True)
            ]
            learned[name] = replace(weight, rounding=encoded_bits(_as_stored(np.stack(bits), layer, stored.shape)))

    def with_rounding(layer: LayerRecord) -> LayerRecord:
        return replace(layer, weight=learned[layer.layer]) if layer.layer in learned else layer

    return replace(record, layers=tuple(with_rounding(layer) for layer in record.layers))


def integers_of(values: _Floats, scale: WeightScale, groups: int = 1) -> npt.NDArray[np.int8]:
    """The int8 form of a constant weight, clipped to [-128, 127], as every lowering writes it.

    Without learned rounding: round half to even of w / scale, computed in float32. With it: floor(w / scale) plus the
    recorded bit (record.py says how they are stored).

    Args:
        values: float32, as stored in the model.
        groups: of a ConvTranspose.

    Raises:
        ValueError: the number of scales or of rounding bits does not fit the weight.
    """
    steps = scales_along(scale, values.shape, groups)
    quotients = values / steps
    if scale.rounding is None:
        rounded = np.rint(quotients)
    elif steps.size > len(scale.scales):
        raise ValueError("learned rounding of a grouped ConvTranspose has no known order")
    else:
        rounded = np.floor(quotients) + _bits(scale.rounding, values.size).reshape(values.shape)
    integers: npt.NDArray[np.int8] = np.clip(rounded, -128, 127).astype(np.int8)
    return integers


def rounded_weight(values: _Floats, scale: WeightScale, layer: Layer) -> _Floats:
    """The weight that an INT8 layer multiplies with, in float32, as stored; see `integers_of`."""
    rounded: _Floats = integers_of(values, scale, scale_groups(layer)) * scales_over(scale, values.shape, layer)
    return rounded


def encoded_bits(bits: npt.NDArray[np.bool_]) -> str:
    """q - floor(w / scale) of every weight in C order, as `WeightScale.rounding` keeps it."""
    return base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")


def _bits(rounding: str, size: int) -> npt.NDArray[np.uint8]:
    packed = np.frombuffer(base64.b64decode(rounding, validate=True), np.uint8)
    if packed.size != -(-size // 8):
        raise ValueError(f"learned rounding of {packed.size} bytes does not fit a weight of {size} elements")
    return np.unpackbits(packed, count=size)


def _learns(recipe: ModelRecipe, layer: str) -> bool:
    settings = recipe.layers.get(layer)
    return settings is not None and settings.weight is not None and settings.weight.algorithm == "adaround"


class _Moments:
    """Σ x xᵀ and Σ x of rows: per group of channels float32 [K, K] and [K]."""

    def __init__(self) -> None:
        self._squares: _Floats | None = None
        self._sums: _Floats | None = None
        self._count = 0

    def add(self, rows: _Floats) -> None:
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


def _rows(values: _Floats, node: NodeProto, layer: Layer) -> _Floats:
    """What a layer's weights meet, as [groups, rows, K]."""
    if layer.op_type == "Conv":
        return patches(node, values, layer.weight_shape[2:])
    return ordinary_rows(values)[None]


def _by_group(stored: _Floats, layer: Layer) -> _Floats:
    """A weight as [groups, Cout / groups, K]."""
    grouped = grouped_weight(stored, layer)
    return np.ascontiguousarray(grouped.reshape(*grouped.shape[:2], -1))


def _as_stored(bits: npt.NDArray[np.bool_], layer: Layer, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    if layer.op_type == "Conv" or layer.transposed:
        return bits.reshape(shape)
    return np.ascontiguousarray(bits[0].T)


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

_Doubles = npt.NDArray[np.float64]

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
