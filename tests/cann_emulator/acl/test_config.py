"""acl.json and what it asks for: dumps; profiles (pyacl.md §2.5, §5.4-5.7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.cann_emulator.acl.library import Loaded, X, multilayer, ok, opened, saved, taken, text
from tests.cann_emulator.atc.compiling import built, mlp
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import clock
from workbench.cann_emulator.acl.profile import VARIABLE
from workbench.cann_emulator.om import OfflineModel
from workbench.cann_emulator.timing import stream_us
from workbench.targets.ascend.dump.dump_file import DumpFile, read_dump_file
from workbench.targets.ascend.profiles.read import read_profile
from workbench.values.modelled_times.device_data import load_device_data


def written(folder: Path, body: Any) -> str:
    (folder / "acl.json").write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return str(folder / "acl.json")


def dumping(folder: Path, model: OfflineModel, **section: Any) -> tuple[Path, Loaded]:
    """Where dumps go, and a model whose executions leave some."""
    (target := folder / "dump").mkdir()
    ok(acl.init(written(folder, {"dump": {"dump_path": str(target), **section}})))
    ok(acl.rt.set_device(0))
    return target, opened(saved(model, folder))


def test_missing_files_and_files_that_are_no_json(tmp_path: Path) -> None:
    assert acl.init(str(tmp_path / "none.json")) == 100003
    assert "EH0003" in text()
    for body in ("{", "[]", "7", json.dumps({"a": [[[[[[[[[[1]]]]]]]]]]})):
        assert acl.init(written(tmp_path, body)) == 100006, body
    ok(acl.init(written(tmp_path, {"a": [[[[[[[[1]]]]]]]]})))


def test_idle_time_and_its_causes_are_in_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As msprof switches it on; calls as a session makes them: all on one stream, then one wait."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    ok(acl.init())
    ok(acl.rt.set_device(0))
    model, stream = opened(saved(multilayer(), tmp_path)), taken(acl.rt.create_stream())
    place, host = taken(acl.rt.malloc(4096, 0)), taken(acl.rt.malloc_host(4096))
    for _ in range(3):
        ok(acl.rt.memcpy_async(place, 4096, host, 4096, 1, stream))
        ok(acl.mdl.execute_async(model.id, model.input_dataset, model.output_dataset, stream))
        ok(acl.rt.memcpy_async(host, 4096, place, 4096, 2, stream))
        ok(acl.rt.synchronize_stream(stream))
    ok(acl.finalize())

    found, device = read_profile(list(tmp_path.glob("PROF_*"))), load_device_data("Ascend910B3")
    assert (found.modelled, found.executions) == (True, 3)
    assert abs(found.computing_us - 3 * stream_us(multilayer(), 0, device)) < 0.1
    (bubble,) = found.bubbles
    assert bubble.times == 2
    assert abs(bubble.within["host copy"] - 2 * 2 * clock.copy_ns(4096, True, False) / 1000) < 0.1
    assert bubble.within["host launch"] >= 2 * device.execute_launch_us - 0.1


def tensors(file: Path) -> tuple[DumpFile, list[Any], list[Any]]:
    """By the target's own reader."""
    found = read_dump_file(file)
    return found, [tensor.load() for tensor in found.inputs], [tensor.load() for tensor in found.outputs]


def test_every_kernel_has_a_file_in_the_vendors_place_with_the_values_that_cross_its_boundary(tmp_path: Path) -> None:
    fused = built(mlp(16, 8, 4, batch=5), precision_mode="force_fp16")

    target, loaded = dumping(tmp_path, fused, dump_list=[{}], dump_mode="all")
    loaded.put(X)
    ok(loaded.run())

    files = [file for file in target.rglob("*") if file.is_file() and file.name != "emulated.txt"]
    files.sort(key=lambda file: file.name.split(".")[4:5])
    time, device, model, model_id, index = files[0].parent.relative_to(target).parts
    assert (len(time), device, model, model_id, index) == (14, "0", "model", "1", "0")
    assert (target / time / "emulated.txt").read_text().startswith("Emulated")
    parts = [file.name.split(".") for file in files]
    cast, products = ["Cast", "trans_Cast_0", "0"], (["MatMulV3", "relu0", "1"], ["MatMulV3", "add1", "2"])
    assert [p[:3] for p in parts] == [["Data", "x", "0"], cast, *products, ["Cast", "trans_Cast_1", "3"]]
    assert sorted(int(p[4]) for p in parts) == [int(p[4]) for p in parts]
    header, (read, *_), (made,) = tensors(files[2])
    assert (header.op_name, header.outputs[0].origin) == ("relu0", ("relu0", 0))
    assert (read.dtype, made.dtype) == (np.float16, np.float16)
    graph = onnx.ModelProto.FromString(fused.graph).graph
    known = {t.name: onnx.numpy_helper.to_array(t).astype(np.float16).astype(np.float32) for t in graph.initializer}
    expected = np.maximum(read.astype(np.float32) @ known["w0"] + known["b0"], 0).astype(np.float16)
    assert np.array_equal(made, expected)
    (data,) = tensors(files[0])[2]
    assert np.array_equal(data, X)
    # what a kernel reads is what the one before it wrote
    assert np.array_equal(tensors(files[3])[1][0], made)


def test_a_folder_that_is_gone_is_told_and_fails_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, loaded = dumping(tmp_path, multilayer(), dump_list=[{}])
    target.rmdir()
    target.write_text("a file now")
    loaded.put(X)

    ok(loaded.run())

    assert "the dump of model cannot be written" in capsys.readouterr().err
