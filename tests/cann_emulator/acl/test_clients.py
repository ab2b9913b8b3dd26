"""Programs in the style of published clients against the tree's `acl`, and models of the emulated atc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.acl.library import (
    CLIENTS,
    X,
    batch_gears,
    environment,
    multilayer,
    ok,
    opened,
    run_program,
    saved,
    taken,
)
from workbench.cann_emulator import acl
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.timing import execute_us, stream_us
from workbench.values.modelled_times.device_data import load_device_data

STRICT = {"CANN_EMULATOR_STRICT": "1", "CANN_EMULATOR_LEAKS": "error"}


def run(client: str, tree: Path, *arguments: str) -> str:
    done = run_program([sys.executable, str(CLIENTS / client), *arguments], tree, env=STRICT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("released\n")
    return done.stdout


@pytest.mark.parametrize("options", ["", "memory", "gear"])
def test_acllite(tree: Path, tmp_path: Path, options: str) -> None:
    x = X[:4] if options == "gear" else X
    path = batch_gears(tmp_path) if options == "gear" else saved(multilayer(), tmp_path)
    np.save(tmp_path / "x.npy", x)
    run("acllite_like.py", tree, path, str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), *options.split())
    expected = Executable(multilayer(batch=len(x)), threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


def test_bench(tree: Path, tmp_path: Path) -> None:
    data, model = load_device_data("Ascend910B3"), multilayer()
    expected = (execute_us(model, 0, data) + 4 * stream_us(model, 0, data)) / 5 / 1000
    said = run("bench_like.py", tree, saved(model, tmp_path), "5")
    assert "NPU_compute_time (ms): min =" in said
    # a stream waits for a host that is kept from its next call: that adds, and never takes away; so the least of many
    assert float(said.split("device ")[1].split()[0]) == pytest.approx(expected, rel=1e-3)


CASES = {
    "static": (["--input_shape=a:2,4;b:2,4"], (2, 4)),
    "batch": (["--input_shape=a:-1,4;b:-1,4", "--dynamic_batch_size=4,8,1"], (4, 4)),
    "dims": (["--input_shape=a:-1,-1;b:-1,-1", "--dynamic_dims=2,8,2,8;1,4,1,4", "--input_format=ND"], (2, 8)),
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
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16).astype(np.float32)
    model.put(x, x)
    ok(model.run())
    assert acl.mdl.get_output_name_by_index(model.desc, 0) == "relu:0:y"
    np.testing.assert_array_equal(model.get(0, np.float32, shape), np.maximum(2 * x, 0))
