"""Streams, events, the virtual clock and the paced one; results that are held back (pyacl.md §1.3, §2.5, §5.1)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cann_emulator.acl.library import Loaded, X, environment, multilayer, ok, taken
from workbench.cann_emulator import acl
from workbench.cann_emulator.executable import Executable


@pytest.fixture
def stream(device: int) -> int:
    handle: int = taken(acl.rt.create_stream())
    return handle


def launch(model: Loaded, stream: int) -> None:
    ok(acl.mdl.execute_async(model.id, model.input_dataset, model.output_dataset, stream))


def test_results_are_stale_until_the_stream_is_synchronised(model: Loaded, stream: int) -> None:
    """pyacl.md §4 row 24: memcpy does not wait for streams."""
    before = model.get(0, np.float32, (5, 4))
    launch(model, stream)
    np.testing.assert_array_equal(model.get(0, np.uint8, (80,)), before.view(np.uint8).reshape(-1))
    ok(acl.rt.synchronize_stream(stream))
    assert np.isfinite(model.get(0, np.float32, (5, 4))).all()
    assert not np.array_equal(model.get(0, np.float32, (5, 4)), before)


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


def test_calls_of_two_processes_take_their_modelled_time_one_after_the_other_on_one_card(
    tree: Path, path: str, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.yaml"
    entry = {"value": 1000 * CALL_MS, "kind": "inferred", "origin": "a test"}
    slow.write_text(
        yaml.safe_dump({"version": 1, "soc_version": "Ascend910B3", "parameters": {"execute_launch_us": entry}})
    )
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
