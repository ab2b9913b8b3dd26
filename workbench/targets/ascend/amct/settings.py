"""A search point as AMCT's simplified configuration, or why AMCT cannot do it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.graph.layers import Layer
from workbench.quantization.amct.cfg import (
    AdaQuantize,
    AmctConfig,
    ArqQuantize,
    CalibrationConfig,
    DmqBalancer,
    HfmgQuantize,
    IfmrQuantize,
    write_cfg,
)
from workbench.quantization.amct.config import CHANNEL_WISE_TYPES, learns_rounding, unsupported
from workbench.quantization.recipe import wants
from workbench.values.candidate import Quantization
from workbench.values.errors import CalibrationError

_PERCENTILE_SEARCH = (1.0, 1.01, 0.01)
"""Start, end and step of IFMR's search around a percentile: it has no setting for no search at all."""


def quantization_to_amct_cfg(
    quantization: Quantization, layers: Sequence[Layer], kept_float: Sequence[str] = (), *, batch_num: int = 1
) -> str:
    """The text of the .cfg that says what a calibrated search point says.

    A scheme 'cfg' is the user's own text, unchanged. Otherwise:

    - 'ifmr' and 'hfmg' are AMCT's own. 'percentile' is IFMR with both percentiles, its search narrowed to one per
      cent; AMCT counts each side over all values, where the workbench counts |x| over those that are not zero.
    - Weights: 'arq', and 'adaround' as ada_quantize (its scale is AMCT's own).
    - A strength of balancing from 0.2 to 0.8 is DMQ.
    - Layers in `kept_float`, those of other `operators`, products of two activations without `attention_matmul`, and
      AveragePool are skipped.

    Args:
        layers: of the normalized model.
        batch_num: forward passes that calibrate.

    Raises:
        CalibrationError: AMCT has no such algorithm or setting; the workbench's own engine has.
    """
    if quantization.scheme == "cfg":
        assert quantization.cfg is not None
        return quantization.cfg
    if quantization.scheme != "static":
        raise CalibrationError(f"AMCT does not calibrate a {quantization.scheme!r} model.")
    refused = unsupported(layers)
    kept = [layer.name for layer in layers if layer.name in kept_float or not wants(quantization, layer)]
    chosen = [layer for layer in layers if layer.name not in {*kept, *refused}]
    asymmetric = not quantization.activation_symmetric
    config = AmctConfig(
        batch_num=batch_num,
        activation_offset=asymmetric,
        skip_layers=tuple(name for name in kept if name not in refused),
        common_config=CalibrationConfig(
            weights=_weights(quantization, chosen),
            activations=_activations(quantization),
            dmq_balancer=_balancer(quantization),
        ),
    )
    if quantization.bias_correction:
        raise _cannot("correct biases", "bias_correction to false")
    # the default, and not in the schema that the manual prints for ONNX (amct.md §2.2): a parser may not know it
    lines = [line for line in write_cfg(config).splitlines() if line.strip() != "dst_type: INT8"]
    return "\n".join(lines) + "\n"


def _activations(quantization: Quantization) -> IfmrQuantize | HfmgQuantize:
    asymmetric = not quantization.activation_symmetric
    if quantization.algorithm == "ifmr":
        return IfmrQuantize(asymmetric=asymmetric)
    if quantization.algorithm == "hfmg":
        return HfmgQuantize(asymmetric=asymmetric)
    if quantization.algorithm == "percentile" and quantization.percentile is not None:
        share = round(quantization.percentile / 100, 9)
        start, end, step = _PERCENTILE_SEARCH
        return IfmrQuantize(
            search_range_start=start,
            search_range_end=end,
            search_step=step,
            max_percentile=share,
            min_percentile=share,
            asymmetric=asymmetric,
        )
    raise _cannot(f"find ranges by {quantization.algorithm!r}", "algorithm to ifmr, hfmg or percentile")


def _weights(quantization: Quantization, layers: Sequence[Layer]) -> ArqQuantize | AdaQuantize:
    weighted = [layer for layer in layers if layer.weight is not None]
    convolutions = [layer for layer in weighted if layer.op_type in CHANNEL_WISE_TYPES]
    products = [layer for layer in weighted if layer.op_type not in CHANNEL_WISE_TYPES]
    by_channel = quantization.weight_granularity == "channel"
    if by_channel and products:
        raise _cannot(
            f"give {products[0].op_type} layers such as {products[0].name!r} a scale per channel (amct.md §0 fact 4)",
            "weight_granularity to tensor",
        )
    # None leaves convolutions their default, per channel; asked for in common_config it would reach every layer
    channel_wise = False if convolutions and not by_channel else None
    if quantization.weight_algorithm == "arq":
        return ArqQuantize(channel_wise=channel_wise)
    if quantization.weight_algorithm == "adaround":
        if other := [layer.name for layer in weighted if not learns_rounding(layer)]:
            raise _cannot(f"learn the rounding of {other[0]!r}", "weight_algorithm to arq")
        return AdaQuantize(channel_wise=channel_wise)
    raise _cannot(f"find weight scales by {quantization.weight_algorithm!r}", "weight_algorithm to arq or adaround")


def _balancer(quantization: Quantization) -> DmqBalancer | None:
    strength = quantization.balance
    if strength is None:
        return None
    if strength == "auto":
        raise _cannot("search a strength of balancing for each layer", "balance to a number from 0.2 to 0.8")
    if not 0.2 <= strength <= 0.8:
        raise _cannot(f"balance with strength {strength:g}", "balance to a number from 0.2 to 0.8")
    return DmqBalancer(migration_strength=strength)


def _cannot(what: str, remedy: str) -> CalibrationError:
    return CalibrationError(f"AMCT cannot {what}. Set {remedy}, or let the workbench calibrate.")
