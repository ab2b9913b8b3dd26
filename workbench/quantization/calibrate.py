"""From a recipe to a record: the one place that knows in which order the steps of the native engine run.

    statistics ─► balance factors ─► observe the balanced model again ─► choose ─► learn rounding ─► correct biases

Each step runs only where the recipe asks for it. Without balancing, learned rounding and bias correction a record
costs no pass over the data beyond the one that made the statistics. And AMCT's own procedure, to the last digit of its
record file (amct.md §4.10):

    1  normalize the float model; select the layers
    2  DMQ: balance factors from the first batch of the float model; balanced weights, a Mul before each layer
    3  weights: scales, and in the graph the fake-quantized values in their place
    4  activations, downstream of quantized weights but in float themselves: IFMR or HFMG on every value

Slower than `choose`, which derives any recipe from one pass: this takes up to three passes over the data, and starts
again for each recipe. It keeps nothing that grows with the number of batches, where AMCT keeps every activation. Not
AMCT's: ADA's learned rounding comes afterwards (`follow_amct`), and so does not feed later layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto

from workbench.graph.apart import array_of, kept_aside, tensor_of
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.nodes import copied
from workbench.graph.read import load_graph
from workbench.quantization.activations import activations
from workbench.quantization.algorithms import (
    Request,
    choose,
    layer_records,
    quantized_layers,
    requests,
    scale_of,
    weight_scales,
)
from workbench.quantization.balance import balance_factors, best_strengths, dmq_factors, input_channel_maxima
from workbench.quantization.hfmg import HfmgHistogram, extended, first_histogram, search
from workbench.quantization.ifmr import (
    Candidates,
    OrderStatistics,
    candidates,
    clip_ends,
    parameters,
    squared_errors,
    tail_rank,
)
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import balanced
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import ActivationRecipe, ModelRecipe
from workbench.quantization.record import ActivationScale, Provenance, QuantizationRecord, WeightScale, as_half
from workbench.quantization.rounding import bias_corrections, learn_rounding
from workbench.quantization.statistics import Statistics
from workbench.quantization.weights import rounded_weight, weights_of
from workbench.values.documents.canonical import digest
from workbench.values.errors import CalibrationError
from workbench.values.model import Model
from workbench.values.system.source_closure import closure_digest

ObserveVariant = Callable[[ModelProto, str], Statistics]


def derive_record(
    model: Model,
    recipe: ModelRecipe,
    statistics: Statistics,
    batches: Batches,
    *,
    observe_variant: ObserveVariant | None = None,
) -> QuantizationRecord:
    """The record of a recipe; deterministic for equal statistics and batches.

    Args:
        statistics: of the float model itself.
        observe_variant: observes a changed graph, named by its digest; by default it runs the batches again. A
            caller with a cache puts it here.

    Raises:
        CalibrationError: the model fails on a batch, or values are NaN or infinite.
        ValueError: the recipe does not fit the model.
    """
    with kept_aside(model.size_bytes):
        proto = normalized(load_graph(model))
        factors: Mapping[str, tuple[float, ...]] = {}
        if any(layer.balance is not None for layer in recipe.layers.values()):
            layers = quantizable_layers(proto)
            weights = weights_of(proto, layers)
            if recipe.balance_search:
                best = best_strengths(statistics, layers, weights, recipe)
                chosen = {
                    name: replace(settings, balance=None if settings.balance is None else best.get(name))
                    for name, settings in recipe.layers.items()
                }
                recipe = replace(recipe, layers=chosen, balance_search=False)
            factors = balance_factors(statistics, layers, weights, recipe)
        if factors:
            proto = balanced(proto, factors, fold=True)
            variant = digest({"balance": factors})
            if observe_variant is None:
                statistics = observe(model, batches(), proto=proto, variant=variant)
            else:
                statistics = observe_variant(proto, variant)
        record = choose(statistics, recipe, proto, balance=factors)
        record = learn_rounding(model, batches, record, recipe)
        if recipe.bias_correction:
            found = bias_corrections(model, batches(), record)
            corrected = (
                replace(one, bias_correction=tuple(map(float, found[one.layer]))) if one.layer in found else one
                for one in record.layers
            )
            record = replace(record, layers=tuple(corrected))
        return record


def follow_amct(model: Model, recipe: ModelRecipe, batches: Batches) -> QuantizationRecord:
    """The record of an AMCT configuration: its own procedure, and learned rounding where it asks for ADA.

    Raises:
        CalibrationError: as `exact.calibrate_exactly`.
        ValueError: the recipe does not fit the model.
    """
    return learn_rounding(model, batches, calibrate_exactly(model, batches, recipe), recipe)


# --- AMCT's own procedure --------------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float32]
Batches = Callable[[], Iterable[Feeds]]
"""Gives the calibration batches from the first one on, each time it is called, and the same ones."""

_THREADS = 2
"""Searches at once, and forward passes, each on one core."""
_CHANNELS_FIRST = ("Conv", "ConvTranspose", "AveragePool")


def calibrate_exactly(
    model: Model,
    batches: Batches,
    recipe: ModelRecipe,
) -> QuantizationRecord:
    """The record that AMCT writes for this model, data and configuration.

    A batch is one forward pass of AMCT's: HFMG depends on how the data is batched and on the order of the batches,
    and DMQ looks at the first one only. With HFMG a batch runs as it is fed, and all its activations are in memory at
    once; otherwise it runs a few samples at a time. Layers that AMCT has symmetric only (amct.md §5) are so by the
    recipe (`recipe_of_config`).

    Args:
        recipe: of an AMCT configuration: IFMR or HFMG, with balance strengths for DMQ.

    Raises:
        CalibrationError: no batches, a batch the model refuses, other batches in a later pass, or NaN or infinity
            (names the tensor and the sample).
        ValueError: the recipe does not fit the model, or a weight holds NaN or infinity.
    """
    with kept_aside(model.size_bytes):
        proto = normalized(load_graph(model), scalars=False)
        factors = _balance_factors(model, proto, batches, recipe)
        proto = balanced(proto, factors, fold=False)
        layers = quantized_layers(quantizable_layers(proto), recipe)
        if not layers:
            raise CalibrationError("the recipe leaves every layer in float. Enable at least one.")
        weights = weights_of(proto, layers)
        scales_of_weights = weight_scales(weights, layers, recipe)
        graph = with_quantized_weights(dividing(proto, factors), layers, weights, scales_of_weights)
        scales = activation_scales(model, graph, batches, requests(layers, recipe))
        if recipe.force_fp16:
            scales = {request: replace(scale, scale=as_half(scale.scale)) for request, scale in scales.items()}
        return QuantizationRecord(
            model_sha256=model.sha256,
            layers=layer_records(layers, recipe, scales, scales_of_weights, factors, {}),
            float_layers=recipe.float_layers,
            provenance=Provenance(
                engine="native",
                recipe={**recipe.source, "procedure": "amct"},
                statistics=None,
                code_revision=closure_digest("workbench.quantization"),
            ),
            fold_balance=False,
            force_fp16=recipe.force_fp16,
        )


# --- before the data -----------------------------------------------------------------------------------------------


def _balance_factors(
    model: Model, proto: ModelProto, batches: Batches, recipe: ModelRecipe
) -> dict[str, tuple[float, ...]]:
    """DMQ's factors, from the first batch alone: amct_pytorch ignores the later ones (amct.md §4.5)."""
    strengths = {name: each.balance for name, each in recipe.layers.items() if each.balance is not None}
    layers = [layer for layer in quantized_layers(quantizable_layers(proto), recipe) if layer.weight is not None]
    layers = [layer for layer in layers if layer.name in strengths]
    if not layers:
        return {}
    axes = {layer.activation: 1 if layer.op_type in _CHANNELS_FIRST else -1 for layer in layers}
    maxima: dict[str, Floats] = {}
    for run in activations(model, proto, list(axes), islice(batches(), 1)):
        for tensor, values in run.values.items():
            others = tuple(axis for axis in range(values.ndim) if axis != axes[tensor] % values.ndim)
            largest = np.abs(values).max(axis=others)
            maxima[tensor] = np.maximum(maxima.get(tensor, largest), largest)
    weights = weights_of(proto, layers)
    pairs = ((x, maxima[x.activation], input_channel_maxima(weights[x.name], x)) for x in layers)
    return {x.name: tuple(dmq_factors(seen, own, strengths[x.name]).tolist()) for x, seen, own in pairs}


