"""A fixed number of processes of one kind that are kept running: started, watched, started again, ended.

A process that cannot be started, whatever the reason, is tried again after a pause that grows. While one is ready, the
others go on trying without end: a card that broke does not take the cards beside it out of service. Where none is for
`limits.no_worker_s`, the service is told to give up, and what supervises it decides.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import multiprocessing.process
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from workbench.serve.events import log, log_defect
from workbench.serve.wire import Link, Message
from workbench.values.errors import BundleError, ToolchainError, WorkbenchError

_PR_SET_PDEATHSIG = 1
_END_S = 3.0
"""How long a process may take to end once its socket is closed."""
_KILL_S = 10.0
"""How long the kernel may take to end a process that was killed; one in a driver's call may take for ever."""
_POLL_S = 0.02
_REAP_S = 0.05
"""How long to wait for the status of a process whose socket the kernel has closed: it follows at once."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_MOST_DOUBLINGS = 10
_LATE_S = 0.05
"""A timer of the event loop may be early by its own grain; the last try must find the limit behind it."""
_TIMES_THE_SLOWEST = 3.0


@dataclass(slots=True)
class Outage:
    """No worker is ready, and starting one failed or the last one was lost.

    Attributes:
        limit_s: how long it may last.
        since_s: when it began; None while there is none.
    """

    limit_s: float
    since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Nothing where it has begun already."""
        if self.since_s is None:
            self.since_s = now_s

    def end(self) -> None:
        self.since_s = None

    def lasts_s(self, now_s: float) -> float:
        return 0.0 if self.since_s is None else now_s - self.since_s

    def is_over_limit(self, now_s: float) -> bool:
        return self.since_s is not None and now_s - self.since_s >= self.limit_s

    def pause_s(self, failed_starts: int, now_s: float) -> float:
        """Before a process is started again that failed to start so many times in a row: doubling, to ten seconds.

        The last try of an outage is made at its limit, so that the service ends then.
        """
        pause = float(min(_FIRST_PAUSE_S * 2 ** min(failed_starts, _MOST_DOUBLINGS), _LONGEST_PAUSE_S))
        if self.since_s is None or self.is_over_limit(now_s):
            return pause
        return min(pause, self.since_s + self.limit_s - now_s + _LATE_S)


def longest_start_s(slowest_s: float | None, *, first_s: float, limit_s: float) -> float:
    """How long one start may take before it counts as hanging.

    Args:
        slowest_s: the slowest that ended well; None before there was one.
        first_s: for a start of which nothing is known.
        limit_s: of an outage; no start gets less.
    """
    return max(limit_s, first_s if slowest_s is None else _TIMES_THE_SLOWEST * slowest_s)


