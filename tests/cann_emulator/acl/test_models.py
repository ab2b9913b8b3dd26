"""Loading, describing and running models and gears, what each mistake returns; streams, events, the virtual clock and
the paced one, results that are held back (pyacl.md §1.3, §1.5, §2.5, §4, §5.1, §7)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cann_emulator.acl.library import (
    Loaded,
    X,
    batch_gears,
    dataset,
    environment,
    multilayer,
    ok,
    opened,
    saved,
    strictly,
    taken,
    text,
)
from tests.cann_emulator.atc.compiling import compiled, node
from tests.small_graphs import write_graph
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl.errors import NotEstablished
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import write_om


def test_what_a_load_that_fails_returns(device: int, tmp_path: Path) -> None:
    """pyacl.md §2.5, model; broken content and other chips are [inferred]."""
    content = write_om(multilayer())
    cases = {
        "short": (content[:20], 145006),
        "bad magic": (b"IMOD" + content[4:], 145006),
        "truncated": (content[:-10], 145006),
        "longer than it says": (content + b"x", 145006),
        "damaged header": (content[:200] + b"\xff" + content[201:], 545002),
        "damaged graph": (content[:-1] + bytes([content[-1] ^ 1]), 545002),
        "another chip": (write_om(replace(multilayer(), soc_version="Ascend310P3")), 500002),
    }
    for name, (data, code) in cases.items():
        file = tmp_path / f"{name}.om"
        file.write_bytes(data)
        assert acl.mdl.load_from_file(str(file)) == (0, code), name
        assert "E19999" in text()
    os.chmod(file, 0)  # noqa: PTH101  the mode of a Path is the same call
    for wrong in ("", str(tmp_path / "nothing.om"), str(tmp_path), *([str(file)] if os.getuid() else [])):
        assert acl.mdl.load_from_file(wrong) == (0, 145002)
        reason = text()
        assert "E13026" in reason
        assert wrong in reason


def test_a_wrong_number_of_buffers_is_500002_with_e13025(model: Loaded) -> None:
    """pyacl.md §2.5, §4 rows 11 and 12."""
    for side, count in itertools.product(("inputs", "outputs"), (0, 2)):
        pair = {"inputs": model.input_dataset, "outputs": model.output_dataset}
        pair[side] = dataset(list(getattr(model, side)) * count)
        assert acl.mdl.execute(model.id, pair["inputs"], pair["outputs"]) == 500002
        assert "inconsistent" in text()


def test_a_host_address_in_a_data_buffer_faults_at_the_execution_and_not_before(model: Loaded) -> None:
    """pyacl.md §4 row 9, §9 "device/host"."""
    data = X.tobytes()
    wrong = dataset([(acl.util.bytes_to_ptr(data), 320)])
    assert acl.mdl.execute(model.id, wrong, model.output_dataset) == 507015
    assert "no device memory" in text()
    freed = dataset([(model.inputs[0][0], 320)])
    ok(acl.rt.free(model.inputs[0][0]))
    assert acl.mdl.execute(model.id, freed, model.output_dataset) == 507015
    with strictly(), pytest.raises(NotEstablished, match="no live device memory"):
        acl.mdl.execute(model.id, freed, model.output_dataset)


def test_no_memory_for_a_model_is_245000(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANN_EMULATOR_HBM_MB", "16")
    ok(acl.init())
    ok(acl.rt.set_device(0))
    path = saved(replace(multilayer(), weight_bytes=8 << 20, work_bytes=9 << 20), tmp_path)
    free = acl.rt.get_mem_info(1)[0]
    assert acl.mdl.load_from_file(path) == (0, 245000)
    assert "EL0004" in text()
    assert acl.rt.get_mem_info(1)[0] == free


def test_a_gear_is_kept_in_the_dataset_and_must_be_set_for_a_fresh_one(device: int, tmp_path: Path) -> None:
    """pyacl.md §7 "not set at all": the emulator fails loudly."""
    batches = opened(saved(batch_gears(), tmp_path))
    ok(acl.mdl.set_dynamic_batch_size(batches.id, batches.input_dataset, 1, 4))
    fresh = dataset(batches.inputs)
    assert acl.mdl.execute(batches.id, fresh, batches.output_dataset) == 500002
    assert "no gear was set on this dataset" in text()
    ok(acl.mdl.set_dynamic_batch_size(batches.id, fresh, 1, 8))
    with strictly(), pytest.raises(NotEstablished, match="set last on this model"):
        batches.run()


CASES = {
    "static": ({"input_shape": "a:2,4;b:2,4"}, (2, 4)),
    "batch": ({"input_shape": "a:-1,4;b:-1,4", "dynamic_batch_size": "4,8,1"}, (4, 4)),
    "dims": ({"input_shape": "a:-1,-1;b:-1,-1", "dynamic_dims": "2,8,2,8;1,4,1,4", "input_format": "ND"}, (2, 8)),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_compiled_model_runs(device: int, tmp_path: Path, kind: str) -> None:
    flags, shape = CASES[kind]
    nodes = [node("Add", "a b", "s"), node("Relu", "s", "y")]
    write_graph(tmp_path / "sum.onnx", nodes, {name: ["n", "s"] for name in "ab"}, {"y": ["n", "s"]}, 13)
    model = opened(saved(compiled(tmp_path / "sum.onnx", **flags), tmp_path))
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
    assert acl.mdl.get_output_name_by_index(model.desc, 0) == "Relu_y:0:y"
    np.testing.assert_array_equal(model.get(0, np.float32, shape), np.maximum(2 * x, 0))


# ---- streams ----


@pytest.fixture
def stream(device: int) -> int:
    handle: int = taken(acl.rt.create_stream())
    return handle


def launch(model: Loaded, stream: int) -> None:
    ok(acl.mdl.execute_async(model.id, model.input_dataset, model.output_dataset, stream))


def test_results_are_stale_until_the_stream_is_synchronised(model: Loaded, stream: int) -> None:
    """pyacl.md §4 row 24: memcpy does not wait for streams; memcpy_async to ordinary memory does (§1.4)."""
    before = model.get(0, np.float32, (5, 4))
    launch(model, stream)
    np.testing.assert_array_equal(model.get(0, np.uint8, (80,)), before.view(np.uint8).reshape(-1))
    found = np.empty((5, 4), np.float32)
    ok(acl.rt.memcpy_async(acl.util.numpy_to_ptr(found), 80, model.outputs[0][0], 80, 2, stream))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(model.get(0, np.float32, (5, 4)), found)
    assert not np.array_equal(found, before)


def test_equal_work_has_equal_times_whatever_the_emulation_and_the_machine_take(model: Loaded, stream: int) -> None:
    """To the last bit: a sweep on the emulated device gives the same figures again."""
    size = model.inputs[0][1]
    pinned = taken(acl.rt.malloc_host(size))
    marks = [taken(acl.rt.create_event_with_flag(8)) for _ in range(3)]
    seen = set()
    for _ in range(100):
        ok(acl.rt.record_event(marks[0], stream))
        ok(acl.rt.memcpy_async(model.inputs[0][0], size, pinned, size, 1, stream))
        ok(acl.rt.record_event(marks[1], stream))
        launch(model, stream)
        ok(acl.rt.record_event(marks[2], stream))
        ok(acl.rt.synchronize_stream(stream))
        seen.add(tuple(taken(acl.rt.event_elapsed_time(*pair)) for pair in itertools.pairwise(marks)))
    assert len(seen) == 1


def test_a_time_out_is_507046_on_the_virtual_clock(model: Loaded, stream: int) -> None:
    """pyacl.md §2.5."""
    for _ in range(200):
        launch(model, stream)
    assert acl.rt.synchronize_stream_with_timeout(stream, 1) == 507046
    assert acl.rt.synchronize_stream_with_timeout(stream, 10_000) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, -1) == 0


CALL_MS = 60.0
PROGRAM = """
import acl, json, sys, time
from tests.cann_emulator.acl.library import opened, X
acl.init()
acl.rt.set_device(0)
model = opened(sys.argv[1])
model.put(X)
model.run()
first = model.get(0, "float32", (5, 4)).tolist()
print("ready", flush=True)
sys.stdin.readline()
stream, _ = acl.rt.create_stream()
queued, _ = acl.mdl.load_from_file(sys.argv[1])
began, spent = time.perf_counter(), time.process_time()
for _ in range(5):
    acl.mdl.execute_async(queued, model.input_dataset, model.output_dataset, stream)
    acl.rt.synchronize_stream(stream)
