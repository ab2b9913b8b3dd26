"""Evaluations in a child process, one after the other, which is replaced when a candidate takes it down; and how that
process is started, spoken to and ended.

Baseline and candidate are timed side by side in the child, as they would be in one process of any kind; the sampler,
the tracker and the display, which would share an interpreter with them, stay here. A start costs a second or two, once
for each sweep and once for each crash.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Line, Message, Say, TimeUp, Worker, decode_error
from workbench.targets.description import Card
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.system.lifeline import ending, out_of_memory_kills

_log = logging.getLogger(__name__)

_GRACE_S = 0.5


class ChildProcess(Worker):
    """A worker that is a child process. As a context manager it ends the child.

    For one thread. The experiment is read again from its file in the child, so it must be the file's.
    """

    def __init__(
        self, experiment: Experiment, bench: Bench, card: Card | None = None, *, compiler: int | None = None
    ) -> None:
        """Args:
        card: the only one it sees; all that this process sees without it.
        compiler: its number, of one that compiles beside others and measures nothing.
        """
        self.experiment, self._bench, self._card = experiment, bench, card
        self._alone = f"compiler-{compiler}" if compiler is not None else "" if card is None else card.name
        self._child: Process | None = None
        self._over = False

    def __enter__(self) -> ChildProcess:
        """Begins to start the child; the first task waits until it is ready."""
        self._child = self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    @property
    def pid(self) -> int | None:
        """Process id of the child; None where there is none."""
        return None if self._child is None else self._child.pid

    def end(self) -> None:
        """For good: a thread of the sweep may wait for it, and is not to start another."""
        self._over = True
        self.close()

    def close(self) -> None:
        """End the child, whatever it does; a later task starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def ask(self, task: Message, candidate: Candidate, say: Say = _log.info, *, until: float | None = None) -> Any:
        child, stage, time_up = self._ready(task), "check", threading.Event()

        def kill() -> None:
            time_up.set()
            child.kill()

        left_s = threading.TIMEOUT_MAX if until is None or until == math.inf else until - time.perf_counter()
        timer = threading.Timer(max(0.0, left_s), kill)
        timer.daemon = True
        timer.start()
        try:
            for message in child:
                match message["kind"]:
                    case "stage":
                        stage = message["stage"]
                        self._bench.report(candidate, stage)
                    case "say":
                        say(message["text"])
                    case "log":
                        log_again(message)
                    case "answer":
                        return message["value"]
                    case "error":
                        break
            else:
                if time_up.is_set() or self._over:  # ended by the sweep, from another thread
                    raise TimeUp(stage)
                raise self._crash(child, candidate, stage)
        except BaseException:  # a crash, Ctrl-C, or a listener's mistake: the child is of no more use
            self.close()
            raise
        finally:
            timer.cancel()
            timer.join()
        raise decode_error(message)

    def _ready(self, task: Message) -> Process:
        """A child that has begun the task. One that died with nothing to do is replaced, which counts against nobody.

        Raises:
            ToolchainError: no child can be started.
            Exception: what the child raised while it opened the experiment.
        """
        failed = ""
        for _ in range(2):
            self._child = child = self._child or self._start()
            try:
                if not child.opened:
                    expected(child, "ready")
                    child.opened = True
                child.forget_words()
                child.send(task)
                expected(child, "began")
            except (EOFError, BrokenPipeError, ConnectionResetError):
                end = child.ended()
                failed = f"the evaluation process {ending(end['code'])}: {end['last'] or 'it said nothing'}"
                self.close()
                continue
            except BaseException:
                self.close()
                raise
            return child
        raise ToolchainError(f"{failed}. It cannot be kept running; `workbench doctor` looks at this machine.")

    def _start(self) -> Process:
        if self._over:
            raise ToolchainError("the sweep has ended.")
        return self._launched(self.opening())

    def opening(self) -> Message:
        """What a child is told first."""
        return {
            "experiment": str(self.experiment.path.absolute()),
            "workspace": str(self.experiment.workspace),
            "identity": self.experiment.identity,
            "seed": self.experiment.seed,
            "journal": str(self._bench.journal.root.absolute()),
            "store": str(self._bench.store.root),
            "shared": None if self._bench.store.shared is None else self._bench.store.shared.url,
            "card": "" if self._card is None else self._card.name,
            "alone": self._alone,
            "level": logging.getLogger().getEffectiveLevel(),
        }

    def _launched(self, opening: Message) -> Process:
        try:
            return Process(opening, {} if self._card is None else self._card.environment)
        except OSError as error:
            raise ToolchainError(
                f"the evaluation process cannot be started: {error.strerror}. Free memory, processes or files."
            ) from error

    def _crash(self, child: Process, candidate: Candidate, stage: str) -> CrashError:
        end = child.ended()
        if end["code"] == -signal.SIGKILL:
            time.sleep(_GRACE_S)  # whoever kills all processes of ours means us next, and not the candidate
        log = self._bench.journal.log(candidate.id)
        log.write_text(end["words"], encoding="utf-8")
        how = ending(end["code"], out_of_memory=end["out_of_memory"])
        said = f" Its last words: {end['last']}" if end["last"] else ""
        return CrashError(f"the process that evaluated it {how}.{said}", stage=stage, log_path=log)


