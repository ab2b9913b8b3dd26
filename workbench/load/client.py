"""The clients: one asyncio.Protocol per connection, closed or open loop, every request's times kept.

A general HTTP library costs several times what answering costs and reports its own queueing as the server's latency;
these clients write bytes that were encoded before and look for a status and a length.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from workbench.load.http1 import CLOSED, GARBAGE, REFUSED, TIMEOUT, UNSENT, AnswerReader, ProtocolError
from workbench.load.plan import LoadPlan, arrival_times

_SWEEP_S = 0.05
_BACKOFF_S = 0.1
"""After a connection that failed: clients that retry at once would measure how quickly a server refuses."""
_STALE_S = 4.0
"""Idle connections older than this are not used: servers close them after 5 s (uvicorn) and a request would be lost."""
_BEYOND_S = 0.005
"""Loops fire up to a millisecond early; what becomes due beyond the window is not counted anyway."""
_COLLECT_EVERY = 20_000
_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1  # <time.h>, TFD_TIMER_ABSTIME
_SOONEST_NS = 1  # a time of zero would disarm the timer


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with at most one request in flight."""

    COLUMNS: ClassVar[dict[str, str]] = {"intended_s": "d", "sent_s": "d", "done_s": "d", "outcome": "h"}
    """What is kept of requests, and its type as `array` has it: times by `time.perf_counter`; the HTTP status, or a
    negative code of `workbench.load.http1`."""
    reader_type: ClassVar[type[AnswerReader]] = AnswerReader

    def __init__(self, clients: Clients, intended_s: float) -> None:
        self.clients, self.intended_s, self.reader = clients, intended_s, self.reader_type()
        self.transport: asyncio.Transport | None = None
        self.busy = False
        self.failed = True  # until the first answer: a server that accepts and closes is not asked in a tight loop
        self.sent_s = self.idle_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.clients.connected(self)

    def send(self, request: bytes, intended_s: float) -> None:
        """Called while it is not busy; the clients are told `idle` or `lost` afterwards."""
        self.reader.begin()
        self.intended_s, self.sent_s, self.busy = intended_s, time.perf_counter(), True
        if self.transport is not None:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self.busy:  # an answer to nothing
            self.close()
            return
        try:
            whole = self.reader.feed(data)
        except ProtocolError:
            self.close(GARBAGE)
            return
        if whole:
            self._finish(self.reader.status)
            if self.reader.keep_alive:
                self.clients.idle(self)
            else:
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            try:
                whole = exc is None and self.reader.end()
                outcome = self.reader.status if whole else CLOSED
            except ProtocolError:
                outcome = GARBAGE
            self._finish(outcome)
        self.transport = None
        self.clients.lost(self)

    def close(self, outcome: int | None = None) -> None:
        """The clients are told `lost`; a request that is given up, with its outcome."""
        if outcome is not None:
            self._finish(outcome)
        if self.transport is not None:
            self.transport.abort()

    def _finish(self, outcome: int, done_s: float | None = None) -> None:
        self.busy, self.failed = False, outcome < 0
        done_s = time.perf_counter() if done_s is None else done_s
        self.clients.record(self.intended_s, self.sent_s, done_s, outcome)


