"""The order of a conversion's steps behind the flags (atc.md §1, steps 15 and 16; §13a)."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import compiled, options
from tests.targets.encoder import model_of
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_compile, run_precheck
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.executable import Executable

FLOAT = TensorProto.FLOAT


def relu(folder: Path, name: str = "m", *, kind: str = "Relu", sizes: tuple[int | str, ...] = (2, 3)) -> Path:
    x, z = (helper.make_tensor_value_info(tensor, FLOAT, sizes) for tensor in "xz")
    nodes = [helper.make_node(kind, ["x"], ["y"], name="first"), helper.make_node("Exp", ["y"], ["z"], name="second")]
    onnx.save(model_of(nodes, {"w": np.zeros(1, np.float32)}, [x], [z]), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def codes(path: Path, *, mode_3: bool = False, **flags: str) -> list[str]:
    with pytest.raises(AtcFailure) as caught:
        (run_precheck if mode_3 else run_compile)({**options(path), **flags}, Console())
    return [record.code for record in caught.value.records]


# Each row: the step, what makes it fail, and the first code. In the vendor's order; every later row is also tried
# together with every earlier one, and the earlier one must win. {missing} and {keep} are files.
STEPS: list[tuple[str, dict[str, str], str]] = [
    ("chip", {"soc_version": "Ascend910B9"}, "EE1001"),
    ("bfloat16", {"soc_version": "Ascend310P3", "precision_mode": "allow_fp32_to_bf16"}, "E20101"),
    ("cores", {"aicore_num": "99"}, "E20103"),
    ("switches", {"fusion_switch_file": "{missing}"}, "E21001"),
    ("lists of types", {"modify_mixlist": "{missing}", "precision_mode": "allow_mix_precision"}, "E21001"),
    ("dtypes", {"customize_dtypes": "{missing}"}, "E20101"),
    ("debug file", {"op_debug_config": "{missing}"}, "E21001"),
    ("static shape", {"input_shape": "x:0,3"}, "E10011"),
    ("output layouts", {"is_output_adjust_hw_layout": "maybe"}, "E10005"),
    ("out nodes", {"out_nodes": "first: 0"}, "E10001"),
    ("model file", {"model": "{empty}"}, "E13015"),
    ("pre-check", {"model": "{unknown}"}, "E13010"),
    ("rank", {"input_shape": "x:2,3,4"}, "E19999"),
    ("output tensor", {"out_nodes": "y"}, "E19999"),
    ("input layouts", {"is_input_adjust_hw_layout": "maybe"}, "E10005"),
    ("half inputs", {"input_fp16_nodes": "x;"}, "E10016"),
    ("open axes", {"model": "{open}"}, "E10001"),
    ("names", {"input_shape": "x:2,3;nobody:1"}, "E10016"),
    ("range", {"input_shape": "x:-1,4"}, "E10050"),
    ("output type", {"output_type": "INT32"}, "E10001"),
    ("output node", {"out_nodes": "nobody:0"}, "E10016"),
    ("kept types", {"keep_dtype": "{keep}"}, "E10003"),
    ("AMCT", {"compression_optimize_conf": "{missing}"}, "E10055"),
    ("level", {"oo_level": "O2"}, "E10001"),
    ("folding", {"oo_constant_folding": "1"}, "E10001"),
    ("sorting", {"topo_sorting_mode": "9"}, "E19999"),
    ("statistics", {"export_compile_stat": ""}, "E10001"),
    ("gears", {"dynamic_batch_size": "1,1", "input_shape": "x:-1,3"}, "E10039"),
]
FIRST_OF_COMPILE = [step for step, _, _ in STEPS].index("level")
ONLY_COMPILED = [step for step, _, _ in STEPS].index("rank")
"""--mode=3 does not come to this step."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "keep.txt").write_text("OpType::relu\n")
    (tmp_path / "empty.onnx").write_bytes(b"")
    models = [tmp_path / "empty.onnx", relu(tmp_path, "unknown", kind="NoSuch"), relu(tmp_path, "open", sizes=("n", 3))]
    made = {path.stem: str(path) for path in models}
    return {**made, "missing": "none", "keep": "keep.txt", "good": str(relu(tmp_path))}


def flags_of(added: dict[str, str], files: dict[str, str]) -> dict[str, str]:
    return {flag: text.format(**files) if "{" in text else text for flag, text in added.items()}


@pytest.mark.parametrize("index", range(len(STEPS)), ids=[step for step, _, _ in STEPS])
def test_each_step_fails_with_its_code_and_the_earlier_step_wins(index: int, files: dict[str, str]) -> None:
    _, added, first = STEPS[index]
    alone = codes(Path(files["good"]), **flags_of(added, files))

    assert alone[0] == first
    assert (alone[-1] == "E10042") is (index >= FIRST_OF_COMPILE), "what the compile itself raises ends with E10042"
    for _, later, _ in STEPS[index + 1 :]:
        if set(added) & set(later) or {"input_shape", "model"} <= {*added, *later}:
            continue
        assert codes(Path(files["good"]), **flags_of({**later, **added}, files))[0] == first, f"{added} before {later}"


def test_a_pre_check_starts_the_engines_and_reads_the_requests_and_comes_no_further(files: dict[str, str]) -> None:
    """main_impl.cc:1457: in --mode=3 too."""
    for index, (_, added, first) in enumerate(STEPS):
        flags = flags_of(added, files)
        if index < ONLY_COMPILED:
            assert codes(Path(files["good"]), mode_3=True, **flags)[0] == first
        else:
            run_precheck({**options(Path(files["good"])), **flags}, Console())


def test_files_that_hold_no_model(tmp_path: Path) -> None:
    """A special file is none, and is not read."""
    bare = onnx.ModelProto(ir_version=8).SerializeToString()
    for content, code in ((b"", "E13015"), (b"no model at all", "E13005"), (b"\x08\x00", "E16004"), (bare, "E16004")):
        (tmp_path / "m.onnx").write_bytes(content)
        for mode_3 in (True, False):
            assert codes(tmp_path / "m.onnx", mode_3=mode_3) == [code]
    assert codes(Path("/dev/zero")) == ["E13015"]


def test_an_input_of_the_model_may_be_an_output(tmp_path: Path) -> None:
    """omg.cc:442: the node of an input is found as any other."""
    path = relu(tmp_path)
    model = compiled(path, out_nodes="x:0;second:0;first:0", output_type="x:0:FP16;first:0:FP32")

    assert model.output_names == ("x:0", "second:0", "first:0")
    assert [(t.name, t.dtype) for t in model.outputs] == [("x", "float16"), ("z", "float32"), ("y", "float32")]
    x = np.array([[-1, 0, 1], [2, 3, 4]], np.float32)
    results = Executable(model, threads=1).run({"x": x})
    assert np.array_equal(results["x"], x.astype(np.float16))
    assert np.array_equal(results["y"], np.maximum(x, 0))
    assert [t.name for t in compiled(path, out_nodes="x:0").outputs] == ["x"]
    assert codes(path, out_nodes="x:1") == ["E10003"]
