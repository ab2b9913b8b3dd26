"""Reading AMCT's JSON: defaults, and what is refused with its path."""

import json
from typing import Any

import pytest

from workbench.quantization.amct.json_form import parse_config_json
from workbench.values.errors import ConfigError


def layer(**changes: Any) -> str:
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


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
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
        (layer(quant_enabled=True), "fc.quant_enabled", "Did you mean 'quant_enable'"),
        (layer(dmq_balancer_param=0.9), "fc.dmq_balancer_param", "outside [0.2, 0.8]"),
        (layer(activation_quant_params=3), "fc.activation_quant_params", "not an object"),
        (layer(activation_quant_params={"num_bits": 6}), "num_bits", "none of 4, 8, 16"),
        (layer(activation_quant_params={"act_algo": "kl"}), "act_algo", "none of 'ifmr', 'hfmg'"),
        (
            layer(activation_quant_params={"act_algo": "hfmg", "search_step": 0.1}),
            "fc.activation_quant_params.search_step",
            "no parameter of act_algo 'hfmg'",
        ),
        (layer(activation_quant_params={"search_range": [0.7]}), "search_range", "two numbers"),
        (layer(activation_quant_params={"search_range": [1.3, 0.7]}), "search_range", "0 < start < end"),
        (layer(activation_quant_params={"search_step": 0.7}), "search_step", "outside (0, end - start]"),
        (layer(weight_quant_params={"reg_param": 0.1}), "reg_param", "no parameter of wts_algo 'arq_quantize'"),
        (
            layer(weight_quant_params={"wts_algo": "ada_quantize", "beta_range": [2, 20]}),
            "beta_range",
            "start > end > 0",
        ),
    ],
)
def test_what_amct_would_refuse_is_refused_with_its_path(text: str, place: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config_json(text, file="c.json")

    message = str(caught.value)
    assert message.startswith("c.json")
    assert place in message
    assert reason in message
