"""The evaluation process seen from the sweep: how it is started, spoken to and ended, and what it wrote."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

from workbench.search.executors.messages import Line, Message, decode_error
from workbench.values.system.lifeline import out_of_memory_kills

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from workbench.search.executors.process import main; main(sys.argv[1:])"
)
"""This very workbench, wherever it lies: its folder goes to the child by argument."""
_END_S = 10.0
_LAST_BYTES = 20_000
_WORDS_LINES, _WORDS_CHARACTERS = 2, 300


class Spoken(Protocol):
    """A line to somebody, here or on another machine."""

    def send(self, message: Message) -> None:
        """Raises: OSError: the other end is gone."""

    def __iter__(self) -> Iterator[Message]:
        """What comes, until the other end is gone."""


class Started(Protocol):
    """A process that evaluates, wherever it is. `Process` says what its members mean."""

    opened: bool

    @property
    def line(self) -> Spoken: ...
    @property
    def pid(self) -> int: ...
    def forget_words(self) -> None: ...
    def words(self) -> str: ...
    def last_lines(self) -> str: ...
    def ended(self) -> int: ...
    def out_of_memory(self, before: int) -> bool: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...
    def expect(self, kind: str) -> None: ...


class Process:
    """The process, its line, and what it writes to standard output and error.

    Attributes:
        opened: it has read the experiment and takes tasks.
    """

    def __init__(self, opening: Message, environment: Mapping[str, str]) -> None:
        """Args: environment: what is different in its environment."""
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process, in `close`
        self.opened = False
        ours, theirs = socket.socketpair()
        with theirs:
            root = str(Path(__file__).parents[3])
            number = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, root, str(number), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._words,
                    stderr=subprocess.STDOUT,
                    pass_fds=(number,),
                    env={**os.environ, **environment},
                    start_new_session=True,  # Ctrl-C comes to us, and we end it
                )
            except BaseException:
                ours.close()
                self._words.close()
                raise
        self.pid = self._process.pid
        self.line = Line(ours)
        with contextlib.suppress(OSError):  # dead already: the first task finds out and says how
            self.line.send(opening)

    def forget_words(self) -> None:
        """What follows belongs to the next task. The offset is the child's too: it has inherited the open file."""
        self._words.seek(0)
        self._words.truncate()

    def words(self) -> str:
        """The last of what it wrote since then."""
        number = self._words.fileno()
        size = os.fstat(number).st_size
        start = max(0, size - _LAST_BYTES)
        return os.pread(number, _LAST_BYTES, start).decode("utf-8", errors="replace")

    def ended(self) -> int:
        """The code it ended with, once its end of the line is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)
        return self.end()

    def kill(self) -> None:
        """With its group, where it still runs; whoever listens to it finds out."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill it with its group, where it still runs, and wait for it; the code it ended with."""
        self.kill()
        code = self._process.wait()
        self.line.close()
        return code

    def close(self) -> None:
        self.end()
        self._words.close()

    def expect(self, kind: str) -> None:
        """Wait for a message of this kind.

        Raises:
            EOFError: it died first.
            Exception: what it raised instead.
        """
        expected(self.line, kind)

    def out_of_memory(self, before: int) -> bool:
        """Whether the kernel has killed something for want of memory, since it had killed so many."""
        return out_of_memory_kills() > before

    def last_lines(self) -> str:
        """What a library said before it died; the stack that `faulthandler` adds is for the log."""
        said, _, _ = self.words().partition("Fatal Python error: ")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return " / ".join(lines[-_WORDS_LINES:])[:_WORDS_CHARACTERS]


def expected(line: Spoken, kind: str) -> None:
    """As `Process.expect`."""
    for message in line:
        if message["kind"] == kind:
            return
        if message["kind"] == "log":
            log_again(message)
        elif message["kind"] == "error":
            raise decode_error(message)
    raise EOFError


def log_again(message: Message) -> None:
    """A line that the child logged, through this process' own handlers."""
    logging.getLogger(message["name"]).log(message["level"], "%s", message["text"])
