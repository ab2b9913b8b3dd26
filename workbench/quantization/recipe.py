"""Recipe: how every layer of one model is quantized; what a search point and an AMCT configuration both become.

    Candidate.quantization ──► recipe_of ──┐
    AMCT .cfg or JSON ─► recipe_of_config ─┴─► ModelRecipe ──► choose (one pass) or calibrate_exactly (AMCT's procedure)

A layer that the recipe does not name stays in float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workbench.graph.layers import Layer
from workbench.values.candidate import Algorithm, Operators, Quantization, WeightAlgorithm

HFMG_BINS = (1024, 2048, 4096, 8192)
"""Histogram sizes AMCT accepts (amct.md §2.1)."""

OPERATORS: Mapping[Operators, tuple[str, ...]] = {
    "all": ("MatMul", "Gemm", "Conv", "ConvTranspose"),
    "matmul": ("MatMul", "Gemm"),
    "conv": ("Conv", "ConvTranspose"),
}
"""What `Quantization.operators` lets become INT8."""

AUTOMATIC_START = 0.5
"""Stands for a strength that is still to be searched; SmoothQuant's and DMQ's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRecipe:
    """How the clip range of an activation is found. The defaults of the searches are AMCT's (amct.md §2.1).

    Attributes:
        percentile: with 'percentile' only, in percent of the non-zero |x|.
        max_percentile, min_percentile: with 'ifmr', share of values up to the start of the search, in (0.5, 1].
        search_start, search_end, search_step: with 'ifmr', factors of that start that are tried.
        bins: with 'hfmg', bins of the histogram.
    """

    algorithm: Algorithm
    symmetric: bool
    percentile: float | None = None
    max_percentile: float = 0.999999
    min_percentile: float = 0.999999
    search_start: float = 0.7
    search_end: float = 1.3
    search_step: float = 0.01
    bins: int = 4096

    def __post_init__(self) -> None:
        if (self.percentile is not None) != (self.algorithm == "percentile"):
            raise ValueError(f"percentile {self.percentile!r} does not go with algorithm {self.algorithm!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRecipe:
    """How a constant weight becomes int8; always symmetric.

    Attributes:
        per_channel: one scale per output channel.
    """

    algorithm: WeightAlgorithm
    per_channel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecipe:
    """One layer's settings.

    Attributes:
        weight: None for a product of two activations and for AveragePool.
        balance: migration strength of the activation balancing (SmoothQuant's alpha, DMQ's migration_strength) in
            [0, 1]; None leaves activations and weights as they are.
    """

    activation: ActivationRecipe
    weight: WeightRecipe | None
    balance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecipe:
    """Settings of every layer that becomes INT8.

    Attributes:
        layers: node name → settings.
        float_layers: layers kept in float on purpose, most sensitive first.
        balance_search: every layer with a `balance` gets the strength with the smallest estimated error instead.
        bias_correction: take the mean output error of the rounded weights and activations back out of the bias.
        force_fp16: AMCT's FORCE_FP16_QUANT (amct.md §4.7), of its own procedure: activation scales rounded to float16.
        source: the settings as plain scalars, for provenance.
    """

    layers: Mapping[str, LayerRecipe]
    float_layers: tuple[str, ...] = ()
    balance_search: bool = False
    bias_correction: bool = False
    force_fp16: bool = False
    source: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


def wants(quantization: Quantization, layer: Layer) -> bool:
    """Whether a static candidate makes a layer INT8, where nothing else keeps it in float.

    AveragePool stays in float: it multiplies nothing, ONNX Runtime has no integer kernel for it between float
    operators (amct.md §7), and rounding its input only costs accuracy. An AMCT configuration may ask for it.
    """
    if layer.op_type not in OPERATORS[quantization.operators]:
        return False
    return layer.weight is not None or (layer.second is not None and bool(quantization.attention_matmul))


def recipe_of(
    quantization: Quantization,
    layers: Sequence[Layer],
    kept: Sequence[str] = (),
    *,
    per_channel_types: Sequence[str] | None = None,
) -> ModelRecipe:
    """The recipe of a static candidate: the same settings for every layer that it wants and that is not kept in float.

    Args:
        kept: names of layers that stay in float, most sensitive first.
        per_channel_types: operator types that may have one weight scale per channel where the candidate asks for it;
            None for all of them.

    Raises:
        ValueError: the scheme is not 'static', or `kept` names an unknown layer.
    """
    if quantization.scheme != "static" or quantization.algorithm is None or quantization.weight_algorithm is None:
        raise ValueError(f"a {quantization.scheme!r} candidate has no calibration recipe")
    if unknown := set(kept) - {layer.name for layer in layers}:
        raise ValueError(f"{min(unknown)!r} is no quantizable layer of this model")
    activation = ActivationRecipe(
        algorithm=quantization.algorithm,
        symmetric=bool(quantization.activation_symmetric),
        percentile=quantization.percentile,
    )
    wide = quantization.weight_granularity == "channel"
    plain = LayerRecipe(activation=activation, weight=None)
    strength = AUTOMATIC_START if quantization.balance == "auto" else quantization.balance
    weighted = {
        per_channel: LayerRecipe(
            activation=activation,
            weight=WeightRecipe(algorithm=quantization.weight_algorithm, per_channel=per_channel),
            balance=strength,
        )
        for per_channel in (False, True)
    }
    chosen = {
        layer.name: weighted[wide and (per_channel_types is None or layer.op_type in per_channel_types)]
        if layer.weight is not None
        else plain
        for layer in layers
        if layer.name not in kept and wants(quantization, layer)
    }
    return ModelRecipe(
        layers=chosen,
        float_layers=tuple(kept),
        balance_search=quantization.balance == "auto",
        bias_correction=bool(quantization.bias_correction),
        source={name: value for name, value in quantization.settings().items() if value is not None},
    )
