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
from workbench.quantization.amct.json_form import ExpandedConfig, Settings, config_json
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
    settings, values = expanded.layers, expanded.values
    chosen = {
        layer.name: _layer_recipe(settings[layer.name], layer, asymmetric=values["activation_offset"])
        for layer in layers
        if settings.get(layer.name, {}).get("quant_enable")
    }
    refused = unsupported(layers)
    note = {"unsupported": "; ".join(f"{name}: {why}" for name, why in refused.items())} if refused else {}
    return ModelRecipe(
        layers=chosen,
        float_layers=tuple(layer.name for layer in layers if layer.name not in chosen),
        force_fp16="fakequant_precision_mode" in values,
        source={
            "configuration": "amct",
            "configuration_sha256": digest(config_json(expanded)),
            "batch_num": expanded.batch_num,
            "activation_offset": values["activation_offset"],
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
        layer, weight = known[name], settings.get("weight_quant_params", {})
        wrong = {
            f"current layer {name} only support act symmetric quant (AMCT's words).": symmetric_only(layer)
            and settings["activation_quant_params"].get("asymmetric"),
            f"the channel_wise must be False for layer type {layer.op_type}.": weight.get("channel_wise")
            and layer.op_type not in CHANNEL_WISE_TYPES,
            f"AMCT does not balance {layer.op_type} layers.": "dmq_balancer_param" in settings
            and not balanceable(layer),
            f"AMCT has no ada_quantize for this {layer.op_type} layer.": weight.get("wts_algo") == "ada_quantize"
            and not learns_rounding(layer),
        }
        if settings["quant_enable"] and any(wrong.values()):
            rule = next(rule for rule, broken in wrong.items() if broken)
            raise ConfigError(rule, file=config.file, key=name)
    if not config.values.get("tensor_quantize") and not any(each["quant_enable"] for each in config.layers.values()):
        raise ConfigError(
            "no quant enable layer in quant config file (AMCT's words).",
            file=config.file,
            hint="Set quant_enable of a layer to true.",
        )


# --- recipe --------------------------------------------------------------------------------------------------------


def _uncomputed(key: str, would: str, file: Place, hint: str) -> ConfigError:
    return ConfigError(f"AMCT would {would}; this engine does not.", file=file, key=key, hint=hint)


def _check_computed(config: ExpandedConfig, layers: Sequence[Layer]) -> None:
    file, values = config.file, config.values
    if values.get("joint_quant"):
        raise _uncomputed("joint_quant", "add shift_bit for eltwise chains", file, "Set it to false.")
    for tensor in values.get("tensor_quantize", ()):
        would = f"quantize input {tensor['input_index']} of {tensor['layer_name']!r} by itself (MaxPool, Add)"
        raise _uncomputed("tensor_quantize", would, file, "Delete tensor_quantize.")
    convolutions = [layer.name for layer in layers if layer.op_type in CHANNEL_WISE_TYPES]
    if not values["do_fusion"] and convolutions:
        would = "leave BatchNormalization after a Conv unfused"
        raise _uncomputed("do_fusion", would, file, "Set it to true.")
    for name in values["skip_fusion_layers"]:
        if name not in convolutions:
            rule = f"{name!r} is no Conv or ConvTranspose of this model."
            raise ConfigError(rule, file=file, key="skip_fusion_layers", hint=nearest(name, convolutions))
        would = f"leave the BatchNormalization after {name!r} unfused"
        raise _uncomputed("skip_fusion_layers", would, file, "Delete it.")
    for name, settings in config.layers.items():
        if not settings["quant_enable"]:
            continue
        bits, weight = settings["activation_quant_params"]["num_bits"], settings.get("weight_quant_params", {})
        if bits != 8:
            would = f"quantize the activation to {bits} bits"
            raise _uncomputed(name, would, file, "Use dst_type INT8, num_bits 8.")
        if weight.get("num_bits", 8) != 8:
            raise _uncomputed(name, f"quantize the weight to {weight['num_bits']} bits", file, "Use 8 bits.")
        if weight.get("wts_algo") == "nuq_quantize":
            raise _uncomputed(name, "cluster the weight (NUQ)", file, "Use arq_quantize or ada_quantize.")


def _layer_recipe(settings: Settings, layer: Layer, *, asymmetric: bool) -> LayerRecipe:
    params: Settings = settings["activation_quant_params"]
    symmetric = symmetric_only(layer) or not params.get("asymmetric", asymmetric)
    if params["act_algo"] == "hfmg":
        activation = ActivationRecipe(algorithm="hfmg", symmetric=symmetric, bins=params["num_of_bins"])
    else:
        activation = ActivationRecipe(
            algorithm="ifmr",
            symmetric=symmetric,
            max_percentile=params["max_percentile"],
            min_percentile=params["min_percentile"],
            search_start=params["search_range"][0],
            search_end=params["search_range"][1],
            search_step=params["search_step"],
        )
    if layer.weight is None:
        return LayerRecipe(activation=activation, weight=None)
    weight = settings.get("weight_quant_params", {})
    return LayerRecipe(
        activation=activation,
        weight=WeightRecipe(  # of ada_quantize nothing else counts: `rounding.best_rounding` takes no iterations
            algorithm="arq" if weight.get("wts_algo", "arq_quantize") == "arq_quantize" else "adaround",
            per_channel=weight.get("channel_wise", layer.op_type in CHANNEL_WISE_TYPES),
        ),
        balance=settings.get("dmq_balancer_param"),
    )