class Clients:
    """All connections of one run and the rule by which requests are due. `run` is the whole life of one.

    Attributes:
        columns: of every request in the order of its end, by the names of `Connection.COLUMNS`.
        begin_s: when the load began; its warm-up comes first.
        server_error: the first that a server reported in a stream.
        full: no more is kept.
    """

    def __init__(
        self,
        plan: LoadPlan,
        requests: Sequence[bytes],
        order: npt.NDArray[np.int64],
        connection: type[Connection] = Connection,
    ) -> None:
        self.plan, self._requests, self._order = plan, requests, order.tolist()
        self._connection = connection
        self._closed_loop = plan.load.arrivals == "closed"
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: deque[float] = deque()  # intended times of an open loop's requests that wait for a connection
        self._connecting = 0
        self._sending = False
        self._next = self._accepted = 0
        self._parent = os.getppid()
        self._finished = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened_since_collection = 0
        self._blocked_until_s = 0.0
        self.woken_late_s = array("d")  # every 50 ms: how late the loop came, which is in all that it times
        self.failed_connections = 0
        self.interrupted = False
        self.begin_s = self.end_s = 0.0
        self.columns: dict[str, array[Any]] = {name: array(kind) for name, kind in connection.COLUMNS.items()}
        self.server_error, self.full = "", False

    def record(self, intended_s: float, sent_s: float, done_s: float, outcome: int) -> None:
        columns = self.columns
        columns["intended_s"].append(intended_s)
        columns["sent_s"].append(sent_s)
        columns["done_s"].append(done_s)
        columns["outcome"].append(outcome)

    async def run(self, phase: Callable[[str], None]) -> None:
        """Load until the plan's time or count is over, and wait for the answers that are still out.

        Args:
            phase: told 'measuring' when the warm-up is over and 'measured' when the window is.
        """
        loop = asyncio.get_running_loop()
        plan = self.plan
        self._loop = loop
        self._timer = PreciseTimer(loop, self._send_due)
        self.begin_s = begin = time.perf_counter()
        self.end_s = begin + plan.warmup_s + plan.duration_s
        self._sending = True
        handles = [
            loop.call_at(loop.time() + plan.warmup_s, phase, "measuring"),
            loop.call_at(loop.time() + plan.warmup_s + plan.duration_s, phase, "measured"),
            loop.call_at(loop.time() + plan.warmup_s + plan.duration_s + _BEYOND_S, self._time_is_up),
        ]
        sweeper = loop.create_task(self._sweep())
        try:
            if self._closed_loop:
                for _ in range(plan.load.concurrency or 0):
                    self._connect(begin)
            else:
                seconds, most = plan.warmup_s + plan.duration_s, plan.max_requests + 1  # the one beyond ends the run
                self._due = (begin + arrival_times(plan.load, seconds, plan.seed, most=most)).tolist()
                self._at = 0
                self._send_due()
            await self._finished.wait()
        finally:
            sweeper.cancel()
            for handle in handles:
                handle.cancel()
            self._timer.close()
            for connection in tuple(self._connections):
                connection.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(sweeper, *self._tasks, return_exceptions=True)

    def interrupt(self) -> None:
        """Stop now, with what is there; answers still out are waited for, unless this is said twice."""
        if self.interrupted:
            self._finished.set()
        self.interrupted = True
        self._waiting.clear()
        self.stop()

    def stop(self) -> None:
        """Let no further request become due."""
        if self._sending:
            self._sending = False
            self.end_s = min(self.end_s, time.perf_counter())
        self._finish_when_empty()

    def _time_is_up(self) -> None:
        """Whatever was due in the window is sent first, however late this comes: where the machine kept the loop from
        its turn, leaving those requests out would leave out the slow ones."""
        if not self._closed_loop:
            self._send_due()
        self.stop()

    # -- what connections report

    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._closed_loop and self._sending:
            self._send_another(connection, connection.intended_s)
        else:
            self.idle(connection)

    def idle(self, connection: Connection) -> None:
        if self._closed_loop:
            if self._sending:
                self._send_another(connection, time.perf_counter())
            else:
                connection.close()
                self._finish_when_empty()
        elif self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            connection.idle_since_s = time.perf_counter()
            self._idle.append(connection)
            self._finish_when_empty()

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        now = time.perf_counter()
        if self._closed_loop and self._sending:
            self._connect(now + _BACKOFF_S if connection.failed else now)
        elif not self._closed_loop:
            self._open_more()
        self._finish_when_empty()

    # -- requests

    def _send_another(self, connection: Connection, intended_s: float) -> None:
        """The next request of a closed loop's client."""
        if self._accepted >= self.plan.max_requests:
            self.stop()
            connection.close()
            return
        self._accepted += 1
        self._send(connection, intended_s)

    def _send(self, connection: Connection, intended_s: float) -> None:
        request = self._requests[self._order[self._next % len(self._order)]]
        self._next += 1
        connection.send(request, intended_s)

    def _send_due(self) -> None:
        """Send every request of an open loop that is due, and arm the timer for the next."""
        now = time.perf_counter()
        due, at = self._due, self._at
        while self._sending and at < len(due) and due[at] <= now:
            if self._accepted >= self.plan.max_requests:
                self.stop()
                break
            self._accepted += 1
            self._take(due[at])
            at += 1
        self._at = at
        if self._sending and at < len(due):
            self._timer.arm(due[at])

    def _take(self, intended_s: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if time.perf_counter() - connection.idle_since_s <= _STALE_S:
                self._send(connection, intended_s)
                return
            connection.close()
        if len(self._waiting) + len(self._connections) >= self.plan.outstanding:
            self.record(intended_s, float("nan"), time.perf_counter(), UNSENT)
            return
        self._waiting.append(intended_s)
        self._open_more()

    # -- connections

    def _open_more(self) -> None:
        """Connections for the requests that wait, as many as are allowed."""
        if time.perf_counter() < self._blocked_until_s:  # the last one failed; the sweep tries again
            return
        while self._connecting < len(self._waiting) and (
            self._connecting + len(self._connections) < self.plan.open_connections
        ):
            self._connect(time.perf_counter())

    def _connect(self, at_s: float) -> None:
        self._connecting += 1
        task = self._loop.create_task(self._connected_at(at_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected_at(self, at_s: float) -> None:
        """Open one connection at a moment; a closed loop's client that gets none has had a failed request."""
        try:
            wait_s = at_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._opened_since_collection += 1
            opening = self._loop.create_connection(lambda: self._connection(self, at_s), *self.plan.address)
            await asyncio.wait_for(opening, self.plan.timeout_s)
            self._connecting -= 1
        except (OSError, TimeoutError):
            self._connecting -= 1
            self.failed_connections += 1
            now = time.perf_counter()
            if self._closed_loop:
                self.record(at_s, float("nan"), now, REFUSED)
                if self._sending:
                    self._connect(now + _BACKOFF_S)
            else:
                self._blocked_until_s = now + _BACKOFF_S
        finally:
            self._finish_when_empty()

    async def _sweep(self) -> None:
        """Requests that waited too long, an end that nobody reports, a parent that died."""
        while True:
            due_s = time.perf_counter() + _SWEEP_S
            await asyncio.sleep(_SWEEP_S)
            now = time.perf_counter()
            self.woken_late_s.append(now - due_s)
            for connection in tuple(self._connections):
                if connection.busy and now - connection.sent_s > self.plan.timeout_s:
                    connection.close(TIMEOUT)
            while self._waiting and now - self._waiting[0] > self.plan.timeout_s:
                self.record(self._waiting.popleft(), float("nan"), now, TIMEOUT)
            if not self._closed_loop:
                self._open_more()
            if os.getppid() != self._parent:
                self.interrupt()
            if self._opened_since_collection >= _COLLECT_EVERY:  # the collector is off while loading
                self._opened_since_collection = 0
                gc.collect()
            self._finish_when_empty()

    def _finish_when_empty(self) -> None:
        if not (self._sending or self._waiting or any(c.busy for c in self._connections)):
            self._finished.set()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseTimer:
    """Calls `fire` once at each armed moment of `time.perf_counter`, from the event loop, within tens of microseconds.

    asyncio and uvloop round their own timers up to whole milliseconds, which would be added to every latency that
    counts from the intended moment. Linux's timerfd has no such grain, and its clock is that of `time.perf_counter`;
    Python has it from 3.13 on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop, self._fire = loop, fire
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._descriptor, self._expired)

    def arm(self, at_s: float) -> None:
        """Fire at `at_s` instead of at any earlier armed moment; a moment in the past fires at once."""
        nanoseconds = max(_SOONEST_NS, round(at_s * 1e9))
        value = _Itimerspec(value=_Timespec(nanoseconds // 10**9, nanoseconds % 10**9))
        if self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(value), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _expired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # armed anew between the wake-up and this read
            return
        self._fire()
