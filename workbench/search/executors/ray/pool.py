"""The cards that a sweep holds on a cluster: placed by Ray, checked before they measure, shared with other sweeps.

A card is held by an actor for as long as nobody else is short of cards, so that its evaluation process stays warm. When
another sweep joins, those above a fair share are given back as soon as their evaluation has ended.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import TimeUp
from workbench.search.executors.child import ChildProcess, Started
from workbench.search.executors.messages import Message
from workbench.search.executors.ray.board import Board, CardState, SweepState, shares
from workbench.search.executors.ray.connection import Watch, imported_ray
from workbench.search.executors.ray.elsewhere import elsewhere
from workbench.search.executors.ray.host import CardHost
from workbench.search.executors.ray.nodes import Need, difference, total_cards
from workbench.search.executors.ray.remote import CardLost, RemoteProcess
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.targets.description import Card
from workbench.values.errors import ToolchainError
from workbench.values.results import Place

_log = logging.getLogger(__name__)

_LOOKED_S = 0.25
_SHARED_S = 2.0
_CALLS = 8
"""At once to one actor: what it says, what it is told, and that it is to stop."""


class RemoteCard(ChildProcess):
    """A card that this sweep holds, and the process on its node that evaluates."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        actor: Any,
        place: Place,
        need: Need,
        watch: Watch,
        silent_s: float,
    ) -> None:
        """Args: silent_s: it hangs when nothing is heard of it for so long."""
        super().__init__(experiment, bench, Card(name=place.card, environment={}) if place.card else None)
        self.place: Place = place
        self._alone = f"{place.host}-{place.card}"
        self._actor, self._need, self._watch, self._silent_s = actor, need, watch, silent_s

    def end(self) -> None:
        """For good."""
        self._over = True
        self.close()

    def opening(self) -> Message:
        return super().opening() | elsewhere(self._bench.journal, self._need.inputs)

    def _launched(self, opening: Message) -> Started:
        return RemoteProcess(self._actor, opening, self.place.words, self._bench.journal, self._watch, self._silent_s)


@dataclass(kw_only=True)
class _Held:
    """An actor, and what is known of it.

    Attributes:
        asked: its answer to what it is, while that is waited for.
        what: the candidate that it is at.
        quarantined: why it gets no candidate any more; it keeps its card from everybody.
    """

    actor: Any
    asked: Any = None
    ask_at: float = 0.0
    card: RemoteCard | None = None
    what: str = ""
    quarantined: str = ""


