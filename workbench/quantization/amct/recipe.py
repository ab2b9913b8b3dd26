"""From an AMCT configuration to a recipe, refusing what this engine does not compute.

Nothing is ignored in silence: a setting either becomes part of the recipe, or changes nothing for this model, or is
refused with what AMCT would do.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.graph.layers import Layer
from workbench.quantization.amct.config import (
    CHANNEL_WISE_TYPES,
    balanceable,
    expand,
    learns_rounding,
    no_layer,
    symmetric_only,
    unsupported,
)
from workbench.quantization.amct.json_form import ExpandedConfig, WeightQuantParams, config_json
from workbench.quantization.amct.protobuf_text import Body, Place
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, nearest


def recipe_of_config(config: Body | ExpandedConfig, layers: Sequence[Layer]) -> ModelRecipe:
    """The recipe of a configuration in either form.

    Layers that AMCT would leave in float are the recipe's `float_layers`, in graph order: the configuration ranks
    nothing. Among them are those AMCT cannot quantize at all, such as layers that share a weight; `source` says why.
    `config.batch_num` is for the caller, who chooses the batches.

    Args:
        layers: of the normalized model.

    Raises:
        ConfigError: what AMCT refuses for this model, and what AMCT would do but this engine does not compute.
    """
    if isinstance(config, Body):
        if config.has("nuq_config"):
            raise _uncomputed("nuq_config", "cluster weights to 16 or 32 values", config.file, "Delete nuq_config.")
        expanded = expand(config, layers)
    else:
        expanded = config
        _check_expanded(expanded, layers)
    _check_computed(expanded, layers)
    chosen = {
        layer.name: _layer_recipe(expanded, layer)
        for layer in layers
        if layer.name in expanded.layers and expanded.layers[layer.name].quant_enable
    }
    refused = unsupported(layers)
    note = {"unsupported": "; ".join(f"{name}: {why}" for name, why in refused.items())} if refused else {}
    return ModelRecipe(
        layers=chosen,
        float_layers=tuple(layer.name for layer in layers if layer.name not in chosen),
        force_fp16=expanded.force_fp16,
        source={
            "configuration": "amct",
            "configuration_sha256": digest(config_json(expanded)),
            "batch_num": expanded.batch_num,
            "activation_offset": expanded.activation_offset,
            "layers": len(chosen),
            **note,
        },
    )


# --- JSON ----------------------------------------------------------------------------------------------------------


def _check_expanded(config: ExpandedConfig, layers: Sequence[Layer]) -> None:
    refused = unsupported(layers)
    known = {layer.name: layer for layer in layers if layer.name not in refused}
    for name, settings in config.layers.items():
        if name not in known:
            raise no_layer(name, name, known, refused, config.file)
        if not settings.quant_enable:
            continue
        layer, weight = known[name], settings.weight
        if settings.activation.asymmetric and symmetric_only(layer):
            raise ConfigError(
                f"current layer {name} only support act symmetric quant (AMCT's words).", file=config.file, key=name
            )
        if weight is not None and weight.channel_wise and layer.op_type not in CHANNEL_WISE_TYPES:
            raise ConfigError(
                f"the channel_wise must be False for layer type {layer.op_type}.", file=config.file, key=name
            )
        if settings.dmq_balancer_param is not None and not balanceable(layer):
            raise ConfigError(f"AMCT does not balance {layer.op_type} layers.", file=config.file, key=name)
        if weight is not None and weight.wts_algo == "ada_quantize" and not learns_rounding(layer):
            raise ConfigError(f"AMCT has no ada_quantize for this {layer.op_type} layer.", file=config.file, key=name)
    if not config.tensor_quantize and not any(layer.quant_enable for layer in config.layers.values()):
        raise ConfigError(
            "no quant enable layer in quant config file (AMCT's words).",
            file=config.file,
            hint="Set quant_enable of a layer to true.",
        )


# --- recipe --------------------------------------------------------------------------------------------------------


def _uncomputed(key: str, would: str, file: Place, hint: str) -> ConfigError:
    return ConfigError(f"AMCT would {would}; this engine does not.", file=file, key=key, hint=hint)


def _check_computed(config: ExpandedConfig, layers: Sequence[Layer]) -> None:
    file = config.file
    if config.joint_quant:
        raise _uncomputed("joint_quant", "add shift_bit for eltwise chains", file, "Set it to false.")
    if config.tensor_quantize:
        tensor = config.tensor_quantize[0]
        would = f"quantize input {tensor.input_index} of {tensor.layer_name!r} by itself (MaxPool, Add)"
        raise _uncomputed("tensor_quantize", would, file, "Delete tensor_quantize.")
    convolutions = [layer.name for layer in layers if layer.op_type in CHANNEL_WISE_TYPES]
    if not config.do_fusion and convolutions:
        would = "leave BatchNormalization after a Conv unfused"
        raise _uncomputed("do_fusion", would, file, "Set it to true.")
    for name in config.skip_fusion_layers:
        if name not in convolutions:
            rule = f"{name!r} is no Conv or ConvTranspose of this model."
            raise ConfigError(rule, file=file, key="skip_fusion_layers", hint=nearest(name, convolutions))
        would = f"leave the BatchNormalization after {name!r} unfused"
        raise _uncomputed("skip_fusion_layers", would, file, "Delete it.")
    for name, settings in config.layers.items():
        if not settings.quant_enable:
            continue
        if settings.activation.num_bits != 8:
            would = f"quantize the activation to {settings.activation.num_bits} bits"
            raise _uncomputed(name, would, file, "Use dst_type INT8, num_bits 8.")
        if settings.weight is not None and settings.weight.num_bits != 8:
            raise _uncomputed(name, f"quantize the weight to {settings.weight.num_bits} bits", file, "Use 8 bits.")
        if settings.weight is not None and settings.weight.wts_algo == "nuq_quantize":
            raise _uncomputed(name, "cluster the weight (NUQ)", file, "Use arq_quantize or ada_quantize.")


def _layer_recipe(config: ExpandedConfig, layer: Layer) -> LayerRecipe:
    settings = config.layers[layer.name]
    params = settings.activation
    asymmetric = config.activation_offset if params.asymmetric is None else params.asymmetric
    symmetric = symmetric_only(layer) or not asymmetric
    if params.act_algo == "hfmg":
        activation = ActivationRecipe(algorithm="hfmg", symmetric=symmetric, bins=params.num_of_bins or 4096)
    else:
        start, end = params.search_range or (0.7, 1.3)
        activation = ActivationRecipe(
            algorithm="ifmr",
            symmetric=symmetric,
            max_percentile=params.max_percentile or 0.999999,
            min_percentile=params.min_percentile or 0.999999,
            search_start=start,
            search_end=end,
            search_step=params.search_step or 0.01,
        )
    if layer.weight is None:
        return LayerRecipe(activation=activation, weight=None)
    return LayerRecipe(
        activation=activation,
        weight=_weight_recipe(settings.weight or WeightQuantParams(), layer),
        balance=settings.dmq_balancer_param,
    )


def _weight_recipe(params: WeightQuantParams, layer: Layer) -> WeightRecipe:
    channel_wise = layer.op_type in CHANNEL_WISE_TYPES if params.channel_wise is None else params.channel_wise
    # of ada_quantize nothing else counts: `rounding.best_rounding` takes no iterations
    return WeightRecipe(algorithm="arq" if params.wts_algo == "arq_quantize" else "adaround", per_channel=channel_wise)
