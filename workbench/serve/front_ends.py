"""Several front ends behind one port, as the process with queues and workers sees them.

All accept from one listening socket that this process opened: whoever is free takes the next connection, one that hangs
or died takes none, and a second service on the same port fails instead of taking a share of the requests in silence.

Rows of all front ends wait in the same queues (`dispatch`), whoever took them in: bins fill as with one front end, and
no card waits for the front end that feeds it.
"""

from __future__ import annotations

import asyncio
import multiprocessing.process
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.bundle.opened import Bundle
from workbench.serve import front_end
from workbench.serve.batcher import Alone, Row
from workbench.serve.dispatch import Dispatch
from workbench.serve.events import every, log
from workbench.serve.front_end import BEAT_S
from workbench.serve.metrics import Merged, labelled
from workbench.serve.pool import Member, Pool, spawned
from workbench.serve.refusals import Refusal
from workbench.serve.samples import ArraySample
from workbench.serve.settings import ServeSettings
from workbench.serve.wire import Message
from workbench.targets.base import Array
from workbench.values.errors import ToolchainError, WorkbenchError

_START_S = 120.0
"""How long a front end may take before it counts as hanging."""
_POLL_S = 0.02


@dataclass(slots=True, eq=False)
class FrontEnd(Member):
    """One of them.

    Attributes:
        connections: that are open, as far as it said.
        open: requests that are not answered yet.
        drains: it said so: it takes no request any more.
        heard_s: when it said something last, by `time.monotonic`.
    """

    connections: int = 0
    open: int = 0
    drains: bool = False
    heard_s: float = 0.0
    rows: dict[int, Row] = field(default_factory=dict)
    tell_queue: Callable[[], dict[str, Any]] = dict

    def answered(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> None:
        numbers = self._done(rows)
        self.say({"answered": numbers, "company": rows[0].company, **self.tell_queue()}, outputs)

    def failed(self, rows: Sequence[Row], refusal: Refusal) -> None:
        told = [refusal.kind, refusal.message, refusal.retry_after_s]
        self.say({"failed": self._done(rows), "refusal": told})

    def _done(self, rows: Sequence[Row]) -> list[int]:
        for row in rows:
            self.rows.pop(row.number, None)
        return [row.number for row in rows]


class FrontEnds(Pool[FrontEnd], Collector):
    """Make it inside the event loop, in the main thread."""

    KIND, FAILED, FIRST_ALL = "front_end", "front_end_failed", False
    TOLD = ("pid",)

    def __init__(
        self,
        bundle: Bundle,
        settings: ServeSettings,
        dispatch: Dispatch,
        listener: socket.socket,
        give_up: Callable[[WorkbenchError], None],
        count: int,
    ) -> None:
        members = [FrontEnd(number, tell_queue=self._queue_facts) for number in range(count)]
        super().__init__(members, settings.limits.no_worker_s, _START_S, give_up)
        self._bundle, self._dispatch, self._listener = bundle, dispatch, listener
        self._limits = settings.limits
        shared = ("connections", "connections_of_address")  # each front end may have its part of them
        parts = {name: -(-getattr(settings.limits, name) // count) for name in shared}
        self._settings = replace(settings, limits=replace(settings.limits, **parts))
        self._merged = Merged()
        dispatch.metrics.registry.register(self)
        dispatch.on_change = self.tell_state

    @property
    def open_requests(self) -> int:
        return sum(front.open for front in self.all)

    def start(self) -> None:
        super().start()
        self.keep(every(BEAT_S, self._beat))

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("workbench_front_ends_alive", "Front ends that take requests.", self.ready)
        restarts = [(str(front.number), front.restarts) for front in self.all]
        about = "Times a front end was started again."
        yield labelled(CounterMetricFamily, "workbench_front_end_restarts", about, "front_end", restarts)

    # --- what they say ----------------------------------------------------------------------------------------------

    def received(self, member: FrontEnd, message: Message) -> None:
        front, head = member, message.head
        front.heard_s = time.monotonic()
        if "rows" in head:
            self._rows(front, message)
        elif "drop" in head:
            self._dispatch.discard([row for n in head["drop"] if (row := front.rows.pop(n, None)) is not None])
        if "beat" in head:
            beat = head["beat"]
            front.connections, front.open, front.drains = beat["connections"], beat["open"], beat["draining"]
        if "metrics" in head:
            self._merged.last[front.number] = head["metrics"]
        if "ask" in head:
            front.say({"text": self._merged.text(self._dispatch.metrics).decode()})

    def _rows(self, front: FrontEnd, message: Message) -> None:
        """What it hands over, as rows of which it is told."""
        head, key = message.head, message.head["key"]
        told = enumerate(zip(head["rows"], head["tokens"], head["arrived"], strict=True))
        rows = [
            Row(
                key=Alone() if key is None else key,
                item=ArraySample(feeds=message.arrays, place=place, raw=head["raw"], tokens=tokens),
                asker=front,
                arrived_s=arrived_s,
                number=number,
            )
            for place, (number, tokens, arrived_s) in told
        ]
        try:
            (self._dispatch.again if key is None else self._dispatch.add)(rows)
        except Refusal as refusal:
            front.failed(rows, refusal)
            return
        front.rows.update((row.number, row) for row in rows)

    def _queue_facts(self) -> dict[str, Any]:
        return {"depth": self._dispatch.depth, "retry": self._dispatch.retry_after_s()}

    def tell_state(self) -> None:
        """Something changed that front ends answer by."""
        queue = self._dispatch
        health = queue.health([one.shown("front_end", connections=one.connections) for one in self.all], self.proved)
        known = {"proved": queue.proved, "none_starts": queue.none_starts, "draining": queue.draining}
        state = {**known, "health": health, "facts": dict(queue.worker_facts), **self._queue_facts()}
        for front in self.all:
            if front.state == "ready":
                front.say({"state": state})

    def _beat(self) -> None:
        self.tell_state()
        for front in self.all:
            silent_s = time.monotonic() - front.heard_s
            if front.state == "ready" and silent_s > self._limits.hang_s:
                log("front_end_hangs", front_end=front.number, silent_s=round(silent_s, 1))
                front.kill()

    # --- their lives ------------------------------------------------------------------------------------------------

    def launch(self, member: FrontEnd) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        member.drains = False
        given = str(self._bundle.directory), self._bundle.manifest_sha256, self._settings, self._listener
        return spawned(f"front-end-{member.number}", front_end.run, *given)

    def emptied(self, member: FrontEnd) -> dict[str, Any]:
        lost, member.open, member.connections = member.open, 0, 0
        rows, member.rows = list(member.rows.values()), {}
        self._dispatch.discard(rows)
        self._merged.lost(member.number)
        return {"requests": lost, "rows": len(rows)}

    def changed(self, member: FrontEnd) -> None:
        self.tell_state()

    def wants(self) -> bool:
        return not self._dispatch.draining

    def none_left(self, last: FrontEnd) -> ToolchainError:
        return ToolchainError(
            f"no front end could be started for {self.limit_s:g} s; the last error: {last.error}. Look at "
            "the log, and at the limits of memory, processes and open files."
        )

    async def drain(self, grace_s: float, now: asyncio.Event) -> bool:
        """Let all take nothing new and answer what they have until `now`; True when all of it was answered in time."""
        self._dispatch.draining = True
        self.tell_state()
        until_s = time.monotonic() + grace_s
        while time.monotonic() < until_s and not now.is_set():
            if all(f.state != "ready" or (f.drains and not f.open) for f in self.all):
                return True
            await asyncio.sleep(_POLL_S)
        return not self.open_requests


def front_ends_wanted(cards: int, on_host: bool, processors: int) -> int:
    """What `--front-ends auto` means: one for each card, and at most as many as leave every second processor to the
    process with the queues, to the workers and to the cards' driver; one where the model computes on the host."""
    return 1 if on_host else max(1, min(cards, processors // 2))
