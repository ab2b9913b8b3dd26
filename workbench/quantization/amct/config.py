"""What an AMCT configuration asks of every layer of a model.

    AmctConfig (.cfg), or none ── expand ──► ExpandedConfig ── recipe_of_config ──► ModelRecipe
                                                   ├─ config_json ──► config.json, as create_quant_config writes
                  JSON text ── parse_config ───────┘

Rules from amct.md §2 and §5. An override replaces common_config as a whole: what it leaves out falls to AMCT's
defaults, not to common_config. Only `asymmetric` looks further, to common_config where that names the same algorithm,
and then to activation_offset. [source: hicann/amct, common/config/config_base.py]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from workbench.graph.layers import Layer
from workbench.quantization.amct.cfg import (
    AdaQuantize,
    AmctConfig,
    CalibrationConfig,
    HfmgQuantize,
    IfmrQuantize,
    NuqQuantize,
    parse_cfg,
)
from workbench.quantization.amct.json_form import (
    GLOBAL_KEYS,
    ActivationQuantParams,
    ExpandedConfig,
    LayerConfig,
    TensorConfig,
    WeightQuantParams,
    parse_config_json,
)
from workbench.quantization.amct.protobuf_text import Place
from workbench.values.errors import ConfigError, nearest

QUANTIZABLE_TYPES = ("AveragePool", "Conv", "ConvTranspose", "Gemm", "MatMul")
CHANNEL_WISE_TYPES = ("Conv", "ConvTranspose")


def parse_config(text: str, *, file: Place = None) -> AmctConfig | ExpandedConfig:
    """A configuration in either form: JSON where the text begins with a brace, .cfg otherwise.

    Raises:
        ConfigError: as `parse_cfg` and `parse_config_json` do.
    """
    return parse_config_json(text, file=file) if text.lstrip().startswith("{") else parse_cfg(text, file=file)


def expand(
    config: AmctConfig | None,
    layers: Sequence[Layer],
    *,
    batch_num: int = 1,
    activation_offset: bool = True,
    skip_layers: Sequence[str] = (),
) -> ExpandedConfig:
    """The settings of every layer AMCT can quantize; skipped ones are there with quant_enable false.

    Args:
        layers: of the normalized model; those AMCT cannot quantize (`unsupported`) are left out, hence stay float.
        batch_num, activation_offset, skip_layers: only without a .cfg, as in AMCT.

    Raises:
        ConfigError: what AMCT refuses: an unknown layer or type, nothing left to quantize, or a setting that the
            layer it is given to does not have.
    """
    config = config or AmctConfig(
        batch_num=batch_num, activation_offset=activation_offset, skip_layers=tuple(skip_layers)
    )
    refused = unsupported(layers)
    known = {layer.name: layer for layer in layers if layer.name not in refused}
    _check_names(config, known, refused)
    expanded = {}
    for name in sorted(known):
        layer = known[name]
        if name in config.override_layer_configs:
            settings, key = config.override_layer_configs[name], f"override_layer_configs[{name!r}]"
        elif layer.op_type in config.override_layer_types:
            settings, key = config.override_layer_types[layer.op_type], f"override_layer_types[{layer.op_type!r}]"
        else:
            settings, key = config.common_config or CalibrationConfig(), "common_config"
        _check_settings(settings, layer, key, config.file)
        expanded[name] = LayerConfig(
            quant_enable=name not in config.skip_layers and layer.op_type not in config.skip_layer_types,
            dmq_balancer_param=(
                settings.dmq_balancer.migration_strength if settings.dmq_balancer and balanceable(layer) else None
            ),
            activation=_activation(settings.activations, config, symmetric=symmetric_only(layer)),
            weight=_weight(settings, layer),
        )
    if not config.tensor_quantize and not any(layer.quant_enable for layer in expanded.values()):
        hint = "Shorten skip_layers or skip_layer_types."
        if len(refused) == len(layers):
            hint = "A sweep for a target on the processor quantizes what AMCT cannot: `workbench init` writes one."
        raise ConfigError(
            "no layer is left to quantize"
            f" ({len(layers)} layers, {len(refused)} of them AMCT cannot quantize, the others are skipped).",
            file=config.file,
            hint=hint,
        )
    return ExpandedConfig(
        batch_num=config.batch_num,
        activation_offset=config.activation_offset,
        joint_quant=config.joint_quant,
        do_fusion=config.do_fusion,
        force_fp16=config.fakequant_precision_mode is not None,
        skip_fusion_layers=config.skip_fusion_layers,
        tensor_quantize=tuple(
            TensorConfig(
                layer_name=tensor.layer_name,
                input_index=tensor.input_index,
                activation=_activation(tensor.activations, config, symmetric=False),
            )
            for tensor in config.tensor_quantize
        ),
        layers=expanded,
        file=config.file,
    )


def unsupported(layers: Sequence[Layer]) -> dict[str, str]:
    """Layer name → why AMCT does not quantize it (amct.md §5); AMCT leaves such layers in float with a log line."""
    readers = Counter(layer.weight for layer in layers if layer.weight is not None)
    reasons = {}
    for layer in layers:
        if layer.weight is not None and readers[layer.weight] > 1:
            sharing = [other.name for other in layers if other.weight == layer.weight and other is not layer]
            reasons[layer.name] = f"it shares its weight {layer.weight!r} with {', '.join(map(repr, sharing))}"
        elif layer.op_type == "Conv" and len(layer.weight_shape) not in (4, 5):
            reasons[layer.name] = f"its weight has {len(layer.weight_shape)} dimensions, AMCT takes 4 or 5"
        elif layer.op_type == "ConvTranspose" and len(layer.weight_shape) != 4:
            reasons[layer.name] = f"its weight has {len(layer.weight_shape)} dimensions, AMCT takes 4"
    return reasons


# --- what a layer can have -----------------------------------------------------------------------------------------


def symmetric_only(layer: Layer) -> bool:
    """Conv3d, and products of two activations (amct.md §5)."""
    return layer.second is not None or (layer.op_type == "Conv" and len(layer.weight_shape) == 5)


def balanceable(layer: Layer) -> bool:
    """amct.md §4.5; a weight of three dimensions is quantized but not balanced."""
    return layer.weight is not None and (layer.op_type in CHANNEL_WISE_TYPES or len(layer.weight_shape) == 2)


def learns_rounding(layer: Layer) -> bool:
    """amct.md §4.6: Conv2d, ConvTranspose2d and Linear; that MatMul counts as Linear is [inferred]."""
    return layer.weight is not None and len(layer.weight_shape) in (2, 4)


# --- .cfg ----------------------------------------------------------------------------------------------------------


def _check_names(config: AmctConfig, known: Mapping[str, Layer], refused: Mapping[str, str]) -> None:
    for key, names in (
        ("skip_layers", config.skip_layers),
        ("override_layer_configs", tuple(config.override_layer_configs)),
    ):
        for name in names:
            if name not in known:
                raise no_layer(name, key, known, refused, config.file)
    for key, types in (
        ("skip_layer_types", config.skip_layer_types),
        ("override_layer_types", tuple(config.override_layer_types)),
    ):
        for op_type in types:
            if op_type not in QUANTIZABLE_TYPES:
                hint = nearest(op_type, QUANTIZABLE_TYPES)
                raise ConfigError(f"AMCT quantizes no {op_type!r} layers.", file=config.file, key=key, hint=hint)
    if clash := set(known) & set(GLOBAL_KEYS):
        name = min(clash)
        raise ConfigError(
            f"{name!r} is a key of AMCT's configuration, hence no layer can have this name.",
            file=config.file,
            hint="Rename the node in the ONNX file.",
        )


def no_layer(name: str, key: str, known: Mapping[str, Layer], refused: Mapping[str, str], file: Place) -> ConfigError:
    if name in refused:
        return ConfigError(f"AMCT does not quantize {name!r}: {refused[name]}.", file=file, key=key, hint="Delete it.")
    hint = nearest(name, known)
    return ConfigError(f"{name!r} is no layer of this model that AMCT quantizes.", file=file, key=key, hint=hint)


def _check_settings(settings: CalibrationConfig, layer: Layer, key: str, file: Place) -> None:
    """What AMCT refuses; elsewhere it drops a wish that does not fit the layer (`_activation`, `_weight`)."""
    weights = settings.weights
    if getattr(weights, "channel_wise", None) and layer.op_type not in CHANNEL_WISE_TYPES:
        raise ConfigError(
            f"the channel_wise must be False for layer type {layer.op_type} (layer {layer.name!r}).",
            file=file,
            key=key,
            hint="Ask for it in override_layer_types of Conv or ConvTranspose, where it is the default anyway.",
        )
    if key.startswith("common_config"):
        return
    # an override by type is refused only where no layer of the type could follow it
    by_name = key.startswith("override_layer_configs")
    pool = layer.op_type == "AveragePool"
    wishes = {
        "asymmetric: true": by_name and bool(getattr(settings.activations, "asymmetric", None)),
        "dmq_balancer": (by_name or pool) and settings.dmq_balancer is not None,
        "ada_quantize": (by_name or pool) and isinstance(weights, AdaQuantize),
        "quant_bits 6 or 7": getattr(weights, "quant_bits", None) in (6, 7) and (by_name or layer.op_type != "Conv"),
    }
    fits = {
        "asymmetric: true": not symmetric_only(layer),
        "dmq_balancer": balanceable(layer),
        "ada_quantize": learns_rounding(layer),
        "quant_bits 6 or 7": _winograd(layer),
    }
    if refused := [wish for wish, wanted in wishes.items() if wanted and not fits[wish]]:
        raise ConfigError(
            f"AMCT does not support {refused[0]} for layer {layer.name!r} ({layer.op_type}).", file=file, key=key
        )


def _winograd(layer: Layer) -> bool:
    return layer.op_type == "Conv" and len(layer.weight_shape) == 4


def _activation(
    settings: IfmrQuantize | HfmgQuantize | None, config: AmctConfig, *, symmetric: bool
) -> ActivationQuantParams:
    settings = settings or IfmrQuantize()
    common = config.common_config.activations if config.common_config is not None else None
    asymmetric = settings.asymmetric
    if symmetric:
        asymmetric = False
    elif asymmetric is None and type(common) is type(settings):
        asymmetric = common.asymmetric if common is not None else None
    if asymmetric is None:
        asymmetric = config.activation_offset
    bits: Literal[8, 16] = 16 if settings.dst_type == "INT16" else 8
    if isinstance(settings, HfmgQuantize):
        return ActivationQuantParams(
            num_bits=bits, act_algo="hfmg", asymmetric=asymmetric, num_of_bins=settings.num_of_bins
        )
    return ActivationQuantParams(
        num_bits=bits,
        act_algo="ifmr",
        max_percentile=settings.max_percentile,
        min_percentile=settings.min_percentile,
        search_range=(settings.search_range_start, settings.search_range_end),
        search_step=settings.search_step,
        asymmetric=asymmetric,
    )


def _weight(settings: CalibrationConfig, layer: Layer) -> WeightQuantParams | None:
    """AMCT writes the block for AveragePool too, and leaves it out where common_config's ada_quantize does not fit."""
    weights = settings.weights
    by_type = layer.op_type in CHANNEL_WISE_TYPES
    if isinstance(weights, NuqQuantize):
        return WeightQuantParams(
            wts_algo="nuq_quantize",
            num_steps=weights.num_steps,
            num_of_iteration=weights.num_of_iteration,
            channel_wise=by_type,
        )
    channel_wise = by_type if weights is None or weights.channel_wise is None else weights.channel_wise
    if isinstance(weights, AdaQuantize):
        if not learns_rounding(layer):
            return None
        return WeightQuantParams(
            wts_algo="ada_quantize",
            num_iteration=weights.num_iteration,
            reg_param=weights.reg_param,
            beta_range=(weights.beta_range_start, weights.beta_range_end),
            warm_start=weights.warm_start,
            channel_wise=channel_wise,
        )
    bits = (weights.quant_bits if weights is not None else None) or 8
    taken = 8 if bits in (6, 7) and not _winograd(layer) else bits
    return WeightQuantParams(num_bits=cast(Literal[4, 6, 7, 8], taken), channel_wise=channel_wise)
