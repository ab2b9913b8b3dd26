"""Images of bytes, prepared inside the model (atc.md §2.2, --insert_op_conf; ATC manual, AIPP configuration)."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import codes_of, compiled
from tests.targets.encoder import model_of
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import OfflineModel

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


def prepared(folder: Path, config: str, *, channels: int = 3, opset: int = 14, **flags: str) -> OfflineModel:
    (folder / "aipp.cfg").write_text(config)
    flags = {"input_shape": f"x:2,{channels},{HEIGHT},{WIDTH}", "precision_mode": "must_keep_origin_dtype", **flags}
    return compiled(model(folder, channels, opset), insert_op_conf=str(folder / "aipp.cfg"), **flags)


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


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    fits = "aipp_mode: static input_format: RGB888_U8"
    path, shape = model(tmp_path), f"x:1,3,{HEIGHT},{WIDTH}"
    for expected, configs in {
        "E10052": (
            *("input_format: RGB888_U8", "aipp_mode: static", f"{fits} colour: 1", f"{fits} related_input_rank: 1"),
            *("aipp_mode: static input_format: YUV400_U8", f"{fits} src_image_size_w: 99"),
        ),
        "E10055": (
            *("aipp_mode: dynamic max_src_image_size: 999", "aipp_mode: static input_format: RGB16"),
            *("aipp_mode: static input_format: YUV420SP_U8", f"{fits} crop: true"),
        ),
    }.items():
        for config in configs:
            (tmp_path / "aipp.cfg").write_text(f"aipp_op {{ {config} }}")
            assert codes_of(path, input_shape=shape, insert_op_conf=str(tmp_path / "aipp.cfg")) == [expected], config
    (tmp_path / "aipp.cfg").write_text("aipp_op {")
    assert codes_of(path, input_shape=shape, insert_op_conf=str(tmp_path / "aipp.cfg")) == ["E10052"]
