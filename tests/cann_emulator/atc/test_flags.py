"""atc.md §1 (table of values) and §2 (the flags of 8.5.0)."""

import pytest

from tests.reference_pages import atc_flags
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import FLAGS, Malformed, known_flags, parse, value_of

KNOWN = known_flags((8, 5, 0))

NOT_IN_8_5_0 = """
optimization_switch jit_compile static_model_ops_lower_limit multi_stream_parallel_mode raw_ge_options
raw_ge_options_ignore_unsupported h2d_overlapped_with_compute hccl_sub_comm_config enable_attr_compression
deterministic_level
"""
SWITCHES = "sparsity dump_mode status_check deterministic external_weight display_model_info atomic_clean_policy "
VALUES: dict[str, tuple[str, str]] = {
    **dict.fromkeys((SWITCHES + "disable_reuse_memory").split(), ("0 1", "E10006")),
    "virtual_type": ("0 1", "E10001"),
    "framework": ("0 1 3 5", "E10007"),
    "op_debug_level": ("0 1 2 3 4", "E10001"),
    "mode": ("0 1 3 5 6 30", "E10001"),
    "core_type": ("AiCore VectorCore", "E10001"),
    "log": ("debug info warning error null", "E10010"),
    "op_compiler_cache_mode": ("enable disable force", "E10001"),
    "buffer_optimize": ("l1_optimize l2_optimize off_optimize", "E10001"),
    "shape_generalized_build_mode": ("shape_generalized shape_precise", "E10001"),
    "op_select_implmode": (
        "high_precision high_performance high_precision_for_all high_performance_for_all",
        "E10001",
    ),
    "precision_mode": (
        "force_fp16 force_fp32 cube_fp16in_fp32out allow_mix_precision allow_fp32_to_fp16 must_keep_origin_dtype "
        "allow_mix_precision_fp16 allow_mix_precision_bf16 allow_fp32_to_bf16",
        "E10001",
    ),
    "precision_mode_v2": (
        "fp16 origin cube_fp16in_fp32out mixed_float16 mixed_bfloat16 cube_hif8 mixed_hif8",
        "E10001",
    ),
}
ACCEPTED = [(flag, value) for flag, (values, _) in VALUES.items() for value in values.split()]


def test_the_flags_of_8_5_0_are_those_of_the_reference_page() -> None:
    listed, named = atc_flags()

    assert listed - {"help"} <= set(KNOWN) <= named


@pytest.mark.parametrize("name", KNOWN)
def test_every_flag_of_8_5_0_takes_a_value(name: str) -> None:
    value = VALUES[name][0].split()[-1] if name in VALUES else "anything at all"

    assert parse([f"--{name}={value}"], KNOWN) == {name: value}
    with pytest.raises(Malformed, match="missing its argument"):
        parse([f"--{name}"], KNOWN)


@pytest.mark.parametrize("name", NOT_IN_8_5_0.split())
def test_a_newer_flag_is_unknown(name: str) -> None:
    with pytest.raises(Malformed, match=f"unknown command line flag '{name}'"):
        parse([f"--{name}=1"], KNOWN)


def test_a_maintenance_release_knows_one_flag_more() -> None:
    assert set(known_flags((8, 5, 1))) - set(KNOWN) == {"deterministic_level"}
    assert parse(["--deterministic_level=2"], known_flags((8, 5, 1))) == {"deterministic_level": "2"}


@pytest.mark.parametrize(("name", "value"), ACCEPTED, ids=[f"{name}={value}" for name, value in ACCEPTED])
def test_every_value_of_the_table_is_accepted(name: str, value: str) -> None:
    assert parse([f"--{name}", value], KNOWN) == {name: value}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("value", ["", "2.0", "7", "nonsense", " 1"])
def test_any_other_value_is_rejected_with_the_tables_code(name: str, value: str) -> None:
    with pytest.raises(AtcFailure) as caught:
        parse([f"--{name}={value}"], KNOWN)

    (record,) = caught.value.records
    assert record.code == VALUES[name][1]
    if record.code == "E10001":
        assert record.arguments["parameter"] == f"--{name}"
        listed = " ".join(f"[{value}]" for value in sorted(VALUES[name][0].split()))
        assert listed in record.arguments["reason"], "the allowed values, alphabetically, in brackets"


def test_a_value_that_is_given_is_the_value() -> None:
    assert value_of({"log": "info"}, "log") == "info"
    assert value_of({"output_type": ""}, "output_type") == ""


def test_no_input_format_is_nchw() -> None:
    assert value_of({}, "input_format") == "NCHW"
    assert value_of({"input_format": ""}, "input_format") == "NCHW"
    assert value_of({"input_format": "ND"}, "input_format") == "ND"


def test_the_report_lies_in_the_work_folder_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    assert value_of({}, "check_report") == "check_result.json"
    monkeypatch.setenv("ASCEND_WORK_PATH", "/work/here")
    assert value_of({}, "check_report") == "/work/here/check_result.json"
    assert value_of({"check_report": "mine.json"}, "check_report") == "mine.json"


def test_every_flag_says_what_it_is() -> None:
    assert all(flag.about for flag in FLAGS.values())
