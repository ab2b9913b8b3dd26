"""The host's time on the axis of the modelled device, and how long the device needs; whole nanoseconds.

A program's own time counts as it passes: a sleep between two calls is one for the device as well. While the emulation
does a device's work the clock stands, since a device would not have kept the host so long; what the call takes by the
time model is added instead, and a wait moves the clock to the end of what was waited for. All devices share the axis.

CANN_EMULATOR_PACED=N: a call takes the modelled time on the machine's own clock, asleep. For what only shows in real
time, such as a service on more emulated cards than the host could compute for: executions after the first N of a
process are not computed, and their outputs are all zeros. The first N prove the model. One card does one thing at a
time, whichever processes use it: each waits for a lock on a file of the card. Everything that says that it is emulated
says that it is paced, too (`revision.emulator`).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import os
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.cann_emulator.acl.contexts import SOC_NAME, Context
from workbench.cann_emulator.revision import PACED
from workbench.cann_emulator.state import state_folder

if TYPE_CHECKING:
    from workbench.cann_emulator.om import OfflineModel
    from workbench.cann_emulator.timing import KernelTime
    from workbench.values.modelled_times.device_data import DeviceData


@dataclass(slots=True)
class _Clock:
    """Attributes:
    ahead_ns: what the axis is ahead of the machine's clock; negative by what the emulation took.
    spent_ns: what calls and waits took by the time model, since the library was loaded.
    standing: how many calls hold it.
    since_ns: of the machine's clock, when the first of them came.
    """

    ahead_ns: int = 0
    spent_ns: int = 0
    standing: int = 0
    since_ns: int = 0


_CLOCK = _Clock()
_LOCK = threading.RLock()  # again in one thread when a destructor destroys a stream in between


class Standing:
    """While it is entered, the clock stands."""

    def __enter__(self) -> None:
        if IS_PACED:
            return
        with _LOCK:
            if not _CLOCK.standing:
                _CLOCK.since_ns = time.perf_counter_ns()
            _CLOCK.standing += 1

    def __exit__(self, *_: object) -> None:
        if IS_PACED:
            return
        with _LOCK:
            _CLOCK.standing -= 1
            if not _CLOCK.standing:
                _CLOCK.ahead_ns -= time.perf_counter_ns() - _CLOCK.since_ns


STANDING = Standing()


def now_ns() -> int:
    with _LOCK:
        return _CLOCK.ahead_ns + (_CLOCK.since_ns if _CLOCK.standing else time.perf_counter_ns())


def spend(duration_ns: int) -> None:
    """Add what a call takes by the time model."""
    if IS_PACED:
        sleep_ns(duration_ns)
        return
    with _LOCK:
        _CLOCK.ahead_ns += duration_ns
        _CLOCK.spent_ns += duration_ns


def spent_ns() -> int:
    return _CLOCK.spent_ns


def reach(time_ns: int) -> None:
    """The host has waited until then."""
    if IS_PACED:
        sleep_ns(time_ns - now_ns())
        return
    with _LOCK:
        spend(max(0, time_ns - now_ns()))


class Pause:
    """What a program does between two calls, or in a callback.

    Short ones are nothing: launching takes some time for every call, which the time model has in it. Nor is what the
    machine does to the program in between: its other programs, a hypervisor, the collection of garbage. So a program
    that waits is seen from a millisecond on, one that computes from ten milliseconds of processor time.
    """

    __slots__ = ("began_ns", "collected_ns", "processor_ns", "thread", "waits")

    def __init__(self) -> None:
        self.began_ns, self.thread = time.perf_counter_ns(), threading.get_ident()
        self.processor_ns, self.collected_ns, self.waits = time.thread_time_ns(), _COLLECTED["ns"], _waits()

    def own_ns(self, elapsed_ns: int) -> int:
        """What of the time that has passed is the program's own."""
        if elapsed_ns < _WAITING_NS:
            return 0
        if self.thread != threading.get_ident() or self.waits != _waits():
            return elapsed_ns
        computed_ns = time.thread_time_ns() - self.processor_ns - (_COLLECTED["ns"] - self.collected_ns)
        return min(elapsed_ns, computed_ns) if computed_ns >= _COMPUTING_NS else 0


