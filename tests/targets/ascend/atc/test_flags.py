import pytest

from tests.reference_pages import atc_flags
from workbench.targets.ascend.atc.flag_table import FLAGS, NEWER
from workbench.targets.ascend.atc.flags import check_flags
from workbench.values.errors import CompileError, ConfigError

COMPILE = {
    "framework": "5",
    "model": "/work/m.onnx",
    "output": "/work/m",
    "soc_version": "Ascend910B3",
    "input_shape": "ids:1,128;mask:1,128",
}
GEARS = {**COMPILE, "input_shape": "ids:-1,-1;mask:-1,-1", "dynamic_dims": "1,64,1,64;1,128,1,128"}

REFUSALS: list[tuple[dict[str, str], str, str]] = [
    ({"precision_mode": "fp16"}, "E10001", "none of [allow_fp32_to_bf16], [allow_fp32_to_fp16]"),
    ({"precision_mode_v2": "force_fp16"}, "E10001", "[cube_fp16in_fp32out], [cube_hif8], [fp16]"),
    ({"precision_mode": "force_fp16", "precision_mode_v2": "fp16"}, "E10056", "even where they mean the same"),
    ({"modify_mixlist": "/w/l.json"}, "E10001", "means nothing with precision force_fp16"),
    ({"optypelist_for_implmode": "Gelu"}, "E10001", "op_select_implmode is missing"),
    ({"buffer_optimize": "l3"}, "E10001", "[l1_optimize]"),
    ({"oo_level": "O2"}, "E10001", "[O1], [O3]"),
    ({"enable_single_stream": "1"}, "E10005", "[false], [true]"),
    ({"tiling_schedule_optimize": "true"}, "E10006", "[0], [1]"),
    ({"virtual_type": "2"}, "E10001", "[0], [1]"),
    ({"log": "warn"}, "E10010", "[debug]"),
    ({"input_format": "NHWC"}, "E10001", "[NCDHW]"),
    ({"output": "/work/my model"}, "E10001", "ATC takes no ' ' in a path"),
    ({"model": "/work/a+b@c/m.onnx"}, "E10001", "no '+', '@' in a path"),
    ({"output": "/work/dir/"}, "E10022", "names no file"),
    ({"aicore_num": "24|40"}, "E20103", "24 is outside (0, 20]"),
    ({"aicore_num": "x"}, "E10001", "not of the form"),
    ({"output_type": "INT32"}, "E10001", "FP32, FP16, UINT8 and INT8"),
    ({"output_type": "a:0:FP32"}, "E10001", "--out_nodes is missing"),
    ({"virtual_type": "1", "buffer_optimize": "l1_optimize"}, "E10001", "excludes"),
    ({"input_shape": "ids:1,x"}, "E10014", "'x' is no size"),
    ({"input_shape": "ids:1,2x"}, "E10002", "'2x' is no size"),
    ({"input_shape": "ids:1.5,2"}, "E10002", "'1.5' is no size"),
    ({"input_shape": "ids:0,128"}, "E10011", "0 is not positive"),
    ({"input_shape": "ids:1,9999999999999999999"}, "E10013", "out of range"),
    ({"input_shape": " "}, "E10002", "is empty"),
    ({"input_shape": "ids:1,128;"}, "E10002", "an entry is empty"),
    ({"input_shape": "1,128;1,128"}, "E10002", "whose shape it is"),
    ({"input_shape": "1~8,128;1,128"}, "E10048", "whose shape it is"),
    ({"input_shape": "ids:-1,x"}, "E10002", "'-1,x' is no range"),
    ({"input_shape": "ids:1~-1,8"}, "E10048", "'1~-1' is no range"),
    ({"input_shape": "ids:-1,1~2~3"}, "E10048", "'1~2~3' is no range"),
    ({"input_shape": ":-1,8"}, "E10002", "has no name"),
    ({"input_shape": f"ids:{'9' * 5000}"}, "E10013", "out of range"),
    ({"dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, "E10009", "excludes --"),
    ({"dynamic_batch_size": "1,2"}, "E10031", "no size in --input_shape is -1"),
    ({"dynamic_batch_size": "1,2", "input_shape": "ids:-1,-1"}, "E10018", "ids has -1 behind"),
    ({"dynamic_batch_size": "1,a", "input_shape": "ids:-1,8"}, "E10003", "only digits"),
    ({"dynamic_batch_size": "1, 2", "input_shape": "ids:-1,8"}, "E10003", "no blank"),
    ({"dynamic_batch_size": "1;2", "input_shape": "ids:-1,8"}, "E10003", "only digits"),
    ({"dynamic_batch_size": "1,2", "input_shape": "-1,8"}, "E10002", "whose shape it is"),
    ({"dynamic_image_size": "1,2,3;4,5,6", "input_shape": "x:1,3,-1,-1"}, "E10020", "height,width"),
    ({"dynamic_dims": "1;2"}, "E10001", "no size in --input_shape is -1"),
    ({"dynamic_dims": "1;2", "input_shape": "ids:1~8,128"}, "E10040", "exclude each other"),
    ({"dynamic_dims": "1,64;1,128", "input_shape": "a:-1,-1;b:-1,-1"}, "E10003", "has 2 sizes"),
    ({"dynamic_dims": "64", "input_shape": "a:1,-1"}, "E10035", "at least two"),
    ({"dynamic_dims": "64;;", "input_shape": "a:1,-1"}, "E10035", "at least two"),
    ({"dynamic_dims": ";", "input_shape": "a:1,-1"}, "E10001", "there is no gear"),
    ({"dynamic_dims": "1,64; 1,128", "input_shape": "a:-1,-1"}, "E10001", "no blank"),
    ({"dynamic_dims": "1;2", "input_shape": "a:-5,3,8,-1"}, "E10046", "-5 is neither a size nor -1"),
    ({"out_nodes": "a: 0"}, "E10001", "' 0' is no index"),
    ({"out_nodes": "a:0;b"}, "E10001", "every entry is"),
    ({"out_nodes": "a:0;"}, "E10001", "no empty entry"),
    ({"out_nodes": "a:"}, "E10014", "'' is no index"),
    ({"out_nodes": "a:99999999999"}, "E10013", "is no index"),
    ({"out_nodes": "a:0", "output_type": "b:0:FP32"}, "E10001", "b:0:FP32 is none of"),
    ({"out_nodes": "a:0", "output_type": "a:0:FP32;"}, "E10001", "Choose one"),
    ({"dynamic_dims": "0;2", "input_shape": "a:1,-1"}, "E10038", "not positive"),
    ({"dynamic_dims": "64;64", "input_shape": "a:1,-1"}, "E10039", "twice"),
    ({"dynamic_dims": ";".join(map(str, range(1, 102))), "input_shape": "a:1,-1"}, "E10036", "101 gears"),
    ({"dynamic_dims": "1;2", "input_shape": "a:1,-1", "insert_op_conf": "/w/a"}, "E10001", "--dynamic_dims"),
]
"""What is changed in `COMPILE`, the vendor's code, words of our message (atc.md §1, §3.3, §3.5)."""


def test_the_table_has_every_flag_of_the_reference_page_and_none_that_it_does_not_name() -> None:
    listed, named = atc_flags()

    assert listed <= set(FLAGS) <= named


def test_every_default_is_a_value_that_the_flag_takes() -> None:
    assert not [f.name for f in FLAGS.values() if f.kind == "choice" and f.default and f.default not in f.values]


def test_what_belongs_together_or_excludes_each_other_is_in_the_table() -> None:
    assert not [other for f in FLAGS.values() for other in (*f.requires, *f.excludes) if other not in FLAGS]


@pytest.mark.parametrize("flags", [COMPILE, GEARS], ids=["static", "gears"])
def test_a_usual_command_passes(flags: dict[str, str]) -> None:
    check_flags(flags)


def test_modes_that_read_a_compiled_file_need_no_framework() -> None:
    check_flags({"mode": "1", "om": "/work/m.om", "json": "/work/m.json"})
    check_flags({"mode": "6", "om": "/work/m.om"})
    check_flags({"mode": "3", "framework": "5", "model": "/work/m.onnx", "soc_version": "Ascend910B3"})


@pytest.mark.parametrize(
    ("change", "code", "words"),
    REFUSALS,
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_what_atc_refuses_is_refused_before_it_starts(change: dict[str, str], code: str, words: str) -> None:
    """atc.md §1 (values and order), §3.3 (shapes), §3.5 (interplay)."""
    with pytest.raises(CompileError) as raised:
        check_flags({**COMPILE, **change})

    assert code in str(raised.value)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("missing", "code"),
    [("framework", "E10007"), ("soc_version", "E10054"), ("output", "E10054"), ("model", "E10054")],
)
def test_a_missing_flag_is_named_with_its_code(missing: str, code: str) -> None:
    """atc.md §1, steps 3, 6 and 7."""
    with pytest.raises(CompileError, match=f"--{missing} is missing, which mode 0 needs .ATC: {code}."):
        check_flags({name: value for name, value in COMPILE.items() if name != missing})


def test_mode_6_refuses_a_framework() -> None:
    with pytest.raises(CompileError, match="E10057"):
        check_flags({"mode": "6", "om": "/work/m.om", "framework": "5"})


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("precision_mode_v2", "mixed_hif8", "not supported by CANN 8.5"),
        ("precision_mode_v2", "cube_hif8", "not supported by CANN 8.5"),
        ("auto_tune_mode", "RL,GA", "withdrawn"),
        ("mdl_bank_path", "/bank", "AOE"),
        ("weight", "/w/a.caffemodel", "Caffe"),
        ("op_name_map", "/w/map", "Caffe"),
        ("framework", "0", "Caffe is refused on the 910B family"),
        ("framework", "3", "compiles ONNX"),
        ("soc_version", "Ascend910B", "first generation"),
        ("soc_version", "Ascend310P3", "EE1001"),
        ("deterministic_level", "1", "maintenance releases"),
        ("jit_compile", "1", "does not know"),
        ("precison_mode", "force_fp16", "Did you mean 'precision_mode'"),
        ("status_check", "1", "not supported on Atlas A2"),
        ("compression_optimize_conf", "/w/c", "needs a device"),
        ("mode", "30", "E10055"),
    ],
)
def test_what_has_no_place_on_a_910b3_is_the_users_to_change(flag: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_flags({**COMPILE, flag: value})

    assert words in str(raised.value)


@pytest.mark.parametrize("value", ["a;", " a", "a; b", ";", ""])
def test_blanks_and_empty_entries_are_names_of_inputs(value: str) -> None:
    """omg.cc:172, which is seen once the model is there."""
    with pytest.raises(CompileError, match=r"taken for names \(ATC: E10016"):
        check_flags({**COMPILE, "input_fp16_nodes": value})


@pytest.mark.parametrize(
    "change",
    [
        {"dynamic_batch_size": "1,,2,", "input_shape": "ids:-1,8"},
        {"dynamic_dims": "1;;2;", "input_shape": "ids:-1,8"},
        {"input_shape": "ids: -1 , 8;mask:"},
        {"input_shape": "ids:1~8,128;mask:-1,128"},
        {"out_nodes": "a:0;b:1", "output_type": " b : 1 : FP16"},
        {"out_nodes": "a;b", "output_type": "n:0:FP16"},
        {"input_fp16_nodes": "a;b"},
    ],
    ids=str,
)
def test_what_atc_takes_is_taken(change: dict[str, str]) -> None:
    check_flags({**COMPILE, **change})


def test_what_only_the_pages_refuse_is_said_so() -> None:
    with pytest.raises(CompileError, match="option pages; ATC does not check it"):
        check_flags({**GEARS, "input_hint_shape": "0:[1,64]"})


def test_flags_of_later_releases_are_in_no_table_of_8_5_0() -> None:
    assert not NEWER.keys() & FLAGS.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision_mode": "force_fp32"}, "neither the speed nor the precision"),
        ({"precision_mode_v2": "origin"}, "neither the speed nor the precision"),
        ({"op_select_implmode": "high_precision"}, "must not be combined"),
        ({"input_shape": "ids:-1,8", "dynamic_batch_size": "1,2"}, "cannot be compiled for dynamic shapes"),
        ({"input_shape": "ids:1~4,8"}, "cannot be compiled for dynamic shapes"),
    ],
)
def test_a_quantized_model_takes_less(change: dict[str, str], words: str) -> None:
    """atc.md facts 4 and 5: General Restrictions."""
    check_flags({**COMPILE, **change})

    with pytest.raises(CompileError, match=words):
        check_flags({**COMPILE, **change}, quantized=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keep_dtype": "/w/k", "precision_mode": "must_keep_origin_dtype"}, "void"),
        ({"op_precision_mode": "/w/o", "op_select_implmode": "high_performance"}, "void"),
        ({"op_select_implmode": "high_precision_for_all", "optypelist_for_implmode": "Gelu"}, "void"),
        ({"debug_dir": "/w/d"}, "void"),
    ],
)
def test_what_atc_would_ignore_in_silence_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(CompileError, match=words):
        check_flags({**COMPILE, **change})
