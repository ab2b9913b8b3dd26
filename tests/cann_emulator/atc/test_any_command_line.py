"""Command lines: recorded ones with their codes, and any other ends with a verdict and a code."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from workbench.cann_emulator.atc import checks
from workbench.cann_emulator.atc.boundary import parse_output_type
from workbench.cann_emulator.atc.conversion import read_requests
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import FLAGS, HelpAsked, Malformed, parse, value_of
from workbench.cann_emulator.atc.main import main
from workbench.testing.encoder import model_of

FLOAT = TensorProto.FLOAT
MODELS = ("fixed", "open", "half", "scalar", "unshaped", "zero", "two", "shaping")


@pytest.fixture(autouse=True)
def _strict(own_folder: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emulator does not foresee is raised, and not told as an inner error."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CANN_EMULATOR_STRICT", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models whose input `x` is declared in many ways, and a shape computed from it."""
    path = tmp_path_factory.mktemp("lines")
    declared: dict[str, list[int | str] | None] = {
        "fixed": [2, 3, 8, 8],
        "open": ["b", 3, "h", "w"],
        "half": [-1, 3],
        "scalar": [],
        "unshaped": None,
        "zero": [0, 3],
    }
    y = helper.make_tensor_value_info("y", FLOAT, None)
    for name, sizes in declared.items():
        x = helper.make_tensor_value_info("x", FLOAT, sizes)
        nodes = [helper.make_node("Relu", ["x"], ["m"], name="r"), helper.make_node("Exp", ["m"], ["y"], name="e")]
        onnx.save(model_of(nodes, {"unused": np.zeros(1, np.float32)}, [x], [y]), path / f"{name}.onnx")
    pair = [helper.make_tensor_value_info(name, FLOAT, ["n", "m"]) for name in "xz"]
    add = [helper.make_node("Add", ["x", "z"], ["y"], name="r")]
    onnx.save(model_of(add, {"unused": np.zeros(1, np.float32)}, pair, [y]), path / "two.onnx")
    shaping = [
        helper.make_node("Shape", ["x"], ["s"], name="r"),
        helper.make_node("ConstantOfShape", ["s"], ["c"], name="c"),
        helper.make_node("Add", ["x", "c"], ["a"], name="a"),
        helper.make_node("Reshape", ["a", "t"], ["y"], name="e"),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["b", "c", "h", "w"])
    onnx.save(model_of(shaping, {"t": np.array([-1, 3])}, [x], [y]), path / "shaping.onnx")
    return path


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The code of the headline, "" for success, ERROR for what goes to stderr; anything else is no end for atc."""
    status = main(words)
    out, err = capsys.readouterr()
    if status == 0:
        assert "ATC run success" in out or "usage: atc" in out
        return ""
    assert status == 255
    assert "ATC run failed" in out
    assert "Traceback (most recent call last)" not in out + err
    if err:
        assert all(line.startswith("ERROR: ") for line in err.split("\n")[:-1]) or "\n" in "".join(words)
        return "ERROR"
    found = re.search(r"^\[PID: \d+\] [\d.:-]+ \w+\((\w{6})\): |^(\w{6})\[PID: \d+\] [\d.:-]+ \(\2\):  ", out, re.M)
    assert found, out
    return found[1] or found[2]


NUMBER = st.sampled_from(("-1", "1", "2", "3", "8", "0", "-5", "16", "1~4", "", " 2", "x", "1.5", "٣", "9" * 20))
NAME = st.sampled_from(("x", "x", "x", "z", "r", "e", "y", "", " x", "nobody", "unused_0"))


def joined(parts: st.SearchStrategy[str], separator: str, most: int) -> st.SearchStrategy[str]:
    return st.lists(parts, max_size=most).map(separator.join)


SIZES = st.one_of(joined(st.sampled_from(("-1", "1", "2", "3", "8")), ",", 4), joined(NUMBER, ",", 4))
SHAPE = joined(st.one_of(st.builds("{}:{}".format, NAME, SIZES), SIZES), ";", 3)
GEARS = joined(joined(st.one_of(st.sampled_from(("1", "2", "8")), NUMBER), ",", 3), ";", 3)
PLACE = st.builds("{}{}{}".format, NAME, st.sampled_from((":", "", " : ")), st.sampled_from(("0", "1", " 0", "", "x")))
KIND = st.sampled_from(("FP16", "FP32", "INT8", "INT64", "HIF8", ""))
SHAPES: dict[str, st.SearchStrategy[str]] = {
    "input_shape": SHAPE,
    "dynamic_batch_size": joined(NUMBER, ",", 3),
    "dynamic_image_size": GEARS,
    "dynamic_dims": GEARS,
    "out_nodes": joined(PLACE, ";", 3),
    "output_type": st.one_of(KIND, joined(st.builds("{}:{}".format, PLACE, KIND), ";", 2)),
}
OTHERS: dict[str, st.SearchStrategy[str]] = {
    "input_shape_range": joined(st.builds("{}:[{}]".format, NAME, SIZES), ";", 2),
    "input_fp16_nodes": joined(NAME, ";", 2),
    **{
        flag: st.sampled_from(values)
        for flag, values in {
            "input_format": ("NCHW", "ND", "NHWC", "NCDHW", ""),
            "is_input_adjust_hw_layout": ("true", "false, true", "no", ""),
            "is_output_adjust_hw_layout": ("true", "false", "no"),
            "soc_version": ("Ascend910B3", "Ascend310P3", "Ascend310", "", "x"),
            "oo_level": ("O1", "O3", "O2", ""),
            "topo_sorting_mode": ("0", "3", "4", ""),
            "mode": ("0", "3", "1", "6", "5", "30", "7"),
            "precision_mode": ("force_fp16", "allow_fp32_to_bf16", "must_keep_origin_dtype"),
            "aicore_num": ("20|40", "1", "99", "²", "9" * 5000, "|"),
            "model": ("none.onnx", "/dev/null", ""),
        }.items()
    },
}
ANY_FLAGS = st.fixed_dictionaries({}, optional={**SHAPES, **OTHERS})
SHAPE_FLAGS = st.fixed_dictionaries({}, optional=SHAPES)
LIMITS = settings(
    deadline=None,
    max_examples=180,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def line(model: str, flags: dict[str, str]) -> list[str]:
    usual = {"framework": "5", "model": f"{model}.onnx", "output": "out", "soc_version": "Ascend910B3"}
    return [f"--{flag}={value}" for flag, value in {**usual, **flags}.items()]


@LIMITS
@given(model=st.sampled_from(MODELS), flags=st.one_of(ANY_FLAGS, SHAPE_FLAGS))
def test_any_flags_end_with_a_code(capsys: pytest.CaptureFixture[str], model: str, flags: dict[str, str]) -> None:
    run(line(model, flags), capsys)


@LIMITS
@given(words=st.lists(st.one_of(st.text(max_size=12), st.sampled_from([f"--{flag}" for flag in FLAGS])), max_size=5))
def test_any_words_end_with_a_verdict(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    run([word.replace("\0", "") for word in words], capsys)


FILES = ("model", "insert_op_conf", "op_precision_mode", "keep_dtype", "weight", "op_name_map", "om", "cal_conf")
"""Flags whose files exist when the line is run, unless their name begins with `missing`."""

OK, LATER = "passes", "later:"
LINES = [
    (line.partition(" ")[2].strip(), line.partition(" ")[0])
    for line in (Path(__file__).parent / "command_lines.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def outcome(line: str) -> str:
    """`passes`, the code of the headline, ERROR for what goes to stderr, or help; `later:` and a code where the flags
    pass and only what is read behind the start of the engines is refused."""
    words = shlex.split(line)
    try:
        options = parse(words)
        for flag in FILES:
            name = options.get(flag, "")
            if name and not name.startswith("missing"):
                Path(name).write_text("x")
        checks.check_framework(options)
        assert value_of(options, "mode") in ("0", "3", "30")
        checks.check_conversion(options, lambda text: None)
    except Malformed:
        return "ERROR"
    except HelpAsked:
        return "help"
    except AtcFailure as error:
        return headline(error)
    if options["framework"] != "5":
        return OK
    given = {flag: value for flag, value in options.items() if value}
    try:
        _, nodes = read_requests(given)
        if given.get("output_type") and (nodes or ":" not in given["output_type"]):
            parse_output_type(given["output_type"], nodes)  # type: ignore[arg-type]  # no line names tensors here
    except AtcFailure as error:
        return f"{LATER}{headline(error)}"
    return OK


def headline(error: AtcFailure) -> str:
    return next(record.code for record in error.records if record.code != "E19999")


@pytest.mark.parametrize(("line", "expected"), LINES, ids=range(len(LINES)))
def test_a_line_as_people_write_it(line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert outcome(line) == expected, line
