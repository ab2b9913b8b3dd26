"""The program that opens models of others, each in a process of its own with limits: `model_door` starts and asks it.

    python -m workbench.graph.opener        a request a line on standard input, an answer a line on standard output

What takes time is imported once, then the program divides itself for every request: the part that opens the model gets
its limits from the kernel and ends with it. One thread, so that dividing is safe. The libraries' words go to standard
error.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from workbench.graph.door import NOT_WRITTEN, OUT_OF_MEMORY
from workbench.graph.intake.preparation import prepare
from workbench.graph.read import load_graph, read_model
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import ConfigError, WorkbenchError
from workbench.values.interface import Interface
from workbench.values.system.lifeline import die_with

IDLE_S = 10.0
"""Without a question for so long it ends."""
_POLL_S = 0.01
_RUN_LENGTH = 2
"""Of every axis that a model leaves open, where it is run once."""


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    answers.write(b"{}\n")  # ready
    answers.flush()
    # whoever asked may live for hours more, and needs this program's memory for other things
    while select.select([requests], [], [], IDLE_S)[0] and (line := requests.readline()):
        answers.write(json.dumps(_in_child(json.loads(line))).encode() + b"\n")
        answers.flush()


def _in_child(request: dict[str, Any]) -> dict[str, Any]:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_with(parent)
            code = _open(request)
        finally:
            os._exit(code)  # whatever happened, this part must not read the next request
    ends_at = time.monotonic() + request["wall_s"]
    try:
        while True:
            found, status, usage = os.wait4(child, os.WNOHANG)
            if found:
                return {"returncode": os.waitstatus_to_exitcode(status), "peak_bytes": usage.ru_maxrss * 1024}
            if time.monotonic() > ends_at:
                return {"returncode": None}
            time.sleep(_POLL_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _open(request: dict[str, Any]) -> int:
    """Exit code of the process that opens one model: 0 where the libraries answered, whatever they said."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 1))
    path = Path(request["path"])
    if "prepare" in request:
        return _prepare(path, request["prepare"])
    try:
        proto = load_graph(read_model(path))
        loops = any(node.op_type == "Loop" for node in _nodes(proto))
        del proto
        _run(path, once=loops)
    except MemoryError:
        return OUT_OF_MEMORY
    except WorkbenchError:
        return 0  # the caller reads the same file and has its own words for this
    return 0


def _prepare(path: Path, request: dict[str, Any]) -> int:
    """Prepare a model and write beside it what was done, or what is wrong, for whoever asked."""
    folder = Path(request["folder"])
    answer: dict[str, Any] = {}
    try:
        done = prepare(read_model(path), decode(Interface, request["interface"]), folder)
        if done is not None:
            answer = {"file": done[0].name, "steps": encode(done[1])}
    except MemoryError:
        return OUT_OF_MEMORY
    except ConfigError as error:
        file = None if error.file is None else str(error.file)
        answer = {"error": {"rule": error.rule, "file": file, "key": error.key, "hint": error.hint}}
    except OSError:
        return NOT_WRITTEN
    try:
        (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    except OSError:
        return NOT_WRITTEN
    return 0


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    waiting = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        for each in node.attribute:
            for body in (each.g, *each.graphs):
                waiting.extend(body.node)


def _run(path: Path, *, once: bool) -> None:
    """Open a session as calibrating and inspecting do; run one sample where a Loop may have no end."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        if once:
            feeds = {each.name: _ones(each) for each in session.get_inputs()}
            session.run(None, feeds)
    except MemoryError:
        raise
    except Exception as error:  # what a library refuses, its own target words better
        if "bad_alloc" in str(error) or "Failed to allocate memory" in str(error):
            raise MemoryError(str(error)) from error


def _ones(port: Any) -> Any:
    kinds = {"float": "float32", "double": "float64", "bool": "bool", "float16": "float16"}
    name = port.type.removeprefix("tensor(").removesuffix(")")
    shape = [size if isinstance(size, int) else _RUN_LENGTH for size in port.shape]
    return np.ones(shape, np.dtype(kinds.get(name, name)))


if __name__ == "__main__":
    main()
