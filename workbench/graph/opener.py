"""The program that opens models of others, each in a process of its own with limits: `door` starts and asks it.

    python -m workbench.graph.opener        a request a line on standard input, an answer a line on standard output

What takes time is imported once, then the program divides itself for every request: the part that opens the model gets
its limits from the kernel and ends with it. It has no thread of its own, so that dividing is safe. The libraries' words
go to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from workbench.graph.door import NOT_WRITTEN, OUT_OF_MEMORY
from workbench.graph.nodes import all_nodes
from workbench.graph.read import load_graph, read_model
from workbench.values.errors import ConfigError, WorkbenchError
from workbench.values.system.lifeline import die_with

IDLE_S = 10.0
"""Without a question for so long it ends."""
_POLL_S = 0.01
_RUN_S = 5
"""A first sample that takes longer is ended, and nothing is said of it: graphs may compute for long."""
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
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return {"returncode": 0 if code == -signal.SIGALRM else code, "peak_bytes": usage.ru_maxrss * 1024}
        if time.monotonic() > ends_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"returncode": None}
        time.sleep(_POLL_S)


def _open(request: dict[str, Any]) -> int:
    """Exit code of the process that does one thing with a model: 0 where it answered, whatever it said."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = request.get("running_bytes", request["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"], most))
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 1))
    path = Path(request["path"])
    try:
        if "call" in request:
            return _call(request["call"], Path(request["answer"]))
        proto = load_graph(read_model(path))
        parts = (proto.graph, *proto.functions)
        loops = any(node.op_type == "Loop" for part in parts for node in all_nodes(part))
        del proto
        _run(path, most, loops=loops)
    except MemoryError:
        return OUT_OF_MEMORY
    except WorkbenchError:
        return 0  # the caller reads the same file and has its own words for this
    return 0


def _call(call: dict[str, Any], answer: Path) -> int:
    """Call a function and write what it returned or raised for whoever asked."""
    said: dict[str, Any]
    try:
        os.chdir(call["folder"])
        function = getattr(importlib.import_module(call["module"]), call["name"])
        said = {"returned": function(**call["arguments"])}
    except ConfigError as error:
        file = None if error.file is None else str(error.file)
        keys = {"file": file, "line": error.line, "key": error.key, "hint": error.hint}
        said = {"error": {"kind": "ConfigError", "arguments": [error.rule], "keys": keys}}
    except OSError:
        return NOT_WRITTEN
    except WorkbenchError as error:
        if _lacks_memory(error):
            return OUT_OF_MEMORY
        said = {"error": {"kind": type(error).__name__, "arguments": [str(error)], "keys": {}}}
    try:
        answer.write_text(json.dumps(said), encoding="utf-8")
    except OSError:
        return NOT_WRITTEN
    return 0


def _run(path: Path, running_bytes: int, *, loops: bool) -> None:
    """Open a session as calibrating and inspecting do, and run one sample; without a Loop it ends, so no one waits."""
    options, run = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = run.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        resource.setrlimit(resource.RLIMIT_DATA, (running_bytes, running_bytes))
        if not loops:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_RUN_S)
        session.run(None, {each.name: _ones(each) for each in session.get_inputs()}, run)
    except MemoryError:
        raise
    except Exception as error:  # what a library refuses, its own target words better
        if _lacks_memory(error):
            raise MemoryError(str(error)) from error


def _lacks_memory(error: Exception) -> bool:
    return any(words in str(error) for words in ("bad_alloc", "bad allocation", "Failed to allocate memory"))


def _ones(port: Any) -> Any:
    kinds = {"float": "float32", "double": "float64", "bool": "bool", "float16": "float16"}
    name = port.type.removeprefix("tensor(").removesuffix(")")
    shape = [size if isinstance(size, int) else _RUN_LENGTH for size in port.shape]
    return np.ones(shape, np.dtype(kinds.get(name, name)))


if __name__ == "__main__":
    main()
