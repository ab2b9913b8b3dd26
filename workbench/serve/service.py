"""The heart of a front end: requests become rows, rows go into a queue, what comes back becomes answers.

Everything here runs in the one event loop; nothing blocks but the tokenizer, for microseconds. Times are those of
`time.perf_counter`: uvloop's clock is cut to milliseconds. Its timers are too, so a batch that waits for company may
leave up to a millisecond after its timeout, never before.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.bundle.golden import preprocessor_of
from workbench.bundle.opened import Bundle
from workbench.serve.access import watched_keys
from workbench.serve.batcher import Row, to_run_alone
from workbench.serve.dispatch import Dispatch
from workbench.serve.events import every, log_defect
from workbench.serve.metrics import Metrics
from workbench.serve.refusals import Refusal, overloaded
from workbench.serve.requests import Text, arrays, input_rules, parse
from workbench.serve.samples import (
    ArraySample,
    NotFinite,
    Padding,
    Tokenizing,
    answers_for,
    finite,
)
from workbench.serve.settings import ServeSettings
from workbench.targets.base import Array

if TYPE_CHECKING:
    from workbench.serve.front_end import FrontEndProcess

_SWEEP_S = 0.1
"""How often deadlines are looked at."""
_KEYS_S = 1.0
"""How often the file of keys is looked at."""
_CHARACTERS_AT_ONCE = 4096
"""Of one request that the tokenizer works on before others get their turn: some milliseconds."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way: its rows, and what they gave so far; `left` have given nothing yet."""

    done: asyncio.Future[None]
    deadline_s: float
    left: int
    results: list[Any]
    rows: Sequence[Row] = ()