took, spent = time.perf_counter() - began, time.process_time() - spent
last = model.get(0, "float32", (5, 4)).tolist()
print(json.dumps({"first": first, "last": last, "took": took, "spent": spent, "said": acl.EMULATOR}))
"""


def test_two_processes_take_their_modelled_time_in_turn_on_one_card(tree: Path, path: str, tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    launch_us = f"{{value: {1000 * CALL_MS}, kind: inferred, origin: a test}}"
    slow.write_text(f"version: 1\nsoc_version: Ascend910B3\nparameters: {{execute_launch_us: {launch_us}}}\n")
    variables = {
        **{"CANN_EMULATOR_PACED": "1", "CANN_EMULATOR_DEVICE_DATA": str(slow)},
        "CANN_EMULATOR_STATE": str(tmp_path / "state"),
    }
    command = [sys.executable, "-c", PROGRAM, path]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment(tree, variables), **pipes) for _ in range(2)]
    for one in processes:
        assert one.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for one in processes:
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [json.loads(one.communicate(timeout=300)[0]) for one in processes]

    assert time.perf_counter() - began >= 10 * CALL_MS / 1000, "ten calls on one card"
    expected = Executable(multilayer(), threads=1).run({"x": X})["y"]
    for one in told:
        np.testing.assert_allclose(one["first"], expected, rtol=1e-5)
        assert not np.any(one["last"]), "not computed"
        assert one["took"] >= 5 * CALL_MS / 1000
        assert one["spent"] < one["took"] / 2, "asleep most of the time"
        assert one["said"].endswith(" paced, most outputs are zeros")
