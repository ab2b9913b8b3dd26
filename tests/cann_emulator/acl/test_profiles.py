"""The emulated profile against the clock of the streams: starts, waits, copies, and what runs on an AI CPU."""

import csv
from pathlib import Path

from tests.cann_emulator.acl.library import multilayer, ok, opened, saved, taken
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import clock
from workbench.cann_emulator.device_data import load_device_data
from workbench.cann_emulator.timing import execute_us, kernel_times, stream_us
from workbench.targets.ascend.profiles.read import read_profile

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


def rows(profile: Path, table: str) -> list[dict[str, str]]:
    (file,) = profile.glob(f"mindstudio_profiler_output/{table}_*.csv")
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def ns(cell: str) -> int:
    whole, _, part = cell.strip().partition(".")
    return int(whole) * 1000 + int(part)


def test_tasks_of_a_stream_follow_one_another_as_its_clock_has_them(device: int, tmp_path: Path) -> None:
    profile = profiled(tmp_path, 2)
    tasks = rows(profile, "task_time")
    kernels = kernel_times(multilayer(), 0, DEVICE)

    first = tasks[: len(kernels) + 2]
    assert [task["kernel_type"] for task in (first[0], first[-1])] == ["MEMCPY_ASYNC"] * 2
    ends = [ns(task["task_stop(us)"]) for task in first]
    starts = [ns(task["task_start(us)"]) for task in first]
    assert [stop - start for start, stop in zip(starts, ends, strict=True)] == [ns(t["task_time(us)"]) for t in first]
    gaps = [start - end for end, start in zip(ends, starts[1:], strict=False)]
    launch = round(1000 * DEVICE.execute_launch_us)
    assert gaps[0] == launch  # the host's launch stands between the copy and the first operator
    assert all(abs(gap) <= len(kernels) for gap in gaps[1:])  # each kernel is rounded to a nanosecond
    assert ns(first[0]["task_time(us)"]) == clock.copy_ns(COPIED, True, False)
    whole = round(1000 * execute_us(multilayer(), 0, DEVICE))
    assert abs(ends[-2] - ends[0] - whole) <= 1
    assert ns(tasks[len(kernels) + 2]["task_start(us)"]) >= ends[-1]


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
