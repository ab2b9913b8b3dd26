"""Minutes under load: is the memory of every process flat, does throughput stay, is a killed worker replaced?

    python -m benchmarks.soak BUNDLE --minutes 10                  # 100 clients; a worker is killed half way
    python -m benchmarks.soak BUNDLE --minutes 1 --workers 2 --csv memory.csv

Memory is proportional set size where the system tells it (shared pages count once), else resident memory. A process is
flat when its last fifth holds no more than the second fifth plus `--allowed-mb`; the first fifth still warms up. Exit
code 1 when one is not, a request failed that the kill does not explain, or the worker did not come back.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.served import health, served
from workbench.bundle import read_bundle
from workbench.load.plan import LoadPlan
from workbench.load.requests import bodies_of_bundle, bodies_of_file
from workbench.load.result import LoadResult
from workbench.load.run import run_load
from workbench.values.service import ServiceLoad

EVERY_S = 1.0
SETTLED_S = 15.0
"""After which a worker that was started under load has opened its model and warmed up."""


@dataclass(kw_only=True)
class Watched:
    """What was seen of the server's processes: (pid, role) → (seconds, bytes, threads, open files) each second."""

    samples: dict[tuple[int, str], list[tuple[float, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    killed_at_s: float | None = None
    killed_pid: int | None = None
    back_after_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--workers", type=int, help="default: the bundle's")
    parser.add_argument("--data", type=Path, help="texts (CSV, JSON lines); default: the bundle's golden texts")
    parser.add_argument("--no-kill", action="store_true", help="kill no worker")
    parser.add_argument("--allowed-mb", type=float, default=8.0, help="growth of one process that counts as flat")
    parser.add_argument("--csv", type=Path, help="write every sample here")
    options = parser.parse_args()
    bundle = read_bundle(options.bundle)
    bodies = bodies_of_file(options.data) if options.data else bodies_of_bundle(bundle)
    command: list[object] = ["workbench.serve", options.bundle]
    if options.workers:
        command += ["--workers", options.workers]
    seconds = options.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="workbench-soak-") as folder,
        served(command, Path(folder) / "serve.log") as (url, pid),
    ):
        port = int(url.rpartition(":")[2])
        seen, ended = Watched(), threading.Event()
        watching = threading.Thread(
            target=_watch, args=(pid, port, seen, ended, None if options.no_kill else seconds / 2), daemon=True
        )
        watching.start()
        load = ServiceLoad(concurrency=options.concurrency)
        result = run_load(LoadPlan(url=url, load=load, duration_s=seconds), bodies, server_pid=pid)
        ended.set()
        watching.join(timeout=30)
        healthy = health(port)
    if options.csv:
        _write_csv(options.csv, seen)
    sys.exit(_judged(seen, result, healthy, options))


def _watch(pid: int, port: int, seen: Watched, ended: threading.Event, kill_after_s: float | None) -> None:
    began = time.monotonic()
    server = psutil.Process(pid)
    while not ended.wait(EVERY_S):
        now = time.monotonic() - began
        workers = _told(port)
        back = bool(workers) and all(w["state"] == "ready" for w in workers) and any(w["restarts"] for w in workers)
        if seen.killed_at_s is not None and seen.back_after_s is None and back:
            seen.back_after_s = now - seen.killed_at_s
        pids = _sample(server, now, seen)
        if kill_after_s is not None and seen.killed_at_s is None and now >= kill_after_s and pids:
            seen.killed_at_s, seen.killed_pid = now, pids[0]
            os.kill(pids[0], signal.SIGKILL)


def _told(port: int) -> list[dict[str, Any]]:
    """What /health says of each worker; nothing where it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        found: list[dict[str, Any]] = json.loads(connection.getresponse().read())["workers"]
        return found
    except (OSError, http.client.HTTPException):
        return []
    finally:
        connection.close()


def _sample(server: psutil.Process, now: float, seen: Watched) -> list[int]:
    """Adds one sample of each process; returns the workers, oldest first."""
    workers = []
    for process in [server, *sorted(server.children(recursive=True), key=lambda p: p.pid)]:
        try:
            role = "front end" if process.pid == server.pid else _role(process)
            memory = process.memory_full_info()
            size = getattr(memory, "pss", 0) or memory.rss
            seen.samples[process.pid, role].append((now, size, process.num_threads(), process.num_fds()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if role == "worker":
            workers.append(process.pid)
    return workers


def _role(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    return "resource tracker" if "resource_tracker" in words else "worker"


def _judged(seen: Watched, result: LoadResult, healthy: int | None, options: argparse.Namespace) -> int:
    problems = []
    print(f"{'process':<26}{'MB in the 2nd fifth':>20}{'last fifth':>12}{'threads':>16}{'open files':>16}")
    began_s = min(samples[0][0] for samples in seen.samples.values())
    for (pid, role), found in seen.samples.items():
        # one that came later is still starting when it is seen first
        samples = found if found[0][0] <= began_s + EVERY_S else found[round(SETTLED_S / EVERY_S) :]
        fifth = len(samples) // 5
        name = f"{role} {pid}"
        if fifth < 2:
            print(f"{name:<26}{'seen too shortly':>20}")
            continue
        early, late = samples[fifth : 2 * fifth], samples[-fifth:]
        before, after = (statistics.median(s[1] for s in part) / 1e6 for part in (early, late))
        spans = [f"{min(s[i] for s in samples[fifth:])} to {max(s[i] for s in samples[fifth:])}" for i in (2, 3)]
        print(f"{name:<26}{before:>20.1f}{after:>12.1f}{spans[0]:>16}{spans[1]:>16}")
        if after > before + options.allowed_mb:
            problems.append(f"{name} grew by {after - before:.1f} MB")
    thirds = len(result.per_second) // 3
    if thirds:
        first, last = (statistics.fmean(part) for part in (result.per_second[:thirds], result.per_second[-thirds:]))
        print(f"answers a second: {first:.1f} in the first third, {last:.1f} in the last")
    p99 = "none" if result.p99_ms is None else f"{result.p99_ms.value:.0f} ms"
    print(f"{result.requests} requests, {result.failed} without a successful answer, P99 {p99}")
    print(json.dumps({"statuses": dict(result.statuses), "errors": dict(result.errors)}))
    if seen.killed_at_s is not None:
        back = "never" if seen.back_after_s is None else f"{seen.back_after_s:.1f} s later"
        print(f"worker {seen.killed_pid} killed after {seen.killed_at_s:.0f} s; all workers ready again {back}")
        if seen.back_after_s is None:
            problems.append("the killed worker did not come back")
    elif not options.no_kill:
        problems.append("no worker was found to kill")
    if result.failed > (options.concurrency if seen.killed_at_s is not None else 0):
        problems.append(f"{result.failed} requests failed")
    if healthy != 200:
        problems.append(f"/health says {healthy} at the end")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("flat, all requests answered, worker back" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


def _write_csv(path: Path, seen: Watched) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["role", "pid", "seconds", "bytes", "threads", "open_files"])
        for (pid, role), samples in seen.samples.items():
            writer.writerows([role, pid, f"{now:.1f}", size, threads, files] for now, size, threads, files in samples)


if __name__ == "__main__":
    main()
