"""Who works for a sweep on a cluster. A worker for each card that it may hold, whichever card that is just then; and
for each compile at once, anywhere with free processors.
"""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Worker
from workbench.search.executors.messages import Message
from workbench.search.executors.ray.cards import CardLost, Cards, RemoteCard
from workbench.search.executors.ray.connection import connected
from workbench.search.executors.ray.nodes import Need, compile_slots, need_of, total_cards
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.search.executors.workers import Workers, in_one_thread
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError

_log = logging.getLogger(__name__)

MAX_HANGS, MAX_LOSSES = 2, 5
"""A candidate at which so many cards hang, or are lost in any way, has crashed. Actors and nodes die of other things
than candidates, which have a process of their own."""


class ClusterWorker(Worker):
    """On whatever card is free, and on another one where that is lost: nothing is known then, so nothing is measured
    twice. For one thread."""

    def __init__(self, cards: Cards) -> None:
        self._cards, self.experiment = cards, cards.experiment

    def ask(
        self, task: Message, candidate: Candidate, say: Callable[[str], None] = _log.info, *, until: float | None = None
    ) -> Any:
        """Raises CrashError too where too many cards were lost at this candidate."""
        lost_at: list[tuple[RemoteCard, CardLost]] = []
        while True:
            card = self._cards.take(until)
            try:
                found = card.ask(task, candidate, say, until=until)
            except CardLost as lost:
                self._cards.lost(card, lost)
                lost_at.append((card, lost))
                hung = [one for one, why in lost_at if not why.comes_back]
                if len(hung) < MAX_HANGS and len(lost_at) < MAX_LOSSES:
                    _log.warning("%s %s is tried on another card.", lost, candidate.short_id)
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
        watch = stack.enter_context(connected(settings))
        need = need_of(bench.targets, settings)
        cards = total_cards(need)
        wants = min(cards, settings.cards or cards)
        slots = compile_slots(need, settings, wants)
        _log.info("%s: %d of %d cards, %d compiles at once", settings.words, wants, cards, slots)
        held = Cards(experiment, heard, settings, need, watch, wants)
        stack.callback(held.close)
        making = Need(
            resource=settings.compile_label, processors=settings.compile_processors, environment=need.environment
        )
        places = Cards(experiment, heard, settings, making, watch, slots, measures=False)
        stack.callback(places.close)
        yield Workers(
            cards=tuple(ClusterWorker(held) for _ in range(wants)),
            here=min(wants, total_cards(need, host=platform.node())),
            compilers=tuple(ClusterWorker(places) for _ in range(slots)),
            hear=hear,
        )
