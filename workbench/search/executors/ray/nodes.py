"""What a cluster has, whether it can ever have what a sweep needs, and whether a node is like the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench import __version__
from workbench.search.executors.ray.connection import ClusterSettings, connected, imported_ray
from workbench.targets import described
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import decode
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import target_names

_SHOWN = "`workbench cluster` shows what there is."


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Attributes:
    resource: what cards are counted by; '' where the host computes, and is held whole.
    processors: of a card's host, reserved while it is held.
    """

    resource: str
    processors: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    host: str
    identity: str
    resources: Mapping[str, float]

    @property
    def processors(self) -> int:
        return int(self.resources.get("CPU", 0))


def overview_of(settings: ClusterSettings) -> dict[str, Any]:
    """How a cluster stands, by what Ray says: {"address": of the head, "nodes": {"host", "identity", "processors",
    "cards": by what they are counted by} of each, "totals": {"cards", "free": that nobody holds}}.

    Raises:
        ConfigError: nobody answers at the address.
    """
    kinds = sorted(filter(None, (described(name).cluster_resource for name in target_names())))
    with connected(settings) as watch:
        available, nodes = imported_ray().available_resources(), list[dict[str, Any]]()
        for node in live_nodes():
            cards = {name: int(node.resources[name]) for name in kinds if node.resources.get(name)}
            nodes.append({"host": node.host, "identity": node.identity, "processors": node.processors, "cards": cards})
        total = sum(count for node in nodes for count in node["cards"].values())
        free = sum(int(available.get(name, 0)) for name in kinds)
        return {"address": watch.address, "nodes": nodes, "totals": {"cards": total, "free": free}}


def live_nodes() -> list[Node]:
    found = [
        Node(identity=node["NodeID"], host=node["NodeManagerHostname"], resources=node["Resources"])
        for node in imported_ray().nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.host, node.identity))


def need_of(targets: Mapping[str, Any], settings: ClusterSettings) -> Need:
    """What each card of a sweep needs.

    Raises:
        ConfigError: the cluster has no such card, or fewer than asked for, or can never give its processors; or several
            targets, of which not all compute on the host, would share the cards.
    """
    resources = {name: described(name).cluster_resource for name in targets}
    if len(resources) > 1 and any(resources.values()):
        raise ConfigError(
            f"{' and '.join(sorted(resources))} in one experiment have no common kind of card.",
            key="--cluster",
            hint="Sweep each target in an experiment of its own.",
        )
    resource, nodes = next(iter(resources.values())), live_nodes()
    having = [node for node in nodes if node.resources.get(resource or "CPU", 0)]
    if not having:
        what = f"card for {', '.join(sorted(targets))} (resource {resource!r})" if resource else "processor"
        more = f" --resources='{{\"{resource}\": 8}}'" if resource else ""
        raise ConfigError(
            f"none of the {len(nodes)} nodes of {settings.words} has a {what}.",
            key="--cluster",
            hint=f"Start a node with `ray start --address=…{more}`.",
        )
    processors = settings.processors_per_card if resource else min(node.processors for node in having)
    if processors > (most := max(node.processors for node in having)):
        raise ConfigError(
            f"a card needs {processors} processors of its host, and no host with cards has more than {most}.",
            key="processors_per_card",
            hint="Ask for fewer.",
        )
    need = Need(resource=resource, processors=processors, environment=dict(settings.environment))
    total = total_cards(need)
    if settings.cards is not None and settings.cards > total:
        raise ConfigError(
            f"{settings.cards} cards are asked for, and {settings.words} has {total}.", key="cards", hint=_SHOWN
        )
    return need


def total_cards(need: Need, refused: frozenset[str] = frozenset(), host: str = "") -> int:
    """That nodes have now, whoever holds them; of a machine whose processors compute, one.

    Args:
        host: of this machine alone; '' for all.
    """
    nodes = [node for node in live_nodes() if node.identity not in refused and host in ("", node.host)]
    if not need.resource:
        return len({node.host for node in nodes if node.processors >= need.processors})
    return sum(_cards_of(node, need) for node in nodes)


def held_by_others(need: Need, mine: int) -> bool:
    """Whether somebody else holds cards.

    Args:
        mine: cards that this sweep holds.
    """
    ray, name, each = imported_ray(), need.resource or "CPU", 1 if need.resource else need.processors
    held = ray.cluster_resources().get(name, 0) - ray.available_resources().get(name, 0)
    return bool(held > mine * each)


def _cards_of(node: Node, need: Need) -> int:
    cards = int(node.resources.get(need.resource, 0))
    return min(cards, node.processors // need.processors) if need.processors else cards


def compile_slots(need: Need, settings: ClusterSettings, cards: int) -> int:
    """How many candidates are compiled at once, beside the cards.

    Raises:
        ConfigError: more are asked for than nodes can ever take.
    """
    if not need.resource or settings.compile_slots == 0:
        return 0  # where the host computes, a compile beside a measurement would spoil it
    room = sum(max(0, node.processors - need.processors * _cards_of(node, need)) for node in live_nodes())
    if settings.compile_slots is not None and settings.compile_slots > room:
        raise ConfigError(
            f"{settings.compile_slots} compiles at once are asked for, and beside the cards {settings.words} has room "
            f"for {room}.",
            key="compile.slots",
            hint="Ask for fewer, or start nodes with more processors.",
        )
    return settings.compile_slots if settings.compile_slots is not None else min(room, 2 * cards)


def difference(about: Mapping[str, Any], ours: Mapping[str, Toolchain]) -> str:
    """Why a node must not measure for this driver: which component, which version there and here; '' for no reason."""
    if "error" in about:
        return str(about["error"]["text"])
    if about["version"] != __version__:
        return f"workbench {about['version']} there, {__version__} here"
    for name, here in ours.items():
        there = decode(Toolchain, about["toolchains"][name])
        if there.fingerprint == here.fingerprint:
            continue
        for component in sorted({*here.components, *there.components}):
            theirs, own = there.components.get(component, "none"), here.components.get(component, "none")
            if theirs != own:
                return f"{component} {theirs} there, {own} here"
        if there.device != here.device:
            return f"{there.device} there, {here.device} here"
        if there.emulated != here.emulated:
            return f"{name} is {'emulated' if there.emulated else 'real'} there and not here"
        unlike = sorted({*there.features} ^ {*here.features})
        return f"features of {there.device} differ: {', '.join(unlike)}"
    return ""
