"""Evaluations in a child process, one after the other, which is replaced when a candidate takes it down.

Baseline and candidate are timed side by side in the child, as they would be in one process of any kind; the sampler,
the tracker and the display, which would share an interpreter with them, stay here. A start costs a second or two, once
for each sweep and once for each crash.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.messages import Line, Message, decode_error
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Evaluation, ServiceResult, Split, evaluation_from_json
from workbench.values.system.lifeline import ending, out_of_memory_kills

_log = logging.getLogger(__name__)

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from workbench.search.executors.process import main; main(sys.argv[1:])"
)
"""This very workbench, wherever it lies: its folder goes to the child by argument."""
_GRACE_S, _END_S = 0.5, 10.0
_LAST_BYTES = 20_000
_WORDS_LINES, _WORDS_CHARACTERS = 2, 300


class ChildProcess:
    """An `Executor` whose evaluations run in a child process. As a context manager it ends the child.

    For one thread. The experiment is read again from its file in the child, so it must be the file's.
    """

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self._experiment, self._bench = experiment, bench
        self._child: _Child | None = None

    def __enter__(self) -> ChildProcess:
        """Begins to start the child; the first task waits until it is ready."""
        self._child = self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child; None where there is none."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the child, whatever it does; a later task starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def evaluate(
        self,
        candidate: Candidate,
        *,
        incumbents: Sequence[Evaluation] = (),
        split: Split = "validation",
        gates: bool = True,
    ) -> Evaluation:
        """As `workbench.search.ladder.evaluate`, errors included.

        Raises:
            CrashError: the child died; names the stage, how it ended and its last words.
        """
        task = {
            "task": "evaluate",
            "candidate": candidate.to_json(),
            "incumbents": [evaluation.to_json() for evaluation in incumbents],
            "split": split,
            "gates": gates,
        }
        return evaluation_from_json(self._ask(task, candidate))

    def probe(self) -> float:
        """As `workbench.search.plan.probe_call_ms`.

        Raises:
            CrashError: the child died.
        """
        return float(self._ask({"task": "probe"}, self._experiment.baseline))

    def confirm_service(self, candidate: Candidate, report: Callable[[str], None]) -> ServiceResult:
        """Serve and load a confirmed candidate; what its confirmation then says of its service.

        Raises:
            CrashError: the child died.
            ToolchainError: the machine, not the candidate, is at fault.
        """
        task = {"task": "service", "candidate": candidate.to_json()}
        return decode(ServiceResult, self._ask(task, candidate, report))

    def _ask(self, task: Message, candidate: Candidate, say: Callable[[str], None] = _log.info) -> Any:
        child = self._ready(task)
        oom_kills = out_of_memory_kills()
        stage = "check"
        try:
            for message in child.line:
                match message["kind"]:
                    case "stage":
                        stage = message["stage"]
                        self._bench.report(candidate, stage)
                    case "say":
                        say(message["text"])
                    case "log":
                        _log_again(message)
                    case "answer":
                        return message["value"]
                    case "error":
                        break
            else:
                raise self._crash(child, candidate, stage, oom_kills)
        except BaseException:  # a crash, Ctrl-C, or a listener's mistake: the child is of no more use
            self.close()
            raise
        raise decode_error(message)

    def _ready(self, task: Message) -> _Child:
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
                    _expect(child, "ready")
                    child.opened = True
                child.forget_words()
                child.line.send(task)
                _expect(child, "began")
            except (EOFError, BrokenPipeError, ConnectionResetError):
                failed = f"the evaluation process {ending(child.ended())}: {_last_lines(child) or 'it said nothing'}"
                self.close()
                continue
            except BaseException:
                self.close()
                raise
            return child
        raise ToolchainError(f"{failed}. It cannot be kept running; `workbench doctor` looks at this machine.")

    def _start(self) -> _Child:
        opening = {
            "experiment": str(self._experiment.path.absolute()),
            "workspace": str(self._experiment.workspace),
            "identity": self._experiment.identity,
            "seed": self._experiment.seed,
            "journal": str(self._bench.journal.root.absolute()),
            "store": str(self._bench.store.root),
            "level": logging.getLogger().getEffectiveLevel(),
        }
        try:
            return _Child(opening)
        except OSError as error:
            raise ToolchainError(
                f"the evaluation process cannot be started: {error.strerror}. Free memory, processes or files."
            ) from error

    def _crash(self, child: _Child, candidate: Candidate, stage: str, oom_kills: int) -> CrashError:
        code = child.ended()
        if code == -signal.SIGKILL:
            time.sleep(_GRACE_S)  # whoever kills all processes of ours means us next, and not the candidate
        log = self._bench.journal.log(candidate.id)
        log.write_text(child.words(), encoding="utf-8")
        said = _last_lines(child)
        how = ending(code, out_of_memory=out_of_memory_kills() > oom_kills)
        return CrashError(
            f"the process that evaluated it {how}." + (f" Its last words: {said}" if said else ""),
            stage=stage,
            log_path=log,
        )


class _Child:
    """The process, its line, and what it writes to standard output and error.

    Attributes:
        opened: it has read the experiment and takes tasks.
    """

    def __init__(self, opening: Message) -> None:
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

    def end(self) -> int:
        """Kill it with its group, where it still runs, and wait for it; the code it ended with."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self.line.close()
        return code

    def close(self) -> None:
        self.end()
        self._words.close()


def _last_lines(child: _Child) -> str:
    """What a library said before it died; the stack that `faulthandler` adds is for the log."""
    said, _, _ = child.words().partition("Fatal Python error: ")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " / ".join(lines[-_WORDS_LINES:])[:_WORDS_CHARACTERS]


def _expect(child: _Child, kind: str) -> None:
    """Raises: EOFError: it died first. Exception: what the child raised instead."""
    for message in child.line:
        if message["kind"] == kind:
            return
        if message["kind"] == "log":
            _log_again(message)
        elif message["kind"] == "error":
            raise decode_error(message)
    raise EOFError


def _log_again(message: Message) -> None:
    """A line that the child logged, through this process' own handlers."""
    logging.getLogger(message["name"]).log(message["level"], "%s", message["text"])
