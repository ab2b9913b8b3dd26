"""The door for models of others: read, checked, and opened once in a process with limits before this one opens them.

    model = open_foreign(path)        # ConfigError: beyond a bound, or its opening took too much, or crashed

A file of some hundred bytes may ask a runtime for terabytes, or for ever. Which file does so is not seen by looking at
it, so the libraries' work is done beforehand where the kernel can end it: shape inference, ONNX Runtime's optimizer,
and one sample. What passed is remembered by content, in this process and in the user's cache folder. Whatever else has
to be done with a graph of others, such as running samples that came with it, is done there too (`call_apart`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workbench.graph.read import read_model
from workbench.values import errors
from workbench.values.documents.canonical import digest, encode
from workbench.values.errors import ConfigError, ToolchainError, WorkbenchError
from workbench.values.model import Model
from workbench.values.system.environment import number_of
from workbench.values.system.lifeline import ending, tied
from workbench.values.system.source_closure import closure_digest

SECONDS_VARIABLE = "WORKBENCH_MODEL_SECONDS"
"""Processor seconds that opening a model may take, where that is more than its size allows."""
MEMORY_VARIABLE = "WORKBENCH_MODEL_GIB"
"""Memory that opening a model may take, where that is more than its size allows."""

_BASE_BYTES, _BYTES_PER_BYTE = 768 << 20, 4
"""The libraries take 130 MB. A model of 400 MB needs 1.1 times its size with external data, 2.1 times without; one in
float16 whose weights the optimizer casts to float32, twice that."""
_BASE_S, _BYTES_PER_S = 1.0, 64 << 20
"""A graph of a hundred nodes takes 0.05 s, 400 MB of weights 2 s of a slow processor."""
_GRAPH_BYTES, _GRAPH_BYTES_PER_S = 8 << 20, 64 << 10
"""What of a file may be graph rather than weights: 50,000 nodes in 1.2 MB take 5 s."""
RUNNING = 6.0
"""Times what opening takes that running samples may take: 4.6 GB of activations, whatever the weights."""
OUT_OF_MEMORY, NOT_WRITTEN = 77, 78
"""Exit codes of the process that opens a model, where an allocation failed, and where a file could not be written."""
_WALL = 10.0
"""Times the processor's seconds: other programs want their turn."""
_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningLimits:
    """What opening one model may take. The kernel enforces the first two."""

    memory_bytes: int
    cpu_s: int
    wall_s: float


def open_foreign(path: Path) -> Model:
    """Read a model that somebody else made, once a process with limits could open it.

    Raises:
        ConfigError: as `read_model`; or opening it needs more memory or time than its size explains, or crashes.
        ToolchainError: no process can be started.
    """
    model = read_model(path)
    # an empty file says that a model of this content was opened, by this code and these libraries
    by = [closure_digest("workbench.graph.opener", alone=(__name__,)), *libraries()]
    mark = user_cache() / "opened" / digest([model.sha256, *by])
    if model.sha256 not in _passed and not mark.exists():
        running = limits_of(model.size_bytes, RUNNING).memory_bytes
        about = "opening it (shape inference, ONNX Runtime's optimizer, a first sample)"
        guarded(path, model.size_bytes, {"running_bytes": running}, about=about)
        with contextlib.suppress(OSError):  # a read-only home: it will be opened again
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    _passed.add(model.sha256)
    return model


