"""Networks as people export them, from the ONNX file to the OM: what ATC's parser takes although ONNX's checker would
not, shapes that only the data tell, and errors that nobody foresaw."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import codes_of, compiled, options
from tests.targets.encoder import Array, model_of
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_compile
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import load_om

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info


def written(
    folder: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, Array],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = 11,
) -> Path:
    (folder / "m.onnx").write_bytes(model_of(nodes, weights, inputs, outputs, opset).SerializeToString())
    return folder / "m.onnx"


def part(op_type: str, inputs: list[str], outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs.split(), name=f"{op_type}_{outputs.split()[0]}", **attributes)


def test_a_resize_without_roi_at_opset_11_compiles_as_exporters_write_it(tmp_path: Path) -> None:
    nodes = [part("Resize", ["x", "", "scales"], "y", mode="nearest")]
    path = written(
        tmp_path,
        nodes,
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        [value("x", FLOAT, [1, 3, 8, 8])],
        [value("y", FLOAT, None)],
    )
    model = compiled(path)
    assert model.outputs[0].shape == (1, 3, 16, 16)
    x = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(
        Executable(model, threads=1).run({"x": x})["y"], x.repeat(2, axis=2).repeat(2, axis=3)
    )


def test_a_file_of_a_newer_exporter_runs(tmp_path: Path) -> None:
    """Its form has a later version than the runtime knows, its operators have not."""
    proto = model_of([part("Relu", ["x"], "y")], {}, [value("x", FLOAT, [2])], [value("y", FLOAT, [2])], opset=18)
    proto.ir_version = 99
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    model = compiled(tmp_path / "m.onnx")
    assert list(Executable(model, threads=1).run({"x": np.array([-1, 2], np.float32)})["y"]) == [0, 2]


@pytest.mark.parametrize(
    ("made", "rank"),
    [
        (part("Reshape", ["x", "n"], "y"), 2),
        (part("TopK", ["x", "k"], "y i"), 2),
        (part("ConstantOfShape", ["n"], "y"), 2),
    ],
    ids=lambda made: getattr(made, "op_type", None),
)
def test_a_shape_that_an_input_gives_makes_a_dynamic_model(made: onnx.NodeProto, rank: int, tmp_path: Path) -> None:
    inputs = [value("x", FLOAT, [2, 3]), value("n", INT64, [rank]), value("k", INT64, [1])]
    run_compile(options(written(tmp_path, [made], {}, inputs, [value("y", FLOAT, None)])), Console())
    (om,) = tmp_path.glob("*.om")
    assert om.name.startswith("m_linux_")
    assert -1 in load_om(om).outputs[0].shape


def test_a_loop_has_no_parser(tmp_path: Path) -> None:
    """In no package of operators: ge v8.5.0's parser knows the subgraphs of If alone."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "a"], ["b"])],
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("a", FLOAT, [2])],
        [value("on", BOOL, []), value("b", FLOAT, [2])],
    )
    nodes = [part("Loop", ["times", "", "x"], "y", body=body)]
    path = written(tmp_path, nodes, {"times": np.array(3)}, [value("x", FLOAT, [2])], [value("y", FLOAT, None)])
    assert codes_of(path) == ["E13010"]


def limited(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A run whose files end at 64 bytes, as on a full disk."""
    return subprocess.run(
        [sys.executable, "-m", "workbench.cann_emulator.atc", *words],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
    )


def test_an_unforeseen_error_is_an_inner_error_and_never_a_traceback(tmp_path: Path) -> None:
    written(tmp_path, [part("Relu", ["x"], "y")], {}, [value("x", FLOAT, [4])], [value("y", FLOAT, [4])])
    words = ["--framework=5", "--model=m.onnx", "--output=m", "--soc_version=Ascend910B3", "--export_compile_stat=0"]

    done = limited(words, tmp_path)
    assert (done.returncode, done.stderr) == (255, "")
    assert "E19999: Inner Error!" in done.stdout

    strict = limited(words, tmp_path, CANN_EMULATOR_STRICT="1")
    assert strict.returncode == 1
    assert "OSError" in strict.stderr


Bytes = npt.NDArray[np.uint8]

HEIGHT, WIDTH = 6, 8
RGB = """
aipp_op {
  aipp_mode: static
  input_format: RGB888_U8
  rbuv_swap_switch: true
  mean_chn_0: 10
  mean_chn_1: 20
  mean_chn_2: 30
  var_reci_chn_0: 0.5
  var_reci_chn_1: 0.25
  var_reci_chn_2: 0.125
}
"""


def model(folder: Path, channels: int = 3, opset: int = 14) -> Path:
    """Twice the image, with an open batch."""
    shape = ["n", channels, HEIGHT, WIDTH]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    node = helper.make_node("Mul", ["x", "two"], ["y"], name="double")
    onnx.save(model_of([node], {"two": np.array(2, np.float32)}, values[:1], values[1:], opset), folder / "m.onnx")
    return folder / "m.onnx"


def image(*shape: int) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_open_rows_and_columns_stay_open_and_every_size_is_prepared(tmp_path: Path) -> None:
    """As OCR networks are converted: --dynamic_image_size with a file that says nothing of sizes."""
    (tmp_path / "aipp.cfg").write_text(RGB)
    shape = ["n", 3, "h", "w"]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    node = helper.make_node("Mul", ["x", "two"], ["y"], name="double")
    onnx.save(model_of([node], {"two": np.array(2, np.float32)}, values[:1], values[1:], 11), tmp_path / "m.onnx")
    flags = {"input_shape": "x:1,3,-1,-1", "dynamic_image_size": "4,6;8,2", "precision_mode": "must_keep_origin_dtype"}
    found = compiled(tmp_path / "m.onnx", insert_op_conf=str(tmp_path / "aipp.cfg"), **flags)
    assert found.inputs[0].shape == (1, -1, -1, 3)
    assert [gear.outputs[0].shape for gear in found.gears] == [(1, 3, *gear.dims) for gear in found.gears]
    for index, gear in enumerate(found.gears):
        fed = image(1, *gear.dims, 3)
        expected = (
            fed[..., ::-1].transpose(0, 3, 1, 2).astype(np.float32) - np.array([10, 20, 30]).reshape(3, 1, 1)
        ) * 2
        expected *= np.array([0.5, 0.25, 0.125]).reshape(3, 1, 1)
        np.testing.assert_allclose(Executable(found, threads=1).run({"x": fed}, index)["y"], expected)
