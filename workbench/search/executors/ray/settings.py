"""What the user says of a cluster: an address, or a small file of its own.

version: 1
address: 10.0.0.1:6379            # HOST:PORT of the head, or `auto` on a machine of the cluster
store: s3://team/workbench        # of results, beside the workspace, which all machines see; default: none
cards: 8                          # of the cluster that this sweep takes at most; all without
processors_per_card: 2            # reserved on its host while a card is held
compile: {slots: 8}
timeouts: {card: 2m, silent: 1h, head: 30s}
environment: {NAME: value}        # of every process that evaluates or compiles on the cluster
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.values.documents.yaml_reader import read_yaml
from workbench.values.errors import ConfigError

MOST_CARDS = 4096
_ADDRESS = re.compile(r"[A-Za-z0-9._-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMS = "HOST:PORT of a cluster's head, 'auto' or a cluster's YAML file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Attributes:
    address: HOST:PORT, or 'auto'.
    store: shared store of results; '' for none.
    cards: to be taken at most; None for all that the cluster has.
    processors_per_card: reserved on its host for as long as a card is held.
    compile_slots: compiles at once; None for as many as the cards of the sweep, 0 for none ahead of the cards.
    card_s: how long a card is waited for that nobody else holds.
    silent_s: a card that says nothing for so long hangs.
    head_s: how long the cluster's head may not answer.
    """

    address: str
    store: str = ""
    cards: int | None = None
    processors_per_card: int = 1
    compile_slots: int | None = None
    card_s: float = 120.0
    silent_s: float = 3600.0
    head_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"the cluster at {self.address}"


def cluster_settings(text: str) -> ClusterSettings:
    """What `--cluster` says: an address, 'auto', or the name of a file.

    Raises:
        ConfigError: it is none of them, or the file is wrong.
    """
    if text.endswith((".yaml", ".yml")) or (os.sep in text and "://" not in text):
        return read_cluster(Path(text))
    if text.startswith("ray://"):
        raise ConfigError(
            f"{text!r} is an address of Ray's client, through which a sweep cannot see its cards die.",
            key="--cluster",
            hint="Start the sweep on a machine of the cluster and give HOST:PORT of its head (port 6379 by default).",
        )
    if not _is_address(text):
        raise ConfigError(f"{text!r} is no cluster.", key="--cluster", hint=f"Give {_FORMS}.")
    return ClusterSettings(address=text)


def read_cluster(path: Path) -> ClusterSettings:
    """Read a cluster's file.

    Raises:
        ConfigError: with file, line and key of all that is wrong in it.
    """
    with read_yaml(path) as top:
        address = top.text("address")
        if not _is_address(address):
            top.refuse("address", f"{address!r} is no address.", f"Give {_FORMS.rpartition(' or ')[0]}.")
        slots = None
        if top.has("compile"):
            with top.section("compile") as section:
                slots = section.optional("slots", lambda key: section.integer(key, minimum=0, maximum=MOST_CARDS))
        environment: dict[str, str] = {}
        if top.has("environment"):
            with top.section("environment") as section:
                environment = {name: section.text(name) for name in section.names()}
                for name in environment:
                    if not _NAME.fullmatch(name):
                        section.refuse(name, "is no name of a variable.")
        times = (120.0, 3600.0, 30.0)
        if top.has("timeouts"):
            with top.section("timeouts") as section:
                times = (
                    section.seconds("card", default=times[0]),
                    section.seconds("silent", default=times[1]),
                    section.seconds("head", default=times[2]),
                )
        return ClusterSettings(
            address=address,
            store=top.text("store", default=""),
            cards=top.optional("cards", lambda key: top.integer(key, minimum=1, maximum=MOST_CARDS)),
            processors_per_card=top.integer("processors_per_card", default=1, minimum=0, maximum=MOST_CARDS),
            compile_slots=slots,
            card_s=times[0],
            silent_s=times[1],
            head_s=times[2],
            environment=environment,
        )


def _is_address(text: str) -> bool:
    return text == "auto" or _ADDRESS.fullmatch(text) is not None
