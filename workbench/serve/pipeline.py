"""A pipeline's service: each stage has queue and workers as a model's service has; requests go from one to the next.

One front end takes requests: JSON, or an NPZ file that is not compressed, which pictures and sound are read from much
faster. Glue runs in a process for each function, away from the event loop; one that raises, hangs or dies fails its
request alone, and is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from workbench import __version__
from workbench.bundle.pipeline import PipelineBundle, arrays_of_npz, check_pipeline, glue_differences
from workbench.bundle.signing import TrustedKeys
from workbench.bundle.verify import check_bundle
from workbench.serve.dispatch import Dispatch
from workbench.serve.events import log_defect, log_seldom
from workbench.serve.metrics import Metrics
from workbench.serve.refusals import Refusal
from workbench.serve.requests import arrays, fitted, parse, rules_of
from workbench.serve.samples import Padding
from workbench.serve.service import Asker, FrontService
from workbench.serve.settings import ServeSettings
from workbench.serve.worker import open_proved
from workbench.targets.base import Session
from workbench.user_code import UserCode, UserCodeError, UserProcess
from workbench.values.documents.canonical import encode
from workbench.values.errors import BundleError
from workbench.values.pipeline import (
    Item,
    ItemError,
    checked_answer,
    further_items,
    items_of,
    plain,
    runs_once,
    taken,
    without_carried,
)

NPZ = b"application/x-npz"
_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
"""Of a number in a golden answer that is answered again."""


class Glue:
    """One of the user's functions in a process; started where it is asked first, and again where it died."""

    def __init__(self, code: UserCode, limit_s: float) -> None:
        self._code, self._limit_s = code, limit_s
        self._process: UserProcess | None = None

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """Raises UserCodeError."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = UserProcess(self._code, self._limit_s)
        return self._process.call(arguments)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


def glue_of(bundle: PipelineBundle, limit_s: float) -> dict[str, Glue]:
    """'file.py:function' → the function, of the stages and of the answer."""
    named = {glue for each in bundle.manifest.stages for glue in (each.glue, each.again) if glue}
    named |= {bundle.manifest.answer} if bundle.manifest.answer else set()
    return {name: Glue(bundle.code(name), limit_s) for name in sorted(named)}


def _plain_answer(bundle: PipelineBundle, found: Any) -> Any:
    return plain(checked_answer(found, bundle.manifest.answer or bundle.manifest.stages[-1].name))


def _unglued(bundle: PipelineBundle, outputs: Mapping[str, Sequence[Item]]) -> Any:
    last = [dict(one) for one in outputs[bundle.manifest.stages[-1].name]]
    return last[0] if runs_once(bundle.manifest.stages) else last


# --- verify ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """Attributes:
    requests: golden requests that were answered again.
    warnings: libraries of its code that are others here.
    """

    stages: int
    requests: int
    signature: str
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        replayed = (
            f"{self.requests} golden requests answered alike" if self.requests else "golden requests not replayed"
        )
        return f"{self.stages} stages, every file matches its sha256; {self.signature}; {replayed}"


def verify_pipeline(
    bundle: PipelineBundle, trusted: TrustedKeys | None = None, *, replay: bool = True
) -> PipelineReport:
    """Check every byte, open each stage (its golden samples are replayed), and answer the golden requests again.

    Raises:
        BundleError: what is damaged, or which request is answered otherwise.
    """
    signer = check_pipeline(bundle, trusted)
    for each in bundle.bundles.values():
        check_bundle(each, None)
    count = 0
    if replay:
        with contextlib.ExitStack() as stack:
            sessions = {
                name: stack.enter_context(contextlib.closing(open_proved(each, 1, "warn")[0]))
                for name, each in bundle.bundles.items()
            }
            glue = glue_of(bundle, 600.0)
            for one in glue.values():
                stack.callback(one.close)
            requests, answers = bundle.golden()
            for number, (request, kept) in enumerate(zip(requests, answers, strict=True)):
                if (place := _differs(_answered(bundle, sessions, glue, request), kept)) is not None:
                    raise BundleError(f"{bundle.directory}: golden request {number} is answered otherwise{place}.")
            count = len(requests)
    signature = "not signed" if signer is None else f"signed by {signer.key}"
    warnings = tuple(glue_differences(bundle.manifest))
    return PipelineReport(stages=len(bundle.bundles), requests=count, signature=signature, warnings=warnings)


def _answered(bundle: PipelineBundle, sessions: Mapping[str, Session], glue: Mapping[str, Glue], request: Item) -> Any:
    outputs: dict[str, list[Item]] = {}
    try:
        for stage in bundle.manifest.stages:
            manifest = bundle.bundles[stage.name].manifest
            padding, found, specs = Padding(manifest), list[Item](), manifest.model.inputs
            outputs[stage.name] = found
            items = items_of(stage, specs, request, outputs, glue.get(stage.glue, _no_glue))
            while items:
                for item in items:
                    feeds, sizes = padding.padded({name: array[None] for name, array in item.items()})
                    gave = sessions[stage.name].run(feeds)
                    found.append({name: padding.cut(name, array, sizes)[0] for name, array in gave.items()})
                again = glue.get(stage.again, _no_glue)
                items = further_items(stage, specs, request, outputs, len(items), again)
            outputs[stage.name] = without_carried(stage, found)
        if not bundle.manifest.answer:
            return _plain_answer(bundle, _unglued(bundle, outputs))
        arguments = taken(bundle.manifest.answer_takes, request, outputs)
        return _plain_answer(bundle, glue[bundle.manifest.answer](arguments))
    except (ItemError, UserCodeError) as error:
        raise BundleError(f"{bundle.directory}: a golden request fails: {error}.") from error


def _no_glue(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("a stage without glue calls none")


def _differs(found: Any, kept: Any, place: str = "") -> str | None:
    """Where an answer is another than the kept one; None where it is not."""
    if isinstance(found, dict) and isinstance(kept, dict) and found.keys() == kept.keys():
        return next((at for key in kept if (at := _differs(found[key], kept[key], f"{place}.{key}")) is not None), None)
    if isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        pairs = enumerate(zip(found, kept, strict=True))
        return next((at for n, (a, b) in pairs if (at := _differs(a, b, f"{place}[{n}]")) is not None), None)
    if isinstance(found, float) and isinstance(kept, float):
        return None if abs(found - kept) <= _ABSOLUTE + _RELATIVE * abs(kept) else f" at {place}: {found} for {kept}"
    return None if found == kept else f" at {place}: {found!r:.80} for {kept!r:.80}"


# --- serve -----------------------------------------------------------------------------------------------------------


class _Stage(Asker):
    """A stage's queue and workers."""

    async def run(self, items: Sequence[Item]) -> list[Item]:
        """Raises Refusal."""
        if not items:
            return []
        rows = [row for item in items for row in self.rows_of({name: array[None] for name, array in item.items()})]
        results = await self.results(self.ask(rows, time.perf_counter()))
        return [{name: np.asarray(array) for name, array in result.items()} for result in results]


