"""From an ONNX file to an OM: the order of the steps, gears (atc.md §1, §3, §6, §13a)."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.cann_emulator.atc.compiling import codes_of, compiled, node, quantized_encoder
from tests.model_zoo import tokens, write_bert
from tests.small_graphs import write_graph
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import input_shapes
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form


def relu(folder: Path, name: str = "m", *, kind: str = "Relu", sizes: tuple[int | str, ...] = (2, 3)) -> Path:
    nodes = [node(kind, "x", "y"), node("Exp", "y", "z")]
    nodes[0].name = "first"
    return write_graph(
        folder / f"{name}.onnx", nodes, {"x": list(sizes)}, {"z": list(sizes)}, w=np.zeros(1, np.float32)
    )


# Each row: the step, what makes it fail, and the first code. In the vendor's order; every later row is also tried
# together with every earlier one, and the earlier one must win. {missing} and {keep} are files.
STEPS: list[tuple[str, dict[str, str], str]] = [
    ("chip", {"soc_version": "Ascend910B9"}, "EE1001"),
    ("bfloat16", {"soc_version": "Ascend310P3", "precision_mode": "allow_fp32_to_bf16"}, "E20101"),
    ("cores", {"aicore_num": "99"}, "E20103"),
    ("switches", {"fusion_switch_file": "{missing}"}, "E21001"),
    ("lists of types", {"modify_mixlist": "{missing}", "precision_mode": "allow_mix_precision"}, "E21001"),
    ("dtypes", {"customize_dtypes": "{missing}"}, "E20101"),
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
    ("range", {"input_shape": "x:-1,3"}, "E10055"),
    ("output type", {"output_type": "INT32"}, "E10001"),
    ("output node", {"out_nodes": "nobody:0"}, "E10016"),
    ("kept types", {"keep_dtype": "{keep}"}, "E10003"),
    ("AIPP", {"insert_op_conf": "{missing}"}, "E10055"),
    ("level", {"oo_level": "O2"}, "E10001"),
    ("folding", {"oo_constant_folding": "1"}, "E10001"),
    ("sorting", {"topo_sorting_mode": "9"}, "E19999"),
    ("statistics", {"export_compile_stat": ""}, "E10001"),
    ("gears", {"dynamic_batch_size": "1,1", "input_shape": "x:-1,3"}, "E10039"),
]
FIRST_OF_COMPILE = [step for step, _, _ in STEPS].index("level")


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
    alone = codes_of(Path(files["good"]), **flags_of(added, files))

    assert alone[0] == first
    assert (alone[-1] == "E10042") is (index >= FIRST_OF_COMPILE), "what the compile itself raises ends with E10042"
    for _, later, _ in STEPS[index + 1 :]:
        if set(added) & set(later) or {"input_shape", "model"} <= {*added, *later}:
            continue
        both = flags_of({**later, **added}, files)
        assert codes_of(Path(files["good"]), **both)[0] == first, f"{added} before {later}"


def test_files_that_hold_no_model(tmp_path: Path) -> None:
    """A special file is none, and is not read."""
    bare = onnx.ModelProto(ir_version=8).SerializeToString()
    for content, code in ((b"", "E13015"), (b"no model at all", "E13005"), (b"\x08\x00", "E16004"), (bare, "E16004")):
        (tmp_path / "m.onnx").write_bytes(content)
        assert codes_of(tmp_path / "m.onnx") == [code]
    assert codes_of(tmp_path / "m.onnx", model="/dev/zero") == ["E13015"]


def gears(path: Path, **flags: str) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]:
    """(values that choose it, shapes of `a` and `b`) of each gear of a compiled model."""
    model = compiled(path, **flags)
    return [(gear.dims, input_shapes(model, gear)) for gear in model.gears]


def test_gears_fill_the_open_axes(tmp_path: Path) -> None:
    """The first axis of every input; the axes in the order of the input shape; height and width."""

    def two_inputs(shape: list[int | str]) -> Path:
        nodes = [node("Relu", "a", "y"), node("Relu", "b", "z")]
        return write_graph(tmp_path / "m.onnx", nodes, dict.fromkeys("ab", shape), dict.fromkeys("yz", shape))

    path = two_inputs(["n", 3])
    for sizes in ("4,1,", "4,,1", ",4,1"):
        found = gears(path, input_shape="a:-1,3;b:-1,3", dynamic_batch_size=sizes)
        assert found == [((4,), ((4, 3), (4, 3))), ((1,), ((1, 3), (1, 3)))]
    path = two_inputs(["n", "m"])
    found = gears(path, input_shape="a:-1,-1;b:-1,3", dynamic_dims="9,2,3;1,2,3;4,5,6")
    assert [dims for dims, _ in found] == [(9, 2, 3), (1, 2, 3), (4, 5, 6)]
    assert found[2][1] == ((4, 5), (6, 3))
    found = gears(path, input_shape="b:-1,3;a:-1,-1", dynamic_dims="1,2,3;4,5,6")
    assert dict(found)[5, 6, 4] == ((5, 6), (4, 3))  # a gear's key is in the order of the inputs
    path, shape = two_inputs([1, 3, "h", "w"]), "a:1,3,-1,-1;b:1,3,-1,-1"
    found = gears(path, input_shape=shape, dynamic_image_size="16,32;8,8")
    assert [(gear, b) for gear, (_, b) in found] == [((16, 32), (1, 3, 16, 32)), ((8, 8), (1, 3, 8, 8))]
    for sizes, code in (("16, 32;8,8", "E19999"), ("16,;8,8", "E10037"), ("16,;8,", "E10046")):
        assert codes_of(path, input_shape=shape, dynamic_image_size=sizes)[0] == code


def test_a_quantized_model_takes_no_dynamic_shapes(tmp_path: Path) -> None:
    """atc.md, fact 4 (atctool_0040, General Restrictions)."""
    for flags in (
        {"input_shape": "ids:-1,16", "dynamic_batch_size": "1,2"},
        {"input_shape": "ids:-1,-1", "dynamic_dims": "1,16;2,16"},
    ):
        assert codes_of(quantized_encoder(tmp_path), **flags) == ["E10055", "E10042"]


def test_the_rounding_in_front_of_a_layer_norm_is_no_part_of_it(tmp_path: Path) -> None:
    write_bert(tmp_path / "float.onnx", exporter="torchscript", opset=17, attention="sdpa")
    onnx.save(atc_form(load_graph(read_model(tmp_path / "float.onnx"))), tmp_path / "model.onnx")
    feeds = tokens(2, 0)
    shapes = ";".join(f"{name}:{','.join(map(str, array.shape))}" for name, array in feeds.items())

    om = compiled(tmp_path / "model.onnx", input_shape=shapes)
    got = Executable(om).run(feeds)

    expected = ort.InferenceSession(str(tmp_path / "float.onnx")).run(None, feeds)
    assert {"LayerNorm", "AddLayerNorm"} <= {kernel.op_type for kernel in om.gears[0].kernels}
    for float_output, output in zip(expected, got.values(), strict=True):
        assert 0 < np.abs(float_output - output).max() < 0.02
