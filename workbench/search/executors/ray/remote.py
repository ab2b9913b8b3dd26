"""The evaluation process on a node, seen from the driver: spoken to and ended as one of this machine is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from workbench.evaluation.journal import Journal
from workbench.search.executors.child import expected
from workbench.search.executors.messages import Message
from workbench.search.executors.ray.connection import Watch, imported_ray
from workbench.search.executors.ray.elsewhere import Mirror, at_home, paths_of

_POLLED_S = 2.0
"""A word that comes ends the wait at once; this is how often the head and the silence are looked at."""
_KILLED_S = 20.0
_SIGKILL = -9


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


class RemoteLine:
    """What the process says, as it comes; and what it is told.

    Raises, while it is read:
        CardLost: the actor or its node is gone, or nothing was heard for too long.
        ToolchainError: the head of the cluster is gone.
    """

    def __init__(
        self, actor: Any, opening: Message, place: str, journal: Journal, watch: Watch, silent_s: float
    ) -> None:
        self._actor, self._place, self._watch, self._silent_s = actor, place, watch, silent_s
        self._journal, self._home = journal, paths_of(opening)
        self._mirror: Mirror | None = None  # where the node does not see the journal
        self._paths: list[tuple[str, str]] = []
        self._ray = imported_ray()
        self._said = actor.run.options(num_returns="streaming").remote(json.dumps(opening))
        self._stage = "check"
        self._killed: float | None = None
        self.pid = 0
        self.end: Message | None = None
        self._unread: list[str] = []

    def send(self, message: Message) -> None:
        files = self._mirror.changes() if self._mirror is not None else {}
        self._actor.say.remote(json.dumps(message, ensure_ascii=False), files)

    def killed(self) -> None:
        """From now on it need not answer for long."""
        self._killed = time.monotonic()

    def __iter__(self) -> Iterator[Message]:
        while self.end is None:
            if not self._unread:
                text = self._next()
                if text is None:
                    return
                self._unread = text.split("\n")
            message: Message = json.loads(at_home(self._unread.pop(0), self._paths))
            if message["kind"] == "file" and self._mirror is not None:
                self._mirror.keep(message)
                continue
            if message["kind"] == "ended":
                self.end = message
                return
            if message["kind"] == "started":
                self.pid = int(message["pid"])
                if message["paths"]:
                    self._mirror = Mirror(self._journal)
                    self._paths = list(zip(message["paths"], self._home, strict=True))
                continue
            if message["kind"] == "stage":
                self._stage = message["stage"]
            yield message

    def _next(self) -> str | None:
        exceptions = self._ray.exceptions
        heard = time.monotonic()
        try:
            while not self._ray.wait([self._said], timeout=_POLLED_S)[0]:
                self._watch.check()
                now = time.monotonic()
                if self._killed is not None and now - self._killed > _KILLED_S:
                    return None
                if now - heard > self._silent_s:
                    raise CardLost(
                        f"{self._place} hangs: nothing was heard of it for {self._silent_s:g} s, at {self._stage}.",
                        stage=self._stage,
                        comes_back=False,
                    )
            return str(self._ray.get(next(self._said)))
        except StopIteration:
            return None
        except (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.WorkerCrashedError) as error:
            self._watch.check()
            raise CardLost(
                f"{self._place} is gone, at {self._stage}: its actor or node died.", stage=self._stage, comes_back=True
            ) from error


class RemoteProcess:
    """As `child.Process`, on a node.

    Attributes:
        opened: it has read the experiment and takes tasks.
    """

    def __init__(
        self, actor: Any, opening: Message, place: str, journal: Journal, watch: Watch, silent_s: float
    ) -> None:
        self.line = RemoteLine(actor, opening, place, journal, watch, silent_s)
        self._actor = actor
        self.opened = False

    @property
    def pid(self) -> int:
        return self.line.pid

    def forget_words(self) -> None:
        """Its host does, with every task."""

    def words(self) -> str:
        return "" if self.line.end is None else str(self.line.end["words"])

    def last_lines(self) -> str:
        return "" if self.line.end is None else str(self.line.end["last"])

    def out_of_memory(self, before: int) -> bool:
        return self.line.end is not None and self.line.end["out_of_memory"] > 0

    def ended(self) -> int:
        return _SIGKILL if self.line.end is None else int(self.line.end["code"])

    def kill(self) -> None:
        self.line.killed()
        self._actor.kill.remote(self.pid)

    def close(self) -> None:
        if self.line.end is None:
            self.kill()

    def expect(self, kind: str) -> None:
        expected(self.line, kind)
