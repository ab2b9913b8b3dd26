"""Tensor dumps: what lies where, in which type, and what each setting of acl.json leaves out (pyacl.md §5.5)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.cann_emulator.acl.library import multilayer, ok, opened, saved
from tests.cann_emulator.handmade import mlp, offline_model
from tests.quantization import golden
from tests.quantization.deploy_models import min_max_record
from workbench.cann_emulator import acl
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import OfflineModel
from workbench.quantization.integers.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.targets.ascend.dump.dump_file import DumpFile, read_dump_file

X = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)


def dump(folder: Path, model: OfflineModel, runs: int = 1, *, name: str = "model", **section: Any) -> list[Path]:
    """The files that `runs` executions leave, those of an earlier execution first."""
    target = folder / "dump"
    target.mkdir()
    body = {"dump": {"dump_path": str(target), "dump_list": [{}], **section}}
    (folder / "acl.json").write_text(json.dumps(body))
    ok(acl.init(str(folder / "acl.json")))
    ok(acl.rt.set_device(0))
    loaded = opened(saved(model, folder, f"{name}.om"))
    for _ in range(runs):
        loaded.put(X)
        ok(loaded.run())
    files = [file for file in target.rglob("*") if file.is_file() and file.name != "emulated.txt"]
    return sorted(files, key=lambda file: (file.parent, file.name.split(".")[4:5]))


def tensors(file: Path) -> tuple[DumpFile, list[Any], list[Any]]:
    """By the target's own reader."""
    found = read_dump_file(file)
    return found, [tensor.load() for tensor in found.inputs], [tensor.load() for tensor in found.outputs]


def test_every_kernel_has_a_file_in_the_vendors_place_with_the_values_that_cross_its_boundary(tmp_path: Path) -> None:
    fused = offline_model(mlp(16, 8, 4, batch=5), groups=[("matmul0", "add0", "relu0"), ("matmul1", "add1")])

    files = dump(tmp_path, fused, dump_mode="all")

    time, device, model, model_id, index = files[0].parent.relative_to(tmp_path / "dump").parts
    assert (len(time), device, model, model_id, index) == (14, "0", "model", "1", "0")
    assert (tmp_path / "dump" / time / "emulated.txt").read_text().startswith("Emulated")
    parts = [file.name.split(".") for file in files]
    assert [p[:3] for p in parts] == [["Data", "x", "0"], ["Relu", "matmul0", "0"], ["Add", "matmul1", "1"]]
    assert sorted(int(p[4]) for p in parts) == [int(p[4]) for p in parts]
    header, (read, *_), (made,) = tensors(files[1])
    assert (header.op_name, header.outputs[0].origin) == ("matmul0", ("relu0", 0))
    assert (read.dtype, made.dtype) == (np.float16, np.float16)
    graph = onnx.ModelProto.FromString(fused.graph)
    known = {
        t.name: onnx.numpy_helper.to_array(t).astype(np.float16).astype(np.float32) for t in graph.graph.initializer
    }
    expected = np.maximum(read.astype(np.float32) @ known["w0"] + known["b0"], 0).astype(np.float16)
    assert np.array_equal(made, expected)
    (data,) = tensors(files[0])[2]
    assert np.array_equal(data, X)
    # what a kernel reads is what the one before it wrote
    assert np.array_equal(tensors(files[2])[1][0], made)


@pytest.mark.parametrize("kind", ["merged bias", "interpreted"])
def test_integers_are_dumped_as_the_device_stores_them(tmp_path: Path, kind: str) -> None:
    """With their offset, whether a session or the interpreter computes them."""
    float_model = golden.mlp() if kind == "merged bias" else golden.cnn()
    name, shape = float_model.graph.input[0].name, float_model.graph.input[0].type.tensor_type.shape
    feeds = {name: np.random.default_rng(1).random([d.dim_value or 2 for d in shape.dim]).astype(np.float32) - 0.2}
    proto = lower_deploy(float_model, min_max_record(float_model, feeds), merge_bias=True)
    model = offline_model(proto, dtype="float32")
    integers = [t.name for k in model.gears[0].kernels for t in k.outputs if t.dtype == "int8" and "quant" in k.name]

    outputs, kernels = Executable(model).look(feeds)

    expected = Interpreter(proto).run(feeds, integers)
    found = {v.kernel.outputs[0].name: v.outputs[0] for v in kernels if v.kernel.outputs[0].name in integers}
    assert found
    assert all(values.dtype == "int8" for values in found.values())
    for tensor, values in found.items():
        assert np.array_equal(values.array, expected[tensor]), tensor
    assert any((values.array < -100).any() or (values.array > 100).any() for values in found.values())
    for value in model.outputs:
        assert np.allclose(outputs[value.name], expected[value.name], atol=1e-6)


def test_odd_names_are_written_as_the_vendor_writes_them_and_long_ones_through_a_mapping(tmp_path: Path) -> None:
    plain = multilayer()
    names = {"matmul0": "a b/c.d\\e:ü", "add0": "x" * 300}
    gear = plain.gears[0]
    kernels = tuple(replace(k, name=names.get(k.name, k.name)) for k in gear.kernels)

    files = dump(tmp_path, replace(plain, gears=(replace(gear, kernels=kernels),)), name="my model.v1")

    assert files[0].parent.parent.parent.name == "my_model_v1"
    assert any(file.name.startswith("MatMul.a_b_c_d_e:ü.0.") for file in files)
    (mapping,) = [file for file in files if file.name == "mapping.csv"]
    short, _, long = mapping.read_text().strip().partition(",")
    assert long.startswith(f"Add.{'x' * 300}.1.")
    assert tensors(mapping.parent / short)[0].op_name == "x" * 300


def test_a_folder_that_is_gone_fails_no_execution_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "dump"
    target.mkdir()
    (tmp_path / "acl.json").write_text(json.dumps({"dump": {"dump_path": str(target), "dump_list": [{}]}}))
    ok(acl.init(str(tmp_path / "acl.json")))
    ok(acl.rt.set_device(0))
    loaded = opened(saved(multilayer(), tmp_path))
    target.rmdir()
    target.write_text("a file now")
    loaded.put(X)

    ok(loaded.run())

    assert "the dump of model cannot be written" in capsys.readouterr().err
