"""`init` with a loader: what arrays of a file tell, the loader's samples tell too."""

from pathlib import Path

import numpy as np
from onnx import helper

from tests.small_graphs import write_graph
from workbench.commands.init import initialize
from workbench.inputs.experiment import read_experiment

LOADER = """
import numpy as np

def load(split):
    if split == "holdout":
        return None
    rng = np.random.default_rng(len(split))
    return ((({"x": rng.normal(size=(3 + k % 5, 4)).astype(np.float32)}), k % 3) for k in range(20))
"""


def test_sizes_and_labels_of_samples_are_those_that_the_loader_gives(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["z"]),
        helper.make_node("Softmax", ["z"], ["kind"]),
    ]
    write_graph(tmp_path / "m.onnx", nodes, {"x": ["n", "frames", 4]}, {"kind": ["n", 3]}, w=weight)
    (tmp_path / "loader.py").write_text(LOADER)
    loader = Path(f"{tmp_path / 'loader.py'}:load")

    started = initialize(tmp_path / "m.onnx", [loader], tmp_path / "a", targets=["onnxruntime,ascend910b3"])

    host, device = (read_experiment(path).dataset for path in started.files[:2])
    assert [use.bins[-1] for use in device.interface.axes] == [7]
    assert host.interface.axes == ()
    assert dict(host.interface.outputs[0].options) == {"against": "labels"}
    (tmp_path / "loader.py").write_text(LOADER.replace("k % 3)", "None)"))
    initialize(tmp_path / "m.onnx", [loader], tmp_path / "b")
    assert "# No labels were found" in (tmp_path / "b/calibration/m.yaml").read_text()
