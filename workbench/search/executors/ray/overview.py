"""What a cluster has and who uses it, as `workbench cluster` shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from workbench.search.executors.ray.board import Board, SweepState
from workbench.search.executors.ray.connection import connected
from workbench.search.executors.ray.nodes import live_nodes
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.targets import described
from workbench.values.installed_targets import target_names


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
