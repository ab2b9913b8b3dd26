"""From rows to batches to workers and back: the one place where batches form, whoever took the requests in.

Everything here runs in one event loop, and nothing blocks. With one front end it is that process's own loop; with
several, rows of all of them wait in the same queues here, so that a bin fills as it would with one.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing.process
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.bundle.golden import preprocessor_of
from workbench.bundle.opened import Bundle
from workbench.serve import worker
from workbench.serve.batcher import Batch, Batcher, Row, by_asker, fail, to_run_alone, whole_ms
from workbench.serve.events import every, log, log_defect
from workbench.serve.metrics import Metrics
from workbench.serve.pool import Pool, spawned
from workbench.serve.refusals import Refusal, overloaded
from workbench.serve.samples import batch_of, rows_computed, without_rows
from workbench.serve.settings import ServeSettings
from workbench.serve.wire import Message
from workbench.serve.workers import Place, Worker, WorkerMetrics, least_loaded
from workbench.targets.base import Array
from workbench.values.errors import ToolchainError, WorkbenchError
from workbench.values.system.environment import variables_set

_SWEEP_S = 0.1
"""How often batches that take too long are looked for."""
_TRIES = 2
"""Batches a row may be lost in with their worker before its request is refused."""
_FAILED_BATCHES = 3
"""In a row; then the worker is started again, which replays the golden samples."""
_LONGEST_RETRY_AFTER_S = 60


class Dispatch(Pool[Worker]):
    """The queues and the workers of a service, `service.workers` at each place; worker n computes at place n modulo
    their number. Make it inside the event loop, then start it.

    Whose rows they are (`Row.asker`, a `Service` or a `FrontEnd`) is told in the event loop, once about each row that
    was not discarded: `answered` with outputs that have one row for each, in this order, or `failed`.
    """

    KIND, FAILED, FIRST_ALL = "worker", "start_failed", True
    TOLD = ("pid", "device", "samples", "startup_s")

    def __init__(
        self,
        bundle: Bundle,
        settings: ServeSettings,
        metrics: Metrics,
        places: Sequence[Place],
        give_up: Callable[[WorkbenchError], None],
    ) -> None:
        count, limits = settings.service.workers * len(places), settings.limits
        members = [Worker(number, place=places[number % len(places)]) for number in range(count)]
        super().__init__(members, limits.no_worker_s, limits.first_start_s, give_up)
        self.metrics = metrics
        self._bundle, self._settings, self._places = bundle, settings, len(places)
        self._free: list[Worker] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when a worker came or went."""
        self._compiled_batches = bundle.manifest.candidate.compile.compiled_batches()
        self._preprocessor = preprocessor_of(bundle)
        self._batcher = Batcher(
            max_batch_size=settings.service.max_batch_size,
            batch_timeout_s=settings.service.batch_timeout_ms / 1000,
            limit=settings.limits.queue,
        )
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._rows_per_s = 0.0
        metrics.registry.register(WorkerMetrics(self))
        self.keep(every(_SWEEP_S, self._sweep))

    # --- what front ends ask ----------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Take what waits at once, however few."""
        return self._batcher.draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._batcher.draining = value
        self._pump_soon()

    @property
    def depth(self) -> int:
        """Rows that wait."""
        return self._batcher.depth

    @property
    def worker_facts(self) -> Mapping[str, Any]:
        """What the first worker that was ready said of its session."""
        return next((one.facts for one in self.all if one.facts), {})

    def add(self, rows: Sequence[Row]) -> None:
        """Queue rows, or none of them: raises Refusal."""
        if not self._batcher.add(rows):
            raise overloaded(self.depth, self._settings.limits.queue, self.retry_after_s())
        self._pump_soon()

    def discard(self, rows: Iterable[Row]) -> None:
        self._batcher.discard(rows)

    def again(self, rows: Sequence[Row]) -> None:
        """Queue rows that were in a batch before; the limit does not apply, as they were within it once."""
        self._batcher.put_back(rows)
        self._pump_soon()

    def retry_after_s(self) -> int:
        """How long the queue takes at the recent rate."""
        if not self._rows_per_s:
            return 1
        return min(max(1, math.ceil(self._batcher.depth / self._rows_per_s)), _LONGEST_RETRY_AFTER_S)

    def health(
        self, front_ends: Sequence[dict[str, Any]] = (), front_ends_started: bool = True
    ) -> tuple[int, dict[str, Any]]:
        """Status 200 when every worker has replayed the golden samples and one can answer; the body says how things
        are: what /health says.

        Args:
            front_ends: how each is, with its `state`, where there are several processes of them.
            front_ends_started: all of them were ready at the same time, once.
        """
        workers = self.all
        ready, count = self.ready, len(workers)
        running = sum(front["state"] == "ready" for front in front_ends)
        if self.draining:
            status = "draining"
        elif not (self.proved and front_ends_started):
            status = "starting"
        elif not ready or (front_ends and not running):
            status = "down"
        else:
            status = "ok" if ready == count and running == len(front_ends) else "degraded"
        content: dict[str, Any] = {"status": status}
        serving = {one.place.card for one in workers if one.state == "ready"}
        cards = dict.fromkeys(one.place.card for one in workers if one.place.card)
        if out := [card for card in cards if card not in serving]:
            content["cards_out"] = out
        content["workers"] = [
            one.shown("worker", **{key: one.facts[key] for key in one.facts.keys() & {"device"}}, **one.about)
            for one in workers
        ]
        if front_ends:
            content["front_ends"] = list(front_ends)
        if self.down_since_s is not None:
            content["no_worker"] = {"lasts_s": round(self.down_s, 1), "gives_up_after_s": self.limit_s}
        return 200 if status in ("ok", "degraded") else 503, {**content, "waiting": self.depth}

    async def metrics_text(self) -> bytes:
        return self.metrics.text()

    # --- batches ----------------------------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Once the event loop has read what else has come: requests of one moment share a batch."""
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Form batches and hand them out, as long as workers are free and bins ready."""
        self._pump_is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and (rows := self._batcher.take(now_s := time.perf_counter())) is not None:
            for row in rows:
                row.company = len(rows)
            try:
                batch = batch_of(rows, self._preprocessor)
            except Exception as error:  # a defect must not leave its callers waiting
                log_defect(error)
                fail(rows, Refusal("internal", "The batch could not be made; the log says where."))
                continue
            batch.started_s = now_s
            self._run(batch)
        self.metrics.depth.set(self._batcher.depth)
        if self._free and (ready_at := self._batcher.ready_at()) is not None:
            self._timer = self._loop.call_later(whole_ms(ready_at - time.perf_counter()), self._pump)

    def _run(self, batch: Batch) -> None:
        """Hand a batch to a free worker."""
        busy = [one.number for one in self.all if one.batch is not None]
        chosen = self._free.pop(least_loaded([one.number for one in self._free], busy, self._places))
        chosen.batch = batch
        chosen.say({"batch": 0}, batch.feeds)

    # --- workers ----------------------------------------------------------------------------------------------------

    def launch(self, member: Worker) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        bundle, number = self._bundle, member.number
        rows, policy = self._settings.service.max_batch_size, self._settings.policy
        of_bundle, at = (str(bundle.directory), bundle.manifest_sha256), (number % self._places, member.place.device)
        with variables_set(member.place.environment):
            return spawned(f"worker-{number}", worker.run, *of_bundle, rows, policy, *at)

    def received(self, member: Worker, message: Message) -> None:
        head = message.head
        if "ready" in head:
            self._freed(member)
            return
        batch, member.batch = member.batch, None
        assert batch is not None
        error = head.get("error")
        member.failed_batches = 0 if error is None else member.failed_batches + 1
        if member.failed_batches < _FAILED_BATCHES:
            self._freed(member)  # before answers are written: it would idle meanwhile
        else:
            member.kill()
        if error is None:
            self._answered(batch, member.number, message.arrays, head["run_s"])
        else:
            self._refused(batch, member.number, error)

    def _freed(self, member: Worker) -> None:
        self._free.append(member)
        self._pump()

    def emptied(self, member: Worker) -> dict[str, Any]:
        if member in self._free:
            self._free.remove(member)
        member.failed_batches = 0
        return {}

    def changed(self, member: Worker) -> None:
        self.on_change()
        if member.state == "lost" and member.batch is not None:
            batch, member.batch = member.batch, None
            self._lost(batch)

    def none_left(self, last: Worker) -> ToolchainError:
        count = sum(one.failed_starts for one in self.all)
        return ToolchainError(
            f"no worker could answer for {self.limit_s:g} s (--no-worker-timeout-s), in which {count} starts "
            f"failed; the last one, of worker {last.number}: {last.error}. Start the service again; where that does "
            "not help, look at its limits of memory, processes and open files, at its log and at the device."
        )

    def _answered(self, batch: Batch, worker: int, outputs: Mapping[str, Array], run_s: float) -> None:
        self._count(batch, worker, run_s, time.perf_counter())
        rows = batch.rows
        if wrong := without_rows(outputs, len(rows)):
            refusal = Refusal("internal", f"Output {wrong[0]!r} does not have one row for each sample.")
            fail(rows, refusal)
            return
        for asker, places in by_asker(rows).items():
            mine = [rows[place] for place in places]
            if len(mine) == len(rows):
                asker.answered(mine, outputs)
            else:
                at = np.array(places)
                asker.answered(mine, {name: array[at] for name, array in outputs.items()})

    def _refused(self, batch: Batch, worker: int, error: str) -> None:
        """The session refused a batch; the worker lives."""
        raw = batch.rows[0].item.raw
        log("batch_refused", worker=worker, rows=len(batch.rows), length=batch.length, error=error)
        message = "The model refused these inputs." if raw else "The model failed; the log says why."
        self.again(to_run_alone(batch.rows, Refusal("inputs" if raw else "internal", message)))

    def _lost(self, batch: Batch) -> None:
        """Its worker died."""
        for row in batch.rows:
            row.attempts += 1
        fail([row for row in batch.rows if row.attempts >= _TRIES], Refusal("worker_lost", "The worker died.", 1))
        self.again([row for row in batch.rows if row.attempts < _TRIES and not row.dropped])

    def _count(self, batch: Batch, worker: int, run_s: float, now_s: float) -> None:
        filled = rows_computed(len(batch.rows), self._compiled_batches) - len(batch.rows)
        self.metrics.batch(
            length=batch.length,
            rows=len(batch.rows),
            positions=batch.positions + filled * batch.length,
            padded=batch.padded + filled * batch.length,
            waited_s=[batch.started_s - row.arrived_s for row in batch.rows],
            run_s=run_s,
            worker=worker,
        )
        rate = len(batch.rows) / max(now_s - batch.started_s, 1e-6) * max(1, self.ready)
        self._rows_per_s = rate if not self._rows_per_s else 0.9 * self._rows_per_s + 0.1 * rate

    # --- time -------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now_s = time.perf_counter()
        # whoever asked is told 504 after the second, so what comes later reaches nobody
        most_s = min(self._settings.limits.batch_timeout_s, self._settings.limits.request_timeout_s)
        for one in self.all:
            batch = one.batch
            if batch is not None and now_s - batch.started_s > most_s:
                log("worker_hangs", worker=one.number, batch_s=round(now_s - batch.started_s, 1))
                one.kill()
