"""What the emulated atc compiles, the emulated acl runs: names, gears, ranges; and several threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.acl.library import environment, ok, opened, taken
from workbench.cann_emulator import acl

CASES = {
    "static": (["--input_shape=a:2,4;b:2,4"], (2, 4)),
    "batch": (["--input_shape=a:-1,4;b:-1,4", "--dynamic_batch_size=4,8,1"], (4, 4)),
    "dims": (["--input_shape=a:-1,-1;b:-1,-1", "--dynamic_dims=2,8,2,8;1,4,1,4", "--input_format=ND"], (2, 8)),
    "range": (["--input_shape=a:1~4,1~8;b:1~4,1~8"], (3, 5)),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_compiled_model_runs(device: int, tree: Path, tmp_path: Path, kind: str) -> None:
    flags, shape = CASES[kind]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["s"], name="add"), helper.make_node("Relu", ["s"], ["y"], name="relu")],
        "sum",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "s"]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "s"])],
    )
    source = tmp_path / "sum.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), source)
    command = [str(tree / "bin/atc"), f"--model={source}", "--framework=5", "--soc_version=Ascend910B3"]
    subprocess.run(
        [*command, f"--output={tmp_path / 'sum'}", *flags],
        env={**environment(tree), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    (file,) = tmp_path.glob("*.om")
    model = opened(str(file))
    gear = acl.mdl.get_num_inputs(model.desc) - 1
    if kind == "batch":
        assert acl.mdl.get_dynamic_batch(model.desc) == ({"batchCount": 3, "batch": [4, 8, 1]}, 0)
        assert acl.mdl.get_input_size_by_index(model.desc, 0) == 8 * 4 * 4
        ok(acl.mdl.set_dynamic_batch_size(model.id, model.input_dataset, gear, shape[0]))
    elif kind == "dims":
        given = taken(acl.mdl.get_input_dynamic_dims(model.desc, -1, 2))
        assert [gear["dims"] for gear in given] == [[2, 8, 2, 8], [1, 4, 1, 4]]
        dims = {"name": "", "dimCount": 4, "dims": [*shape, *shape]}
        ok(acl.mdl.set_input_dynamic_dims(model.id, model.input_dataset, gear, dims))
    elif kind == "range":
        for index in range(2):
            acl.mdl.set_dataset_tensor_desc(model.input_dataset, acl.create_tensor_desc(0, list(shape), 2), index)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16).astype(np.float32)
    model.put(x, x)
    ok(model.run())
    assert acl.mdl.get_output_name_by_index(model.desc, 0) == "relu:0:y"
    np.testing.assert_array_equal(model.get(0, np.float32, shape), np.maximum(2 * x, 0))
