"""The heart of a front end: requests become rows, rows go into a queue, what comes back becomes answers.

Everything here runs in the one event loop; nothing blocks but the tokenizer, for microseconds. Times are those of
`time.perf_counter`: uvloop's clock is cut to milliseconds. Its timers are too, so a batch that waits for company may
leave up to a millisecond after its timeout, never before.
"""

from __future__ import annotations

import asyncio
import json
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
    Answer,
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

    kind: str
    done: asyncio.Future[None]
    deadline_s: float
    left: int
    results: list[Any]
    rows: Sequence[Row] = ()


class Service:
    """State of one front end. Make it inside the event loop.

    Attributes:
        kinds: types of bodies that are answered.
    """

    kinds = (b"application/json",)

    def __init__(
        self, bundle: Bundle, settings: ServeSettings, metrics: Metrics, queue: Dispatch | FrontEndProcess
    ) -> None:
        self.bundle, self.settings, self.metrics, self.queue = bundle, settings, metrics, queue
        self.started_s = time.monotonic()
        manifest = bundle.manifest
        emulated = manifest.artifact.toolchain.emulated
        self.headers = [(b"x-workbench-emulated", b"true")] if emulated else []
        self.preprocessor = preprocessor_of(bundle)
        self._tokenizing = None if self.preprocessor is None else Tokenizing(self.preprocessor)
        self._answers = answers_for(manifest)
        self._rules = input_rules(manifest, None if self.preprocessor is None else self.preprocessor.largest_id)
        self._longest = None if self.preprocessor is None else self.preprocessor.bins[-1]
        self._padding = Padding(manifest)
        self.keys = watched_keys(settings)
        """None where everybody is answered."""
        self.loop = asyncio.get_running_loop()
        self._open: set[Request] = set()
        self._held = 0
        self._sweeping = [self.loop.create_task(every(_SWEEP_S, self._sweep))]
        if self.keys is not None:
            self._sweeping.append(self.loop.create_task(every(_KEYS_S, self.keys.look)))

    @property
    def open_requests(self) -> int:
        return len(self._open)

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

    async def predict(self, body: bytes, arrived_s: float, kind: bytes = b"") -> bytes:
        """The answer to a body.

        Raises:
            Refusal: the body is wrong, or it was refused while it waited.
        """
        request = await self.submit(body, arrived_s)
        try:
            await request.done
        except BaseException:
            self.abandon(request)
            raise
        results = request.results
        if request.kind == "inputs":
            names = results[0]
            outputs = {name: [result[name].tolist() for result in results] for name in names}
            return _encode({"outputs": outputs}).encode()
        return _encode({"results": results} if request.kind == "texts" else results[0]).encode()

    async def submit(self, body: bytes, arrived_s: float) -> Request:
        """Queue what a body asks; the request's `done` ends when it is answered.

        Raises:
            Refusal: the body is wrong, or the queue is full.
        """
        (kind, texts, inputs), limit = parse(body, self.settings.limits), self.settings.limits.queue
        if texts and self.queue.depth >= limit:  # before the tokenizer works for nothing
            raise overloaded(self.queue.depth, limit, self.queue.retry_after_s())
        items = await self._tokenized(kind, texts) if kind != "inputs" else self._rows(inputs)
        if len(items) > limit:
            raise Refusal("fields", f"{len(items)} samples are more than may wait ({limit}).")
        deadline_s = arrived_s + self.settings.limits.request_timeout_s
        request = Request(kind, self.loop.create_future(), deadline_s, len(items), [None] * len(items))
        request.rows = [
            Row(key=key, item=item, asker=self, owner=request, index=i, arrived_s=arrived_s)
            for i, (key, item) in enumerate(items)
        ]
        self.queue.add(request.rows)
        self._open.add(request)
        return request

    def abandon(self, request: Request) -> None:
        """Its client is gone, or it was refused: its rows need not run."""
        self._open.discard(request)
        self.queue.discard(request.rows)
        request.done.cancel()

    def _rows(self, inputs: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """(key, sample) of each row of raw inputs."""
        found = arrays(inputs, self._rules, self.settings.limits, self._longest)
        padded, sizes = self._padding.padded(found)
        key = ("raw", *((name, array.shape[1:]) for name, array in sorted(padded.items())))
        rows = len(next(iter(padded.values())))
        return [(key, ArraySample(feeds=padded, place=row, sizes=sizes)) for row in range(rows)]

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

    # --- what comes back --------------------------------------------------------------------------------------------

    def answered(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> None:
        try:
            if rows[0].item.raw:
                cut = self._padding.cut
                found: Sequence[Any] = [
                    {n: finite(cut(n, array[i : i + 1], row.item.sizes)[0]) for n, array in outputs.items()}
                    for i, row in enumerate(rows)
                ]
            else:
                found = self._answers(outputs, [row.item for row in rows])
        except NotFinite:
            self.queue.again(to_run_alone(rows, Refusal("internal", "The model gave a number that is not finite.")))
            return
        except Exception as error:  # a defect must not leave its callers waiting
            log_defect(error)
            self.failed(rows, Refusal("internal", "The answer could not be made; the log says where."))
            return
        for row, result in zip(rows, found, strict=True):
            self._finish(row, result)

    def failed(self, rows: Sequence[Row], refusal: Refusal) -> None:
        for row in rows:
            request: Request = row.owner
            if request in self._open:
                self._open.discard(request)
                self.queue.discard(request.rows)
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

    # --- time -------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now_s = time.perf_counter()
        limit = self.settings.limits.request_timeout_s
        for request in [request for request in self._open if request.deadline_s <= now_s]:
            self.failed(request.rows, Refusal("timeout", f"No answer within {limit:g} s.", self.queue.retry_after_s()))

    async def drain(self, grace_s: float, now: asyncio.Event) -> bool:
        """Take nothing new, answer what is there until `now`; True when all of it was answered in time."""
        self.queue.draining = True
        until_s = time.perf_counter() + grace_s
        while self._open and time.perf_counter() < until_s and not now.is_set():
            await asyncio.sleep(0.02)
        return not self._open

    def stop(self) -> None:
        for task in self._sweeping:
            task.cancel()
