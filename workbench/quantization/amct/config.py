"""What an AMCT configuration asks of every layer of a model.

    .cfg text, or none ── expand ──► ExpandedConfig ── recipe_of_config ──► ModelRecipe
                                           ├─ config_json ──► config.json, as create_quant_config writes
             JSON text ── parse_config ────┘

Rules from amct.md §2 and §5. An override replaces common_config as a whole: what it leaves out falls to AMCT's
defaults, not to common_config. Only `asymmetric` looks further, to common_config where that names the same algorithm,
and then to activation_offset. [source: hicann/amct, common/config/config_base.py]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from workbench.graph.layers import Layer
from workbench.quantization.amct.cfg import (
    ACTIVATION,
    AMCT_CONFIG,
    GLOBAL,
    LAYER,
    WEIGHT,
    ExpandedConfig,
    Settings,
    config_json,
    in_order,
    overrides,
    parse_cfg,
    parse_config_json,
)
from workbench.quantization.amct.protobuf_text import Body, Place
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, nearest

QUANTIZABLE_TYPES = ("AveragePool", "Conv", "ConvTranspose", "Gemm", "MatMul")
CHANNEL_WISE_TYPES = ("Conv", "ConvTranspose")


def parse_config(text: str, *, file: Place = None) -> Body | ExpandedConfig:
    """A configuration in either form: JSON where the text begins with a brace, .cfg otherwise.

    Raises:
        ConfigError: as `parse_cfg` and `parse_config_json` do.
    """
    return parse_config_json(text, file=file) if text.lstrip().startswith("{") else parse_cfg(text, file=file)


def expand(
    config: Body | None,
    layers: Sequence[Layer],
    *,
    batch_num: int = 1,
    activation_offset: bool = True,
    skip_layers: Sequence[str] = (),
) -> ExpandedConfig:
    """The settings of every layer AMCT can quantize; skipped ones are there with quant_enable false.

    Args:
        config: of `parse_cfg`.
        layers: of the normalized model; those AMCT cannot quantize (`unsupported`) are left out, hence stay float.
        batch_num, activation_offset, skip_layers: only without a .cfg, as in AMCT.

    Raises:
        ConfigError: what AMCT refuses: an unknown layer or type, nothing left to quantize, or a setting that the
            layer it is given to does not have.
    """
    given = AMCT_CONFIG(batch_num=batch_num, activation_offset=activation_offset, skip_layers=skip_layers)
    config = config or Body(given, "", None)
    message, file = config.message, None if config.file is None else str(config.file)
    refused = unsupported(layers)
    known = {layer.name: layer for layer in layers if layer.name not in refused}
    by_type, by_name = overrides(config, "override_layer_types"), overrides(config, "override_layer_configs")
    for key, names in (("skip_layers", message.skip_layers), ("override_layer_configs", by_name)):
        if unknown := [name for name in names if name not in known]:
            raise no_layer(unknown[0], key, known, refused, file)
    for key, types in (("skip_layer_types", message.skip_layer_types), ("override_layer_types", by_type)):
        for op_type in types:
            if op_type not in QUANTIZABLE_TYPES:
                hint = nearest(op_type, QUANTIZABLE_TYPES)
                raise ConfigError(f"AMCT quantizes no {op_type!r} layers.", file=file, key=key, hint=hint)
    if clash := set(known) & GLOBAL.keys():
        rule = f"{min(clash)!r} is a key of AMCT's configuration, hence no layer can have this name."
        raise ConfigError(rule, file=file, hint="Rename the node in the ONNX file.")
    expanded = {}
    for name in sorted(known):
        layer, settings, key = known[name], config.inner("common_config"), "common_config"
        if name in by_name:
            settings, key = by_name[name], f"override_layer_configs[{name!r}]"
        elif layer.op_type in by_type:
            settings, key = by_type[layer.op_type], f"override_layer_types[{layer.op_type!r}]"
        _check_settings(settings, layer, key, file)
        balanced = settings.has("dmq_balancer") and balanceable(layer)
        own: Settings = {
            "quant_enable": name not in message.skip_layers and layer.op_type not in message.skip_layer_types,
            "dmq_balancer_param": settings.inner("dmq_balancer").get("migration_strength") if balanced else None,
            "activation_quant_params": _activation(settings, config, symmetric=symmetric_only(layer)),
            "weight_quant_params": _weight(settings, layer),
        }
        expanded[name] = in_order(LAYER, own)
    if not message.tensor_quantize and not any(layer["quant_enable"] for layer in expanded.values()):
        hint = "Shorten skip_layers or skip_layer_types."
        if len(refused) == len(layers):
            hint = "A sweep for a target on the processor quantizes what AMCT cannot: `workbench init` writes one."
        raise ConfigError(
            "no layer is left to quantize"
            f" ({len(layers)} layers, {len(refused)} of them AMCT cannot quantize, the others are skipped).",
            file=file,
            hint=hint,
        )
    tensors = [
        {
            **{key: tensor.get(key) for key in ("layer_name", "input_index")},
            "activation_quant_params": _activation(tensor, config, symmetric=False),
        }
        for tensor in config.each("tensor_quantize")
    ]
    values: Settings = {key: default for key, (_, default) in GLOBAL.items()}
    values |= {key: getattr(message, key) for key in ("batch_num", "activation_offset", "do_fusion")}
    values |= {key: config.get(key) for key in ("joint_quant", "fakequant_precision_mode")}
    values |= {"skip_fusion_layers": list(message.skip_fusion_layers), "tensor_quantize": tensors or None}
    return ExpandedConfig(values={**in_order(GLOBAL, values), **expanded}, file=file)


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


def no_layer(name: str, key: str, known: Mapping[str, Layer], refused: Mapping[str, str], file: Place) -> ConfigError:
    if name in refused:
        return ConfigError(f"AMCT does not quantize {name!r}: {refused[name]}.", file=file, key=key, hint="Delete it.")
    hint = nearest(name, known)
    return ConfigError(f"{name!r} is no layer of this model that AMCT quantizes.", file=file, key=key, hint=hint)


def _check_settings(settings: Body, layer: Layer, key: str, file: Place) -> None:
    """What AMCT refuses; elsewhere it drops a wish that does not fit the layer (`_activation`, `_weight`)."""
    weights, activations = _chosen(settings, "of_weights"), _chosen(settings, "of_activations")
    if weights is not None and weights.get("channel_wise") and layer.op_type not in CHANNEL_WISE_TYPES:
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
    asymmetric = activations is not None and bool(activations.get("asymmetric"))
    narrow = weights is not None and weights.get("quant_bits") in (6, 7)
    refused = {
        "asymmetric: true": by_name and asymmetric and symmetric_only(layer),
        "dmq_balancer": (by_name or pool) and settings.has("dmq_balancer") and not balanceable(layer),
        "ada_quantize": (by_name or pool) and settings.has("ada_quantize") and not learns_rounding(layer),
        "quant_bits 6 or 7": narrow and (by_name or layer.op_type != "Conv") and not _winograd(layer),
    }
    if wishes := [wish for wish, wrong in refused.items() if wrong]:
        rule = f"AMCT does not support {wishes[0]} for layer {layer.name!r} ({layer.op_type})."
        raise ConfigError(rule, file=file, key=key)


def _winograd(layer: Layer) -> bool:
    return layer.op_type == "Conv" and len(layer.weight_shape) == 4


def _chosen(settings: Body, oneof: str) -> Body | None:
    """The member of a oneof that is set."""
    name = settings.message.WhichOneof(oneof)
    return None if name is None else settings.inner(name)


def _activation(settings: Body, config: Body, *, symmetric: bool) -> Settings:
    algorithm = settings.message.WhichOneof("of_activations") or "ifmr_quantize"
    own = settings.inner(algorithm)
    asymmetric = False if symmetric else own.get("asymmetric")
    common = config.inner("common_config")
    if asymmetric is None and common.message.WhichOneof("of_activations") == algorithm:
        asymmetric = common.inner(algorithm).get("asymmetric")
    found = {key: own.get(key) for key in ("max_percentile", "min_percentile", "search_step", "num_of_bins")}
    if algorithm == "ifmr_quantize":
        found["search_range"] = [own.get("search_range_start"), own.get("search_range_end")]
    found["num_bits"] = 16 if own.get("dst_type") == "INT16" else 8
    found["act_algo"] = algorithm.removesuffix("_quantize")
    found["asymmetric"] = config.message.activation_offset if asymmetric is None else asymmetric
    return in_order(ACTIVATION, found)


def _weight(settings: Body, layer: Layer) -> Settings | None:
    """AMCT writes the block for AveragePool too, and leaves it out where common_config's ada_quantize does not fit."""
    algorithm = settings.message.WhichOneof("of_weights") or "arq_quantize"
    if algorithm == "ada_quantize" and not learns_rounding(layer):
        return None
    own = settings.inner(algorithm)
    found = {key: own.get(key) for key in WEIGHT}
    if algorithm == "ada_quantize":
        found["beta_range"] = [own.get("beta_range_start"), own.get("beta_range_end")]
    wide, bits = own.get("channel_wise"), own.get("quant_bits")
    found["channel_wise"] = layer.op_type in CHANNEL_WISE_TYPES if wide is None else wide
    found["num_bits"] = 8 if bits is None or (bits in (6, 7) and not _winograd(layer)) else bits
    found["wts_algo"] = algorithm
    return in_order(WEIGHT, found)


# --- from a configuration to a recipe --------------------------------------------------------------------------------


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