def dividing(proto: ModelProto, factors: Mapping[str, Sequence[float]]) -> ModelProto:
    """The balanced model with x / s in place of the Mul by 1/s.

    AMCT calibrates on the quotient, and multiplies only in the deploy model: its record shows the last digit of it.
    """
    if not factors:
        return proto
    model = copied(proto)
    made_by = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.name in factors:
            product = made_by[node.input[0]]
            constant = made_by[product.input[1]].attribute[0].t
            values = np.asarray(factors[node.name], np.float32).reshape(tuple(constant.dims))
            constant.CopyFrom(tensor_of(values, constant.name))
            product.op_type = "Div"
    return model


def with_quantized_weights(
    proto: ModelProto, layers: Sequence[Layer], weights: Mapping[str, Floats], scales: Mapping[str, WeightScale]
) -> ModelProto:
    """The float model with the values that the int8 weights stand for (amct.md §4.4).

    Raises:
        ValueError: layers share a weight and give it different scales, or a weight is no stored constant.
    """
    replaced: dict[str, tuple[str, WeightScale, TensorProto]] = {}
    for layer in layers:
        scale = scales.get(layer.name)
        if layer.weight is None or scale is None:
            continue
        other, same, known = replaced.get(layer.weight, (layer.name, None, TensorProto()))
        if same == scale:
            continue
        values = rounded_weight(weights[layer.name], scale, layer)
        if same is None:
            replaced[layer.weight] = (layer.name, scale, tensor_of(values, layer.weight))
        elif not np.array_equal(array_of(known), values):
            raise ValueError(
                f"layers {other!r} and {layer.name!r} share the weight {layer.weight!r}, and their recipes give it "
                "different scales; give both the same weight settings"
            )
    model = copied(proto)
    for tensor in model.graph.initializer:
        if tensor.name in replaced:
            tensor.CopyFrom(replaced.pop(tensor.name)[2])
    for node in [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in replaced]:
        model.graph.initializer.append(replaced.pop(node.output[0])[2])
        model.graph.node.remove(node)
    if replaced:
        raise ValueError(f"weight {min(replaced)!r} is neither an initializer nor a Constant")
    return model


