"""The process that runs one function of a user's file, seen from here: started when first asked, and ended with us.

    process = process_of(code)
    stream = process.stream("validation")             # None where the function returned None
    for sample in stream: ...
    scores = process.call({"outputs": outputs, "targets": targets})

For each function there is one, kept for the next question; a question that was broken off (Ctrl-C, a time-out) ends it,
and the next one starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.user_code.source import UserCode
from workbench.user_code.wire import HEAD, MOST_DATA_BYTES, MOST_HEADER_BYTES, WireError, pack, unpack
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.system.environment import number_of
from workbench.values.system.lifeline import ending

SECONDS_VARIABLE = "WORKBENCH_USER_CODE_SECONDS"
"""How long one question to the user's code may take: its import, one sample, the scores of one batch."""
_SECONDS = 600.0
_RUNNER = "workbench.user_code.runner"
_PROGRAM = (
    "import importlib, sys; root, name = sys.argv[1:3]; sys.path.insert(0, root); "
    "importlib.import_module(name).main(root, sys.argv[3:])"
)
_POLL_S = 0.5
_CLOSE_S, _DYING_S = 1.0, 0.01
_MOST_ROWS, _ROWS_BYTES, _ROWS_S = 64, 1 << 22, 1.0
"""Of one answer with samples: so that memory is bounded and nothing is made long before it is asked for."""
_MOST_PROCESSES = 20
"""As many as a pipeline has functions."""
_LAST_BYTES, _LINES, _CHARACTERS = 8000, 3, 400
"""Of the log: so much is looked at, and so much of its end shown in an error."""
_TRACEBACK = "Traceback (most recent call last):"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SECRETS = ("WORKBENCH_API_KEY",)


class UserCodeError(Exception):
    """The user's code raised, died, took too long, or gave what cannot be sent.

    Attributes:
        kind: 'import', 'call', 'died', 'time', 'value', 'changed', 'no function' or 'no iterable'.
        rule: what happened, as a sentence's middle; line and file where it did.
        hint: the way on, the last lines that the code printed, and where all of them are.
    """

    def __init__(self, kind: str, rule: str, file: Path, *, line: int | None = None, hint: str = "") -> None:
        super().__init__(rule)
        self.kind, self.rule, self.file, self.line, self.hint = kind, rule, file, line, hint

    def config(self, words: str = "{}.", *, key: str | None = None) -> ConfigError:
        """As the error of a user's file; `words` has `{}` where it says what happened."""
        return ConfigError(words.format(self.rule), file=self.file, line=self.line, key=key, hint=self.hint or None)


