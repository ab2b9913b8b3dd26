"""acl.json: what it may hold and what each mistake returns (pyacl.md §5.5, §2.5, §5.6, §1.7)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.cann_emulator.acl.library import multilayer, ok, opened, saved, taken, text
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import clock
from workbench.cann_emulator.acl.dumping import AI_CORE_INFO, AI_CORE_STATUS
from workbench.cann_emulator.device_data import load_device_data
from workbench.cann_emulator.dump_file import parse_dump
from workbench.cann_emulator.timing import stream_us
from workbench.targets.ascend.overflow import overflow_files
from workbench.targets.ascend.profiles.read import read_profile


def written(folder: Path, body: Any, name: str = "acl.json") -> str:
    file = folder / name
    file.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return str(file)


def test_missing_files_and_files_that_are_no_json(tmp_path: Path) -> None:
    assert acl.init(str(tmp_path / "none.json")) == 100003
    assert "EH0003" in text()
    for body in ("{", "[]", "7", json.dumps({"a": [[[[[[[[[[1]]]]]]]]]]})):
        assert acl.init(written(tmp_path, body)) == 100006, body
    ok(acl.init(written(tmp_path, {"a": [[[[[[[[1]]]]]]]]})))


TENSORS: dict[str, Any] = {"dump_list": [{"model_name": "m", "layer": ["a"]}], "dump_path": "."}
DUMP_MISTAKES: dict[str, Any] = {
    "no list": {"dump_path": "."},
    "empty list": {"dump_list": [], "dump_path": "."},
    "path that does not exist": {**TENSORS, "dump_path": "/nowhere/at/all"},
    "unknown mode": {**TENSORS, "dump_mode": "both"},
    "model name is a number": {**TENSORS, "dump_list": [{"model_name": 1}]},
    "not emulated": {**TENSORS, "dump_list": [{"optype_blacklist": [{"name": "MatMul"}]}]},
    "overflow and tensors": {**TENSORS, "dump_debug": "on"},
    "overflow without path": {"dump_debug": "on"},
    "scene": {"dump_scene": "lite_exception"},
}


def test_a_bad_section_is_refused_by_name(tmp_path: Path) -> None:
    for name, dump in DUMP_MISTAKES.items():
        assert acl.init(written(tmp_path, {"dump": dump})) == 100009, name
        assert "dump" in text()
    for profiler in (1, {"switch": "yes"}, {"switch": "on", "output": "x" * 5000}):
        assert acl.init(written(tmp_path, {"profiler": profiler})) == 100000
        assert "profiler" in text()
    assert acl.init(written(tmp_path, {"defaultDevice": {"default_device": "0"}})) == 100000
    assert "defaultDevice is not emulated" in text()


# ---- overflow ----


def test_the_overflow_check_writes_a_file_only_when_something_overflowed(tmp_path: Path) -> None:
    """Read by the target's own reader of the documented layout."""
    folder = tmp_path / "overflow"
    folder.mkdir()
    ok(acl.init(written(tmp_path, {"dump": {"dump_path": str(folder), "dump_debug": "on"}})))
    ok(acl.rt.set_device(0))
    model = opened(saved(multilayer(), tmp_path))
    model.put(np.ones((5, 16), np.float32))
    ok(model.run())
    assert overflow_files(folder) == ()
    model.put(np.full((5, 16), 3e38, np.float32))
    ok(model.run())
    (file,) = overflow_files(folder)
    assert file.relative_to(folder).parts[1:5] == ("0", "model", "1", "1")
    header, _, (status,) = parse_dump(file.read_bytes())
    assert header.emulated.startswith("int8-workbench ")
    assert struct.unpack_from("<3Q", status, AI_CORE_STATUS) == (0, 0, 0x20)
    # and what the operator of that task read and wrote
    (beside,) = [other for other in file.parent.iterdir() if other != file]
    task = struct.unpack_from("<6Q", status, AI_CORE_INFO)[2]
    assert beside.name.split(".")[:3] == ["MatMul", "matmul0", str(task)]
    _, inputs, (product,) = parse_dump(beside.read_bytes())
    assert len(inputs) == 2
    assert np.isinf(np.frombuffer(product, np.float32)).any()


# ---- profiles ----


def profile(tmp_path: Path) -> Path:
    (folder,) = tmp_path.glob("PROF_*")
    return folder


def test_profiling_by_acl_json_excludes_acl_prof_and_is_written_at_finalize(tmp_path: Path) -> None:
    ok(acl.init(written(tmp_path, {"profiler": {"switch": "on", "output": str(tmp_path)}})))
    ok(acl.rt.set_device(0))
    assert acl.prof.init(str(tmp_path)) == 100042
    ok(opened(saved(multilayer(), tmp_path)).run())
    ok(acl.finalize())
    assert list(profile(tmp_path).glob("mindstudio_profiler_output/op_statistic_*.csv"))


DEVICE = load_device_data("Ascend910B3")
COPIED = 4096


def profiled(folder: Path, calls: int) -> Path:
    """Calls as a session makes them: inputs, execution and outputs on one stream, then one wait."""
    ok(acl.prof.init(str(folder)))
    config = acl.prof.create_config([0], 0, 0, 0x7)
    model, stream = opened(saved(multilayer(), folder)), taken(acl.rt.create_stream())
    place, host = taken(acl.rt.malloc(COPIED, 0)), taken(acl.rt.malloc_host(COPIED))
    ok(acl.prof.start(config))
    for _ in range(calls):
        ok(acl.rt.memcpy_async(place, COPIED, host, COPIED, 1, stream))
        ok(acl.mdl.execute_async(model.id, model.input_dataset, model.output_dataset, stream))
        ok(acl.rt.memcpy_async(host, COPIED, place, COPIED, 2, stream))
        ok(acl.rt.synchronize_stream(stream))
    ok(acl.prof.stop(config))
    ok(acl.prof.destroy_config(config))
    ok(acl.prof.finalize())
    ok(acl.rt.free(place))
    ok(acl.rt.free_host(host))
    ok(acl.rt.destroy_stream(stream))
    (made,) = folder.glob("PROF_*")
    return made


def test_idle_time_and_its_causes_are_found_in_the_emulated_profile(device: int, tmp_path: Path) -> None:
    found = read_profile([profiled(tmp_path, 3)])

    assert found.modelled
    assert found.executions == 3
    assert abs(found.computing_us - 3 * stream_us(multilayer(), 0, DEVICE)) < 0.1
    (bubble,) = found.bubbles
    assert bubble.times == 2
    copies = 2 * 2 * clock.copy_ns(COPIED, True, False) / 1000
    assert abs(bubble.within["host copy"] - copies) < 0.1
    assert bubble.within["host launch"] >= 2 * DEVICE.execute_launch_us - 0.1
