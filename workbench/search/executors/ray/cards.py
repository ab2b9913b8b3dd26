"""The cards that a sweep holds on a cluster, and the process that evaluates on each, seen from the driver; and what
compiles without a card, in the same way.

Ray places an actor for each card that the sweep may hold, first come, first served, and each holds its card until the
sweep ends, so that its evaluation process stays warm.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Message, Say, TimeUp, Worker
from workbench.search.executors.child import ChildProcess, Process
from workbench.search.executors.ray.connection import ClusterSettings, Watch, connected, imported_ray, within
from workbench.search.executors.ray.host import CardHost, on_this_disk
from workbench.search.executors.ray.nodes import Need, compile_slots, difference, held_by_others, need_of, total_cards
from workbench.search.executors.worker_pool import Workers, in_one_thread
from workbench.targets.description import Card
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Place

_log = logging.getLogger(__name__)

_POLLED_S = 2.0
"""A word that comes ends the wait at once; this is how often the head and the silence are looked at."""
_KILLED_S = 20.0
_SIGKILL = -9
_LOOKED_S = 0.25
_CALLS = 8
"""At once to one actor: what it says, what it is told, and that it is to stop."""


class CardLost(Exception):
    """The card's actor or node is gone, or hangs: nothing is known of the candidate, which is measured on another card.
    It counts as nobody's crash until several cards are lost at one candidate.

    Attributes:
        stage: in which it was.
        comes_back: whether Ray starts the actor again.
    """

    def __init__(self, message: str, *, stage: str, comes_back: bool) -> None:
        super().__init__(message)
        self.stage, self.comes_back = stage, comes_back


class RemoteProcess(Process):
    """On a node; its own line.

    Raises, while it is read:
        CardLost: the actor or its node is gone, or nothing was heard for too long.
        ToolchainError: the head of the cluster is gone.
    """

    def __init__(self, card: RemoteCard, opening: Message) -> None:
        self._card, self._actor = card, card.actor
        self._ray = imported_ray()
        self._said = self._actor.run.options(num_returns="streaming").remote(json.dumps(opening))
        self._stage = "check"
        self._killed: float | None = None
        self._end: Message | None = None
        self.pid, self.opened = 0, False

    def send(self, message: Message) -> None:
        self._actor.say.remote(json.dumps(message, ensure_ascii=False))

    def __iter__(self) -> Iterator[Message]:
        while self._end is None and (text := self._next()) is not None:
            message: Message = json.loads(text)
            match message["kind"]:
                case "ended":
                    self._end = message
                    return
                case "started":
                    self.pid = int(message["pid"])
                    continue
                case "stage":
                    self._stage = message["stage"]
            yield message

    def _next(self) -> str | None:
        exceptions, place, silent_s = self._ray.exceptions, self._card.place.words, self._card.silent_s
        heard = time.monotonic()
        try:
            while not self._ray.wait([self._said], timeout=_POLLED_S)[0]:
                self._card.watch.check()
                now = time.monotonic()
                if self._killed is not None and now - self._killed > _KILLED_S:
                    return None
                if now - heard > silent_s:
                    said = f"{place} hangs: nothing was heard of it for {silent_s:g} s, at {self._stage}."
                    raise CardLost(said, stage=self._stage, comes_back=False)
            return str(self._ray.get(next(self._said)))
        except StopIteration:
            return None
        except (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.WorkerCrashedError) as error:
            self._card.watch.check()
            said = f"{place} is gone, at {self._stage}: its actor or node died."
            raise CardLost(said, stage=self._stage, comes_back=True) from error

    def forget_words(self) -> None:
        """Its host does, with every task."""

    def ended(self) -> Message:
        return self._end or {"code": _SIGKILL, "words": "", "last": "", "out_of_memory": False}

    def kill(self) -> None:
        self._killed = time.monotonic()  # from now on it need not answer for long
        self._actor.kill.remote(self.pid)

    def close(self) -> None:
        if self._end is None:
            self.kill()


class RemoteCard(ChildProcess):
    """A card that this sweep holds, and the process on its node that evaluates."""

    def __init__(
        self, experiment: Experiment, bench: Bench, actor: Any, place: Place, watch: Watch, silent_s: float
    ) -> None:
        """Args: silent_s: it hangs when nothing is heard of it for so long."""
        super().__init__(experiment, bench, Card(name=place.card, environment={}) if place.card else None)
        self._alone = f"{place.host}-{place.card}"
        self.actor, self.place, self.watch, self.silent_s = actor, place, watch, silent_s

    def opening(self) -> Message:
        return on_this_disk(super().opening())

    def _launched(self, opening: Message) -> Process:
        return RemoteProcess(self, opening)


@dataclass(kw_only=True)
class _Held:
    """An actor, and what is known of it.

    Attributes:
        asked: its answer to what it is, while that is waited for.
        hung: it gets no candidate any more, and keeps its card from everybody.
    """

    actor: Any
    asked: Any = None
    ask_at: float = 0.0
    card: RemoteCard | None = None
    busy: bool = False
    hung: bool = False


MAX_HANGS, MAX_LOSSES = 2, 5
"""A candidate at which so many cards hang, or are lost in any way, has crashed. Actors and nodes die of other things
than candidates, which have a process of their own."""


class Cards(Worker):
    """A task is done on whatever card is free, and on another one where that is lost: nothing is known then, so nothing
    is measured twice. For any number of threads; `close` ends it."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        settings: ClusterSettings,
        need: Need,
        watch: Watch,
        wants: int,
        *,
        measures: bool = True,
    ) -> None:
        """Args: measures: False for places that only compile."""
        self._measures = measures
        self.experiment, self._bench, self._settings = experiment, bench, settings
        self._need, self._watch = need, watch
        self._ray, self._lock = imported_ray(), threading.Lock()
        self._actor_class = self._ray.remote(CardHost)
        self._refused: set[str] = set()  # nodes that differ from this machine
        self._why, self._over = "none was placed", False
        self._had = self._asked_head = time.monotonic()
        self._held = [_Held(actor=self._new_actor()) for _ in range(wants)]

    def ask(self, task: Message, candidate: Candidate, say: Say = _log.info, *, until: float | None = None) -> Any:
        """Raises CrashError too where too many cards were lost at this candidate."""
        lost_at: list[tuple[RemoteCard, CardLost]] = []
        while True:
            card = self.take(until)
            try:
                found = card.ask(task, candidate, say, until=until)
            except CardLost as lost:
                self.lost(card, lost)
                lost_at.append((card, lost))
                hung = [one for one, why in lost_at if not why.comes_back]
                if len(hung) < MAX_HANGS and len(lost_at) < MAX_LOSSES:
                    _log.warning("%s %s is tried on another card.", lost, candidate.short_id)
                    continue
                with self._lock:  # it is the candidate then: these hung for what was not their fault
                    for held in self._held:
                        held.hung = held.hung and held.card not in hung
                said = " ".join(str(why) for _, why in lost_at)
                raise CrashError(f"{len(lost_at)} cards were lost at it: {said}", stage=lost.stage) from lost
            except BaseException:
                self.give(card)
                raise
            self.give(card)
            return found

    def take(self, until: float | None) -> RemoteCard:
        """A card that is free, until `give` or `lost`. Waits while other sweeps hold them.

        Raises:
            TimeUp: none was free until then.
            ToolchainError: none can be had, or the head is gone.
        """
        while True:
            self._watch.check()
            with self._lock:
                if self._over:
                    raise ToolchainError("the sweep has ended.")
                self._look()
                for held in self._held:
                    if held.card is not None and not held.busy and not held.hung:
                        held.busy = True
                        return held.card
            if until is not None and time.perf_counter() >= until:
                raise TimeUp("check")
            time.sleep(_LOOKED_S)  # Ray tells nobody when somebody else gives a card back

    def give(self, card: RemoteCard) -> None:
        with self._lock:
            self._of(card).busy = False

    def lost(self, card: RemoteCard, error: CardLost) -> None:
        """Its actor died, and Ray starts another; or it hangs, and is given nothing more."""
        with self._lock:
            held = self._of(card)
            held.busy = False
            if error.comes_back:
                held.card, held.asked, held.ask_at = None, None, 0.0
            else:
                held.hung = True
                self._held.append(_Held(actor=self._new_actor()))
                _log.warning("%s It is used no more until the sweep ends.", error)

    def close(self) -> None:
        """Give every card back."""
        with self._lock:
            self._over = True
            for held in self._held:
                self._release(held)

    def _look(self) -> None:
        """Ask actors that were placed what they are.

        Raises:
            ToolchainError: no card can be had.
        """
        for held in [one for one in self._held if one.card is None]:
            if held.asked is None and time.monotonic() >= held.ask_at:
                held.asked = held.actor.about.remote()
            if held.asked is None or not self._ray.wait([held.asked], timeout=0)[0]:
                continue
            answer, held.asked = held.asked, None
            held.ask_at = time.monotonic() + 1.0
            try:
                about = json.loads(self._ray.get(answer))
            except self._ray.exceptions.ActorUnavailableError:
                continue  # it is being started again
            except self._ray.exceptions.RayActorError as error:
                self._why = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
                self._replace(held)
                continue
            self._welcome(held, about)
        now = time.monotonic()
        if any(held.card is not None and not held.hung for held in self._held):
            self._had = now
        elif now - self._asked_head >= _POLLED_S:
            self._asked_head = now
            self._refuse_to_wait_in_vain(now)

    def _welcome(self, held: _Held, about: dict[str, Any]) -> None:
        if "taken" in about:
            self._why = f"on {about['taken']} every card is in use by another process"
        elif wrong := difference(about, self._bench.toolchains if self._measures else {}):
            why = f"{about['host']} ({about['node'][:6]}) is refused: {wrong}"
            if about["node"] not in self._refused:
                _log.warning("Node %s. Nothing is measured there.", why)
            self._why = f"node {why}"
            self._refused.add(about["node"])
            self._replace(held)
        else:
            place = Place(host=about["host"], card=about["card"])
            at = (self.experiment, self._bench, held.actor, place)
            held.card = RemoteCard(*at, self._watch, self._settings.silent_s)

    def _refuse_to_wait_in_vain(self, now: float) -> None:
        refused, mine = frozenset(self._refused), sum(held.card is not None for held in self._held)
        cards = within(self._watch, lambda: total_cards(self._need, refused))
        if cards and within(self._watch, lambda: held_by_others(self._need, mine)):
            self._had = now
        if now - self._had > self._settings.card_s or (refused and not cards):
            waited = f" for {self._settings.card_s:g} s" if cards else ""
            raise ToolchainError(
                f"No card of {self._settings.words} can be had{waited}: {self._why}. What was measured is kept; "
                "`workbench cluster` says how it stands."
            )

    def _new_actor(self) -> Any:
        refused = ",".join(sorted(self._refused))
        options = self._actor_class.options(
            num_cpus=self._need.processors,
            resources={self._need.resource: 1} if self._need.resource else {},
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_CALLS,
            **({"label_selector": {"ray.io/node-id": f"!in({refused})"}} if refused else {}),
        )
        given = (list(self._bench.targets), dict(self._need.environment))
        return within(self._watch, lambda: options.remote(*given, measures=self._measures))

    def _of(self, card: RemoteCard) -> _Held:
        return next(held for held in self._held if held.card is card)

    def _replace(self, held: _Held) -> None:
        self._held.remove(held)
        self._release(held)
        self._held.append(_Held(actor=self._new_actor()))

    def _release(self, held: _Held) -> None:
        if held.card is not None:
            held.card.end()
        if not self._watch.gone:
            self._ray.kill(held.actor, no_restart=True)


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
        making = Need(resource="", processors=1, environment=need.environment)
        places = Cards(experiment, heard, settings, making, watch, slots, measures=False)
        stack.callback(places.close)
        yield Workers(
            cards=(held,) * wants,
            here=min(wants, total_cards(need, host=platform.node())),
            compilers=(places,) * slots,
            hear=hear,
        )
