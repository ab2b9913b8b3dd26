"""A device's profile as a trace that chrome://tracing and Perfetto open.

Trace Event Format, JSON object form: `traceEvents` with complete events (`ph` X: name, cat, ts, dur in microseconds,
pid, tid, args), and metadata events (`ph` M) that name processes and threads and order them. A process is a device, a
thread is a stream; numbers of both are whole.
"""

from __future__ import annotations

import itertools
from typing import Any

from workbench.values.device_profile import DeviceProfile

CORES = 0
"""Thread of a device that shows when its cores had nothing to do; streams begin at 1."""


def chrome_trace(profile: DeviceProfile, title: str) -> dict[str, Any]:
    """The JSON of the kept tasks, and of the longest of each bubble."""
    devices = {device: number for number, device in enumerate(dict.fromkeys(t.device for t in profile.tasks))}
    threads: dict[tuple[str, str], int] = {}
    numbers = {device: itertools.count(1) for device in devices}
    for task in profile.tasks:
        place = task.device, task.stream
        if place not in threads:
            threads[place] = next(numbers[task.device])
    mark = " (modelled)" if profile.modelled else ""
    events: list[dict[str, Any]] = []
    for device, pid in devices.items():
        events += _named("process", pid, CORES, f"{profile.chip or 'device'} {device}{mark}", pid)
        events += _named("thread", pid, CORES, "cores idle: the longest of each gap", CORES)
    for (device, stream), tid in threads.items():
        events += _named("thread", devices[device], tid, f"stream {stream}", tid)
    for task in profile.tasks:
        told = {"op type": task.op_type, "execution": task.execution, "int8": task.int8, "macs": task.macs}
        events.append(
            {
                "name": task.name,
                "cat": task.kind,
                "ph": "X",
                "ts": task.start_us,
                "dur": task.duration_us,
                "pid": devices[task.device],
                "tid": threads[task.device, task.stream],
                "args": {key: value for key, value in told.items() if value is not None},
            }
        )
    for bubble in profile.bubbles:
        if bubble.device in devices:
            events.append(
                {
                    "name": bubble.cause,
                    "cat": "bubble",
                    "ph": "X",
                    "ts": bubble.longest_start_us,
                    "dur": bubble.longest_us,
                    "pid": devices[bubble.device],
                    "tid": CORES,
                    "args": {"before": bubble.before, "after": bubble.after, "times": bubble.times},
                }
            )
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "title": title,
            "times": "modelled, not measured on a device" if profile.modelled else "measured",
            "tasks left out": profile.tasks_left_out,
        },
    }


def _named(what: str, pid: int, tid: int, name: str, place: int) -> list[dict[str, Any]]:
    frame = {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "cat": "__metadata"}
    return [
        {**frame, "name": f"{what}_name", "args": {"name": name}},
        {**frame, "name": f"{what}_sort_index", "args": {"sort_index": place}},
    ]