# --- passes over the data ------------------------------------------------------------------------------------------


def activation_scales(
    model: Model,
    graph: ModelProto,
    batches: Batches,
    wanted: Sequence[Request],
) -> dict[Request, ActivationScale]:
    """The scale of every request by exact search, in as many passes over the batches as that takes.

    Args:
        graph: what runs in the model's place: balanced, its weights fake-quantized (`with_quantized_weights`).

    Raises:
        CalibrationError: as `calibrate_exactly`.
    """
    searches = {
        (tensor, recipe): IfmrSearch(recipe) if recipe.algorithm == "ifmr" else HfmgSearch(recipe)
        for tensor, recipe in wanted
    }
    whole = any(recipe.algorithm == "hfmg" for _, recipe in wanted)
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        while going := {request: each for request, each in searches.items() if each.begin()}:
            tensors = list(dict.fromkeys(tensor for tensor, _ in going))
            for run in activations(model, graph, tensors, batches(), threads=_THREADS, whole=whole):
                # every search sees its values in the order of the runs, whatever the others do meanwhile
                added = [pool.submit(each.add, run.values[tensor]) for (tensor, _), each in going.items()]
                for future in added:
                    future.result()
                del run  # its values go before the next run's are waited for: of a large model a tenth of its size
            whole = False  # HFMG is done
    return {request: each.scale(request[0]) for request, each in searches.items()}