class Asker:
    """Whose rows wait in a queue, and are answered by it."""

    def __init__(self, queue: Any, padding: Padding) -> None:
        """Args: queue: a `Dispatch`, or what stands for it."""
        self.queue, self._padding = queue, padding
        self._open: set[Request] = set()

    def rows_of(self, found: Mapping[str, Array]) -> list[tuple[Any, Any]]:
        """(key, sample) of each row of arrays [rows, ...] of a model's inputs."""
        padded, sizes = self._padding.padded(found)
        key = ("raw", *((name, array.shape[1:]) for name, array in sorted(padded.items())))
        rows = len(next(iter(padded.values())))
        return [(key, ArraySample(feeds=padded, place=row, sizes=sizes)) for row in range(rows)]

    def ask(self, items: Sequence[tuple[Any, Any]], arrived_s: float, deadline_s: float = math.inf) -> Request:
        """Queue a row for each (key, sample); the request's `done` ends when all are answered.

        Raises:
            Refusal: the queue is full.
        """
        done = asyncio.get_running_loop().create_future()
        request = Request(done, deadline_s, len(items), [None] * len(items))
        request.rows = [
            Row(key=key, item=item, asker=self, owner=request, index=i, arrived_s=arrived_s)
            for i, (key, item) in enumerate(items)
        ]
        self.queue.add(request.rows)
        self._open.add(request)
        return request

    async def results(self, request: Request) -> list[Any]:
        """Of each row.

        Raises:
            Refusal: it was refused while it waited.
        """
        try:
            await request.done
        except BaseException:
            self.abandon(request)
            raise
        return request.results

    def abandon(self, request: Request) -> None:
        """Its client is gone, or it was refused: its rows need not run."""
        self._open.discard(request)
        self.queue.discard(request.rows)
        request.done.cancel()

    def read(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> Sequence[Any]:
        """What each row of arrays gave. Raises NotFinite."""
        cut = self._padding.cut
        return [
            {n: finite(cut(n, array[i : i + 1], row.item.sizes)[0]) for n, array in outputs.items()}
            for i, row in enumerate(rows)
        ]

    def answered(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> None:
        try:
            found = self.read(rows, outputs)
        except NotFinite:
            self.queue.again(to_run_alone(rows, Refusal("internal", "The model gave a number that is not finite.")))
            return
        except Exception as error:  # a defect must not leave its callers waiting
            log_defect(error)
            self.failed(rows, Refusal("internal", "The answer could not be made; the log says where."))
            return
        for row, result in zip(rows, found, strict=True):
            request: Request = row.owner
            if request not in self._open:
                continue
            request.results[row.index] = result
            request.left -= 1
            if not request.left:
                self._open.discard(request)
                if not request.done.done():
                    request.done.set_result(None)

    def failed(self, rows: Sequence[Row], refusal: Refusal) -> None:
        for row in rows:
            request: Request = row.owner
            if request in self._open:
                self._open.discard(request)
                self.queue.discard(request.rows)
                if not request.done.done():
                    request.done.set_exception(refusal)


class FrontService:
    """What every service is beside its answers: who may ask, how much is on its way, when it takes requests and ends.

    Attributes:
        kinds: types of bodies that are answered.
        keys: None where everybody is answered.
    """

    kinds: tuple[bytes, ...] = (b"application/json",)

    def __init__(self, settings: ServeSettings, metrics: Metrics, queue: Any, *, emulated: bool) -> None:
        """Args: queue: or what stands for several; see `Dispatch`."""
        self.settings, self.metrics, self.queue = settings, metrics, queue
        self.started_s = time.monotonic()
        self.headers = [(b"x-workbench-emulated", b"true")] if emulated else []
        self.keys = watched_keys(settings)
        self.loop = asyncio.get_running_loop()
        self._held = 0
        self._tasks = [] if self.keys is None else [self.loop.create_task(every(_KEYS_S, self.keys.look))]

    @property
    def open_requests(self) -> int:
        raise NotImplementedError

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are not whole yet; negative when they are let go.

        Raises:
            Refusal: all such bodies together would take too much memory.
        """
        if size > 0 and self._held + size > self.settings.limits.unread_bytes:
            raise Refusal("overloaded", "Too many large bodies are on their way.", 1, close=True)
        self._held += size

    def identify(self, given: bytes | None) -> None:
        """Count a request for its key, where keys are asked for.

        Raises:
            Refusal: it has no key.
        """
        if self.keys is not None:
            self.metrics.key_requests.labels(self.keys.admit(given)).inc()

    def admit(self) -> None:
        """Raises Refusal while the service cannot take requests."""
        if self.queue.draining:
            raise Refusal("draining", "The service is shutting down; another instance may answer.", 1, close=True)
        if not self.queue.proved:
            raise Refusal("starting", "The service is starting: its golden samples are not replayed yet.", 1)
        if self.queue.none_starts:
            raise Refusal("worker_lost", "No worker can be started; it is tried again.", 5)

    async def drain(self, grace_s: float, now: asyncio.Event) -> bool:
        """Take nothing new, answer what is there until `now`; True when all of it was answered in time."""
        self.queue.draining = True
        until_s = time.perf_counter() + grace_s
        while self.open_requests and time.perf_counter() < until_s and not now.is_set():
            await asyncio.sleep(0.02)
        return not self.open_requests

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


class Service(FrontService, Asker):
    """One model's. Make it inside the event loop."""

    def __init__(
        self, bundle: Bundle, settings: ServeSettings, metrics: Metrics, queue: Dispatch | FrontEndProcess
    ) -> None:
        manifest = bundle.manifest
        FrontService.__init__(self, settings, metrics, queue, emulated=manifest.artifact.toolchain.emulated)
        Asker.__init__(self, queue, Padding(manifest))
        self.bundle = bundle
        self.preprocessor = preprocessor_of(bundle)
        self._tokenizing = None if self.preprocessor is None else Tokenizing(self.preprocessor)
        self._answers = answers_for(manifest)
        self._rules = input_rules(manifest, None if self.preprocessor is None else self.preprocessor.largest_id)
        self._longest = None if self.preprocessor is None else self.preprocessor.bins[-1]
        self._tasks.append(self.loop.create_task(every(_SWEEP_S, self._sweep)))

    @property
    def open_requests(self) -> int:
        return len(self._open)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def predict(self, body: bytes, arrived_s: float, kind: bytes = b"") -> bytes:
        """The answer to a body.

        Raises:
            Refusal: the body is wrong, the queue is full, or it was refused while it waited.
        """
        (asked, texts, inputs), limit = parse(body, self.settings.limits), self.settings.limits.queue
        if texts and self.queue.depth >= limit:  # before the tokenizer works for nothing
            raise overloaded(self.queue.depth, limit, self.queue.retry_after_s())
        if asked == "inputs":
            items = self.rows_of(arrays(inputs, self._rules, self.settings.limits, self._longest))
        else:
            items = await self._tokenized(asked, texts)
        if len(items) > limit:
            raise Refusal("fields", f"{len(items)} samples are more than may wait ({limit}).")
        deadline_s = arrived_s + self.settings.limits.request_timeout_s
        results = await self.results(self.ask(items, arrived_s, deadline_s))
        if asked == "inputs":
            outputs = {name: [result[name].tolist() for result in results] for name in results[0]}
            return _encode({"outputs": outputs}).encode()
        return _encode({"results": results} if asked == "texts" else results[0]).encode()

    async def _tokenized(self, kind: str, texts: Sequence[Text]) -> list[tuple[Any, Any]]:
        """(key, sample) of each text. Others get their turn while many long texts are tokenized."""
        tokenizing = self._tokenizing
        if tokenizing is None:
            raise Refusal("fields", "This model takes arrays, not texts: send inputs.")
        samples, characters = [], 0
        for text in texts:
            if characters > _CHARACTERS_AT_ONCE:
                characters = 0
                await asyncio.sleep(0)
                self.admit()  # the service may have begun to drain meanwhile
            samples.append(tokenizing.sample(text))
            characters += len(text) if isinstance(text, str) else sum(map(len, text))
        if any(not sample.encoded.ids for sample in samples):
            raise Refusal("fields", f"{kind} holds a text that becomes no token.")
        return [(tokenizing.bin(sample), sample) for sample in samples]

    def read(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> Sequence[Any]:
        return super().read(rows, outputs) if rows[0].item.raw else self._answers(outputs, [row.item for row in rows])

    # --- time -------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now_s = time.perf_counter()
        limit = self.settings.limits.request_timeout_s
        for request in [request for request in self._open if request.deadline_s <= now_s]:
            self.failed(request.rows, Refusal("timeout", f"No answer within {limit:g} s.", self.queue.retry_after_s()))
