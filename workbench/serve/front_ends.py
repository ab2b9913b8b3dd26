"""Several front ends behind one port, as the process with queues and workers sees them.

This process accepts, and hands each connection to the front end that has fewest: with a socket that every front end
listens on, the kernel would spread a few lasting connections by chance or by whoever wakes first, and one front end
would work while others idle; and a second service on the same port would take a share of its requests in silence.

Rows of all front ends wait in the same queues (`dispatch`), whoever took them in: bins fill as with one front end, and
no card waits for the front end that feeds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import multiprocessing.process
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from workbench.bundle import Bundle
from workbench.serve import front_end
from workbench.serve.batcher import QueueFull
from workbench.serve.condition import condition
from workbench.serve.dispatch import Dispatch, every
from workbench.serve.events import log, log_defect, log_seldom
from workbench.serve.front_end import ALONE, BEAT_S, CONNECTION, RATES
from workbench.serve.known_front_end import FrontEnd, share_of
from workbench.serve.merged_metrics import Merged
from workbench.serve.outage import Outage, pause_s
from workbench.serve.rates import shared_file
from workbench.serve.refusals import Refusal
from workbench.serve.settings import ServeSettings
from workbench.serve.wire import Message, Reader, pack
from workbench.values.errors import ToolchainError, WorkbenchError

_START_S = 120.0
"""How long a front end may take before it counts as hanging."""
_END_S = 5.0
"""For ending its connections; then it is killed."""
_ASK_S = 1.0
_POLL_S = 0.02
_ACCEPTED_AT_ONCE = 64


class FrontEnds:
    """Keeps a fixed number of them running. Make it inside the event loop, in the main thread."""

    def __init__(
        self,
        bundle: Bundle,
        settings: ServeSettings,
        dispatch: Dispatch,
        listener: socket.socket,
        give_up: Callable[[WorkbenchError], None],
        count: int,
    ) -> None:
        self.all = [FrontEnd(number) for number in range(count)]
        self._bundle, self._dispatch, self._listener, self._give_up = bundle, dispatch, listener, give_up
        self._limits = settings.limits
        self._settings = replace(settings, limits=share_of(settings.limits, count))
        self._merged = Merged()
        self._rates = shared_file()
        self._outage = Outage(settings.limits.no_worker_s)
        self._draining = self._ending = self._started = False
        self._ids = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        for front in self.all:
            front.tell_queue = self._queue_facts

    @property
    def open_requests(self) -> int:
        return sum(front.open for front in self.all)

    @property
    def ready(self) -> int:
        return sum(front.state == "ready" for front in self.all)

    def start(self) -> None:
        for front in self.all:
            self._keep(self._until_it_runs(front))
        self._keep(every(BEAT_S, self._beat))
        self._listener.setblocking(False)

    def health(self) -> tuple[int, dict[str, Any]]:
        """See `condition`."""
        fronts = [front.about() for front in self.all]
        queue = self._dispatch
        return condition(
            queue.workers,
            draining=self._draining,
            waiting=queue.depth,
            front_ends=fronts,
            front_ends_started=self._started,
        )

    def reload(self) -> None:
        """Let all read the file of keys again."""
        self._all_say({"reload": True})

    async def metrics_text(self) -> bytes:
        """Of the whole service; of a front end that does not answer, what it said last."""
        self._ids += 1
        waiting = []
        for front in self.all:
            if front.state == "ready":
                waiting.append(self._loop.create_future())
                front.telling[self._ids] = waiting[-1]
                front.say({"tell": self._ids})
        if waiting:
            await asyncio.wait(waiting, timeout=_ASK_S)
        return self._text()

    # --- connections ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no open file is left
                log_seldom("not_accepted", kind="accept", error=error.strerror or str(error))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(BEAT_S, self._open_doors)
                return
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._hand_over(connection)

    def _hand_over(self, connection: socket.socket) -> None:
        for front in sorted((f for f in self.all if f.state == "ready"), key=lambda f: f.load):
            assert front.doors is not None
            try:
                socket.send_fds(front.doors, [CONNECTION], [connection.fileno()])
            except OSError:  # it reads no more: it hangs, or died just now
                continue
            front.given += 1
            return

    def _open_doors(self) -> None:
        """Accept as long as a front end is there; else connections wait in the kernel."""
        if self.ready and not self._ending:
            self._loop.add_reader(self._listener, self._accept)
        else:
            self._loop.remove_reader(self._listener)

    # --- what they say ----------------------------------------------------------------------------------------------

    def received(self, front: FrontEnd, message: Message) -> None:
        head = message.head
        front.heard_s = time.monotonic()
        if "rows" in head:
            self._rows(front, message)
        elif "drop" in head:
            self._dispatch.discard([row for n in head["drop"] if (row := front.rows.pop(n, None)) is not None])
        elif "ready" in head:
            front.state, front.failed_starts = "ready", 0
            self._started = self._started or self.ready == len(self.all)
            self._outage.end()
            log("front_end_ready", front_end=front.number, pid=head["ready"])
            self.tell_state()
            if self._draining:
                front.say({"drain": True})
            self._open_doors()
        if "beat" in head:
            beat = head["beat"]
            front.connections, front.taken, front.open = beat["connections"], beat["taken"], beat["open"]
            front.drains = beat["draining"]
        if "metrics" in head:
            self._merged.put(front.number, head["metrics"])
        if "told" in head:
            waiting = front.telling.pop(head["told"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        if "ask" in head:
            self._keep(self._tell(front, head["ask"]))

    def _rows(self, front: FrontEnd, message: Message) -> None:
        rows = front.rows_of(message)
        try:
            if message.head["key"] == ALONE:
                self._dispatch.again(rows)
            else:
                self._dispatch.add(rows)
        except QueueFull:
            waiting, limit = self._dispatch.depth, self._limits.queue
            text = f"{waiting} samples wait already; {limit} may."
            front.failed(rows, Refusal("overloaded", text, self._dispatch.retry_after_s()))
            return
        front.rows.update((row.number, row) for row in rows)

    async def _tell(self, front: FrontEnd, number: int) -> None:
        front.say({"id": number, "text": (await self.metrics_text()).decode()})

    def _text(self) -> bytes:
        alive = GaugeMetricFamily("workbench_front_ends_alive", "Front ends that take requests.", self.ready)
        restarts = CounterMetricFamily(
            "workbench_front_end_restarts", "Times a front end was started again.", labels=["front_end"]
        )
        for front in self.all:
            restarts.add_metric([str(front.number)], front.restarts)
        return self._merged.text(self._dispatch.metrics, (alive, restarts))

    def _queue_facts(self) -> dict[str, Any]:
        return {"depth": self._dispatch.depth, "retry": self._dispatch.retry_after_s()}

    def _state(self) -> dict[str, Any]:
        queue = self._dispatch
        return {
            "proved": queue.proved,
            "none_starts": queue.none_starts,
            "health": self.health(),
            "facts": dict(queue.worker_facts),
            **self._queue_facts(),
        }

    def tell_state(self) -> None:
        """Something changed that front ends answer by."""
        self._all_say({"state": self._state()})

    def _all_say(self, head: Mapping[str, Any]) -> None:
        for front in self.all:
            if front.state == "ready":
                front.say(head)

    def _beat(self) -> None:
        self.tell_state()
        now_s = time.monotonic()
        for front in self.all:
            silent_s = now_s - front.heard_s
            most_s = self._limits.hang_s if front.state == "ready" else _START_S
            if front.link is not None and silent_s > most_s and front.process is not None:
                log("front_end_hangs", front_end=front.number, silent_s=round(silent_s, 1))
                front.process.kill()

    # --- their lives ------------------------------------------------------------------------------------------------

    async def _until_it_runs(self, front: FrontEnd) -> None:
        while not self._ending:
            if front.process is not None or front.failed_starts:
                await asyncio.sleep(pause_s(front.failed_starts))
            try:
                await self._launch(front)
            except Exception as error:  # whatever it is, the others must be kept and this one tried again
                if not isinstance(error, OSError):
                    log_defect(error)
                self._start_failed(front, str(error))
            else:
                return

    async def _launch(self, front: FrontEnd) -> None:
        if front.process is not None:
            front.process.kill()
            await asyncio.to_thread(front.process.join, _END_S)
            front.restarts += 1
        ours, theirs = socket.socketpair()
        doors, their_doors = socket.socketpair()
        with contextlib.ExitStack() as undo, theirs, their_doors:
            undo.callback(doors.close)
            undo.callback(ours.close)
            process = multiprocessing.get_context("spawn").Process(
                target=front_end.run,
                args=(str(self._bundle.directory), self._bundle.manifest_sha256, self._settings),
                kwargs={"link": theirs, "doors": their_doors, "parent": os.getpid()},
                name=f"front-end-{front.number}",
            )
            socket.send_fds(doors, [RATES], [self._rates])
            process.start()
            ours.setblocking(False)
            doors.setblocking(False)
            front.process, front.doors, front.state = process, doors, "starting"
            front.given = front.taken = front.connections = front.open = 0
            front.drains, front.heard_s = False, time.monotonic()
            await self._loop.create_unix_connection(lambda: _Link(self, front), sock=ours)
            undo.pop_all()

    def disconnected(self, front: FrontEnd) -> None:
        """Its link closed: it died, or ended as it was told."""
        was, front.state, front.link = front.state, "lost", None
        front.say = lambda *_: None
        if front.doors is not None:
            front.doors.close()
        lost, front.open, front.connections = front.open, 0, 0
        rows, front.rows = list(front.rows.values()), {}
        self._dispatch.discard(rows)
        self._merged.lost(front.number)
        for waiting in front.telling.values():
            if not waiting.done():
                waiting.set_result(None)
        front.telling.clear()
        if self._ending:
            return
        log("front_end_lost", front_end=front.number, was=was, requests=lost, rows=len(rows))
        self._open_doors()
        if was == "starting":
            self._start_failed(front, "it ended while it started")
        elif not self.ready:
            self._outage.begin(time.monotonic())
        if not self._draining:
            self._keep(self._until_it_runs(front))

    def _start_failed(self, front: FrontEnd, error: str) -> None:
        front.failed_starts += 1
        front.state = "lost"
        log("front_end_failed", front_end=front.number, error=error, in_a_row=front.failed_starts)
        now_s = time.monotonic()
        if not self.ready:
            self._outage.begin(now_s)
        if self._outage.is_over_limit(now_s):
            self._give_up(
                ToolchainError(
                    f"no front end could be started for {self._outage.limit_s:g} s; the last error: {error}. Look at "
                    "the log, and at the limits of memory, processes and open files."
                )
            )

    def _keep(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, grace_s: float) -> bool:
        """Let all take nothing new and answer what they have; True when all of it was answered in time."""
        self._draining = self._dispatch.draining = True
        self._all_say({"drain": True})
        until_s = time.monotonic() + grace_s
        while time.monotonic() < until_s:
            if all(f.state != "ready" or (f.drains and not f.open) for f in self.all):
                return True
            await asyncio.sleep(_POLL_S)
        return not self.open_requests

    async def end(self) -> None:
        """Close the links, which ends the processes; kill those that do not end."""
        self._ending = True
        self._open_doors()
        for task in list(self._tasks):
            task.cancel()
        os.close(self._rates)
        for front in self.all:
            if front.link is not None:
                front.link.close()
            if front.state == "starting" and front.process is not None:
                front.process.kill()
        until_s = time.monotonic() + _END_S
        processes = [front.process for front in self.all if front.process is not None]
        while any(process.exitcode is None for process in processes):
            if time.monotonic() > until_s:
                for process in processes:
                    process.kill()
                until_s += _END_S
            await asyncio.sleep(_POLL_S)


class _Link(asyncio.Protocol):
    """The event loop's view of one front end's socket."""

    def __init__(self, fronts: FrontEnds, front: FrontEnd) -> None:
        self._fronts, self._front, self._reader = fronts, front, Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        stream.set_write_buffer_limits(0)
        self._front.link = stream
        self._front.say = lambda head, arrays=None: stream.write(pack(head, arrays))

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._fronts.received(self._front, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fronts.disconnected(self._front)