class StageQueues:
    """All stages together, as one queue is for a model's service."""

    def __init__(self, metrics: Metrics, dispatches: Mapping[str, Dispatch], of_stages: Mapping[str, Metrics]) -> None:
        self.each, self._metrics = dispatches, metrics
        self.worker_facts: Mapping[str, Any] = {}
        metrics.registry.register(_StageMetrics(of_stages))

    @property
    def proved(self) -> bool:
        return all(one.proved for one in self.each.values())

    @property
    def none_starts(self) -> bool:
        return any(one.none_starts for one in self.each.values())

    @property
    def draining(self) -> bool:
        return any(one.draining for one in self.each.values())

    @draining.setter
    def draining(self, value: bool) -> None:
        for one in self.each.values():
            one.draining = value

    def health(self) -> tuple[int, dict[str, Any]]:
        found = {name: one.health() for name, one in self.each.items()}
        order = ("draining", "down", "starting", "degraded", "ok")
        worst = min((body["status"] for _, body in found.values()), key=order.index)
        status = max(status for status, _ in found.values())
        return status, {"status": worst, "stages": {name: body for name, (_, body) in found.items()}}

    async def metrics_text(self) -> bytes:
        return generate_latest(self._metrics.registry)


class _StageMetrics(Collector):
    """What each stage counts, with its name as a label."""

    def __init__(self, of_stages: Mapping[str, Metrics]) -> None:
        self._of_stages = of_stages

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for stage, metrics in self._of_stages.items():
            for family in metrics.registry.collect():
                if family.name.startswith("process_"):
                    continue
                name = family.name.replace("workbench_", "workbench_stage_", 1)
                made = families.setdefault(name, Metric(name, family.documentation, family.type))
                for sample in family.samples:
                    series = sample.name.replace("workbench_", "workbench_stage_", 1)
                    made.add_sample(series, {**sample.labels, "stage": stage}, sample.value)
        return families.values()


