"""A front end in a process of its own: it accepts connections from a socket that all share, makes rows of requests and
answers of outputs, and leaves queues and workers to that process.

    here → there   {"ready": {"pid"}}
                   {"rows": [n, …], "key", "raw", "tokens", "arrived"} and their arrays, padded to their bin; no key
                   of a row that shares its batch with none
                   {"drop": [n, …]}                       nobody waits for these any more
                   {"beat": {…}, "metrics"}                four times a second
                   {"ask": true, "metrics"}               the metrics of the whole service; `metrics` are this one's
    there → here   {"answered": [n, …], "company", "depth", "retry"} and the outputs' rows
                   {"failed": [n, …], "refusal": [kind, message, retry_after_s]}
                   {"state": {…}}                         how workers and queues are, and whether all drain
                   {"text": …}

This process ends when its link does.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from workbench.bundle.golden import preprocessor_of
from workbench.bundle.opened import Bundle, read_bundle
from workbench.serve.app import Application
from workbench.serve.batcher import Alone, Row
from workbench.serve.events import log_defect, log_libraries, log_loop_defect
from workbench.serve.metrics import Metrics, snapshot
from workbench.serve.pool import live_and_die_with
from workbench.serve.refusals import Refusal, overloaded
from workbench.serve.samples import batch_of
from workbench.serve.service import Service
from workbench.serve.settings import ServeSettings
from workbench.serve.wire import Link, Message

BEAT_S = 0.25
_ASK_S = 5.0


class FrontEndProcess:
    """Everything of this process; for its service the same as `Dispatch`, whose workers and queues are as it was told
    last."""

    def __init__(self, bundle: Bundle, settings: ServeSettings) -> None:
        self.draining = False
        self.ended, self.told = asyncio.Event(), asyncio.Event()
        """The link is gone; how workers and queues are is known."""
        self.link = Link(self._received, self._gone)
        self._preprocessor, self._limit = preprocessor_of(bundle), settings.limits.queue
        self._numbers = itertools.count()
        self._rows: dict[int, Row] = {}
        self._due: list[Row] = []
        self.proved = self.none_starts = False
        self.worker_facts: Mapping[str, Any] = {}
        self._health: tuple[int, dict[str, Any]] = 503, {}
        self.depth, self._retry_after_s = 0, 1
        self._metrics = Metrics()
        self._service = Service(bundle, settings, self._metrics, self)
        self._app = Application(self._service)
        self._asked: list[asyncio.Future[bytes]] = []

    # --- what the service asks --------------------------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> None:
        if self.depth + len(rows) > self._limit:
            raise overloaded(self.depth, self._limit, self._retry_after_s)
        self.again(rows)

    def again(self, rows: Sequence[Row]) -> None:
        """However many wait by now. They go once the event loop has read what else has come, in one message."""
        if rows and not self._due:
            asyncio.get_running_loop().call_soon(self._send_due)
        self._due.extend(rows)

    def discard(self, rows: Iterable[Row]) -> None:
        gone = []
        for row in rows:
            row.dropped = True
            if self._rows.pop(row.number, None) is not None:
                gone.append(row.number)
        if gone:
            self.link.say({"drop": gone})

    def retry_after_s(self) -> int:
        return self._retry_after_s

    def health(self) -> tuple[int, dict[str, Any]]:
        return self._health

    async def metrics_text(self) -> bytes:
        """Of the whole service."""
        waiting = [one for one in self._asked if not one.done()]  # those that waited in vain are done
        self._asked = [*waiting, asyncio.get_running_loop().create_future()]
        self.link.say({"ask": True, "metrics": snapshot(self._metrics)})
        return await asyncio.wait_for(self._asked[-1], _ASK_S)

    # --- the link ---------------------------------------------------------------------------------------------------

    def _send_due(self) -> None:
        due, self._due = self._due, []
        by_key: dict[Any, list[Row]] = {}
        for row in due:
            if not row.dropped:
                by_key.setdefault(row.key, []).append(row)
        for key, rows in by_key.items():
            try:
                feeds = batch_of(rows, self._preprocessor).feeds
            except Exception as error:  # a defect must not leave its callers waiting
                log_defect(error)
                self._service.failed(rows, Refusal("internal", "The batch could not be made; the log says where."))
                continue
            for row in rows:
                row.number = next(self._numbers)
                self._rows[row.number] = row
            raw = rows[0].item.raw
            head = {
                "rows": [row.number for row in rows],
                "key": None if isinstance(key, Alone) else repr(key),
                "raw": raw,
                "tokens": [row.item.tokens for row in rows],
                "arrived": [row.arrived_s for row in rows],
            }
            self.link.say(head, feeds)

    def _received(self, message: Message) -> None:
        head = message.head
        if "answered" in head:
            self._answered(message)
        elif "failed" in head:
            kind, text, retry_after_s = head["refusal"]
            rows = [row for n in head["failed"] if (row := self._rows.pop(n, None)) is not None]
            self._service.failed(rows, Refusal(kind, text, retry_after_s))
        elif "state" in head:
            state = head["state"]
            self.proved, self.none_starts, self.worker_facts = state["proved"], state["none_starts"], state["facts"]
            status, content = state["health"]
            self._health, self.depth, self._retry_after_s = (status, content), state["depth"], state["retry"]
            self.draining = state["draining"]
            self.told.set()
        elif "text" in head:
            waiting, self._asked = self._asked, []
            for one in waiting:
                if not one.done():
                    one.set_result(head["text"].encode())

    def _gone(self) -> None:
        self.ended.set()
        self.told.set()

    def _answered(self, message: Message) -> None:
        head, outputs = message.head, message.arrays
        self.depth, self._retry_after_s = head["depth"], head["retry"]
        found = [self._rows.pop(number, None) for number in head["answered"]]
        rows = [row for row in found if row is not None]
        if not rows:
            return
        if len(rows) < len(found):
            kept = np.array([place for place, row in enumerate(found) if row is not None])
            outputs = {name: array[kept] for name, array in outputs.items()}
        for row in rows:
            row.company = head["company"]
        self._service.answered(rows, outputs)

    async def _beats(self) -> None:
        while True:
            own = {"connections": self._app.http.connections.count, "open": self._app.open_requests}
            own["draining"] = self.draining
            self.link.say({"beat": own, "metrics": snapshot(self._metrics)})
            await asyncio.sleep(BEAT_S)

    async def run(self, link: socket.socket, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_loop_defect)
        await self.link.open(link)
        self.link.say({"ready": {"pid": os.getpid()}})
        beats = loop.create_task(self._beats())
        await self.told.wait()
        await self._app.http.start(listener)
        await self.ended.wait()
        beats.cancel()
        await self._app.end()


def run(
    directory: str,
    manifest_sha256: str,
    settings: ServeSettings,
    listener: socket.socket,
    link: socket.socket,
    parent: int,
) -> None:
    """The process: serve what comes to `listener` until `link` ends."""
    live_and_die_with(parent)
    log_libraries()
    bundle = read_bundle(Path(directory), manifest_sha256=manifest_sha256)

    async def serve() -> None:
        await FrontEndProcess(bundle, settings).run(link, listener)  # which is made inside the loop

    with link, listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
