"""The modelled device's time, and how long it needs; whole nanoseconds.

A call takes what the time model says, and a wait moves the clock to the end of what was waited for. What a program does
in between, and what the emulation and the machine take, is no time here: equal programs see equal times. All devices
share the axis.

CANN_EMULATOR_PACED=N: a call takes the modelled time on the machine's own clock, asleep. For what only shows in real
time, such as a service on more emulated cards than the host could compute for: executions after the first N of a
process are not computed, and their outputs are all zeros. The first N prove the model. One card does one thing at a
time, whichever processes use it: each waits for a lock on a file of the card. Everything that says that it is emulated
says that it is paced, too (`revision.emulator`).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.cann_emulator.acl.rt_device import SOC_NAME
from workbench.cann_emulator.revision import PACED
from workbench.cann_emulator.state import state_folder

if TYPE_CHECKING:
    from workbench.cann_emulator.om import OfflineModel

_CLOCK = {"ns": 0}
_LOCK = threading.Lock()
IS_PACED = bool(os.environ.get(PACED))
_COMPUTED = {"left": int(os.environ.get(PACED) or 0)}
_FILES: dict[int, int] = {}


def now_ns() -> int:
    return time.perf_counter_ns() if IS_PACED else _CLOCK["ns"]


def reach(time_ns: int) -> None:
    """The host has waited until then."""
    if IS_PACED:
        time.sleep(max(0, time_ns - now_ns()) / 1e9)  # what a card would take is waited for: that is what paced means
        return
    with _LOCK:
        _CLOCK["ns"] = max(_CLOCK["ns"], time_ns)


def spend(duration_ns: int) -> None:
    """Add what a call takes by the time model."""
    if IS_PACED:
        reach(now_ns() + duration_ns)
        return
    with _LOCK:
        _CLOCK["ns"] += duration_ns


def computes() -> bool:
    """Whether this execution is computed; each call counts as one."""
    _COMPUTED["left"] -= 1
    return not IS_PACED or _COMPUTED["left"] >= 0


@contextlib.contextmanager
def alone_on(physical: int) -> Iterator[None]:
    """While the card is this process's; a process that is killed lets it go."""
    if physical not in _FILES:
        _FILES[physical] = os.open(state_folder() / f"card-{physical}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(_FILES[physical], fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_FILES[physical], fcntl.LOCK_UN)


# --- durations ---


@functools.cache
def time_model() -> tuple[Any, Any]:
    """The module and the device's data; imported late, as programs that never copy or execute need neither."""
    from workbench.cann_emulator import timing
    from workbench.values.modelled_times.device_data import load_device_data

    return timing, load_device_data(SOC_NAME)


@functools.lru_cache(maxsize=4096)
def copy_ns(count: int, to_device: bool, from_device: bool) -> int:
    times, device = time_model()
    kind = f"{'device' if from_device else 'host'}_to_{'device' if to_device else 'host'}"
    spent_us: float = times.copy_us(count, kind, device)
    return round(1000 * spent_us)


def execution_ns(model: OfflineModel, gear: int) -> tuple[int, int]:
    """One execution: (on the stream alone, with the host's launch in front of it)."""
    times, device = time_model()
    stream_us = times.stream_us(model, gear, device)
    return round(1000 * stream_us), round(1000 * (device.execute_launch_us + stream_us))
