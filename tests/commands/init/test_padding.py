"""Samples of different sizes are padded for a target that compiles every size, and for no other."""

from pathlib import Path

import numpy as np
from onnx import helper

from tests.small_graphs import write_graph
from workbench.commands.init import initialize
from workbench.inputs.experiment import read_experiment


def test_only_a_device_gets_a_manifest_that_pads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    shapes = {"x": ["n", "steps", 4]}, {"y": ["n", "steps", 3]}
    write_graph(tmp_path / "m.onnx", nodes, *shapes, w=rng.normal(size=(4, 3)).astype(np.float32))
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