# --- streaming searches ----------------------------------------------------------------------------------------------
#
#     pass 1    HFMG: AMCT's histogram.  IFMR: order statistics.
#     pass 2    IFMR only, and only where a percentile lies deep inside the values: the second digit of its ranks
#     pass 3    IFMR only: the squared errors of all candidates
#
# What a search keeps does not grow with the data. Values must arrive in the same order in every pass only for HFMG,
# which depends on it as AMCT's does.


_VALUES_AT_ONCE = 262_144


class IfmrSearch:
    """IFMR on every value (amct.md §4.2): exact order statistics, then exact errors."""

    def __init__(self, recipe: ActivationRecipe) -> None:
        self._recipe = recipe
        self._ranks = OrderStatistics()
        self._stage = "new"
        self._tried: Candidates | None = None
        self._losses: npt.NDArray[np.float64] = np.zeros(0)
        self._measured = 0

    def begin(self) -> bool:
        """Start the next pass; False where no pass is left."""
        count = self._ranks.count
        ends = tail_rank(count, self._recipe.min_percentile), count + 1 - tail_rank(count, self._recipe.max_percentile)
        if self._stage == "new":
            self._stage = "ranks"
        elif self._stage == "ranks" and count and self._ranks.prepare(*ends):
            self._stage = "digits"
        elif self._stage in ("ranks", "digits") and count:
            self._stage = "errors"
            low, high = map(self._ranks.smallest, ends)
            self._tried = candidates(low, high, self._recipe)
            self._losses = np.zeros(self._tried.scales.size)
        else:
            return False
        return True

    def add(self, values: Floats) -> None:
        """Take finite float32 values of any shape."""
        if self._stage == "ranks":
            self._ranks.add(values)
        elif self._stage == "digits":
            self._ranks.refine(values)
        elif self._tried is not None:
            flat = values.reshape(-1)
            self._measured += flat.size
            for start in range(0, flat.size, _VALUES_AT_ONCE):
                self._losses += squared_errors(flat[start : start + _VALUES_AT_ONCE], self._tried)

    def scale(self, tensor: str) -> ActivationScale:
        if self._tried is None:
            return scale_of(tensor, 0.0, 0.0, symmetric=self._recipe.symmetric)
        if self._measured != self._ranks.count:
            raise CalibrationError(
                f"tensor {tensor!r} had {self._ranks.count} values in the first pass over the data and "
                f"{self._measured} in the last one. The batches must be the same in every pass."
            )
        best = int(np.argmin(self._losses))
        scale, zero_point = parameters(self._tried, best)
        low, high = clip_ends(self._tried, best)
        return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


class HfmgSearch:
    """HFMG on AMCT's own histogram (amct.md §4.3), batch by batch as they are fed."""

    def __init__(self, recipe: ActivationRecipe) -> None:
        self._recipe = recipe
        self._begun = False
        self._histogram: HfmgHistogram | None = None

    def begin(self) -> bool:
        begun, self._begun = self._begun, True
        return not begun

    def add(self, values: Floats) -> None:
        if values.size == 0:
            return
        if self._histogram is None:
            self._histogram = first_histogram(values, self._recipe.bins)
        else:
            self._histogram = extended(self._histogram, values)

    def scale(self, tensor: str) -> ActivationScale:
        low, high = (0.0, 0.0) if self._histogram is None else search(self._histogram)
        return scale_of(tensor, min(low, 0.0), max(high, 0.0), symmetric=self._recipe.symmetric)
