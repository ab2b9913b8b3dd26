"""What runs on a node: an actor that holds one card, or none, and the process which evaluates on it, or compiles.

Thin on purpose: it starts, relays and ends. What a message means is known by the evaluation process and the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.evaluation.journal import SWEEP
from workbench.search.executors.base import Message, encode_error
from workbench.search.executors.child import Process
from workbench.search.executors.ray.connection import imported_ray
from workbench.targets import described, open_target
from workbench.targets.description import Card
from workbench.values.documents.canonical import encode, file_digest
from workbench.values.errors import ToolchainError, WorkbenchError
from workbench.values.system.files import lock_file

_WHOLE_HOST = "host"


class CardHost:
    """An actor's class. Calls may come side by side; all of them answer in JSON."""

    def __init__(self, targets: Sequence[str], environment: dict[str, str], *, measures: bool = True) -> None:
        """Args: measures: False for a process that compiles, which holds no card."""
        os.environ.update(environment)
        self._targets, self._measures = tuple(targets), measures
        self._held = contextlib.ExitStack()
        self._card: Card | None = None
        self._process: Process | None = None
        # a child dies with the thread that started it: this one lives as long as the actor
        self._starter = ThreadPoolExecutor(1)

    def about(self) -> str:
        """Of its card, which is taken now: {"host", "node", "card", "version", "toolchains"}; {"taken"} where every
        card that it may use is held by somebody on this host; {"error"} of the targets. What compiles has the name of
        a process for a card, and no toolchains."""
        here = {"host": platform.node(), "node": str(imported_ray().get_runtime_context().get_node_id())}
        if not self._measures:
            return json.dumps({**here, "card": f"compiler-{os.getpid()}", "version": __version__, "toolchains": {}})
        try:
            if self._card is None and not self._take():
                return json.dumps({"taken": platform.node()})
            chains = {name: encode(open_target(name).toolchain()) for name in self._targets}
        except Exception as error:  # of any kind: the driver refuses the node by it
            return json.dumps({**here, "error": encode_error(error)})
        assert self._card is not None
        card = "" if self._card.name == _WHOLE_HOST else self._card.name
        return json.dumps({**here, "card": card, "version": __version__, "toolchains": chains})

    def run(self, opening: str) -> Iterator[str]:
        """Start a process, and give what it says until it ends, message by message: {"kind": "started"} first,
        {"kind": "ended"} last."""
        for message in self._said(opening):  # Ray sends into generators, so not `yield from` an iterator
            yield json.dumps(message, ensure_ascii=False)

    def _said(self, opening: str) -> Iterator[Message]:
        try:
            environment = {} if self._card is None else dict(self._card.environment)
            process = self._starter.submit(Process, _seen(json.loads(opening)), environment).result()
        except OSError as error:
            why = ToolchainError(f"{platform.node()}: the evaluation process cannot be started: {error.strerror}.")
            yield encode_error(why)
            return
        except WorkbenchError as error:
            yield encode_error(error)
            return
        self._process = process
        yield {"kind": "started", "pid": process.pid}
        yield from process
        yield {"kind": "ended", **process.ended()}
        process.close()

    def say(self, message: str) -> None:
        """To the process, where it still runs."""
        if self._process is None:
            return
        self._process.forget_words()
        with contextlib.suppress(OSError, ValueError):
            self._process.send(json.loads(message))

    def kill(self, pid: int) -> None:
        """The process of that id, where it is still the one that runs; whichever runs, for 0."""
        if self._process is not None and pid in (0, self._process.pid):
            self._process.kill()

    def _take(self) -> bool:
        """Hold a card of this host that nobody holds, for as long as this actor lives: two clusters, or a process that
        is slow to die, must not meet on one."""
        folder = Path(tempfile.gettempdir()) / f"workbench-cards-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        seen: tuple[Any, ...] = described(self._targets[0]).cards() if len(self._targets) == 1 else ()
        for card in seen or (Card(name=_WHOLE_HOST, environment={}),):  # the whole host where it is the host's
            lock = self._held.enter_context(lock_file(folder / f"{card.name}.lock", owner=f"process {os.getpid()}"))
            if lock.held:
                self._card = card
                return True
        return False


def on_this_disk(opening: Message) -> Message:
    """An opening with the digest of its journal's own file, by which a node finds out whether it sees it."""
    return opening | {"seal": file_digest(Path(opening["journal"]) / SWEEP)}


def _seen(opening: Message) -> Message:
    """Raises ToolchainError: this node does not see the driver's journal."""
    there = Path(opening["journal"]) / SWEEP
    if not there.is_file() or file_digest(there) != opening["seal"]:
        raise ToolchainError(
            f"{platform.node()} does not see {opening['journal']}. Keep the workspace on a disk that all machines of "
            "the cluster share, at the same place on each."
        )
    return opening
