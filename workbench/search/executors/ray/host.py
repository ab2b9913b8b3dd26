"""What runs on a node: an actor that holds one card and the process which evaluates on it; and compiles without one.

Thin on purpose: it starts, relays and ends. What a message means is known by the evaluation process and the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from workbench import __version__
from workbench.search.executors.child import Process
from workbench.search.executors.messages import Message, encode_error
from workbench.search.executors.ray.connection import imported_ray
from workbench.search.executors.ray.elsewhere import Copy, Files, paths_of, placed
from workbench.targets import described, open_target
from workbench.targets.description import Card
from workbench.values.documents.canonical import encode
from workbench.values.errors import ToolchainError, WorkbenchError
from workbench.values.system.files import lock_file
from workbench.values.system.lifeline import out_of_memory_kills

_WHOLE_HOST = "host"
_SHOWN, _SHOWN_S = ("stage", "log", "say"), 0.5


class CardHost:
    """An actor's class. Calls may come side by side; all of them answer in JSON."""

    def __init__(self, targets: Sequence[str], environment: dict[str, str]) -> None:
        os.environ.update(environment)
        self._targets = tuple(targets)
        self._held = contextlib.ExitStack()
        self._card: Card | None = None
        self._process: Process | None = None
        self._copy: Copy | None = None
        # a child dies with the thread that started it: this one lives as long as the actor
        self._starter = ThreadPoolExecutor(1)
        self._out_of_memory = 0

    def about(self) -> str:
        """Of its card, which is taken now: {"host", "node", "card", "pid", "version", "toolchains"}; {"taken"} where
        every card that it may use is held by somebody on this host; {"error"} of the targets."""
        try:
            if self._card is None and not self._take():
                return json.dumps({"taken": platform.node()})
            chains = {name: encode(open_target(name).toolchain()) for name in self._targets}
        except Exception as error:  # of any kind: the driver refuses the node by it
            return json.dumps({"host": platform.node(), "node": node_here(), "error": encode_error(error)})
        assert self._card is not None
        card = "" if self._card.name == _WHOLE_HOST else self._card.name
        return json.dumps(
            {
                "host": platform.node(),
                "node": node_here(),
                "card": card,
                "pid": os.getpid(),
                "version": __version__,
                "toolchains": chains,
            }
        )

    def run(self, opening: str) -> Iterator[str]:
        """Start a process, and give what it says until it ends, one message a line: {"kind": "started"} first,
        {"kind": "ended"} last."""
        for messages in together(self._said(opening)):  # Ray sends into generators, so not `yield from` an iterator
            yield "\n".join(json.dumps(message, ensure_ascii=False) for message in messages)

    def _said(self, opening: str) -> Iterator[Message]:
        try:
            environment = {} if self._card is None else dict(self._card.environment)
            here, self._copy = placed(json.loads(opening), "-".join(("card", *environment.values())))
            process = self._starter.submit(Process, here, environment).result()
        except OSError as error:
            why = ToolchainError(f"{platform.node()}: the evaluation process cannot be started: {error.strerror}.")
            yield encode_error(why)
            return
        except WorkbenchError as error:
            yield encode_error(error)
            return
        self._process = process
        yield {"kind": "started", "pid": process.pid, "paths": paths_of(here) if self._copy else []}
        for message in process.line:
            if self._copy is not None and message["kind"] in ("answer", "error"):
                yield from self._copy.news()
            yield message
        code = process.ended()
        yield {
            "kind": "ended",
            "code": code,
            "words": process.words(),
            "last": process.last_lines(),
            "out_of_memory": out_of_memory_kills() - self._out_of_memory,
        }
        process.close()

    def say(self, message: str, files: Files) -> bool:
        """To the process; False where it is gone.

        Args:
            files: what changed in the driver's journal, where this node does not see it.
        """
        task: Message = json.loads(message)
        if self._process is None:
            return False
        if self._copy is not None:
            self._copy.take(files)
        self._out_of_memory = out_of_memory_kills()
        self._process.forget_words()
        try:
            self._process.line.send(task)
        except (OSError, ValueError):
            return False
        return True

    def kill(self, pid: int) -> None:
        """The process of that id, where it is still the one that runs; whichever runs, for 0."""
        if self._process is not None and pid in (0, self._process.pid):
            self._process.kill()

    def _take(self) -> bool:
        """Hold a card of this host that nobody holds, for as long as this actor lives: two clusters, or a process that
        is slow to die, must not meet on one."""
        folder = Path(tempfile.gettempdir()) / f"workbench-cards-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for card in _cards(self._targets):
            lock = self._held.enter_context(lock_file(folder / f"{card.name}.lock", owner=f"process {os.getpid()}"))
            if lock.held:
                self._card = card
                return True
        return False


def together(said: Iterator[Message]) -> Iterator[list[Message]]:
    """What is only shown waits for company, half a second at most: every item of a stream costs the driver
    milliseconds. Everything else is given at once, with what waited before it."""
    heard: SimpleQueue[Message | BaseException | None] = SimpleQueue()

    def read() -> None:
        try:
            for message in said:
                heard.put(message)
            heard.put(None)
        except BaseException as error:  # of any kind: who reads the stream raises it
            heard.put(error)

    threading.Thread(target=read, name="relays", daemon=True).start()
    waiting: list[Message] = []
    until = 0.0
    while True:
        try:
            message = heard.get(timeout=max(0.0, until - time.monotonic()) if waiting else None)
        except Empty:
            yield waiting
            waiting = []
            continue
        if message is None or isinstance(message, BaseException):
            if waiting:
                yield waiting
            if message is not None:
                raise message
            return
        until = until if waiting else time.monotonic() + _SHOWN_S
        waiting.append(message)
        if message["kind"] not in _SHOWN:
            yield waiting
            waiting = []


_COMPILERS: dict[str, Process] = {}
"""The process of each sweep that this worker compiles for: it takes seconds to start, and a worker has many tasks."""


def compiled(opening: str, task: str, environment: dict[str, str]) -> list[str]:
    """A task's function: what a process says that compiles one candidate."""
    os.environ.update(environment)
    name = f"compiler-{platform.node()}-{os.getpid()}"
    try:
        here, _ = placed(json.loads(opening) | {"alone": name}, name)
    except WorkbenchError as error:
        return [json.dumps(encode_error(error))]
    for _ in range(2):
        process = _COMPILERS.get(opening) or _COMPILERS.setdefault(opening, Process(here, {}))
        said = list(_said(process, json.loads(task)))
        if said and said[-1]["kind"] != "gone":
            break
        _COMPILERS.pop(opening).close()  # it died with nothing to do
    return [json.dumps(message, ensure_ascii=False) for message in said]


def _said(process: Process, task: Message) -> Iterator[Message]:
    began = process.opened
    try:
        process.line.send(task)
    except OSError:
        yield {"kind": "gone"}
        return
    for message in process.line:
        process.opened = process.opened or message["kind"] == "ready"
        yield message
        if message["kind"] in ("answer", "error"):
            return
    yield {"kind": "gone" if began else "ended", "code": process.ended(), "last": process.last_lines()}


def node_here() -> str:
    """The id that the cluster gives to this node."""
    return str(imported_ray().get_runtime_context().get_node_id())


def _cards(targets: Sequence[str]) -> tuple[Card, ...]:
    """Those that Ray lets this process see; the whole host where it is the host that computes."""
    found: tuple[Any, ...] = described(targets[0]).cards() if len(targets) == 1 else ()
    return found or (Card(name=_WHOLE_HOST, environment={}),)