class UserProcess:
    """One function in a process. One question at a time, from any thread."""

    def __init__(self, code: UserCode, limit_s: float | None = None) -> None:
        """Starts it and waits for its import.

        Args:
            limit_s: of one question; None for what the environment says, or ten minutes.

        Raises:
            UserCodeError: the file cannot be imported, or has no such function.
            ToolchainError: no process can be started.
        """
        self.code = code
        self.owner = os.getpid()
        self._closed = self._keep_log = False
        self._lock = threading.Lock()
        self._limit_s = number_of(SECONDS_VARIABLE, _SECONDS) if limit_s is None else limit_s
        root, prefix = str(Path(__file__).parents[2]), f"workbench-{code.file.stem[:40]}-"
        try:
            self._log = tempfile.NamedTemporaryFile(prefix=prefix, suffix=".log", delete=False)  # noqa: SIM115  # `close`
        except OSError as error:
            raise ToolchainError(f"no log for {code.file.name} can be written: {error}. Free the disk.") from error
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-B", "-c", _PROGRAM, root, _RUNNER),
                    *(str(code.file), code.file_sha256, code.function, str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                # without secrets; libraries use one thread where nobody says otherwise: what runs beside is timed
                env={**dict.fromkeys(_ONE_THREAD, "1"), **{k: v for k, v in os.environ.items() if k not in _SECRETS}},
                start_new_session=True,  # Ctrl-C comes to us, and we end it
            )
        except OSError as error:
            self._drop_log()
            raise ToolchainError(
                f"the process for {code.file.name} cannot be started: {error.strerror}. "
                "Free memory, processes or files."
            ) from error
        assert self._process.stdin is not None  # it was asked for, as is the other
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._to, self._from):
            os.set_blocking(pipe, False)
        try:
            self.parameters: list[dict[str, Any]] | None = self._ask("its import", None)["parameters"]
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and not self._closed and not self._ended()

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """What the function returns for these named arguments.

        Raises:
            UserCodeError: it did not.
        """
        return self._ask(f"{self.code.function}()", {"do": "call", "arguments": dict(arguments)})["value"]

    def stream(self, *arguments: Any) -> Iterator[Any] | None:
        """The values of the iterable that the function returns for these, a few asked for at a time; None for None.

        Raises:
            UserCodeError: it raised, here or at the value that is asked for next.
        """
        number = self._ask(f"{self.code.function}()", {"do": "open", "arguments": list(arguments)})["stream"]
        return None if number is None else self._values(number)

    def _values(self, number: int) -> Iterator[Any]:
        count = 1  # whoever wants one sample does not pay for more
        ended = False
        try:
            while not ended:
                request = {"do": "next", "stream": number, "count": count, "bytes": _ROWS_BYTES, "seconds": _ROWS_S}
                answer = self._ask("one sample", request, partly=True)
                ended = answer.get("end", True)
                yield from answer["rows"]
                if "error" in answer:
                    raise self._error(answer["error"])
                count = min(2 * count, _MOST_ROWS)
        finally:
            if not ended and self.alive:
                with self._lock:
                    try:
                        self._send({"do": "close", "stream": number}, time.monotonic() + _CLOSE_S)
                    except BaseException as error:
                        self.close()
                        if not isinstance(error, OSError | EOFError):  # of the pipe
                            raise

    def _ask(self, what: str, request: dict[str, Any] | None, *, partly: bool = False) -> dict[str, Any]:
        """The answer to a question; without one, what it says after its import.

        Args:
            partly: an answer may hold an error and what came before it.
        """
        with self._lock:
            if request is not None and not self.alive:
                raise self._gone()
            until = time.monotonic() + self._limit_s
            try:
                if request is not None:
                    self._send(request, until)
                answer = self._receive(until)
            except TimeoutError:
                hint = f"{SECONDS_VARIABLE}=N in the environment allows N seconds. {self._said()}".strip()
                self.close()
                rule = f"{what} took more than {self._limit_s:g} s"
                raise UserCodeError("time", rule, self.code.file, hint=hint) from None
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise self._gone() from None
            except WireError as error:
                self.close()
                raise UserCodeError("value", str(error), self.code.file) from error
            except BaseException:  # Ctrl-C: half an answer is on its way
                self.close()
                raise
        if "error" in answer and not partly:
            raise self._error(answer["error"])
        return answer

    def _gone(self) -> UserCodeError:
        until = time.monotonic() + _CLOSE_S
        while not self._closed and not (ended := self._ended()) and time.monotonic() < until:
            time.sleep(_DYING_S)
        by_itself = not self._closed and ended
        said = self._said()
        self.close()
        how = ending(self._process.returncode) if by_itself else "was ended"
        return UserCodeError("died", f"the process that ran {self.code.function}() {how}", self.code.file, hint=said)

    def _error(self, told: Mapping[str, Any]) -> UserCodeError:
        kind, file, function, hint = told["kind"], self.code.file, self.code.function, ""
        match kind:
            case "changed":
                rule, hint = "changed while it was read", "Start again."
            case "no function":
                rule, hint = f"has no function {function!r}", nearest(function, told["known"])
            case "no iterable":
                rule = f"returned {told['type']}, not an iterable"
            case "value":
                rule = f"{function}() gave too much: {told['text']}"
            case _:
                rule = f"{told['type']}: {told['text']}" if told["text"] else str(told["type"])
                rule = rule.rstrip(".") + (f" (in {told['function']})" if told["function"] else "")
                hint, file = self._said(but_traceback=True), Path(told["file"])
        return UserCodeError(kind, rule, file, line=told.get("line"), hint=hint)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _send(self, request: dict[str, Any], until: float) -> None:
        for part in pack(request):
            rest = memoryview(part).cast("B")
            while rest:
                self._wait(self._to, selectors.EVENT_WRITE, until)
                rest = rest[os.write(self._to, rest[: 1 << 20]) :]

    def _receive(self, until: float) -> dict[str, Any]:
        header_size, data_size = HEAD.unpack(self._read(HEAD.size, until))
        if header_size > MOST_HEADER_BYTES or data_size > MOST_DATA_BYTES:
            raise WireError(f"its answer claims {header_size + data_size} bytes")
        header = bytes(self._read(header_size, until))
        answer: dict[str, Any] = unpack(header, self._read(data_size, until))
        return answer

    def _read(self, count: int, until: float) -> bytearray:
        data, done = bytearray(count), 0
        while done < count:
            self._wait(self._from, selectors.EVENT_READ, until)
            got = os.readv(self._from, [memoryview(data)[done:]])
            if got == 0:
                raise EOFError
            done += got
        return data

    def _wait(self, number: int, event: int, until: float) -> None:
        """Until the pipe is ready. A process that the code itself has started may hold the other end open."""
        with selectors.PollSelector() as ready:
            ready.register(number, event)
            while not ready.select(min(_POLL_S, max(0.0, until - time.monotonic()))):
                if self._ended() and not ready.select(0):
                    raise EOFError
                if time.monotonic() >= until:
                    raise TimeoutError

    def _ended(self) -> bool:
        """Whether it has; it stays a zombie until `close`, so that its number means this group and no other."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def close(self) -> None:
        """End it with all that its code has started."""
        if self._closed:
            return
        self._closed = True
        if self.owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._drop_log()

    def _said(self, *, but_traceback: bool = False) -> str:
        """'It printed last: … (all of it: PATH)' of what was printed, '' where nothing was. The log is kept.

        Args:
            but_traceback: leave out what the runner printed of an exception, whose words stand in the error.
        """
        if self._log.closed:
            return ""
        number = self._log.fileno()
        size = os.fstat(number).st_size
        text = os.pread(number, _LAST_BYTES, max(0, size - _LAST_BYTES)).decode("utf-8", errors="replace")
        if but_traceback:
            text = text.partition(_TRACEBACK)[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self._keep_log = self._keep_log or size > 0
        last = " / ".join(lines[-_LINES:])[-_CHARACTERS:]
        return f"It printed last: {last} (all of it: {self._log.name})" if lines else ""

    def _drop_log(self) -> None:
        """It stays where an error speaks of it."""
        self._log.close()
        if not self._keep_log:
            Path(self._log.name).unlink(missing_ok=True)


_processes: dict[UserCode, UserProcess] = {}
_starting = threading.Lock()


def process_of(code: UserCode) -> UserProcess:
    """The process for this function, started where there is none.

    Raises:
        UserCodeError, ToolchainError: as `UserProcess`.
    """
    with _starting:
        found = _processes.pop(code, None)
        if found is not None and not found.alive:
            found.close()
            found = None
        found = found or UserProcess(code)
        _processes[code] = found  # the last one used stands last
        while len(_processes) > _MOST_PROCESSES:
            _processes.pop(next(iter(_processes))).close()
        return found


def _close_all() -> None:
    while _processes:
        _processes.popitem()[1].close()


atexit.register(_close_all)
