import json
from dataclasses import replace

import pytest

from workbench.cann_emulator.atc.fusion import ALWAYS_ON_AT_O1, FORBIDDEN_TO_CLOSE
from workbench.targets.ascend.config_files import (
    FUSION_GROUPS,
    customize_dtypes,
)
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.conformance import STATIC
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.candidate_words import describe
from workbench.values.errors import ConfigError

STATIC_IFMR = replace(STATIC, algorithm="ifmr")


def candidate(
    mode: str = "force_fp16", quantization: Quantization | None = None, batch: int = 1, **settings: object
) -> Candidate:
    return Candidate(
        target="ascend910b3",
        precision=Precision(mode=mode),
        quantization=quantization or Quantization(),
        compile=AscendCompile(**settings),  # type: ignore[arg-type]  # a test names fields by keyword
        serving=Serving(batch=batch),
    )


@pytest.mark.parametrize("mode", ["mixed_hif8", "cube_hif8"])
def test_hif8_is_refused_because_the_vendor_check_lets_it_pass(mode: str) -> None:
    """atc.md, fact 10."""
    with pytest.raises(ConfigError, match=r"not supported by CANN 8\.5"):
        candidate(mode)


@pytest.mark.parametrize("mode", ["force_fp32", "cube_fp16in_fp32out", "must_keep_origin_dtype", "origin"])
def test_int8_refuses_modes_that_give_neither_speed_nor_precision(mode: str) -> None:
    """atc.md, fact 5."""
    with pytest.raises(ConfigError, match="neither the speed nor the precision"):
        candidate(mode, STATIC_IFMR)


def test_int8_refuses_gears() -> None:
    """atc.md, fact 4."""
    with pytest.raises(ConfigError, match="cannot be compiled for dynamic shapes"):
        candidate(quantization=STATIC_IFMR, shapes="gears", sequence_bins=(32, 64))


def test_int8_refuses_high_precision_kernels() -> None:
    for settings in ({"op_select_implmode": "high_precision"}, {"op_precision_mode": ("Gelu=high_precision",)}):
        with pytest.raises(ConfigError, match="high_precision kernels"):
            candidate(quantization=STATIC_IFMR, **settings)


def test_int8_of_attention_products_must_be_symmetric() -> None:
    with pytest.raises(ConfigError, match="can only be symmetric"):
        candidate(quantization=replace(STATIC_IFMR, attention_matmul=True))
    candidate(quantization=replace(STATIC_IFMR, attention_matmul=True, activation_symmetric=True))


def test_dynamic_int8_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="no dynamic INT8"):
        candidate(quantization=Quantization(scheme="dynamic", weight_granularity="channel"))


@pytest.mark.parametrize(
    ("mode", "settings", "fault"),
    [
        ("force_fp16", {"modify_mixlist": ("black-list.to-add:Pow",)}, "E10001"),
        ("origin", {"keep_dtype": ("OpType::LayerNorm",)}, "is void"),
        ("force_fp16", {"optypelist_for_implmode": ("Gelu",)}, "types without a mode"),
        ("force_fp16", {"op_precision_mode": ("Gelu=x",), "op_select_implmode": "high_performance"}, "is void"),
        ("force_fp16", {"shapes": "gears", "sequence_bins": (64,)}, "E10035"),
        ("force_fp16", {"oo_level": "O1", "disabled_fusions": ("gelu",)}, "O1 closes every fusion"),
        ("force_fp16", {"oo_level": "O2"}, "none of O3, O1"),
        ("force_fp16", {"disabled_fusions": ("softmax_small",)}, "no such group"),
        ("force_fp16", {"enabled_fusions": ("gelu",)}, "no such group"),
        ("force_fp16", {"disabled_fusions": ("softmax", "gelu")}, "sorted and unique"),
        ("force_fp16", {"batches": ()}, "no batch size"),
        ("force_fp16", {"sequence_bins": (64, 32)}, "not ascending"),
    ],
)
def test_settings_that_atc_refuses_or_ignores_are_refused(mode: str, settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        candidate(mode, **settings)


def test_a_batch_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than every compiled batch"):
        candidate(batch=16, batches=(1, 8))


def test_bins_on_ascend_are_compiled_ones() -> None:
    assert candidate(sequence_bins=(64, 128)).sequence_bins == (64, 128)
    assert candidate().sequence_bins is None
    with pytest.raises(ConfigError, match=r"Name the bins in compile\.sequence_bins"):
        replace(candidate(sequence_bins=(64, 128)), serving=Serving(sequence_bins=(64, 128)))


def test_a_candidate_is_described_by_what_differs_from_the_defaults() -> None:
    one = candidate("allow_mix_precision", STATIC_IFMR, sequence_bins=(64, 128), disabled_fusions=("gelu",))
    several = candidate(sequence_bins=(128,), batches=(1, 8))

    assert describe(one) == (
        "INT8 static, ifmr, asymmetric, weights per tensor, bins 64 128, the rest allow_mix_precision, no gelu"
    )
    assert describe(several) == "force_fp16, length 128, batches 1 8"


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
    assert not set(passes) & (FORBIDDEN_TO_CLOSE | ALWAYS_ON_AT_O1)


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        (("OpType::Gelu:float",), "E20101"),
        (("OpType::Gelu:OutputDtype:float,InputDtype:float",), "E20101"),
        (("a::InputDtype:float,OutputDtype:float", "a::InputDtype:int8,OutputDtype:float"), "the first wins"),
    ],
)
def test_types_of_single_operators_that_atc_refuses_are_refused(entries: tuple[str, ...], code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        customize_dtypes(entries)
