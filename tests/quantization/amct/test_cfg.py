"""AMCT's simplified configuration: what is read, what is refused, and that nothing is lost in writing."""

import pytest

from workbench.quantization.amct.cfg import overrides, parse_cfg
from workbench.quantization.amct.protobuf_text import print_message
from workbench.values.errors import ConfigError

EVERYTHING = """
# every message and field of amct.md 2.2
batch_num: 4
activation_offset: false
skip_layers: "one"
skip_layers: ["two", "three"]
skip_layer_types: "AveragePool"
nuq_config { mapping_file: "m.json" nuq_quantize { num_steps: 16 num_of_iteration: 5 } }
joint_quant: true
fakequant_precision_mode: FORCE_FP16_QUANT
common_config : {
  arq_quantize : { channel_wise : false quant_bits : 7 }
  ifmr_quantize: {
    search_range_start: 0.5 search_range_end: 1.2 search_step: 0.05
    max_percentile: 0.98 min_percentile: 0.97 asymmetric: true dst_type: INT16
  }
  dmq_balancer { migration_strength: 0.3 }
}
override_layer_types {
  layer_type: "Conv"
  calibration_config {
    ada_quantize { num_iteration: 7 reg_param: 0.5 beta_range_start: 9 beta_range_end: 3 warm_start: 0.25
                   channel_wise: true }
  }
}
override_layer_configs {
  layer_name: "fc" calibration_config { hfmg_quantize { num_of_bins: 8192 asymmetric: false dst_type: INT8 } }
}
override_layer_configs { layer_name: "gemm" calibration_config { nuq_quantize { num_steps: 32 } } }
do_fusion: false
skip_fusion_layers: "conv1"
tensor_quantize { layer_name: "maxpool1" input_index: 0 ifmr_quantize { } }
tensor_quantize { layer_name: "add" input_index: 1 }
"""


def test_every_field_of_the_schema_is_read_and_written() -> None:
    config = parse_cfg(EVERYTHING)

    assert parse_cfg(print_message(config.message)).message == config.message
    assert tuple(config.message.skip_layers) == ("one", "two", "three")
    assert config.get("fakequant_precision_mode") == "FORCE_FP16_QUANT"
    assert config.inner("common_config").inner("ifmr_quantize").get("search_step") == 0.05
    assert overrides(config, "override_layer_types")["Conv"].inner("ada_quantize").get("reg_param") == 0.5
    assert set(overrides(config, "override_layer_configs")) == {"fc", "gemm"}


def test_a_repeated_single_field_follows_protobufs_merge_and_what_is_left_out_has_amcts_defaults() -> None:
    config = parse_cfg(
        "batch_num: 2 batch_num: 3 common_config { arq_quantize { } }"
        "common_config { dmq_balancer { } ifmr_quantize { asymmetric: false } ifmr_quantize { search_step: 0.02 } }"
    )

    settings = config.inner("common_config")
    search = settings.inner("ifmr_quantize")
    assert config.get("batch_num") == 3
    assert settings.has("arq_quantize")
    assert settings.inner("dmq_balancer").get("migration_strength") == 0.5
    assert (search.get("asymmetric"), search.get("search_step"), search.get("max_percentile")) == (
        False,
        0.02,
        0.999999,
    )


def test_what_amct_would_refuse_is_refused_with_file_line_and_field() -> None:
    for text, line, key, reason in (
        ("\nbatch_nm: 3", 2, "batch_nm", "Did you mean 'batch_num'"),
        ("common_config {\n arq_quantize { chanel_wise: true } }", 2, "chanel_wise", "'channel_wise'"),
        ("common_config { hfmg_quantize { search_step: 0.1 } }", 1, "search_step", "hfmg_quantize has no field"),
        ("batch_num: 0", 1, "batch_num", "0 is below 1"),
        ("batch_num: 1.5", 1, "batch_num", "whole number"),
        ('activation_offset: "true"', 1, "activation_offset", "true or false"),
        ('skip_layers: ["a", "a"]', 1, "skip_layers", "more than once"),
        ("fakequant_precision_mode: DEFAULT", 1, "fakequant_precision_mode", "FORCE_FP16_QUANT"),
        ("common_config: 3", 1, "common_config", "message"),
        ("common_config { arq_quantize { quant_bits: 5 } }", 1, "quant_bits", "none of 4, 6, 7, 8"),
        ("common_config { ada_quantize { reg_param: 1 } }", 1, "reg_param", "outside"),
        ("common_config { ada_quantize { beta_range_start: 1 } }", 1, "beta_range", "start > end > 0"),
        ("common_config { ifmr_quantize {\n search_range_start: 0 } }", 2, "search_range_start", "0 < start < end"),
        ("common_config { ifmr_quantize { search_step: 0.7 } }", 1, "search_step", "outside"),
        ("common_config { ifmr_quantize { search_step: nan } }", 1, "search_step", "not finite"),
        ("common_config { ifmr_quantize { max_percentile: 0.5 } }", 1, "max_percentile", r"outside \(0.5, 1\]"),
        ("common_config { ifmr_quantize { dst_type: INT4 } }", 1, "dst_type", "INT8 or INT16"),
        ("common_config { dmq_balancer { migration_strength: 0.1 } }", 1, "migration_strength", r"\[0.2, 0.8\]"),
        ("override_layer_types { calibration_config { } }", 1, "layer_type", "missing"),
        (
            'override_layer_types { layer_type: "Conv" calibration_config { } }\n'
            'override_layer_types { layer_type: "Conv" calibration_config { } }',
            2,
            "layer_type",
            "more than once",
        ),
        ('tensor_quantize { layer_name: "a" }', 1, "input_index", "missing"),
        ("batch_num 1", 1, "batch_num", 'Expected ":"'),
        ('batch_num: 1\nskip_layers: "x', 2, "skip_layers", "string in quotes"),
        ("1: 2", 1, "", "no field named"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            parse_cfg(text, file="quant.cfg")

        assert (caught.value.file, caught.value.line) == ("quant.cfg", line), text
        assert key in str(caught.value)


def test_a_step_that_fills_the_range_is_taken_though_floats_disagree() -> None:
    parse_cfg("common_config { ifmr_quantize { search_range_start: 0.8 search_range_end: 0.9 search_step: 0.1 } }")