def limits_of(size_bytes: int, effort: float = 1.0) -> OpeningLimits:
    """What a model of this size may take to open, or so many times that; the environment raises it."""
    memory = int(effort * (_BASE_BYTES + _BYTES_PER_BYTE * size_bytes))
    seconds = _BASE_S + size_bytes / _BYTES_PER_S + min(size_bytes, _GRAPH_BYTES) / _GRAPH_BYTES_PER_S
    seconds = max(effort * seconds, number_of(SECONDS_VARIABLE, 0.0))
    return OpeningLimits(
        memory_bytes=max(memory, int(number_of(MEMORY_VARIABLE, 0.0) * (1 << 30))),
        cpu_s=-int(-seconds // 1),
        wall_s=_WALL * seconds,
    )


def call_apart(
    path: Path,
    size_bytes: int,
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    *,
    about: str,
    effort: float = RUNNING,
) -> Any:
    """What a function of ours returns, called in a process with limits.

    Args:
        path, size_bytes: of the model, whose size says what it may take.
        function: of a module; it is found again there by its name. What it takes and returns is JSON.
        arguments: by name.

    Raises:
        WorkbenchError: as the function does, or as `guarded`.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        answer = Path(folder) / "answer.json"
        call = {"module": function.__module__, "name": function.__qualname__, "arguments": dict(arguments)}
        call["folder"] = str(Path.cwd())  # what paths of the user's are relative to
        guarded(path, size_bytes, {"call": call, "answer": str(answer)}, about=about, effort=effort)
        said: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in said:
        wrong = said["error"]
        kind: type[WorkbenchError] = getattr(errors, wrong["kind"])
        raise kind(*wrong["arguments"], **wrong["keys"])
    return said["returned"]


def guarded(path: Path, size_bytes: int, request: Mapping[str, Any], *, about: str, effort: float = 1.0) -> None:
    """Have the process that opens models do something with one; see `opener` for what it can be asked.

    Args:
        about: what it does, as the beginning of a sentence.
        effort: how many times what opening takes it may take.

    Raises:
        ConfigError: it did not end by itself, and well.
        ToolchainError: no process can be started.
    """
    limits = limits_of(size_bytes, effort)
    code = _OPENER.ask({**request, "path": str(path.resolve()), **encode(limits)})["returncode"]
    if code == 0:
        return
    size = f"{size_bytes / 1e6:.3g} MB"
    if code is None or code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise ConfigError(
            f"{about} did not end within {limits.cpu_s} s of processor time, {limits.wall_s:.0f} s in all, which is a "
            f"lot for {size}.",
            file=path,
            hint=f"Does a Loop or Range have no end? {SECONDS_VARIABLE}=N in the environment allows N seconds.",
        )
    if code == OUT_OF_MEMORY:
        most_bytes = request.get("running_bytes", limits.memory_bytes)
        raise ConfigError(
            f"{about} needs more than {most_bytes / (1 << 30):.2g} GiB of memory, which is a lot for {size}.",
            file=path,
            hint=f"Do constants grow in it? {MEMORY_VARIABLE}=N in the environment allows N GiB.",
        )
    if code == NOT_WRITTEN:
        raise ToolchainError(f"{about}: a file could not be written. Is the disk full? Free space and run it again.")
    raise ConfigError(
        f"{about}: the process that did so {ending(code)}.", file=path, hint="The file is damaged; export it again."
    )


# --- what passed -----------------------------------------------------------------------------------------------------

_passed: set[str] = set()


def user_cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "workbench"


@functools.cache
def libraries() -> tuple[str, ...]:
    """Versions of what opens models."""
    from importlib.metadata import version

    return (version("onnx"), version("onnxruntime"))


# --- the program that opens ------------------------------------------------------------------------------------------


class _Opener:
    """Starts `opener` when first asked, and asks it; one question at a time. It ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(ToolchainError):  # it ends by itself when it has been idle for long
                    return self._asked(self._process, request)
            return self._asked(self._start(), request)

    def _asked(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None  # it was asked for
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise ToolchainError(f"the process that opens models is gone: {self._end()}") from error
        return self._read(process, request["wall_s"] + _START_S)

    def _start(self) -> subprocess.Popen[bytes]:
        self._end()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the process does
        self._process = subprocess.Popen(
            tied([sys.executable, "-m", "workbench.graph.opener"]),
            cwd=Path(__file__).parents[2],  # `-m` looks here first: this package, and not another of its name
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        # it ends by itself when it is idle, and must not stay behind as a zombie
        threading.Thread(target=self._process.wait, daemon=True).start()
        self._read(self._process, _START_S)
        return self._process

    def _read(self, process: subprocess.Popen[bytes], timeout_s: float) -> dict[str, Any]:
        assert process.stdout is not None  # it was asked for
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if ready.select(timeout_s) else b""
        if not line:
            raise ToolchainError(f"the process that opens models gave no answer: {self._end()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> str:
        """Ends the process, if there is one; its last words."""
        words = "nothing"
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            with self._log as log:
                log.seek(0)
                words = log.read().decode("utf-8", "replace").strip()[-500:] or words
            self._log = None
        return words

    def close(self) -> None:
        with self._lock:
            self._end()


_OPENER = _Opener()
atexit.register(_OPENER.close)
