"""AMCT's quantization configuration in JSON: the settings of every layer written out (amct.md §2.1).

AmctConfig (.cfg) + layers ── amct_config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                          ▲── parse_config_json ◄── text
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
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


_KEYS = {"activation": "activation_quant_params", "weight": "weight_quant_params"}
"""Of fields below that have other names in the text; all fields stand in AMCT's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationQuantParams:
    """Attributes: num_of_bins: with hfmg only; the percentiles and the search with ifmr only; None otherwise.

    asymmetric: None in a JSON text that leaves it out, which means activation_offset.
    """

    num_bits: int = 8
    max_percentile: float | None = None
    min_percentile: float | None = None
    search_range: tuple[float, float] | None = None
    search_step: float | None = None
    act_algo: ActAlgo = "ifmr"
    asymmetric: bool | None = None
    num_of_bins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantParams:
    """Attributes: channel_wise: None in a JSON text that leaves it out, which means the layer type's default.

    num_iteration, reg_param, beta_range, warm_start: with ada_quantize; num_steps, num_of_iteration: nuq_quantize.
    """

    num_bits: int = 8
    reg_param: float | None = None
    warm_start: float | None = None
    num_iteration: int | None = None
    beta_range: tuple[float, float] | None = None
    num_steps: int | None = None
    num_of_iteration: int | None = None
    channel_wise: bool | None = None
    wts_algo: WtsAlgo = "arq_quantize"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """Attributes: weight: None where AMCT leaves the block out, which means ARQ with the layer type's default."""

    quant_enable: bool
    dmq_balancer_param: float | None = None
    activation: ActivationQuantParams
    weight: WeightQuantParams | None


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
    data = {
        "version": 1,
        "batch_num": config.batch_num,
        "activation_offset": config.activation_offset,
        "joint_quant": config.joint_quant,
        "do_fusion": config.do_fusion,
        "fakequant_precision_mode": "FORCE_FP16_QUANT" if config.force_fp16 else None,
        "skip_fusion_layers": config.skip_fusion_layers,
        "tensor_quantize": config.tensor_quantize or None,
        **{name: config.layers[name] for name in sorted(config.layers)},
    }
    return json.dumps(_plain(data), indent=4, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """As JSON has it; what is None is left out."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        value = {_KEYS.get(each.name, each.name): getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value