_WAITING_NS, _COMPUTING_NS = 1_000_000, 10_000_000
_COLLECTED = {"ns": 0, "since": 0}


def _waits() -> int:
    """How often this thread gave up the processor by itself."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _count_collection(phase: str, _: object) -> None:
    now = time.thread_time_ns()
    if phase == "start":
        _COLLECTED["since"] = now
    else:
        _COLLECTED["ns"] += now - _COLLECTED["since"]


gc.callbacks.append(_count_collection)
atexit.register(gc.callbacks.remove, _count_collection)  # the interpreter collects once more when `time` is gone


# --- paced calls ---

_COMPUTED = {"left": int(os.environ.get(PACED) or 0)}
IS_PACED = bool(os.environ.get(PACED))
_FILES: dict[int, int] = {}


def computes() -> bool:
    """Whether this execution is computed; each call counts as one."""
    if not IS_PACED:
        return True
    _COMPUTED["left"] -= 1
    return _COMPUTED["left"] >= 0


def sleep_ns(duration_ns: int) -> None:
    """Let time pass; other Python threads run."""
    if duration_ns > 0:
        time.sleep(duration_ns / 1e9)  # what a card would take is waited for: that is what paced means


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
def _timing() -> tuple[ModuleType, DeviceData]:
    """The module and the device's data; imported late, as programs that never copy or execute need neither."""
    from workbench.cann_emulator import timing
    from workbench.values.modelled_times.device_data import load_device_data

    return timing, load_device_data(SOC_NAME)


def ready() -> None:
    """Read the time model now: a load may take its time, the first launch of a model should not."""
    _timing()


@functools.lru_cache(maxsize=4096)
def copy_ns(count: int, to_device: bool, from_device: bool) -> int:
    timing, device = _timing()
    kind = f"{'device' if from_device else 'host'}_to_{'device' if to_device else 'host'}"
    spent_us: float = timing.copy_us(count, kind, device)
    return round(1000 * spent_us)


def count_copy(context: Context, count: int, to_device: bool, from_device: bool) -> None:
    """A copy that the caller waited for: work of the device, and the host's time, on no stream of the caller."""
    spent = copy_ns(count, to_device, from_device)
    context.device.busy_us += spent / 1000
    spend(spent)


def execution_ns(model: OfflineModel, gear: int, times: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """One execution: (on the stream alone, with the host's launch in front of it).

    Args:
        times: by gear, what was computed before for this load.
    """
    found = times.get(gear)
    if found is None:
        timing, device = _timing()
        stream_ns = round(1000 * timing.stream_us(model, gear, device))
        found = times[gear] = stream_ns, round(1000 * timing.execute_us(model, gear, device))
    return found


def gear_ns(model: OfflineModel) -> int:
    """What an execution takes to choose its gear on the device; 0 for a model without gears."""
    chosen: float = _timing()[1].gear_us if model.gear_kind not in ("", "range") else 0.0
    return round(1000 * chosen)


def host_launch_ns(model: OfflineModel, kernel: KernelTime) -> int:
    """By how much the host's own launch of a kernel is longer than a start on the device; 0 but for a shape range."""
    device = _timing()[1]
    own: float = device.dynamic_launch_us - device.kernel_launch_us
    return round(1000 * max(0.0, own)) if model.gear_kind == "range" and kernel.core != "aicpu" else 0


def kernel_times(model: OfflineModel, gear: int) -> tuple[KernelTime, ...]:
    timing, device = _timing()
    times: tuple[KernelTime, ...] = timing.kernel_times(model, gear, device)
    return times
