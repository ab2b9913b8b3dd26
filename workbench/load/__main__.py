"""The load generator's own process: `python -m workbench.load FOLDER`, started by `workbench.load.run`.

The plan and the bytes of every request come on standard input; times.npz and end.json are written into FOLDER. Lines on
standard output tell when the window that counts begins and ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from workbench.load.client import Clients, Connection
from workbench.load.plan import LoadPlan
from workbench.load.run import END, TIMES
from workbench.values.documents.canonical import decode
from workbench.values.system.environment import open_files

_ORDER = 100_000
"""Requests whose texts are drawn before; a longer run begins again."""
_OTHER_FILES = 64


def main(folder: Path) -> None:
    head = json.loads(sys.stdin.buffer.readline())  # of the process that started this one
    plan, requests = decode(LoadPlan, head["plan"]), [sys.stdin.buffer.read(length) for length in head["lengths"]]
    if (allowed := open_files(count := plan.open_connections + _OTHER_FILES)) < count:
        said = f"{count} open files are needed and {allowed} allowed."
        sys.exit(f"{said} Raise the limit (ulimit -n) or use fewer clients.")
    random = np.random.default_rng([plan.seed, 1])  # beside the stream of arrival times
    rounds = -(-_ORDER // len(requests))
    order = np.concatenate([random.permutation(len(requests)) for _ in range(rounds)])
    connection = Connection
    if plan.streams:  # what reads streams is imported only for them
        from workbench.load.openai.answer import StreamConnection as connection
    clients = Clients(plan, requests, order, connection)
    cpu_s: dict[str, float] = {}

    def phase(name: str) -> None:
        cpu_s[name] = time.process_time()
        print(json.dumps({"phase": name}), flush=True)

    async def load() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, clients.interrupt)
        await clients.run(phase)

    began_at = time.time()
    gc.collect()
    gc.freeze()
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load())
    spent_s = cpu_s.get("measured", time.process_time()) - cpu_s.get("measuring", 0.0)
    begin = clients.begin_s  # of time.perf_counter, the one clock of all processes of a host
    columns: dict[str, Any] = {name: np.array(values) for name, values in clients.columns.items()}
    seconds = {name: values - begin for name, values in columns.items() if name.endswith("_s")}
    np.savez(folder / TIMES, begin_s=begin, **{**columns, **seconds})
    end = {
        "began_at": began_at,
        "end_s": clients.end_s - begin,
        "cpu_s": spent_s,
        "failed_connections": clients.failed_connections,
        "interrupted": clients.interrupted,
        "loop": "uvloop",
        "woken_late_p99_s": float(np.quantile(clients.woken_late_s, 0.99)) if clients.woken_late_s else 0.0,
        "server_error": clients.server_error,
        "full": clients.full,
    }
    (folder / END).write_text(json.dumps(end), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
