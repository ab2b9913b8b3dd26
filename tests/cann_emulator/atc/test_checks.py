"""atc.md §1: the order of the checks, and every rule about two flags (§2, §3.2, §3.3)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from workbench.cann_emulator.atc import checks
from workbench.cann_emulator.atc.failure import AtcFailure

Options = Mapping[str, str]
GOOD = {"framework": "5", "model": "m.onnx", "output": "out/m", "soc_version": "Ascend910B3"}
EXISTING = ("m.onnx", "p.ini", "aipp.cfg", "keep.cfg", "weights", "map.cfg", "m.om", "dump.txt", "cal.cfg", "w.cfg")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    for name in EXISTING:
        (tmp_path / name).write_text("x")
    return tmp_path


def check(options: Options) -> list[str]:
    """What the screen shows, when modes 0, 3 or 30 pass."""
    shown: list[str] = []
    checks.check_withdrawn(options)
    checks.check_framework(options)
    checks.check_conversion(options, shown.append)
    return shown


def refusal(options: Options) -> tuple[list[str], Mapping[str, str]]:
    with pytest.raises(AtcFailure) as caught:
        check(options)
    return [record.code for record in caught.value.records], caught.value.records[-1].arguments


# Each line: what is added to GOOD, the code, and the parameter it names. In the order of §1; each later line is also
# tried together with every earlier one, and the earlier one must win.
ORDER: list[tuple[str, dict[str, str], str]] = [
    ("auto tune", {"auto_tune_mode": "RL,GA"}, "E10001"),
    ("weight", {"weight": "none"}, "E10001"),
    ("framework", {"framework": "-"}, "E10007"),
    ("nano", {"soc_version": "Ascend035"}, "E10055"),
    ("format", {"input_format": "NHWC"}, "E10001"),
    ("no soc", {"soc_version": ""}, "E10054"),
    ("no output", {"output": ""}, "E10054"),
    ("no model", {"model": ""}, "E10054"),
    ("model missing", {"model": "none.onnx"}, "E10001"),
    ("output alphabet", {"output": "a b"}, "E10001"),
    ("output name", {"output": "out/"}, "E10022"),
    ("types without mode", {"optypelist_for_implmode": "Gelu"}, "E10001"),
    ("op precision", {"op_precision_mode": "none.ini"}, "E10001"),
    ("weight clip", {"is_weight_clip": "2"}, "E10006"),
    ("both precisions", {"precision_mode": "force_fp16", "precision_mode_v2": "fp16"}, "E10056"),
    ("mixlist", {"modify_mixlist": "list.json"}, "E10001"),
    ("tilde with gears", {"input_shape": "a:1~2", "dynamic_batch_size": "1,2"}, "E10040"),
    ("AIPP with dims", {"insert_op_conf": "none.cfg", "dynamic_dims": "1;2", "input_shape": "a:-1"}, "E10001"),
    ("calibration file", {"cal_conf": "none"}, "E10001"),
    ("name map", {"op_name_map": "none"}, "E10001"),
    ("AIPP file", {"insert_op_conf": "none"}, "E10001"),
    ("weight file", {"compress_weight_conf": "none"}, "E10001"),
    ("weights twice", {"enable_compress_weight": "true", "compress_weight_conf": "w.cfg"}, "E10047"),
    ("keep dtype", {"keep_dtype": "none"}, "E10001"),
    ("report", {"check_report": "a b"}, "E10001"),
    ("original", {"save_original_model": "1"}, "E10005"),
    ("stream", {"enable_single_stream": "1"}, "E10005"),
    ("AI CPU", {"ac_parallel_enable": "2"}, "E10006"),
    ("tiling", {"tiling_schedule_optimize": "true"}, "E10006"),
    ("host", {"host_env_os": "plan9"}, "E10001"),
    ("hf32", {"allow_hf32": "1"}, "E10005"),
    ("dumpable", {"quant_dumpable": "2"}, "E10006"),
]


@pytest.mark.parametrize("earlier", range(len(ORDER)), ids=[row[0] for row in ORDER])
def test_each_rule_refuses_with_its_code_and_the_earlier_rule_wins(earlier: int) -> None:
    _, first, code = ORDER[earlier]
    alone = refusal({k: v for k, v in {**GOOD, **first}.items() if v != "-"})
    assert alone[0][-1] == code
    for _, second, _ in ORDER[earlier + 1 :]:
        if set(first) & set(second) or {"dynamic_dims", "dynamic_batch_size"} <= {*first, *second}:
            continue
        both = {k: v for k, v in {**GOOD, **second, **first}.items() if v != "-"}
        assert refusal(both) == alone, f"{first} before {second}"


def test_what_passes() -> None:
    for options in (
        {"input_format": "NCDHW"},
        {"enable_compress_weight": "true"},
        {"enable_compress_weight": "false", "compress_weight_conf": "w.cfg"},
        {"save_original_model": "true", "enable_single_stream": "false", "allow_hf32": "true"},
        {"ac_parallel_enable": "1", "tiling_schedule_optimize": "", "quant_dumpable": "0", "external_weight": "1"},
        {"host_env_os": "linux", "host_env_cpu": "aarch64"},
        {"oo_level": "O9", "oo_constant_folding": "x", "topo_sorting_mode": "x", "export_compile_stat": ""},
        {"out_nodes": "a:0;b", "output_type": "INT64", "input_shape": "a:0", "is_output_adjust_hw_layout": "x"},
        {"input_hint_shape": "0:[1]", "dynamic_batch_size": "1,,2", "input_shape": "a:-1"},
        {"op_precision_mode": "p.ini", "op_select_implmode": "high_precision", "optypelist_for_implmode": "Gelu"},
        {"insert_op_conf": "aipp.cfg", "keep_dtype": "keep.cfg", "op_name_map": "map.cfg", "cal_conf": "cal.cfg"},
        {"check_report": "reports/check.json"},
        {"framework": "0", "weight": "weights", "soc_version": "Ascend310P3", "input_format": "ND"},
        {"mode": "30", "soc_version": "Ascend035B"},
    ):
        check({**GOOD, **options})


def test_conversions_to_json_look_at_both_paths() -> None:
    for expected, options in (
        (["E10004", "E10004"], {"mode": "1"}),
        (["E10004"], {"mode": "1", "om": "m.om"}),
        (["E10004"], {"mode": "1", "json": "m.json"}),
        (["E10001"], {"mode": "1", "om": "none.om", "json": "m.json"}),
        (["E10004", "E10001"], {"mode": "1", "om": "none.om"}),
        (["E10004"], {"mode": "5"}),
        (["E10001"], {"mode": "5", "om": "m.om", "json": "m.json"}),
        (["E10001"], {"mode": "5", "om": "none.txt", "json": "m.json"}),
    ):
        with pytest.raises(AtcFailure) as caught:
            checks.check_json(options)
        assert [record.code for record in caught.value.records] == expected, options
    checks.check_json({"mode": "1", "om": "m.om", "json": "made/m.json"})
    checks.check_json({"mode": "5", "om": "dump.txt", "json": "m.json"})
