"""One front end in a process of its own, as the process with queues and workers knows it."""

from __future__ import annotations

import asyncio
import multiprocessing.process
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.serve.batcher import Row
from workbench.serve.front_end import ALONE
from workbench.serve.refusals import Refusal
from workbench.serve.samples import Passed
from workbench.serve.settings import Limits
from workbench.serve.wire import Message
from workbench.targets.base import Array


@dataclass(eq=False, slots=True)
class FrontEnd:
    """One of them.

    Attributes:
        given: connections handed to it; `taken` of them it has, and `connections` are open, as far as it said.
        open: requests that are not answered yet.
        drains: it said so: it takes no request any more.
        heard_s: when it said something last, by `time.monotonic`.
    """

    number: int
    state: Literal["starting", "ready", "lost"] = "starting"
    process: multiprocessing.process.BaseProcess | None = None
    link: asyncio.Transport | None = None
    doors: socket.socket | None = None
    given: int = 0
    taken: int = 0
    connections: int = 0
    open: int = 0
    drains: bool = False
    restarts: int = 0
    failed_starts: int = 0
    heard_s: float = 0.0
    rows: dict[int, Row] = field(default_factory=dict)
    telling: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    say: Callable[..., None] = lambda *_: None
    tell_queue: Callable[[], dict[str, Any]] = dict

    @property
    def load(self) -> int:
        return self.connections + self.given - self.taken

    def answered(self, rows: Sequence[Row], outputs: Mapping[str, Array]) -> None:
        """See `dispatch.Asker`."""
        for row in rows:
            self.rows.pop(row.number, None)
        numbers = [row.number for row in rows]
        self.say({"answered": numbers, "company": rows[0].company, **self.tell_queue()}, outputs)

    def failed(self, rows: Sequence[Row], refusal: Refusal) -> None:
        """See `dispatch.Asker`."""
        for row in rows:
            self.rows.pop(row.number, None)
        told = [refusal.kind, refusal.message, refusal.retry_after_s]
        self.say({"failed": [row.number for row in rows], "refusal": told})

    def about(self) -> dict[str, Any]:
        """As /health shows it."""
        return {
            "front_end": self.number,
            "state": self.state,
            "restarts": self.restarts,
            "connections": self.connections,
            **({"failed_starts": self.failed_starts} if self.failed_starts else {}),
        }

    def rows_of(self, message: Message) -> list[Row]:
        """What it hands over, as rows of which it is told."""
        head, key = message.head, message.head["key"]
        return [
            Row(
                key=(ALONE, self.number, number) if key == ALONE else key,
                item=Passed(message.arrays, place, tokens, head["raw"]),
                asker=self,
                owner=self,
                index=place,
                arrived_s=arrived_s,
                number=number,
            )
            for place, (number, tokens, arrived_s) in enumerate(
                zip(head["rows"], head["tokens"], head["arrived"], strict=True)
            )
        ]


def front_ends_wanted(cards: int, on_host: bool, processors: int) -> int:
    """What `--front-ends auto` means: one for each card, and at most as many as leave every second processor to the
    process with the queues, to the workers and to the cards' driver; one where the model computes on the host."""
    return 1 if on_host else max(1, min(cards, processors // 2))


def share_of(limits: Limits, count: int) -> Limits:
    """Connections are spread evenly, so that each front end may have its part of them."""
    return replace(
        limits,
        connections=-(-limits.connections // count),
        connections_of_address=-(-limits.connections_of_address // count),
    )
