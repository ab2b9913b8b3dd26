"""AMCT's rules: which settings a layer gets from a .cfg, and the JSON that create_quant_config writes, to the byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data import AMCT, AMCT_CASES
from tests.quantization.amct_files import conv, conv_transpose, matmul, pool, product
from workbench.graph.layers import Layer
from workbench.quantization.amct.cfg import (
    ExpandedConfig,
    Settings,
    config_json,
    parse_cfg,
    parse_config_json,
    read_cfg,
)
from workbench.quantization.amct.config import expand, parse_config, recipe_of_config, unsupported
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.errors import ConfigError

CNN = (conv("conv1"), conv("dw", (4, 1, 3, 3), groups=4), pool("pool"), matmul("fc", op_type="Gemm"))
ENCODER = (matmul("query"), product("scores"), matmul("up"), matmul("down"))


def expanded(text: str, layers: tuple[Layer, ...] = CNN) -> ExpandedConfig:
    return expand(parse_cfg(text, file="quant.cfg"), layers)


def layer(text: str, name: str, layers: tuple[Layer, ...] = CNN) -> Settings:
    return expanded(text, layers).layers[name]


def layers_of(config: str) -> list[Layer]:
    """Layers like those of a golden case: AMCT's names there are torch's module names, no node names."""
    found: list[Layer] = []
    for name, settings in json.loads(config).items():
        if name == "pool":
            found.append(pool(name))
        elif isinstance(settings, dict):
            found.append(conv(name) if settings["weight_quant_params"]["channel_wise"] else matmul(name))
    return found[::-1]  # the order in the graph must not matter: AMCT sorts by name


@pytest.mark.parametrize("case", AMCT_CASES)
def test_real_json_is_written_to_the_byte(case: str) -> None:
    folder = AMCT / case
    wanted = (folder / "config.json").read_text()
    config = read_cfg(folder / "quant.cfg") if (folder / "quant.cfg").exists() else None

    assert config_json(expand(config, layers_of(wanted), batch_num=3)) == wanted
    assert config_json(parse_config_json(wanted)) == wanted


def test_keys_that_only_some_configurations_have_stand_where_amct_puts_them() -> None:
    text = (
        'fakequant_precision_mode: FORCE_FP16_QUANT joint_quant: false skip_fusion_layers: "conv1"'
        'tensor_quantize { layer_name: "m" input_index: 1 }'
    )
    data = json.loads(config_json(expanded(text)))

    own = "version batch_num activation_offset joint_quant do_fusion fakequant_precision_mode skip_fusion_layers"
    assert " ".join(data) == f"{own} tensor_quantize conv1 dw fc pool"
    assert list(data["tensor_quantize"][0]) == ["layer_name", "input_index", "activation_quant_params"]
    assert parse_config_json(json.dumps(data)) == expanded(text)


def test_a_layers_own_override_beats_its_types_and_that_beats_common_config() -> None:
    text = (
        "common_config { hfmg_quantize { num_of_bins: 1024 } }"
        'override_layer_types { layer_type: "Conv" calibration_config { hfmg_quantize { num_of_bins: 2048 } } }'
        'override_layer_configs { layer_name: "dw" calibration_config { hfmg_quantize { num_of_bins: 8192 } } }'
    )

    bins = {name: each["activation_quant_params"]["num_of_bins"] for name, each in expanded(text).layers.items()}

    assert bins == {"conv1": 2048, "dw": 8192, "fc": 1024, "pool": 1024}


def test_an_override_replaces_common_config_as_a_whole() -> None:
    text = (
        "common_config { ifmr_quantize { search_step: 0.05 } dmq_balancer { } }"
        'override_layer_types { layer_type: "Conv" calibration_config { arq_quantize { channel_wise: false } } }'
    )

    assert layer(text, "fc")["activation_quant_params"]["search_step"] == 0.05
    assert layer(text, "conv1")["activation_quant_params"]["search_step"] == 0.01
    assert "dmq_balancer_param" not in layer(text, "conv1")
    assert layer(text, "conv1")["weight_quant_params"]["channel_wise"] is False


def test_asymmetric_falls_from_the_layer_to_common_config_of_the_same_algorithm_and_to_activation_offset() -> None:
    text = (
        "activation_offset: true common_config { ifmr_quantize { asymmetric: false } }"
        'override_layer_configs { layer_name: "dw" calibration_config { hfmg_quantize { } } }'
        'override_layer_configs { layer_name: "fc" calibration_config { ifmr_quantize { asymmetric: true } } }'
        'override_layer_configs { layer_name: "pool" calibration_config { ifmr_quantize { search_step: 0.1 } } }'
    )

    asymmetric = {name: each["activation_quant_params"]["asymmetric"] for name, each in expanded(text).layers.items()}

    assert asymmetric == {"conv1": False, "dw": True, "fc": True, "pool": False}


def test_conv3d_and_products_of_two_activations_are_always_symmetric() -> None:
    layers = (conv("conv3d", (4, 3, 3, 3, 3)), product("scores"), matmul("fc"))
    text = "common_config { ifmr_quantize { asymmetric: true } }"

    asymmetric = {
        name: each["activation_quant_params"]["asymmetric"] for name, each in expanded(text, layers).layers.items()
    }

    assert asymmetric == {"conv3d": False, "scores": False, "fc": True}


def test_channel_wise_in_common_config_fails_where_a_layer_cannot_have_it_even_if_skipped() -> None:
    text = 'skip_layers: "fc" common_config { arq_quantize { channel_wise: true } }'

    with pytest.raises(ConfigError, match="channel_wise must be False for layer type Gemm"):
        expanded(text, (conv("conv1"), matmul("fc", op_type="Gemm")))
    assert expanded("common_config { arq_quantize { channel_wise: true } }", (conv("conv1"),)).layers


def test_what_amct_refuses_for_a_model_is_refused() -> None:
    for text, reason in (
        ('skip_layers: "conv2"', "Did you mean 'conv1'"),
        ('skip_layer_types: "AvgPool"', "Did you mean 'AveragePool'"),
        ('skip_layer_types: "Relu"', "quantizes no 'Relu'"),
        ('override_layer_types { layer_type: "Linear" calibration_config { } }', "quantizes no 'Linear'"),
        ('override_layer_configs { layer_name: "fc1" calibration_config { } }', "Did you mean 'fc'"),
        ('skip_layers: ["conv1", "dw", "fc"] skip_layer_types: "AveragePool"', "no layer is left"),
        (
            'override_layer_types { layer_type: "Gemm" calibration_config { arq_quantize { channel_wise: true } } }',
            "channel_wise must be False for layer type Gemm",
        ),
        (
            'override_layer_types { layer_type: "AveragePool" calibration_config { dmq_balancer { } } }',
            "does not support dmq_balancer",
        ),
        (
            'override_layer_configs { layer_name: "pool" calibration_config { ada_quantize { } } }',
            "does not support ada_quantize",
        ),
        (
            'override_layer_configs { layer_name: "fc" calibration_config { arq_quantize { quant_bits: 6 } } }',
            "does not support quant_bits 6 or 7",
        ),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            expanded(text)

        assert caught.value.file == "quant.cfg"


def test_an_asymmetric_wish_for_one_symmetric_layer_is_refused_but_not_for_its_type() -> None:
    wish = "calibration_config { ifmr_quantize { asymmetric: true } } }"

    with pytest.raises(ConfigError, match="does not support asymmetric: true for layer 'scores'"):
        expanded(f'override_layer_configs {{ layer_name: "scores" {wish}', ENCODER)
    config = expanded(f'override_layer_types {{ layer_type: "MatMul" {wish}', ENCODER)
    assert config.layers["query"]["activation_quant_params"]["asymmetric"] is True
    assert config.layers["scores"]["activation_quant_params"]["asymmetric"] is False


def test_layers_with_a_shared_weight_or_other_dimensions_stay_out_and_may_not_be_named() -> None:
    layers = (matmul("a", weight="w"), matmul("b", weight="w"), matmul("c"))
    convolutions = (conv("conv1d", (4, 3, 3)), conv("conv2d"), conv_transpose("up3d", (4, 2, 3, 3, 3)))

    assert set(unsupported((*layers, *convolutions))) == {"a", "b", "conv1d", "up3d"}
    assert set(expand(None, layers).layers) == {"c"}
    with pytest.raises(ConfigError, match="it shares its weight 'w' with 'b'"):
        expanded('skip_layers: "a"', layers)


def test_a_layer_named_like_a_key_of_the_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="Rename the node"):
        expand(None, [matmul("batch_num")])


# --- reading JSON ---------------------------------------------------------------------------------------------------


def fc(**changes: Any) -> str:
    return json.dumps({"version": 1, "fc": {"quant_enable": True, **changes}})


def test_what_a_text_leaves_out_has_amcts_defaults() -> None:
    activation = {
        **{"num_bits": 8, "max_percentile": 0.999999, "min_percentile": 0.999999, "search_range": [0.7, 1.3]},
        **{"search_step": 0.01, "act_algo": "ifmr"},
    }
    assert parse_config_json('{"fc": {}}').values == {
        **{"version": 1, "batch_num": 1, "activation_offset": True, "do_fusion": True, "skip_fusion_layers": []},
        "fc": {"quant_enable": True, "activation_quant_params": activation},
    }


def test_what_amct_would_refuse_is_refused_with_its_path() -> None:
    for text, place, reason in (
        ('{"version": 1,\n "batch_num": }', "c.json:2", "no JSON"),
        ("[]", "c.json", "not an object"),
        ('{"batch_num": 1, "batch_num": 2}', "batch_num", "more than once"),
        ('{"version": 2}', "version", "none of 1"),
        ('{"batch_num": 1.0}', "batch_num", "whole number"),
        ('{"batch_nun": 3}', "batch_nun", "Did you mean 'batch_num'"),
        ('{"activation_offset": 1}', "activation_offset", "true or false"),
        ('{"skip_fusion_layers": "a"}', "skip_fusion_layers", "not a list"),
        ('{"skip_fusion_layers": ["a", "a"]}', "skip_fusion_layers", "repeats"),
        ('{"fakequant_precision_mode": "FP16"}', "fakequant_precision_mode", "none of 'DEFAULT'"),
        ('{"tensor_quantize": [{"layer_name": "m"}]}', "tensor_quantize[0].input_index", "missing"),
        (fc(quant_enabled=True), "fc.quant_enabled", "Did you mean 'quant_enable'"),
        (fc(dmq_balancer_param=0.9), "fc.dmq_balancer_param", "outside [0.2, 0.8]"),
        (fc(activation_quant_params=3), "fc.activation_quant_params", "not an object"),
        (fc(activation_quant_params={"num_bits": 6}), "num_bits", "none of 4, 8, 16"),
        (fc(activation_quant_params={"act_algo": "kl"}), "act_algo", "none of 'ifmr', 'hfmg'"),
        (
            fc(activation_quant_params={"act_algo": "hfmg", "search_step": 0.1}),
            "fc.activation_quant_params.search_step",
            "no parameter of act_algo 'hfmg'",
        ),
        (fc(activation_quant_params={"search_range": [0.7]}), "search_range", "two numbers"),
        (fc(activation_quant_params={"search_range": [1.3, 0.7]}), "search_range", "0 < start < end"),
        (fc(activation_quant_params={"search_step": 0.7}), "search_step", "outside (0, end - start]"),
        (fc(weight_quant_params={"reg_param": 0.1}), "reg_param", "no parameter of wts_algo 'arq_quantize'"),
        (
            fc(weight_quant_params={"wts_algo": "ada_quantize", "beta_range": [2, 20]}),
            "beta_range",
            "start > end > 0",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_config_json(text, file="c.json")

        message = str(caught.value)
        assert message.startswith("c.json")
        assert place in message
        assert reason in message


# --- from a configuration to a recipe: nothing is ignored in silence -------------------------------------------------


NET = (conv("conv1"), conv_transpose("up"), pool("pool"), matmul("fc", op_type="Gemm"))
CALIBRATION = Path(__file__).parents[3] / "calibration"
IFMR = ActivationRecipe(algorithm="ifmr", symmetric=False)


def recipe(text: str, layers: tuple[Layer, ...] = NET) -> ModelRecipe:
    return recipe_of_config(parse_config(text, file="quant.cfg"), layers)


def test_an_empty_configuration_gives_every_layer_amcts_defaults() -> None:
    assert recipe("").layers == {
        "conv1": LayerRecipe(activation=IFMR, weight=WeightRecipe(algorithm="arq", per_channel=True)),
        "up": LayerRecipe(activation=IFMR, weight=WeightRecipe(algorithm="arq", per_channel=True)),
        "pool": LayerRecipe(activation=IFMR, weight=None),
        "fc": LayerRecipe(activation=IFMR, weight=WeightRecipe(algorithm="arq", per_channel=False)),
    }


def test_a_configuration_reaches_the_recipe_whole() -> None:
    text = (
        "batch_num: 4 fakequant_precision_mode: FORCE_FP16_QUANT"
        ' skip_layer_types: "AveragePool" skip_layers: "up"'
        " common_config { ifmr_quantize { search_range_start: 0.5 search_range_end: 1.2 search_step: 0.05"
        " max_percentile: 0.98 min_percentile: 0.97 asymmetric: false } dmq_balancer { migration_strength: 0.3 } }"
        ' override_layer_configs { layer_name: "fc" calibration_config { hfmg_quantize { num_of_bins: 1024 }'
        " ada_quantize { num_iteration: 7 reg_param: 0.5 beta_range_start: 9 beta_range_end: 3 warm_start: 0.25 } } }"
    )

    found = recipe(text)

    assert found.force_fp16
    assert found.float_layers == ("up", "pool")
    assert found.layers["conv1"] == LayerRecipe(
        activation=ActivationRecipe(
            algorithm="ifmr",
            symmetric=True,
            search_start=0.5,
            search_end=1.2,
            search_step=0.05,
            max_percentile=0.98,
            min_percentile=0.97,
        ),
        weight=WeightRecipe(algorithm="arq", per_channel=True),
        balance=0.3,
    )
    assert found.layers["fc"] == LayerRecipe(
        activation=ActivationRecipe(algorithm="hfmg", symmetric=False, bins=1024),
        weight=WeightRecipe(algorithm="adaround", per_channel=False),
    )
    assert found.source["batch_num"] == 4


def test_both_forms_of_a_configuration_give_the_same_recipe() -> None:
    for text in (
        "",
        'skip_layers: "conv1" common_config { ada_quantize { } hfmg_quantize { asymmetric: false } }',
        "activation_offset: false fakequant_precision_mode: FORCE_FP16_QUANT common_config { dmq_balancer { } }",
    ):
        assert recipe(config_json(expand(parse_cfg(text), NET))) == recipe(text)


def test_layers_missing_in_the_json_stay_in_float() -> None:
    found = recipe('{"fc": {"quant_enable": true}, "up": {"quant_enable": false}}')

    assert set(found.layers) == {"fc"}
    assert found.float_layers == ("conv1", "up", "pool")
    assert found.layers["fc"].activation == IFMR


def test_what_this_engine_does_not_compute_is_refused_with_what_amct_would_do() -> None:
    for text, reason in (
        ("nuq_config { mapping_file: 'm.json' }", "AMCT would cluster weights"),
        ("joint_quant: true", "AMCT would add shift_bit"),
        ('tensor_quantize { layer_name: "pool1" input_index: 0 }', "AMCT would quantize input 0 of 'pool1'"),
        ("do_fusion: false", "AMCT would leave BatchNormalization"),
        ('skip_fusion_layers: "conv1"', "AMCT would leave the BatchNormalization after 'conv1' unfused"),
        ('skip_fusion_layers: "conv2"', "Did you mean 'conv1'"),
        ("common_config { ifmr_quantize { dst_type: INT16 } }", "AMCT would quantize the activation to 16 bits"),
        ("common_config { arq_quantize { quant_bits: 7 } }", "AMCT would quantize the weight to 7 bits"),
        ("common_config { nuq_quantize { } }", "AMCT would cluster the weight"),
        ('{"fc": {"activation_quant_params": {"num_bits": 4}}}', "AMCT would quantize the activation to 4 bits"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            recipe(text)

        assert caught.value.file == "quant.cfg"
        assert caught.value.key is not None


def test_json_that_does_not_fit_the_model_is_refused() -> None:
    for text, reason in (
        ('{"fcc": {}}', "Did you mean 'fc'"),
        ('{"fc": {"quant_enable": false}}', "no quant enable layer"),
        ('{"fc": {"weight_quant_params": {"channel_wise": true}}}', "channel_wise must be False for layer type Gemm"),
        ('{"pool": {"dmq_balancer_param": 0.5}}', "does not balance AveragePool"),
        ('{"pool": {"weight_quant_params": {"wts_algo": "ada_quantize"}}}', "no ada_quantize"),
    ):
        with pytest.raises(ConfigError, match=reason):
            recipe(text)


@pytest.mark.parametrize(
    ("name", "layers"),
    [("amct-bert-classification.cfg", ENCODER), ("amct-bert-ner.cfg", ENCODER), ("amct-cnn.cfg", NET)],
)
def test_the_shipped_recipes_can_be_computed(name: str, layers: tuple[Layer, ...]) -> None:
    config = read_cfg(CALIBRATION / name)

    found = recipe_of_config(config, layers)

    assert set(found.layers) == {layer.name for layer in layers if layer.op_type != "AveragePool"}
    assert parse_config_json(config_json(expand(config, layers))) == expand(config, layers)
