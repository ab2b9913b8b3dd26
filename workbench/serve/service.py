"""The heart of the front end: requests become rows, rows wait, batches go to workers, answers come back.

Everything here runs in the one event loop; nothing blocks but the tokenizer, for microseconds. Times are those of
`time.perf_counter`: uvloop's clock is cut to milliseconds. Its timers are too, so a batch that waits for company may
leave up to a millisecond after its timeout, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from workbench.bundle import Bundle, preprocessor_of
from workbench.serve.answers import Answer, NotFinite, answers_for, finite, texts_answered, without_rows
from workbench.serve.batcher import Batch, Batcher, QueueFull, Row, whole_ms
from workbench.serve.events import log, log_defect, log_seldom
from workbench.serve.keys import watched_keys
from workbench.serve.metrics import Metrics
from workbench.serve.refusals import Refusal
from workbench.serve.requests import Question, arrays, input_rules, parse
from workbench.serve.room import with_room
from workbench.serve.samples import RawSample, Tokenizing, batch_of, raw_key, raw_rows, rows_computed
from workbench.serve.settings import ServeSettings
from workbench.serve.sizes import Padding, Sizes
from workbench.serve.workers import Worker, Workers
from workbench.targets.base import Array

Phase = Literal["starting", "serving", "draining"]

_SWEEP_S = 0.1
"""How often deadlines are looked at."""
_MEMORY_S = 5.0
_KEYS_S = 1.0
"""How often the file of keys is looked at."""
_TRIES = 2
"""Batches a row may be lost in with their worker before its request is refused."""
_LONGEST_RETRY_AFTER_S = 60
_CHARACTERS_AT_ONCE = 4096
"""Of one request that the tokenizer works on before others get their turn: some milliseconds."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Request:
    """One request on its way: its rows, and what they gave so far."""

    __slots__ = ("done", "kind", "left", "results", "rows")

    def __init__(self, kind: str, done: asyncio.Future[None]) -> None:
        self.kind, self.done = kind, done
        self.rows: list[Row] = []
        self.results: list[Any] = []
        self.left = 0


