"""What the sweeps of a cluster tell each other, and `workbench cluster`: each a small JSON in the memory of the head.

A sweep that is killed says nothing more; the others see that its count of beats stands still, by their own clocks, and
take it away.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from workbench.search.executors.ray.connection import connected, imported_ray
from workbench.search.executors.ray.nodes import live_nodes
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.targets import described
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.installed_targets import target_names

_PREFIX, _SPACE = b"sweeps/", b"workbench"
STILL_S = 15.0
"""A sweep that has not been heard of for so long is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """Attributes:
    state: 'free', 'busy' or 'quarantined'.
    what: the candidate and its stage, or why it is quarantined.
    """

    host: str
    card: str
    state: str
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """Attributes:
    name: of the sweep, with host and process of its driver; no two are the same.
    wants: cards that it would use.
    waiting: candidates that wait for a card.
    beat: counts up while it lives.
    """

    name: str
    experiment: str
    wants: int
    beat: int
    cards: tuple[CardState, ...] = ()
    waiting: int = 0
    refused: dict[str, str] = field(default_factory=dict)


class Board:
    """For one thread. Every call may hang while the head is gone."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def write(self, state: SweepState) -> None:
        _kv()._internal_kv_put(
            _PREFIX + state.name.encode(), json.dumps(encode(state)).encode(), True, namespace=_SPACE
        )

    def remove(self, name: str) -> None:
        _kv()._internal_kv_del(_PREFIX + name.encode(), namespace=_SPACE)

    def read(self) -> list[SweepState]:
        """Of the sweeps that live, by name; what dead ones left is removed."""
        found, now = [], time.monotonic()
        for key in sorted(_kv()._internal_kv_list(_PREFIX, namespace=_SPACE)):
            value = _kv()._internal_kv_get(key, namespace=_SPACE)
            try:
                state = decode(SweepState, json.loads(value))
            except (DecodeError, ValueError, TypeError):  # of another version, or removed meanwhile
                continue
            beat, since = self._seen.get(state.name, (-1, now))
            if beat != state.beat:
                self._seen[state.name] = (state.beat, now)
            elif now - since > STILL_S:
                self.remove(state.name)
                continue
            found.append(state)
        return found


def shares(wants: dict[str, int], cards: int) -> dict[str, int]:
    """Cards for each sweep: nobody gets more than it wants, and nobody less than another who has more than that.

    What cannot be divided goes to the first by name, so that all of them compute the same.
    """
    given = dict.fromkeys(sorted(wants), 0)
    left = cards
    while left and (hungry := [name for name in given if given[name] < wants[name]]):
        for name in hungry[:left]:
            given[name] += 1
            left -= 1
    return given


def _kv() -> Any:
    imported_ray()
    from ray.experimental import internal_kv

    return internal_kv


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Attributes:
    cards: what its cards are counted by → how many it has.
    """

    host: str
    identity: str
    processors: int
    cards: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Attributes:
    address: HOST:PORT of the head.
    """

    address: str
    nodes: tuple[NodeView, ...]
    sweeps: tuple[SweepState, ...]

    @property
    def cards(self) -> int:
        return sum(sum(node.cards.values()) for node in self.nodes)

    def counted(self, state: str) -> int:
        """Cards that sweeps hold in a state: 'free', 'busy', 'quarantined'."""
        return sum(card.state == state for sweep in self.sweeps for card in sweep.cards)


_BEATS_S = 5.0


def overview_of(settings: ClusterSettings) -> Overview:
    """How a cluster stands. Takes some seconds: sweeps that were killed are told from those that live.

    Raises:
        ConfigError: nobody answers at the address.
    """
    resources = sorted(filter(None, (described(name).cluster_resource for name in target_names())))
    with connected(settings) as watch:
        board = Board()
        before = {sweep.name: sweep.beat for sweep in board.read()}
        if before:
            time.sleep(_BEATS_S)
        sweeps = [sweep for sweep in board.read() if before.get(sweep.name, -1) != sweep.beat]
        nodes = tuple(
            NodeView(
                host=node.host,
                identity=node.identity,
                processors=node.processors,
                cards={name: int(node.resources[name]) for name in resources if node.resources.get(name)},
            )
            for node in live_nodes()
        )
        return Overview(address=watch.address, nodes=nodes, sweeps=tuple(sweeps))
