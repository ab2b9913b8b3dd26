"""What is said of a candidate before any work: settings, their files and entries."""

import json
from dataclasses import replace

import pytest

from tests.reference_pages import fixed_passes
from tests.targets.ascend.played_atc import candidate
from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.conformance import STATIC
from workbench.values.candidate import Quantization, Serving
from workbench.values.errors import ConfigError

TWICE = "a::InputDtype:float,OutputDtype:float"
STATIC_IFMR = replace(STATIC, algorithm="ifmr")


def test_what_the_vendor_forbids_or_ignores_is_refused_before_any_work() -> None:
    """atc.md, facts 4, 5 and 10; ATC itself does not look, or ignores it with a word in its log."""
    attention = replace(STATIC_IFMR, attention_matmul=True)
    dynamic = Quantization(scheme="dynamic", weight_granularity="channel")
    no_int8 = ("force_fp32", "cube_fp16in_fp32out", "must_keep_origin_dtype", "origin")
    lines, implmode = {"op_precision_mode": ("Gelu=high_performance",)}, {"op_select_implmode": "high_performance"}
    precise = ({"op_select_implmode": "high_precision"}, {"op_precision_mode": ("Gelu=high_precision",)})
    refused: list[tuple[str, Quantization | None, dict[str, object], str]] = [
        *((mode, None, {}, r"not supported by CANN 8\.5") for mode in ("mixed_hif8", "cube_hif8")),
        *((mode, STATIC_IFMR, {}, "neither the speed nor the precision") for mode in no_int8),
        *(("force_fp16", STATIC_IFMR, settings, "high_precision kernels") for settings in precise),
        ("force_fp16", STATIC_IFMR, {"shapes": "gears", "sequence_bins": (32, 64)}, "compiled for dynamic shapes"),
        ("force_fp16", attention, {}, "can only be symmetric"),
        ("force_fp16", dynamic, {}, "no dynamic INT8"),
        ("origin", None, {"keep_dtype": ("OpType::LayerNorm",)}, "is void"),
        ("force_fp16", None, {**lines, **implmode}, "is void"),
        ("force_fp16", None, {"oo_level": "O1", "disabled_fusions": ("gelu",)}, "O1 closes every fusion"),
        ("force_fp16", None, {"op_precision_mode": ("Gelu=fast",)}, "ATC would skip it"),
        ("force_fp16", None, {"customize_dtypes": (TWICE, TWICE.replace("float,", "int8,"))}, "the first wins"),
        ("force_fp16", None, {"disabled_fusions": ("softmax_small",)}, "no such group"),
        ("force_fp16", None, {"enabled_fusions": ("gelu",)}, "no such group"),
        ("force_fp16", None, {"disabled_fusions": ("softmax", "gelu")}, "sorted and unique"),
        ("force_fp16", None, {"batches": ()}, "no batch size"),
        ("force_fp16", None, {"sequence_bins": (64, 32)}, "not ascending"),
    ]
    for mode, quantization, settings, fault in refused:
        with pytest.raises(ConfigError, match=fault):
            candidate(mode, quantization, **settings)
    with pytest.raises(ConfigError, match="larger than every compiled batch"):
        candidate(batch=16, batches=(1, 8))
    candidate(quantization=replace(attention, activation_symmetric=True))


def test_bins_on_ascend_are_compiled_ones() -> None:
    assert candidate(sequence_bins=(64, 128)).sequence_bins == (64, 128)
    assert candidate().sequence_bins is None
    with pytest.raises(ConfigError, match=r"Name the bins in compile\.sequence_bins"):
        replace(candidate(sequence_bins=(64, 128)), serving=Serving(sequence_bins=(64, 128)))


def test_groups_become_a_switch_file_in_json_with_every_pass_named() -> None:
    """atc.md §4.1 (JSON form) and §4.2 rule 6: only a name in the user's file beats a built-in entry."""
    settings = AscendCompile(disabled_fusions=("add_layer_norm",), enabled_fusions=("softmax_small",))

    name, text = settings.handed_files()["fusion_switch_file"]

    assert name == "fusion_switch.cfg"
    assert json.loads(text) == {
        "Switch": {
            "GraphFusion": {"AddLayerNormFusionPass": "off", "SoftmaxSmallOpFusionPass": "on"},
            "UBFusion": {"AddLayernormV3FusionPass": "off"},
        }
    }


def test_no_pass_is_in_two_groups_and_none_stays_on_whatever_is_said() -> None:
    """atc.md §4.3, Not closable; and §4.3, ExceptionalPassOfO1Level."""
    passes = [name for group in FUSION_GROUPS.values() for name in (*group.graph, *group.ub)]

    assert len(passes) == len(set(passes))
    assert not set(passes) & fixed_passes()
