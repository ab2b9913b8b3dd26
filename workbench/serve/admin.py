"""The front end's side of the port of administration: it starts the watcher, tells it how things are, and is asked.

`watcher` is the process that answers there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.serve.app import Page
from workbench.serve.events import log
from workbench.serve.watcher import MOST_LINE_BYTES

BEAT_S = 0.25
_PAUSE_S = 1.0
"""Before a watcher that ended is started again."""
_UNREAD_BYTES = 1 << 20
"""Of a watcher that does not read; then nothing more is said until it does."""


class Admin:
    """Keeps one watcher running."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        hosts: Sequence[str],
        hang_s: float,
        beat: Callable[[], Mapping[str, Any]],
        pages: Mapping[str, Page],
    ) -> None:
        """
        Args:
            beat: what is said every quarter of a second, see `watcher`.
            pages: path → what is told there when somebody asks.
        """
        self._listener, self._beat, self._pages = listener, beat, pages
        self._options = [f"--hang-s={hang_s:g}"]
        self._options += [f"--allowed-host={name}" for name in hosts] + [f"--page={path}" for path in pages]

    async def run(self) -> None:
        """Start a watcher, and another where it ends, until cancelled."""
        while True:
            try:
                code = await self._watched()
                log("watcher_ended", code=code)
            except OSError as error:  # no memory or no open files at the moment
                log("watcher_not_started", error=error.strerror or str(error))
            await asyncio.sleep(_PAUSE_S)

    async def _watched(self) -> int:
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            descriptors = self._listener.fileno(), theirs.fileno()
            command = [sys.executable, "-m", "workbench.serve.watcher", *map(str, descriptors), *self._options]
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)
            except OSError:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MOST_LINE_BYTES)
        beating = asyncio.get_running_loop().create_task(self._beats(writer))
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    asked = json.loads(line)
                    self._say(writer, {"id": asked["id"], "answer": await self._pages[asked["path"]]()})
        finally:
            beating.cancel()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            process.kill()  # it ends by itself unless it hangs, and has nothing to lose
            code = await asyncio.to_thread(process.wait)
        return code

    async def _beats(self, writer: asyncio.StreamWriter) -> None:
        while True:
            self._say(writer, self._beat())
            await asyncio.sleep(BEAT_S)

    def _say(self, writer: asyncio.StreamWriter, said: Mapping[str, Any]) -> None:
        if writer.transport.get_write_buffer_size() < _UNREAD_BYTES:
            writer.write(json.dumps(said).encode() + b"\n")
