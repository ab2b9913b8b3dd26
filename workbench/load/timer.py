"""A timer of an event loop that fires within tens of microseconds.

asyncio and uvloop round their own timers up to whole milliseconds, which would be added to every latency that counts
from the intended moment. Linux's timerfd has no such grain; Python has it from 3.13 on, so it is called through libc.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1  # <time.h>, TFD_TIMER_ABSTIME
_SOONEST_NS = 1  # a time of zero would disarm the timer


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseTimer:
    """Calls `fire` once at each armed moment of `time.perf_counter`, from the event loop.

    Where timerfd is missing (another system than Linux) the loop's own millisecond timers do it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop, self._fire = loop, fire
        self._later: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        # perf_counter and timerfd must read one clock
        if (
            hasattr(self._libc, "timerfd_create")
            and "CLOCK_MONOTONIC" in time.get_clock_info("perf_counter").implementation
        ):
            flags = os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, flags)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._expired)

    def arm(self, at_s: float) -> None:
        """Fire at `at_s` instead of at any earlier armed moment; a moment in the past fires at once."""
        if self._descriptor < 0:
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_later(max(0.0, at_s - time.perf_counter()), self._fire)
            return
        nanoseconds = max(_SOONEST_NS, round(at_s * 1e9))
        value = _Itimerspec(value=_Timespec(nanoseconds // 10**9, nanoseconds % 10**9))
        if self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(value), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _expired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # armed anew between the wake-up and this read
            return
        self._fire()
