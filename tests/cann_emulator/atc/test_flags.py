"""atc.md §1 (table of values) and §2 (the flags of 8.5.0)."""

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import FLAGS, known_flags, value_of
from workbench.cann_emulator.atc.grammar import Malformed, parse

KNOWN = known_flags((8, 5, 0))

# Written from the reference's tables, section by section, not from the module under test.
SECTION_2 = """
mode model weight om json framework input_format input_shape input_shape_range input_hint_shape dynamic_batch_size
dynamic_image_size dynamic_dims singleop output output_type check_report host_env_os host_env_cpu soc_version
virtual_type core_type aicore_num target device_id cal_conf
out_nodes input_fp16_nodes is_input_adjust_hw_layout is_output_adjust_hw_layout insert_op_conf op_name_map
external_weight cluster_config
fusion_switch_file enable_scope_fusion_passes buffer_optimize disable_reuse_memory enable_single_stream
ac_parallel_enable tiling_schedule_optimize quant_dumpable enable_small_channel enable_compress_weight
compress_weight_conf compression_optimize_conf sparsity mdl_bank_path oo_level oo_constant_folding
oo_dead_code_elimination topo_sorting_mode auto_tune_mode
precision_mode precision_mode_v2 modify_mixlist keep_dtype customize_dtypes op_precision_mode op_select_implmode
optypelist_for_implmode allow_hf32 op_bank_path
op_compiler_cache_mode op_compiler_cache_dir
log op_debug_level op_debug_config debug_dir status_check dump_mode display_model_info save_original_model
export_compile_stat deterministic atomic_clean_policy is_weight_clip shape_generalized_build_mode
"""
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
DEFAULTS = {
    "mode": "0",
    "framework": "-1",
    "virtual_type": "0",
    "core_type": "AiCore",
    "external_weight": "0",
    "buffer_optimize": "l2_optimize",
    "disable_reuse_memory": "0",
    "ac_parallel_enable": "0",
    "tiling_schedule_optimize": "0",
    "enable_small_channel": "0",
    "enable_compress_weight": "false",
    "sparsity": "0",
    "oo_level": "O3",
    "oo_constant_folding": "true",
    "oo_dead_code_elimination": "true",
    "op_compiler_cache_mode": "disable",
    "log": "null",
    "op_debug_level": "0",
    "status_check": "0",
    "dump_mode": "0",
    "display_model_info": "0",
    "export_compile_stat": "1",
    "deterministic": "0",
    "atomic_clean_policy": "0",
    "is_weight_clip": "1",
    "shape_generalized_build_mode": "shape_precise",
    "device_id": "0",
    "precision_mode": "",
    "precision_mode_v2": "",
    "output_type": "",
    "quant_dumpable": "",
    "enable_single_stream": "",
}


def test_the_flags_of_8_5_0_are_those_of_the_reference() -> None:
    assert set(KNOWN) == set(SECTION_2.split())


@pytest.mark.parametrize("name", SECTION_2.split())
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


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_a_flag_that_is_not_given_has_its_documented_default(name: str, default: str) -> None:
    assert value_of({}, name) == default


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