class Service:
    """State of one service. Make it inside the event loop, give it its workers, then start it."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, metrics: Metrics) -> None:
        settings = with_room(settings, bundle)
        self.bundle, self.settings, self.metrics = bundle, settings, metrics
        self.draining = False
        self.started_s = time.monotonic()
        self.workers: Workers
        manifest, service = bundle.manifest, settings.service
        emulated = manifest.artifact.toolchain.emulated
        self.headers = [(b"x-workbench-emulated", b"true")] if emulated else []
        self._compiled_batches = manifest.candidate.compile.compiled_batches()
        self.preprocessor = preprocessor_of(bundle)
        self._tokenizing = None if self.preprocessor is None else Tokenizing(self.preprocessor)
        self._answers = answers_for(manifest)
        self._rules = input_rules(manifest, None if self.preprocessor is None else self.preprocessor.largest_id)
        self._longest = None if self.preprocessor is None else self.preprocessor.bins[-1]
        self._padding = Padding(manifest)
        self._batcher = Batcher(
            max_batch_size=service.max_batch_size,
            batch_timeout_s=service.batch_timeout_ms / 1000,
            limit=settings.limits.queue,
        )
        self.keys = watched_keys(settings.access)
        """None where everybody is answered."""
        self.loop = asyncio.get_running_loop()
        self._running: set[Batch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._rows_per_s = 0.0
        self._open: set[Request] = set()
        self._held = 0
        self._reading: dict[asyncio.Task[Any], float] = {}
        metrics.outage(lambda: self.workers.outage.lasts_s(time.monotonic()))
        self._sweeping = [
            self.loop.create_task(self._every(_SWEEP_S, self._sweep)),
            self.loop.create_task(self._every(_MEMORY_S, self._read_memory)),
        ]
        if self.keys is not None:
            self._sweeping.append(self.loop.create_task(self._every(_KEYS_S, self.keys.look)))

    @property
    def phase(self) -> Phase:
        if self.draining:
            return "draining"
        return "serving" if self.workers.proved else "starting"

    @property
    def depth(self) -> int:
        return self._batcher.depth

    @property
    def open_requests(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def reading(self, arrived_s: float) -> Iterator[None]:
        """While a body is read: a timer of its own for each request would cost more than reading does.

        Raises:
            Refusal: it took too long.
        """
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = arrived_s
        try:
            yield
        except asyncio.CancelledError:
            if task in self._reading:
                raise
            task.uncancel()
            limit = self.settings.limits.body_timeout_s
            raise Refusal("slow", f"The body did not come within {limit:g} s.", close=True) from None
        finally:
            self._reading.pop(task, None)

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are not whole yet; negative when they are let go.

        Raises:
            Refusal: all such bodies together would take too much memory.
        """
        if size > 0 and self._held + size > self.settings.limits.unread_bytes:
            raise Refusal("overloaded", "Too many large bodies are on their way.", 1, close=True)
        self._held += size

    # --- requests ---------------------------------------------------------------------------------------------------

    def identify(self, given: bytes | None) -> None:
        """Count a request for its key, where keys are asked for.

        Raises:
            Refusal: it has no key, or came too soon for its key.
        """
        if self.keys is not None:
            self.metrics.key_used(self.keys.admit(given, time.perf_counter()).name)

    def admit(self) -> None:
        """Raises Refusal while the service cannot take requests."""
        if self.draining:
            raise Refusal("draining", "The service is shutting down; another instance may answer.", 1, close=True)
        if not self.workers.proved:
            raise Refusal("starting", "The service is starting: its golden samples are not replayed yet.", 1)
        if self.workers.none_starts:
            raise Refusal("worker_lost", "No worker can be started; it is tried again.", 5)

    async def submit(self, body: bytes | bytearray, arrived_s: float) -> Request:
        """Queue what a body asks; the request's `done` ends when it is answered.

        Raises:
            Refusal: the body is wrong, or the queue is full.
        """
        question = parse(body, self.settings.limits)
        if question.texts and self._batcher.depth >= self.settings.limits.queue:
            raise self._overloaded()  # before the tokenizer works for nothing
        items = await self._items(question)
        if len(items) > self.settings.limits.queue:
            raise Refusal("fields", f"{len(items)} samples are more than may wait ({self.settings.limits.queue}).")
        request = Request(question.kind, self.loop.create_future())
        deadline_s = arrived_s + self.settings.limits.request_timeout_s
        request.rows = [
            Row(key=key, item=item, owner=request, index=i, arrived_s=arrived_s, deadline_s=deadline_s)
            for i, (key, item) in enumerate(items)
        ]
        request.left = len(items)
        request.results = [None] * len(items)
        try:
            self._batcher.add(request.rows)
        except QueueFull:
            raise self._overloaded() from None
        self._open.add(request)
        self._pump_soon()
        return request

    def abandon(self, request: Request) -> None:
        """Its client is gone, or it was refused: its rows need not run."""
        self._open.discard(request)
        self._batcher.discard(request.rows)
        request.done.cancel()

    def answer(self, request: Request) -> bytes:
        """The body of a request that is done.

        Raises:
            Refusal: it was refused while it waited.
        """
        results = request.results
        if request.kind == "inputs":
            names = results[0]
            outputs = {name: [result[name].tolist() for result in results] for name in names}
            return _encode({"outputs": outputs}).encode()
        return _encode({"results": results} if request.kind == "texts" else results[0]).encode()

    async def _items(self, question: Question) -> list[tuple[Any, Any]]:
        """(key, sample) of each row. Others get their turn while many long texts are tokenized."""
        if question.inputs is not None:
            found = arrays(question.inputs, self._rules, self.settings.limits, self._longest)
            padded, sizes = self._padding.padded(found)
            key = raw_key(padded)
            return [(key, row) for row in raw_rows(padded, sizes)]
        tokenizing = self._tokenizing
        if tokenizing is None:
            raise Refusal("fields", "This model takes arrays, not texts: send inputs.")
        samples, characters = [], 0
        for text in question.texts:
            if characters > _CHARACTERS_AT_ONCE:
                characters = 0
                await asyncio.sleep(0)
                self.admit()  # the service may have begun to drain meanwhile
            samples.append(tokenizing.sample(text))
            characters += len(text) if isinstance(text, str) else sum(map(len, text))
        if any(not sample.encoded.ids for sample in samples):
            raise Refusal("fields", f"{question.kind} holds a text that becomes no token.")
        return [(tokenizing.bin(sample), sample) for sample in samples]

    def _overloaded(self) -> Refusal:
        waiting, limit = self._batcher.depth, self.settings.limits.queue
        return Refusal("overloaded", f"{waiting} samples wait already; {limit} may.", self._retry_after_s())

    def _retry_after_s(self) -> int:
        """How long the queue takes at the recent rate."""
        if not self._rows_per_s:
            return 1
        return min(max(1, math.ceil(self._batcher.depth / self._rows_per_s)), _LONGEST_RETRY_AFTER_S)

    # --- batches ----------------------------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Once the event loop has read what else has come: requests of one moment share a batch."""
        if not self._pump_is_due:
            self._pump_is_due = True
            self.loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pump_is_due = False
        self._pump()

    def _pump(self) -> None:
        """Form batches and hand them out, as long as workers are free and bins ready."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.workers.free and (rows := self._batcher.take(now_s := time.perf_counter())) is not None:
            try:
                batch = batch_of(rows, self.preprocessor)
            except Exception as error:  # a defect must not leave its callers waiting
                log_defect(error)
                self._fail(rows, Refusal("internal", "The batch could not be made; the log says where."))
                continue
            batch.started_s = now_s
            self._running.add(batch)
            self.workers.run(batch)
        self.metrics.queue(self._batcher.depth)
        if self.workers.free and (ready_at := self._batcher.ready_at()) is not None:
            self._timer = self.loop.call_later(whole_ms(ready_at - time.perf_counter()), self._pump)

    def worker_ready(self, worker: Worker) -> None:
        self._tell_memory(worker)

    def worker_free(self) -> None:
        self._pump()

    def answered(self, batch: Batch, worker: int, outputs: Mapping[str, Array], run_s: float) -> None:
        self._running.discard(batch)
        now_s = time.perf_counter()
        self._count(batch, worker, run_s, now_s)
        rows = batch.rows
        wrong = without_rows(outputs, len(rows))
        try:
            if wrong:
                raise Refusal("internal", f"Output {wrong[0]!r} does not have one row for each sample.")
            if isinstance(rows[0].item, RawSample):
                found: Sequence[Any] = [self._raw_answer(outputs, i, row.item.sizes) for i, row in enumerate(rows)]
            else:
                found = texts_answered(self._answers, outputs, [row.item for row in rows])
        except NotFinite:
            self._fail_apart(batch, Refusal("internal", "The model gave a number that is not finite."))
            return
        except Refusal as refusal:
            self._fail(rows, refusal)
            return
        except Exception as error:  # a defect must not leave its callers waiting
            log_defect(error)
            self._fail(rows, Refusal("internal", "The answer could not be made; the log says where."))
            return
        for row, result in zip(rows, found, strict=True):
            self._finish(row, result)

    def _raw_answer(self, outputs: Mapping[str, Array], row: int, sizes: Sizes) -> dict[str, Array]:
        return {n: finite(self._padding.cut(n, array[row : row + 1], sizes)[0]) for n, array in outputs.items()}

    def refused(self, batch: Batch, worker: int, error: str) -> None:
        self._running.discard(batch)
        raw = isinstance(batch.rows[0].item, RawSample)
        log("batch_refused", worker=worker, rows=len(batch.rows), length=batch.length, error=error)
        message = "The model refused these inputs." if raw else "The model failed; the log says why."
        self._fail_apart(batch, Refusal("inputs" if raw else "internal", message))

    def lost(self, batch: Batch | None, worker: int) -> None:
        self.metrics.worker_lost(worker)
        if batch is None:
            return
        self._running.discard(batch)
        for row in batch.rows:
            row.attempts += 1
        again = [row for row in batch.rows if row.attempts < _TRIES and row.owner in self._open]
        self._fail([row for row in batch.rows if row not in again], Refusal("worker_lost", "The worker died.", 1))
        self._batcher.put_back(again)
        self._pump_soon()

    def start_failed(self, worker: Worker) -> None:
        self.metrics.start_failed(worker.number)

    def _fail_apart(self, batch: Batch, refusal: Refusal) -> None:
        """One request may have spoilt a batch for others: each row gets a batch of its own, once."""
        rows = [row for row in batch.rows if row.owner in self._open]
        if len(batch.rows) == 1 or any(isinstance(row.key, _Alone) for row in rows):
            self._fail(rows, refusal)
            return
        for row in rows:
            row.key = _Alone()
        self._batcher.put_back(rows)
        self._pump_soon()

    def _fail(self, rows: Sequence[Row], refusal: Refusal) -> None:
        for row in rows:
            request: Request = row.owner
            if request in self._open:
                self._open.discard(request)
                self._batcher.discard(request.rows)
                if not request.done.done():
                    request.done.set_exception(refusal)

    def _finish(self, row: Row, result: Answer) -> None:
        request: Request = row.owner
        if request not in self._open:
            return
        request.results[row.index] = result
        request.left -= 1
        if not request.left:
            self._open.discard(request)
            if not request.done.done():
                request.done.set_result(None)

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
        rate = len(batch.rows) / max(now_s - batch.started_s, 1e-6) * max(1, self.workers.ready)
        self._rows_per_s = rate if not self._rows_per_s else 0.9 * self._rows_per_s + 0.1 * rate

    # --- time -------------------------------------------------------------------------------------------------------

    async def _every(self, pause_s: float, work: Any) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                work()
            except Exception as error:  # nothing would look at deadlines any more
                log_seldom("defect", kind=type(error).__name__, doing=work.__name__)

    def _sweep(self) -> None:
        now_s = time.perf_counter()
        late = {row.owner for row in self._batcher.waiting() if row.deadline_s <= now_s}
        late |= {row.owner for batch in self._running for row in batch.rows if row.deadline_s <= now_s}
        for request in late:
            limit = self.settings.limits.request_timeout_s
            self._fail(request.rows, Refusal("timeout", f"No answer within {limit:g} s.", self._retry_after_s()))
        for task, arrived_s in list(self._reading.items()):
            if now_s - arrived_s > self.settings.limits.body_timeout_s:
                del self._reading[task]  # which tells it why
                task.cancel()
        for worker in self.workers.all:
            batch = worker.batch
            if batch is not None and now_s - batch.started_s > self.settings.limits.batch_timeout_s:
                log("worker_hangs", worker=worker.number, batch_s=round(now_s - batch.started_s, 1))
                self.workers.kill(worker)

    def _read_memory(self) -> None:
        for worker in self.workers.all:
            if worker.state == "ready":
                self._tell_memory(worker)

    def _tell_memory(self, worker: Worker) -> None:
        self.metrics.worker(
            worker.number,
            resident_bytes=worker.resident_bytes,
            device_bytes=worker.facts["device_bytes"],
            restarts=worker.restarts,
        )

    async def drain(self, grace_s: float) -> bool:
        """Take nothing new, answer what is there; True when all of it was answered in time."""
        self.draining = self._batcher.draining = True
        self._pump_soon()
        until_s = time.perf_counter() + grace_s
        while self._open and time.perf_counter() < until_s:
            await asyncio.sleep(0.02)
        return not self._open

    def stop(self) -> None:
        for task in self._sweeping:
            task.cancel()


class _Alone:
    """A key that nothing else has."""
