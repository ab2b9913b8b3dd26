"""From an AMCT configuration to a recipe: nothing is ignored in silence."""

from pathlib import Path

import pytest

from tests.quantization.amct_files import conv, conv_transpose, matmul, pool, product
from workbench.graph.layers import Layer
from workbench.quantization.amct.cfg import config_json, parse_cfg, parse_config_json, read_cfg
from workbench.quantization.amct.config import expand, parse_config, recipe_of_config
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.errors import ConfigError

CNN = (conv("conv1"), conv_transpose("up"), pool("pool"), matmul("fc", op_type="Gemm"))
ENCODER = (matmul("query"), product("scores"), matmul("up"), matmul("down"))
CALIBRATION = Path(__file__).parents[3] / "calibration"
IFMR = ActivationRecipe(algorithm="ifmr", symmetric=False)


def recipe(text: str, layers: tuple[Layer, ...] = CNN) -> ModelRecipe:
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
        assert recipe(config_json(expand(parse_cfg(text), CNN))) == recipe(text)


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
    [("amct-bert-classification.cfg", ENCODER), ("amct-bert-ner.cfg", ENCODER), ("amct-cnn.cfg", CNN)],
)
def test_the_shipped_recipes_can_be_computed(name: str, layers: tuple[Layer, ...]) -> None:
    config = read_cfg(CALIBRATION / name)

    found = recipe_of_config(config, layers)

    assert set(found.layers) == {layer.name for layer in layers if layer.op_type != "AveragePool"}
    assert parse_config_json(config_json(expand(config, layers))) == expand(config, layers)
