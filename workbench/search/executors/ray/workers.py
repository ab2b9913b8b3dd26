"""Who works for a sweep on a cluster. A worker for each card that it may hold, whichever card
that is just then; compiling as plain tasks, anywhere with free processors, started again when a node dies over it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import TimeUp
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.messages import decode_error
from workbench.search.executors.ray.cards import CardLost, Cards, RemoteCard
from workbench.search.executors.ray.connection import Watch, connected, imported_ray, within
from workbench.search.executors.ray.host import compiled, on_this_disk
from workbench.search.executors.ray.nodes import Need, compile_slots, need_of, resource_of, total_cards
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.search.executors.workers import Workers, in_one_thread
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.measurement import Latency, ServiceResult
from workbench.values.results import Evaluation, StageTiming

if TYPE_CHECKING:
    from workbench.shipping.service_confirmation import LoadTrial

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_HANGS, MAX_LOSSES = 2, 5
"""A candidate at which so many cards hang, or are lost in any way, has crashed. Actors and nodes die of other things
than candidates, which have a process of their own."""


class ClusterWorker:
    """A `Measurer` on whatever card is free. For one thread."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        return self._on_a_card(task.candidate, until, lambda card: card.evaluate(task, until=until))

    def probe(self, *, until: float | None = None) -> float:
        baseline = self._cards.experiment.baseline
        return self._on_a_card(baseline, until, lambda card: card.probe(until=until))

    def time(self, candidate: Candidate, *, until: float | None = None) -> Latency:
        return self._on_a_card(candidate, until, lambda card: card.time(candidate, until=until))

    def confirm_service(self, trial: LoadTrial) -> ServiceResult:
        return self._on_a_card(trial.candidate, trial.until, lambda card: card.confirm_service(trial))

    def _on_a_card(self, candidate: Candidate, until: float | None, work: Callable[[RemoteCard], _T]) -> _T:
        """On a card, and on another one where that is lost: nothing is known then, so nothing is measured twice.

        Raises:
            CrashError: too many cards were lost at this candidate.
        """
        lost_at: list[tuple[RemoteCard, CardLost]] = []
        while True:
            card = self._cards.take(until)
            try:
                found = work(card)
            except CardLost as lost:
                self._cards.lost(card, lost)
                lost_at.append((card, lost))
                hung = [one for one, why in lost_at if not why.comes_back]
                if len(hung) < MAX_HANGS and len(lost_at) < MAX_LOSSES:
                    _log.warning("%s %s is measured on another card.", lost, candidate.short_id)
                    continue
                self._cards.absolve(hung)  # it is the candidate then
                said = " ".join(str(why) for _, why in lost_at)
                raise CrashError(f"{len(lost_at)} cards were lost at it: {said}", stage=lost.stage) from lost
            except BaseException:
                self._cards.give(card)
                raise
            self._cards.give(card)
            return found


@contextlib.contextmanager
def cluster_workers(settings: ClusterSettings, experiment: Experiment, bench: Bench) -> Iterator[Workers]:
    """Cards and compilers of a cluster for as long as the block runs; then every card is given back.

    Raises:
        ConfigError: Ray is not installed, nobody answers, or the cluster can never give what is asked for.
    """
    report, hear = in_one_thread(bench.report)
    heard = replace(bench, report=report)
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(connected(settings, resource_of(bench.targets)))
        need = need_of(bench.targets, settings)
        cards = total_cards(need)
        wants = min(cards, settings.cards or cards)
        slots = compile_slots(need, settings, wants)
        _log.info("%s: %d of %d cards, %d compiles at once", settings.words, wants, cards, slots)
        held = Cards(experiment, heard, settings, need, watch, wants)
        stack.callback(held.close)
        compilers = tuple(TaskCompiler(experiment, heard, need, settings, watch) for _ in range(slots))
        yield Workers(
            cards=tuple(ClusterWorker(held) for _ in range(wants)),
            here=min(wants, total_cards(need, host=platform.node())),
            compilers=compilers,
            hear=hear,
        )


_POLLED_S = 2.0
"""An answer ends the wait at once; this is how often the head is looked at."""
_RETRIES = 3


class TaskCompiler:
    """A `Compiler` on the cluster: one candidate at a time, each a task."""

    def __init__(
        self, experiment: Experiment, bench: Bench, need: Need, settings: ClusterSettings, watch: Watch
    ) -> None:
        self._bench, self._watch, self._limit_s = bench, watch, settings.silent_s
        # whoever compiles puts its own number
        self._opening = on_this_disk(ChildProcess(experiment, bench, compiler=0).opening())
        self._environment = dict(need.environment)
        self._ray = imported_ray()
        label = settings.compile_label
        self._task: Any = self._ray.remote(compiled).options(
            num_cpus=settings.compile_processors,
            resources={label: 1} if label else {},
            max_retries=_RETRIES,
            retry_exceptions=False,
        )

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        """As `Compiler.compile`; nothing where no node can do it, which the evaluation then meets itself."""
        self._bench.report(candidate, "compile")
        given = (json.dumps(self._opening), json.dumps(candidate.to_json()), self._environment)
        asked = within(self._watch, lambda: self._task.remote(*given))
        began = time.monotonic()
        try:
            while not self._ray.wait([asked], timeout=_patience_s(until))[0]:
                self._watch.check()
                if until is not None and time.perf_counter() >= until:
                    raise TimeUp("compile")
                if time.monotonic() - began > self._limit_s:
                    raise CrashError(f"nothing was heard of its compile for {self._limit_s:g} s.", stage="compile")
            answer = json.loads(self._ray.get(asked))
        except self._ray.exceptions.RayTaskError:
            raise  # a mistake of ours, and no bad luck: it is not tried again
        except self._ray.exceptions.RayError as error:
            raise CrashError(f"what compiled it died {_RETRIES + 1} times: {error}", stage="compile") from error
        except BaseException:
            if not self._watch.gone:
                self._ray.cancel(asked, force=True)
            raise
        if answer["kind"] == "answer":
            return decode(tuple[StageTiming, ...], answer["value"])
        told = decode_error(answer)
        if not isinstance(told, ToolchainError):
            raise told
        _log.warning("%s is not compiled ahead: %s", candidate.short_id, told)
        return ()


def _patience_s(until: float | None) -> float:
    return _POLLED_S if until is None else max(0.0, min(_POLLED_S, until - time.perf_counter()))