_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from workbench.search.executors.process import main; main(sys.argv[1:])"
)
"""This very workbench, wherever it lies: its folder goes to the child by argument."""
_END_S = 10.0
_LAST_BYTES = 20_000
_WORDS_LINES, _WORDS_CHARACTERS = 2, 300


class Process:
    """The process, its line, and what it writes to standard output and error. A subclass has one on another machine.

    Attributes:
        opened: it has read the experiment and takes tasks.
    """

    def __init__(self, opening: Message, environment: Mapping[str, str]) -> None:
        """Args: environment: what is different in its environment."""
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process, in `close`
        self.opened, self._out_of_memory = False, out_of_memory_kills()
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
        self._line = Line(ours)
        with contextlib.suppress(OSError):  # dead already: the first task finds out and says how
            self.send(opening)

    def send(self, message: Message) -> None:
        """Raises: OSError: the other end is gone."""
        self._line.send(message)

    def __iter__(self) -> Iterator[Message]:
        """What comes, until the other end is gone."""
        return iter(self._line)

    def forget_words(self) -> None:
        """What follows belongs to the next task. The offset is the child's too: it has inherited the open file."""
        self._words.seek(0)
        self._words.truncate()
        self._out_of_memory = out_of_memory_kills()

    def ended(self) -> Message:
        """How it ended, once its end of the line is closed: {"code", "words", "last", "out_of_memory"}.

        `words` are the last of what it wrote since its task began; `last` what a library said before it died, without
        the stack that `faulthandler` adds; `out_of_memory` whether the kernel has killed something for want of memory.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)
        code, number = self.end(), self._words.fileno()
        start = max(0, os.fstat(number).st_size - _LAST_BYTES)
        words = os.pread(number, _LAST_BYTES, start).decode("utf-8", errors="replace")
        said = [line.strip() for line in words.partition("Fatal Python error: ")[0].splitlines() if line.strip()]
        last = " / ".join(said[-_WORDS_LINES:])[:_WORDS_CHARACTERS]
        return {
            "code": code,
            "words": words,
            "last": last,
            "out_of_memory": out_of_memory_kills() > self._out_of_memory,
        }

    def kill(self) -> None:
        """With its group, where it still runs; whoever listens to it finds out."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill it with its group, where it still runs, and wait for it; the code it ended with."""
        self.kill()
        code = self._process.wait()
        self._line.close()
        return code

    def close(self) -> None:
        self.end()
        self._words.close()


def expected(child: Process, kind: str) -> None:
    """Wait for a message of this kind.

    Raises:
        EOFError: it died first.
        Exception: what it raised instead.
    """
    for message in child:
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
