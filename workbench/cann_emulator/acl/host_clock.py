"""The host's time on the axis of the modelled device, in nanoseconds from any origin.

A program's own time counts as it passes: a sleep between two calls is one for the device as well. While the emulation
does a device's work the clock stands, since a device would not have kept the host so long; what the call takes by the
time model is added instead, and a wait moves the clock to the end of what was waited for. All devices share the axis.

Where calls are paced (`paced`), the axis is the machine's own clock: it never stands, and what takes time is slept for.
"""

from __future__ import annotations

import atexit
import gc
import resource
import threading
import time
from dataclasses import dataclass

from workbench.cann_emulator.acl import paced


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
        if paced.ON:
            return
        with _LOCK:
            if not _CLOCK.standing:
                _CLOCK.since_ns = time.perf_counter_ns()
            _CLOCK.standing += 1

    def __exit__(self, *_: object) -> None:
        if paced.ON:
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
    if paced.ON:
        paced.sleep_ns(duration_ns)
        return
    with _LOCK:
        _CLOCK.ahead_ns += duration_ns
        _CLOCK.spent_ns += duration_ns


def spent_ns() -> int:
    return _CLOCK.spent_ns


def reach(time_ns: int) -> None:
    """The host has waited until then."""
    if paced.ON:
        paced.sleep_ns(time_ns - now_ns())
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
