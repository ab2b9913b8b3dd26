"""AMCT's quantization configuration in JSON: the settings of every layer written out (amct.md §2.1).

AmctConfig (.cfg) + layers ── amct_config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                          ▲── parse_config_json ◄── text
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ActAlgo = Literal["ifmr", "hfmg"]
WtsAlgo = Literal["arq_quantize", "ada_quantize", "nuq_quantize"]

GLOBAL_KEYS = (
    "version",
    "batch_num",
    "activation_offset",
    "joint_quant",
    "do_fusion",
    "fakequant_precision_mode",
    "skip_fusion_layers",
    "tensor_quantize",
)
"""Keys that are no layer's name, in the order AMCT writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationQuantParams:
    """Attributes: num_of_bins: with hfmg only; the percentiles and the search with ifmr only; None otherwise.

    asymmetric: None in a JSON text that leaves it out, which means activation_offset.
    """

    num_bits: int = 8
    act_algo: ActAlgo = "ifmr"
    max_percentile: float | None = None
    min_percentile: float | None = None
    search_range: tuple[float, float] | None = None
    search_step: float | None = None
    asymmetric: bool | None = None
    num_of_bins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantParams:
    """Attributes: channel_wise: None in a JSON text that leaves it out, which means the layer type's default.

    num_iteration, reg_param, beta_range, warm_start: with ada_quantize; num_steps, num_of_iteration: nuq_quantize.
    """

    num_bits: int = 8
    wts_algo: WtsAlgo = "arq_quantize"
    channel_wise: bool | None = None
    num_iteration: int | None = None
    reg_param: float | None = None
    beta_range: tuple[float, float] | None = None
    warm_start: float | None = None
    num_steps: int | None = None
    num_of_iteration: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """Attributes: weight: None where AMCT leaves the block out, which means ARQ with the layer type's default."""

    quant_enable: bool
    activation: ActivationQuantParams
    weight: WeightQuantParams | None
    dmq_balancer_param: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConfig:
    layer_name: str
    input_index: int
    activation: ActivationQuantParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedConfig:
    """The JSON form.

    Attributes:
        layers: layer name → settings, in any order; the JSON has them sorted by name.
        joint_quant: None where it is absent.
        file: where it was read, for messages; no part of the comparison.
    """

    batch_num: int = 1
    activation_offset: bool = True
    joint_quant: bool | None = None
    do_fusion: bool = True
    force_fp16: bool = False
    skip_fusion_layers: tuple[str, ...] = ()
    tensor_quantize: tuple[TensorConfig, ...] = ()
    layers: Mapping[str, LayerConfig] = field(default_factory=dict)
    file: str | None = field(default=None, compare=False)


def config_json(config: ExpandedConfig) -> str:
    """The text AMCT's create_quant_config writes: its key order, 4 spaces, layers by name, no last line break."""
    data: dict[str, Any] = {
        "version": 1,
        "batch_num": config.batch_num,
        "activation_offset": config.activation_offset,
        "joint_quant": config.joint_quant,
        "do_fusion": config.do_fusion,
        "fakequant_precision_mode": "FORCE_FP16_QUANT" if config.force_fp16 else None,
        "skip_fusion_layers": list(config.skip_fusion_layers),
        "tensor_quantize": [_tensor_data(tensor) for tensor in config.tensor_quantize] or None,
    }
    data |= {name: _layer_data(config.layers[name]) for name in sorted(config.layers)}
    return json.dumps(_without_none(data), indent=4, separators=(",", ":"))


def _layer_data(layer: LayerConfig) -> dict[str, Any]:
    data = {
        "quant_enable": layer.quant_enable,
        "dmq_balancer_param": layer.dmq_balancer_param,
        "activation_quant_params": _activation_data(layer.activation),
    }
    weight = layer.weight
    if weight is not None:
        data["weight_quant_params"] = _without_none(
            {
                "num_bits": weight.num_bits,
                "reg_param": weight.reg_param,
                "warm_start": weight.warm_start,
                "num_iteration": weight.num_iteration,
                "beta_range": None if weight.beta_range is None else list(weight.beta_range),
                "num_steps": weight.num_steps,
                "num_of_iteration": weight.num_of_iteration,
                "channel_wise": weight.channel_wise,
                "wts_algo": weight.wts_algo,
            }
        )
    return _without_none(data)


def _activation_data(activation: ActivationQuantParams) -> dict[str, Any]:
    return _without_none(
        {
            "num_bits": activation.num_bits,
            "max_percentile": activation.max_percentile,
            "min_percentile": activation.min_percentile,
            "search_range": None if activation.search_range is None else list(activation.search_range),
            "search_step": activation.search_step,
            "act_algo": activation.act_algo,
            "asymmetric": activation.asymmetric,
            "num_of_bins": activation.num_of_bins,
        }
    )


def _tensor_data(tensor: TensorConfig) -> dict[str, Any]:
    return {
        "layer_name": tensor.layer_name,
        "input_index": tensor.input_index,
        "activation_quant_params": _activation_data(tensor.activation),
    }


def _without_none(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}
