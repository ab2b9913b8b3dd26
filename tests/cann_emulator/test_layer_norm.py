"""A LayerNorm of a sum that was rounded to halves, as exporters before opset 17 write it."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import compiled
from tests.targets.encoder import model_of
from workbench.cann_emulator.executable import Executable


def test_the_rounding_in_front_of_a_layer_norm_is_no_part_of_it(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weights = {
        "table": random.normal(size=(32, 16)).astype(np.float32),
        "places": random.normal(size=(32, 16)).astype(np.float32),
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-12, np.float32),
        "gain": random.normal(size=16).astype(np.float32),
        "shift": random.normal(size=16).astype(np.float32),
        "w": random.normal(size=(16, 8)).astype(np.float32),
    }
    chain = [
        ("Gather", ["table", "ids"], "word", {}),
        ("Gather", ["places", "ids"], "place", {}),
        ("Add", ["word", "place"], "x", {}),
        ("ReduceMean", ["x"], "mean", {"axes": [-1], "keepdims": 1}),
        ("Sub", ["x", "mean"], "centred", {}),
        ("Pow", ["centred", "two"], "square", {}),
        ("ReduceMean", ["square"], "variance", {"axes": [-1], "keepdims": 1}),
        ("Add", ["variance", "epsilon"], "guarded", {}),
        ("Sqrt", ["guarded"], "deviation", {}),
        ("Div", ["centred", "deviation"], "unit", {}),
        ("Mul", ["unit", "gain"], "scaled", {}),
        ("Add", ["scaled", "shift"], "normed", {}),
        ("MatMul", ["normed", "w"], "y", {}),
    ]
    nodes = [helper.make_node(op, inputs, [y], name=f"{y}_node", **options) for op, inputs, y, options in chain]
    value = helper.make_tensor_value_info
    proto = model_of(
        nodes, weights, [value("ids", TensorProto.INT64, [4])], [value("y", TensorProto.FLOAT, [4, 8])], opset=13
    )
    onnx.save(proto, tmp_path / "model.onnx")
    ids = np.array([3, 1, 31, 7])

    om = compiled(tmp_path / "model.onnx")
    got = Executable(om).run({"ids": ids})["y"]

    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"ids": ids})
    assert "LayerNorm" in {kernel.op_type for kernel in om.gears[0].kernels}
    assert 0 < np.abs(got - expected).max() < 0.02
