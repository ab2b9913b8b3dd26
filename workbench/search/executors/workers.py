"""Who works for a sweep on this machine: a process for each card, and processes that compile ahead of them.

On a target that computes on the host there is one process, which is alone on the machine while it times.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Worker
from workbench.search.executors.child import ChildProcess
from workbench.targets import described
from workbench.targets.description import Card
from workbench.values.candidate import Candidate

Report = Callable[[Candidate, str], None]
"""(candidate, the stage that begins)."""

PROCESSORS_A_CARD = 2
"""Kept free for every card: what calls it, and what feeds it, is not to wait for a compiler."""
PROCESSORS_A_COMPILER = 2
COMPILERS_A_CARD = 2
"""At most: more would compile what the sampler proposed knowing little of those before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Attributes:
    cards: where evaluations run, as many at once.
    compilers: compile ahead for them.
    here: how many of the cards are fed by this machine: by its processors, from its memory.
    hear: passes on, in the calling thread, what they said since it was last called.
    """

    cards: tuple[Worker, ...]
    here: int = 1
    compilers: tuple[Worker, ...] = ()
    hear: Callable[[], None] = lambda: None


@contextlib.contextmanager
def local_workers(experiment: Experiment, bench: Bench, *, compilers: int | None = None) -> Iterator[Workers]:
    """Processes of this machine, ended with the block. Each card that the experiment's target finds has one.

    Args:
        compilers: that work ahead of the cards; None for as many as the processors allow.

    Raises:
        ToolchainError: the cards cannot be listed.
    """
    cards = cards_of(bench)
    ahead = compilers_for(cards) if compilers is None else compilers
    with contextlib.ExitStack() as stack:
        if len(cards) < 2 and not ahead:
            yield Workers(cards=(stack.enter_context(ChildProcess(experiment, bench)),), here=1)
            return
        report, hear = in_one_thread(bench.report)
        heard = replace(bench, report=report)
        measuring = [stack.enter_context(ChildProcess(experiment, heard, card)) for card in cards]
        compiling = [stack.enter_context(ChildProcess(experiment, heard, compiler=number)) for number in range(ahead)]
        yield Workers(cards=tuple(measuring), here=len(measuring), compilers=tuple(compiling), hear=hear)


def in_one_thread(report: Report) -> tuple[Report, Callable[[], None]]:
    """(what any thread may call, what passes it on in this one, where calls of this one are passed on at once)."""
    said: SimpleQueue[tuple[Candidate, str]] = SimpleQueue()
    owner = threading.get_ident()

    def hear() -> None:
        with contextlib.suppress(Empty):
            while True:
                report(*said.get_nowait())

    def say(candidate: Candidate, stage: str) -> None:
        said.put((candidate, stage))
        if threading.get_ident() == owner:
            hear()

    return say, hear


def cards_of(bench: Bench) -> tuple[Card, ...]:
    """The cards of a sweep's only target; none where a target computes on the host, or several would share them."""
    names = sorted(bench.targets)
    return described(names[0]).cards() if len(names) == 1 else ()


def compilers_for(cards: tuple[Card, ...]) -> int:
    """How many processes compile ahead, by the processors that the cards leave free."""
    free = len(os.sched_getaffinity(0)) - PROCESSORS_A_CARD * len(cards)
    return max(0, min(COMPILERS_A_CARD * len(cards), free // PROCESSORS_A_COMPILER))