@dataclass(slots=True, eq=False)
class Member:
    """One process, as seen from here.

    Attributes:
        restarts: processes that were started after the first.
        failed_starts: in a row, since it was ready last; `all_failed_starts`, ever.
        error: why it was lost last, or did not start; '' once it is ready.
        said: why its process cannot become ready, in its own words or in ours; '' while nothing is known.
        refused: what ends a service that was never ready, since another try would end the same.
        began_s: when its process was started.
        slow: what ends a start that hangs.
        facts: what it said of itself when it was ready.
    """

    number: int
    state: Literal["starting", "ready", "lost"] = "starting"
    process: multiprocessing.process.BaseProcess | None = None
    link: Link | None = None
    restarts: int = 0
    failed_starts: int = 0
    all_failed_starts: int = 0
    error: str = ""
    said: str = ""
    refused: WorkbenchError | None = None
    began_s: float = 0.0
    slow: asyncio.TimerHandle | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def say(self, head: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
        if self.link is not None:
            self.link.say(head, arrays)

    def kill(self) -> None:
        """End it at once; it is noticed like any other death."""
        if self.process is not None:
            self.process.kill()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.exitcode is None


M = TypeVar("M", bound=Member)


class Pool(Generic[M]):
    """What is common to all kinds; a kind says how a process is launched, and what comes of what it says.

    Attributes:
        proved: each was ready at the same time, once.
        outage: none is ready.
    """

    KIND: ClassVar[str]
    """As the log calls one."""
    FAILED: ClassVar[str]
    """The log's event of a start that failed."""
    TOLD: ClassVar[tuple[str, ...]]
    """Facts of one that is ready, for the log."""
    FIRST_ALL: ClassVar[bool]
    """The service gives up at its first start, too, where one of them cannot be started."""

    def __init__(
        self, members: Sequence[M], no_start_s: float, first_start_s: float, give_up: Callable[[WorkbenchError], None]
    ) -> None:
        """
        Args:
            no_start_s: how long an outage may last.
            first_start_s: for a start of which nothing is known.
        """
        self.all = members
        self.proved = False
        self.outage = Outage(no_start_s)
        self._first_start_s, self._give_up = first_start_s, give_up
        self._slowest_s: float | None = None
        self._ending = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def launch(self, member: M) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        """Its process, and our end of its socket; called in the main thread, with which it dies.

        Raises:
            OSError: no file, process or memory is left for it.
        """
        raise NotImplementedError

    def received(self, member: M, message: Message) -> None:
        """Of one that is ready, or says so with this message."""
        raise NotImplementedError

    def emptied(self, member: M) -> dict[str, Any]:
        """It is gone: forget what it had in hand; returns what the log says of that."""
        return {}

    def changed(self, member: M) -> None:
        """One came or went, or could not be started."""

    def wants(self) -> bool:
        """One that is lost is to be started again."""
        return True

    def about(self, member: M) -> dict[str, Any]:
        """For the log, beside its number."""
        return {}

    def none_left(self, last: M) -> ToolchainError:
        """Why the service gives up."""
        raise NotImplementedError

    @property
    def ready(self) -> int:
        return sum(member.state == "ready" for member in self.all)

    @property
    def none_starts(self) -> bool:
        """None is ready, and the last start of each failed; what came now would wait for no one knows how long."""
        return all(member.failed_starts for member in self.all)

    def start(self) -> None:
        """Start all. Call it inside the event loop."""
        for member in self.all:
            self.keep(self._until_it_runs(member))

    def keep(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that ends with this pool."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Close every socket, which ends the processes; kill those that do not end."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.all:
            if member.link is not None:
                member.link.close()
            if member.state != "ready":  # it would look at its socket only when it has opened the model
                member.kill()
        if not await _gone(self.all, _END_S):
            for member in self.all:
                member.kill()
            if not await _gone(self.all, _KILL_S):
                log(f"{self.KIND}_remains", pids=[m.process.pid for m in self.all if m.process is not None and m.runs])

    async def _until_it_runs(self, member: M) -> None:
        while True:
            if member.process is not None or member.failed_starts:
                await asyncio.sleep(self.outage.pause_s(member.failed_starts, time.monotonic()))
            try:
                await _killed(member)
                await self._launch(member)
            except Exception as error:  # whatever it is, the others must be kept and this one tried again
                if not isinstance(error, OSError):
                    log_defect(error)
                self._start_failed(member, f"it could not be started: {_words(error)}")
            else:
                return

    async def _launch(self, member: M) -> None:
        again = member.process is not None
        member.said, member.refused, member.facts = "", None, {}
        member.process, ours = self.launch(member)
        member.restarts += again
        member.state, member.began_s = "starting", time.monotonic()
        most_s = longest_start_s(self._slowest_s, first_s=self._first_start_s, limit_s=self.outage.limit_s)
        member.slow = asyncio.get_running_loop().call_later(most_s, self._too_slow, member, most_s)
        member.link = Link(lambda message: self._heard(member, message), lambda: self._disconnected(member))
        try:
            await member.link.open(ours)
        except BaseException:
            member.link = None
            self._no_longer_slow(member)
            ours.close()
            member.process.kill()
            raise

    def _heard(self, member: M, message: Message) -> None:
        head = message.head
        if member.state == "starting":
            if "failed" in head:
                member.said = head["failed"]
                if head["final"]:
                    member.refused = (ToolchainError if head["machine"] else BundleError)(head["failed"])
                return
            member.facts, member.state, member.failed_starts, member.error = head["ready"], "ready", 0, ""
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - member.began_s)
            self._no_longer_slow(member)
            self.proved = self.proved or self.ready == len(self.all)
            if self.proved or not self.FIRST_ALL:
                self.outage.end()
            told = {name: member.facts[name] for name in self.TOLD}
            log(f"{self.KIND}_ready", **{self.KIND: member.number}, **self.about(member), **told)
            self.changed(member)
        self.received(member, message)

    def _disconnected(self, member: M) -> None:
        """Its socket closed: it died, or we end it."""
        was, member.state, member.link = member.state, "lost", None
        self._no_longer_slow(member)
        had = self.emptied(member)
        if self._ending:
            return
        member.error = "it died" if was == "ready" else member.said or _end_of_start(member)
        log(f"{self.KIND}_lost", **{self.KIND: member.number}, **self.about(member), was=was, error=member.error, **had)
        self.changed(member)
        if was == "ready":
            if not self.ready:
                self.outage.begin(time.monotonic())
        elif member.refused is not None and not self.proved:
            self._give_up(member.refused)
            return
        else:
            self._start_failed(member, member.error)
        if self.wants():
            self.keep(self._until_it_runs(member))

    def _start_failed(self, member: M, error: str) -> None:
        now_s = time.monotonic()
        member.failed_starts += 1
        member.all_failed_starts += 1
        member.state, member.error = "lost", error
        if not self.ready or (self.FIRST_ALL and not self.proved):
            self.outage.begin(now_s)
        log(self.FAILED, **{self.KIND: member.number}, error=error, in_a_row=member.failed_starts)
        self.changed(member)
        under_way = any(m.state == "starting" and not m.failed_starts for m in self.all)
        if self.outage.is_over_limit(now_s) and not under_way:
            self._give_up(self.none_left(member))

    def _too_slow(self, member: M, most_s: float) -> None:
        member.said = f"it was not ready after {most_s:.0f} s"
        member.kill()

    def _no_longer_slow(self, member: M) -> None:
        if member.slow is not None:
            member.slow.cancel()
            member.slow = None


def spawned(
    name: str, target: Callable[..., None], *given: object
) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
    """A process that calls `target` with what is given, its end of a socket pair and our process id; and our end.

    Raises:
        OSError: no file, process or memory is left for it.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            arguments = (*given, theirs, os.getpid())
            process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, name=name)
            process.start()
    except BaseException:
        ours.close()
        raise
    return process, ours


def live_and_die_with(parent: int) -> None:
    """Leave the signals of a terminal or a service manager to the first process, which drains first; die if it dies."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere a worker that hangs in a batch outlives it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that was said
        raise SystemExit(1)


async def _killed(member: Member) -> None:
    """End what is left of its last process: two would share its device.

    Raises:
        TimeoutError: the kernel does not end it.
    """
    if member.process is None:
        return
    member.process.kill()
    if not await _gone([member], _KILL_S):
        raise TimeoutError(f"its last process, {member.process.pid}, does not end although it was killed")


async def _gone(members: Sequence[Member], patience_s: float) -> bool:
    """Whether their processes ended in time. Asks again and again: a thread that waits may itself not be had."""
    until_s = time.monotonic() + patience_s
    while any(member.runs for member in members):
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _end_of_start(member: Member) -> str:
    assert member.process is not None
    member.process.join(_REAP_S)
    status = member.process.exitcode
    if status is None:
        return "it ended while it started"
    if status >= 0:
        return f"it ended with status {status} while it started"
    try:
        return f"it was killed by {signal.Signals(-status).name} while it started"
    except ValueError:  # a real-time signal has no name
        return f"it was killed by signal {-status} while it started"


def _words(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