class PipelineService(FrontService):
    """A pipeline's. Make it inside the event loop."""

    kinds = (b"application/json", NPZ)

    def __init__(self, bundle: PipelineBundle, settings: ServeSettings, metrics: Metrics, queue: StageQueues) -> None:
        super().__init__(settings, metrics, queue, emulated=bundle.manifest.emulated)
        self.bundle = bundle
        self._stages = {name: _Stage(queue.each[name], Padding(each.manifest)) for name, each in bundle.bundles.items()}
        self._rules = rules_of(bundle.manifest.request)
        self._glue = glue_of(bundle, settings.limits.request_timeout_s)
        self._threads = {name: ThreadPoolExecutor(max_workers=1) for name in self._glue}
        self._open = 0

    @property
    def open_requests(self) -> int:
        return self._open

    def admit(self) -> None:
        super().admit()
        if self._open >= self.settings.limits.queue:
            raise Refusal("overloaded", f"{self._open} requests are open, as many as may be.", 1)

    async def predict(self, body: bytes, arrived_s: float, kind: bytes = b"") -> bytes:
        """The answer to one request as JSON.

        Raises:
            Refusal: the body is wrong, the pipeline failed, or it took too long.
        """
        request, limit_s = self._request(body, kind), self.settings.limits.request_timeout_s
        self._open += 1
        try:
            answer = await asyncio.wait_for(self._answer(request), limit_s - (time.perf_counter() - arrived_s))
        except TimeoutError:
            raise Refusal("timeout", f"No answer within {limit_s:g} s.", 1) from None
        finally:
            self._open -= 1
        return json.dumps({"answer": answer}, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def _request(self, body: bytes, kind: bytes) -> Item:
        limits = self.settings.limits
        if kind == NPZ:
            try:
                found = fitted(arrays_of_npz(body), self._rules, None)
            except ValueError as error:
                raise Refusal("inputs", f"The body cannot be read: {error}.") from None
        else:
            wanted, _, inputs = parse(body, limits)
            if wanted != "inputs":
                raise Refusal("fields", "This pipeline takes arrays: send inputs.")
            found = arrays(inputs, self._rules, limits, None)
        if len(next(iter(found.values()))) != 1:
            raise Refusal("inputs", "inputs must have one row: a request is one.")
        return {name: array[0] for name, array in found.items()}

    async def _answer(self, request: Item) -> Any:
        """Stages begin as soon as those that they take from are done."""
        outputs: dict[str, list[Item]] = {}
        begun: dict[str, asyncio.Task[None]] = {}

        async def run(place: int) -> None:
            stage = self.bundle.manifest.stages[place]
            for name in stage.takes:
                if name in begun:
                    await begun[name]
            specs = self.bundle.bundles[stage.name].manifest.model.inputs
            # a thread even without glue's process: checking a picture's numbers takes milliseconds
            make = partial(items_of, stage, specs, request, outputs, self._glue.get(stage.glue, _no_glue))
            items, outputs[stage.name] = await self._called(stage.glue, make), []
            while items:
                outputs[stage.name] += await self._stages[stage.name].run(items)
                glue = self._glue.get(stage.again, _no_glue)
                more = partial(further_items, stage, specs, request, outputs, len(items), glue)
                items = await self._called(stage.again, more) if stage.again else []
            outputs[stage.name] = without_carried(stage, outputs[stage.name])

        try:
            async with asyncio.TaskGroup() as group:
                for place, stage in enumerate(self.bundle.manifest.stages):
                    begun[stage.name] = group.create_task(run(place))
        except BaseExceptionGroup as failed:
            raise _first(failed) from None
        if not self.bundle.manifest.answer:
            return _plain_answer(self.bundle, _unglued(self.bundle, outputs))
        answer = self.bundle.manifest.answer
        arguments = taken(self.bundle.manifest.answer_takes, request, outputs)
        return await self._called(answer, lambda: _plain_answer(self.bundle, self._glue[answer](arguments)))

    async def _called(self, glue: str, call: Any) -> Any:
        try:
            return await self.loop.run_in_executor(self._threads.get(glue), call)
        except UserCodeError as error:
            log_seldom("glue_failed", kind=glue, error=str(error), hint=error.hint)
            raise Refusal("internal", f"The pipeline's code failed ({glue}); the log says why.") from None
        except ItemError as error:
            log_seldom("glue_failed", kind=glue, error=str(error))
            raise Refusal(
                "internal", f"The pipeline's code gave what no stage takes ({glue}); the log says what."
            ) from None

    def stop(self) -> None:
        super().stop()
        for one in self._glue.values():
            one.close()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def info(self) -> dict[str, Any]:
        """What is served and what it was measured to do."""
        manifest = self.bundle.manifest
        return {
            "name": manifest.name,
            "about": manifest.about,
            "task": "pipeline",
            "emulated": manifest.emulated,
            "inputs": encode(manifest.request),
            "stages": [
                {
                    "name": each.name,
                    "takes": each.takes,
                    "glue": each.glue,
                    "service": encode(manifest.settings[each.name]),
                    "candidate": self.bundle.bundles[each.name].manifest.candidate_id,
                    "target": self.bundle.bundles[each.name].manifest.artifact.target,
                }
                for each in manifest.stages
            ],
            "answer": manifest.answer,
            "figures": encode(manifest.figures),
            "workbench": {"made_by": manifest.workbench, "served_by": __version__},
            "uptime_s": round(time.monotonic() - self.started_s, 1),
        }


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that the others followed."""
    found: BaseException = failed
    while isinstance(found, BaseExceptionGroup):
        found = next((one for one in found.exceptions if isinstance(one, Refusal)), found.exceptions[0])
    if not isinstance(found, Refusal):
        log_defect(found if isinstance(found, Exception) else RuntimeError(repr(found)))
    return found
