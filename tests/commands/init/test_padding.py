"""Samples of different sizes are padded for a target that compiles every size, and for no other."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.commands.init import initialize
from workbench.inputs.experiment import read_experiment


def test_only_a_device_gets_a_manifest_that_pads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], rng.normal(size=12).astype(np.float32))
    info = helper.make_tensor_value_info
    shapes = (info("x", TensorProto.FLOAT, ["n", "steps", 4]),), (info("y", TensorProto.FLOAT, ["n", "steps", 3]),)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    graph = helper.make_graph(nodes, "g", *shapes, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    equal, differing = [tmp_path / "train.npz", tmp_path / "valid.npz"], []
    for path in equal:
        x = rng.normal(size=(20, 9, 4)).astype(np.float32)
        np.savez(path, x=x)
        differing.append(path.with_stem(f"{path.stem}-sized"))
        np.savez(differing[-1], x=x, **{"x.sizes": np.arange(20) % 7 + 3})
    targets = ["onnxruntime,ascend910b3"]

    started = initialize(tmp_path / "m.onnx", differing, tmp_path / "a", targets=targets)
    initialize(tmp_path / "m.onnx", equal, tmp_path / "b", targets=targets)

    host, device = (read_experiment(path).dataset for path in started.files[:2])
    assert [data.interface.axes for data in (host, device)] == [(), device.interface.axes]
    assert device.interface.axes[0].bins[-1] == 9
    assert sorted(path.name for path in (tmp_path / "a/calibration").iterdir()) == ["m-ascend910b3.yaml", "m.yaml"]
    assert [path.name for path in (tmp_path / "b/calibration").iterdir()] == ["m.yaml"]
