"""A fixed number of processes of one kind that are kept running: started, watched, started again, ended.

A process that cannot be started, whatever the reason, is tried again after a pause that grows. While one is ready, the
others go on trying without end: a card that broke does not take the cards beside it out of service. Where none is for
`limits.no_worker_s`, the service is told to give up, and what supervises it decides.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.process
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from workbench.serve.events import log, log_defect
from workbench.serve.wire import Link, Message
from workbench.values.errors import BundleError, ToolchainError, WorkbenchError
from workbench.values.system.lifeline import die_with, ending

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


def pause_s(failed_starts: int, left_s: float | None) -> float:
    """Before a process is started again that failed to start so many times in a row: doubling, to ten seconds.

    Args:
        left_s: until the service gives up, whose last try is made then; None while one of the processes is ready.
    """
    pause = float(min(_FIRST_PAUSE_S * 2 ** min(failed_starts, _MOST_DOUBLINGS), _LONGEST_PAUSE_S))
    return pause if left_s is None or left_s <= 0 else min(pause, left_s + _LATE_S)


@dataclass(slots=True, eq=False)
class Member:
    """One process, as seen from here.

    Attributes:
        restarts: processes that were started after the first.
        failed_starts: in a row, since it was ready last; `all_failed_starts`, ever.
        error: why it was lost last, or did not start; '' once it is ready.
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
    facts: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, process: multiprocessing.process.BaseProcess) -> None:
        self.restarts += self.process is not None
        self.process, self.state, self.facts = process, "starting", {}

    def say(self, head: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
        if self.link is not None:
            self.link.say(head, arrays)

    @property
    def about(self) -> dict[str, Any]:
        """For the log, beside its number."""
        return {}

    def shown(self, kind: str, **more: Any) -> dict[str, Any]:
        """As /health shows it."""
        failed = {"failed_starts": self.failed_starts} if self.failed_starts else {}
        error = {"error": self.error} if self.error else {}
        return {kind: self.number, **more, "state": self.state, "restarts": self.restarts, **failed, **error}

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
        limit_s: how long none may be ready.
        down_since_s: when none was ready any more, or a start failed before one was; None while one is.
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
        """`first_start_s` is for a start of which nothing is known."""
        self.all, self.limit_s = members, no_start_s
        self.proved = False
        self.down_since_s: float | None = None
        self._first_start_s, self._give_up = first_start_s, give_up
        self._slowest_s: float | None = None
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

    @property
    def down_s(self) -> float:
        """How long none has been ready."""
        return 0.0 if self.down_since_s is None else time.monotonic() - self.down_since_s

    def start(self) -> None:
        """Start all. Call it inside the event loop."""
        for member in self.all:
            self.keep(self._keep_running(member))

    def keep(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that ends with this pool."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Close every socket, which ends the processes; kill those that do not end."""
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

    async def _keep_running(self, member: M) -> None:
        """Start it again after each of its ends, until the pool ends."""
        while True:
            try:
                await _killed(member)
                refused = await self._life(member)
                if refused is not None:
                    self._give_up(refused)
                    return
            except Exception as error:  # whatever it is, the others must be kept and this one tried again
                if not isinstance(error, OSError):
                    log_defect(error)
                words = error.strerror if isinstance(error, OSError) else ""
                self._start_failed(member, f"it could not be started: {words or f'{type(error).__name__}: {error}'}")
            if not self.wants():
                return
            left_s = None if self.down_since_s is None else self.limit_s - self.down_s
            await asyncio.sleep(pause_s(member.failed_starts, left_s))

    async def _life(self, member: M) -> WorkbenchError | None:
        """One process from its start to its end; why no other one need be tried, where it says so before any was ready.

        Raises:
            OSError: it could not be started.
        """
        loop, ended, said, began_s = asyncio.get_running_loop(), asyncio.Event(), dict[str, Any](), time.monotonic()
        process, ours = self.launch(member)
        member.begin(process)
        slowest_s = self._first_start_s if self._slowest_s is None else _TIMES_THE_SLOWEST * self._slowest_s
        most_s = max(self.limit_s, slowest_s)

        def too_slow() -> None:
            said["failed"] = f"it was not ready after {most_s:.0f} s"
            member.kill()

        def heard(message: Message) -> None:
            if member.state == "starting":
                if "failed" in message.head:
                    said.update(message.head)
                    return
                slow.cancel()
                self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - began_s)
                self._is_ready(member, message.head["ready"])
            self.received(member, message)

        slow = loop.call_later(most_s, too_slow)
        member.link = Link(heard, ended.set)
        try:
            await member.link.open(ours)
        except BaseException:
            member.link = None
            slow.cancel()
            ours.close()
            process.kill()
            raise
        await ended.wait()  # it died, unless we end it, which ends this task first
        slow.cancel()
        was, member.state, member.link = member.state, "lost", None
        had = self.emptied(member)
        member.error = "it died" if was == "ready" else said.get("failed") or _end_of_start(member)
        log(f"{self.KIND}_lost", **{self.KIND: member.number}, **member.about, was=was, error=member.error, **had)
        self.changed(member)
        if was == "ready":
            if not self.ready and self.down_since_s is None:
                self.down_since_s = time.monotonic()
        elif said.get("final") and not self.proved:
            return (ToolchainError if said["machine"] else BundleError)(said["failed"])
        else:
            self._start_failed(member, member.error)
        return None

    def _is_ready(self, member: M, facts: Mapping[str, Any]) -> None:
        member.facts, member.state, member.failed_starts, member.error = facts, "ready", 0, ""
        self.proved = self.proved or self.ready == len(self.all)
        if self.proved or not self.FIRST_ALL:
            self.down_since_s = None
        told = {name: facts[name] for name in self.TOLD}
        log(f"{self.KIND}_ready", **{self.KIND: member.number}, **member.about, **told)
        self.changed(member)

    def _start_failed(self, member: M, error: str) -> None:
        member.failed_starts += 1
        member.all_failed_starts += 1
        member.state, member.error = "lost", error
        if self.down_since_s is None and (not self.ready or (self.FIRST_ALL and not self.proved)):
            self.down_since_s = time.monotonic()
        log(self.FAILED, **{self.KIND: member.number}, error=error, in_a_row=member.failed_starts)
        self.changed(member)
        under_way = any(m.state == "starting" and not m.failed_starts for m in self.all)
        if self.down_since_s is not None and self.down_s >= self.limit_s and not under_way:
            self._give_up(self.none_left(member))


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
    die_with(parent)


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
    return "it ended while it started" if status is None else f"while it started, it {ending(status)}"
