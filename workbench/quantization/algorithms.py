"""From statistics to a record: every recipe is a pure function of what one pass has seen.

    ranges.py    one tensor's statistics → clip range        minmax, moving_average, percentile, kl, mse
    ifmr.py, hfmg.py                                         AMCT's two searches, on our histogram
    scales.py    clip range → scale, zero point
    weights.py   weight → scales                             minmax, arq, mse
    here         Statistics + recipe → QuantizationRecord

`exact.py` follows AMCT's own procedure instead, in several passes over the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx import ModelProto

from workbench.graph.layers import Layer
from workbench.quantization.density import expected_error as expected_error  # "as": importers may take it from here
from workbench.quantization.ranges import clip_range
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe
from workbench.quantization.record import ActivationScale, LayerRecord, Provenance, QuantizationRecord, WeightScale
from workbench.quantization.scales import as_half, int8_parameters
from workbench.quantization.statistics import Statistics, TensorStatistics
from workbench.quantization.weights import Floats, scale_from_extremes, weight_scale, weights_of
from workbench.values.system.source_closure import closure_digest

Request = tuple[str, ActivationRecipe]
"""A tensor, and how its scale is to be found."""


def choose(
    statistics: Statistics,
    recipe: ModelRecipe,
    *,
    proto: ModelProto | None = None,
    balance: Mapping[str, tuple[float, ...]] | None = None,
) -> QuantizationRecord:
    """Scales and zero points of every layer that a recipe quantizes.

    Args:
        proto: the observed graph; the weight algorithms 'mse' and 'adaround' need its values. 'adaround' leaves the
            rounding to `rounding.learn_rounding`.
        balance: layer name → factors that the observed graph was balanced with; they go into the record.

    Raises:
        ValueError: `proto` is needed and not given.
    """
    layers = quantized_layers(statistics.layers, recipe)
    wanted = requests(layers, recipe)
    outputs = {layer.name: output_request(layer, recipe, wanted) for layer in layers if layer.op_type == "Conv"}
    scales = {
        (tensor, settings): activation_scale(tensor, statistics.tensors[tensor], settings, half=recipe.force_fp16)
        for tensor, settings in (*wanted, *outputs.values())
    }
    weights = weights_of(proto, layers) if proto is not None else {}
    found = {layer.name: _weight(layer, recipe.layers[layer.name], statistics, weights) for layer in layers}
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
        force_fp16=recipe.force_fp16,
    )


def layer_records(
    layers: Sequence[Layer],
    recipe: ModelRecipe,
    scales: Mapping[Request, ActivationScale],
    weights: Mapping[str, WeightScale | None],
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


def output_request(layer: Layer, recipe: ModelRecipe, wanted: Sequence[Request]) -> Request:
    """How the output of a Conv is quantized: as the first layer that reads it asks for, or else as its own input."""
    own = (layer.output, recipe.layers[layer.name].activation)
    return next((request for request in wanted if request[0] == layer.output), own)


def activation_scale(
    tensor: str, seen: TensorStatistics, recipe: ActivationRecipe, *, half: bool = False
) -> ActivationScale:
    """The scale that the recipe's algorithm finds for one tensor; never seen, it gets a neutral one.

    Args:
        half: round the scale to float16 as FORCE_FP16_QUANT does.
    """
    found = scale_of(tensor, *clip_range(seen, recipe), symmetric=recipe.symmetric)
    return replace(found, scale=as_half(found.scale)) if half else found


def scale_of(tensor: str, low: float, high: float, *, symmetric: bool) -> ActivationScale:
    """Of a clip range (`int8_parameters`)."""
    scale, zero_point = int8_parameters(low, high, symmetric=symmetric)
    return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


def _weight(
    layer: Layer, recipe: LayerRecipe, statistics: Statistics, weights: Mapping[str, Floats]
) -> WeightScale | None:
    if layer.weight is None or recipe.weight is None:
        return None
    if layer.name in weights:
        return weight_scale(weights[layer.name], recipe.weight, layer)
    return scale_from_extremes(statistics.weights[layer.name], recipe.weight, layer)