@dataclass(kw_only=True)
class Pool:
    """For any number of threads; `close` ends it."""

    experiment: Experiment
    bench: Bench
    settings: ClusterSettings
    need: Need
    watch: Watch
    wants: int
    name: str = field(default_factory=lambda: f"{platform.node()}-{os.getpid()}")

    def __post_init__(self) -> None:
        self._ray = imported_ray()
        self._held: list[_Held] = []
        self._change = threading.Condition()
        self._surplus = self._waiting = self._beat = 0
        self._target, self._distrusted = self.wants, dict[Place, str]()
        self._refused: dict[str, str] = {}
        self._why: str = "none was placed"
        self._failed: Exception | None = None
        self._had, self._closing = time.monotonic(), False
        self._actor_class = self._ray.remote(CardHost)
        self._thread = threading.Thread(target=self._keep, name="cards", daemon=True)
        self._thread.start()

    # --- for those who measure ------------------------------------------------------------------------------------

    def take(self, what: str, until: float | None) -> RemoteCard:
        """A card that is free, until `give` or `lost`. Waits while other sweeps hold them.

        Raises:
            TimeUp: none was free until then.
            ToolchainError: none can be had, or the head is gone.
        """
        with self._change:
            self._waiting += 1
            try:
                while True:
                    if self._failed is not None:
                        raise self._failed
                    self.watch.check()
                    if (held := self._idle()) is not None:
                        held.what = what
                        assert held.card is not None
                        return held.card
                    if until is not None and time.perf_counter() >= until:
                        raise TimeUp("check")
                    self._change.wait(_LOOKED_S)
            finally:
                self._waiting -= 1

    def give(self, card: RemoteCard) -> None:
        with self._change:
            held = self._of(card)
            if held is not None:
                held.what = ""
                if self._surplus > 0 and not held.quarantined:
                    self._surplus -= 1
                    self._release(held)
            self._change.notify_all()

    def lost(self, card: RemoteCard, error: CardLost) -> None:
        """Its actor died, and Ray starts another; or it hangs, and is quarantined."""
        with self._change:
            held = self._of(card)
            if held is None:
                return
            held.what = ""
            if error.comes_back:
                held.card, held.asked, held.ask_at, held.quarantined = None, None, 0.0, ""
            else:
                held.quarantined = str(error)
                _log.warning("%s It is quarantined until the sweep ends.", error)

    def absolve(self, cards: Sequence[RemoteCard]) -> None:
        """These were quarantined for what was not their fault."""
        with self._change:
            for held in filter(None, map(self._of, cards)):
                held.quarantined = "" if held.card is None else self._distrusted.get(held.card.place, "")

    def quarantine(self, place: Place, reason: str) -> bool:
        """Give this card nothing more, when it is had or comes to be; False where it is so already, or where it is the
        last one that this sweep may use."""
        with self._change:
            known = {held.card.place for held in self._held if held.card is not None and held.quarantined}
            if place in self._distrusted or self._target - len(known | self._distrusted.keys()) <= 1:
                return False
            self._distrusted[place] = reason
            for held in self._held:
                if held.card is not None and held.card.place == place:
                    held.quarantined = held.quarantined or reason
            return True

    def close(self) -> None:
        """Give every card back."""
        self._closing = True
        self._thread.join(0.0 if self.watch.gone else 5.0)
        with self._change:
            for held in list(self._held):
                self._release(held)

    # --- in the pool's own thread ---------------------------------------------------------------------------------

    def _keep(self) -> None:
        board, shared = Board(), 0.0
        try:
            while not self._closing:
                self._look()
                if time.monotonic() - shared >= _SHARED_S:
                    self._share(board)
                    shared = time.monotonic()
                time.sleep(_LOOKED_S)
            board.remove(self.name)
        except Exception as error:  # of any kind: whoever waits for a card raises it
            self._failed = error

    def _look(self) -> None:
        """Ask actors that were placed what they are."""
        with self._change:
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
                    self._why = _last_line(error)
                    self._release(held)
                    continue
                self._welcome(held, about)
            self._change.notify_all()

    def _welcome(self, held: _Held, about: dict[str, Any]) -> None:
        if "taken" in about:
            self._why = f"on {about['taken']} every card is in use by another process"
            return
        node = f"{about['host']} ({about['node'][:6]})"
        wrong = difference(about, self.bench.toolchains)
        if wrong:
            if about["node"] not in self._refused:
                _log.warning("Node %s is refused: %s. Nothing is measured there.", node, wrong)
            self._refused[about["node"]] = self._why = f"node {node} is refused: {wrong}"
            self._release(held)
            return
        place = Place(host=about["host"], card=about["card"])
        held.card = RemoteCard(
            self.experiment, self.bench, held.actor, place, self.need, self.watch, self.settings.silent_s
        )
        held.quarantined = self._distrusted.get(place, "")

    def _share(self, board: Board) -> None:
        """Say what is held, hear what others want, and take or give back by it."""
        self._beat += 1
        with self._change:
            mine = self._state()
        board.write(mine)
        others = [state for state in board.read() if state.name != self.name]
        cards = total_cards(self.need, frozenset(self._refused))
        wants = {state.name: state.wants for state in others} | {self.name: self.wants}
        target = min(self.wants, shares(wants, cards)[self.name])
        with self._change:
            self._target = target
            quarantined = sum(bool(held.quarantined) for held in self._held)
            placed = [held for held in self._held if held.card is not None and not held.quarantined]
            coming = [held for held in self._held if held.card is None]
            if placed or any(state.cards for state in others):
                self._had = time.monotonic()
            self._surplus = max(0, len(placed) - target)
            for held in [one for one in placed if not one.what][: self._surplus]:
                self._surplus -= 1
                self._release(held)
            # one at least beside those in quarantine, whatever the share has become
            missing = max(min(1, target), target - quarantined) - len(placed) - len(coming)
            for held in coming[: max(0, -missing)]:
                self._release(held)
            for _ in range(missing):
                self._held.append(_Held(actor=self._new_actor()))
            if time.monotonic() - self._had > self.settings.card_s or (self._refused and not cards):
                waited = f" for {self.settings.card_s:g} s" if cards else ""
                self._failed = ToolchainError(
                    f"No card of {self.settings.words} can be had{waited}: {self._why}. What was measured is kept; "
                    "`workbench cluster` says how it stands."
                )

    def _new_actor(self) -> Any:
        refused = ",".join(sorted(self._refused))
        return self._actor_class.options(
            num_cpus=self.need.processors,
            resources={self.need.resource: 1} if self.need.resource else {},
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_CALLS,
            **({"label_selector": {"ray.io/node-id": f"!in({refused})"}} if refused else {}),
        ).remote(list(self.bench.targets), dict(self.need.environment))

    def _state(self) -> SweepState:
        cards = []
        for held in self._held:
            if held.card is not None:
                state = "quarantined" if held.quarantined else "busy" if held.what else "free"
                place = held.card.place
                cards.append(
                    CardState(host=place.host, card=place.card, state=state, what=held.quarantined or held.what)
                )
        return SweepState(
            name=self.name,
            experiment=self.experiment.name,
            wants=self.wants,
            beat=self._beat,
            cards=tuple(cards),
            waiting=self._waiting,
            refused={node: why for node, why in self._refused.items()},
        )

    def _idle(self) -> _Held | None:
        for held in self._held:
            if held.card is not None and not held.what and not held.quarantined:
                return held
        return None

    def _of(self, card: RemoteCard) -> _Held | None:
        return next((held for held in self._held if held.card is card), None)

    def _release(self, held: _Held) -> None:
        self._held.remove(held)
        if held.card is not None:
            held.card.end()
        if not self.watch.gone:
            self._ray.kill(held.actor, no_restart=True)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
