"""A LayerNorm behind a sum that was rounded to halves: a whole BERT, since smaller graphs do not show it."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from tests.cann_emulator.atc.compiling import compiled
from tests.model_zoo import tokens, write_bert
from workbench.cann_emulator.executable import Executable
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form


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
