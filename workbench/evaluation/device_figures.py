"""What a device beside the host says of a session: where the time of its calls goes, its memory, its power."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from statistics import median

from workbench.targets.base import DeviceLoad, DeviceSession, DeviceTimes, Feeds, times_of
from workbench.values.measurement import DeviceFigures

LOAD_S = 4.0
"""a vendor's tool takes about a second for an answer [inferred], so a few of them need some seconds of load."""


def device_figures(session: DeviceSession, feeds: Sequence[Feeds], *, load_s: float = LOAD_S) -> DeviceFigures:
    """Medians over calls of each feed in turn, outside of the timing that ranks candidates.

    Reading events and asking the driver costs host time, so it never happens between calls whose latency counts.

    Args:
        load_s: the device is kept busy so long, and at least for one call of each feed; 0 does not ask for its load,
            of which a modelled device has none.

    Raises:
        MeasureError: a call failed.
    """
    times: list[DeviceTimes] = []
    end_s = time.monotonic() + load_s
    with session.watched() if load_s else contextlib.nullcontext() as watch:
        while not times or time.monotonic() < end_s:
            for feed in feeds:
                session.run(feed)
                times.append(times_of(session))
    load = watch.load() if watch is not None else DeviceLoad()
    return DeviceFigures(
        host_to_device_ms=median(t.host_to_device_ms for t in times),
        execute_ms=median(t.execute_ms for t in times),
        device_to_host_ms=median(t.device_to_host_ms for t in times),
        memory_bytes=session.device_memory_bytes(),
        power_w=load.power_w,
        utilization_percent=load.utilization_percent,
        temperature_c=load.temperature_c,
    )
