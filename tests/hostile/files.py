"""Thousands of hostile files of every format through the readers that the commands use.

    python -m tests.hostile.files [--count 5000] [--seed 0] [--workers 2] [--format NAME ...] [--keep FOLDER]

Each file is read in a worker process, which is ended where one file takes longer than 5 s or the worker, its children
included, more than 1 GB. Prints a table; exit code 1 on any traceback, hang or excess. A finding is named by format
and seed, and made again by `--format NAME --seed SEED --count 1`; --keep writes the files there.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LIMIT_S, LIMIT_BYTES = 5.0, 1 << 30
_PART = 250
_POLL_S = 0.1


@dataclass(slots=True)
class Tally:
    """What became of one format's files."""

    ends: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    peak_bytes: int = 0
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """A process that reads files `next` to `stop` of a format."""

    name: str
    next: int
    stop: int
    process: subprocess.Popen[bytes]
    started: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000, help="files of each format")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first file; the others count up")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--format", action="append", help="only this one; may be given again")
    parser.add_argument("--keep", type=Path, help="write the files that were found there")
    parser.add_argument("--work", nargs=3, metavar=("NAME", "START", "STOP"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        _work(given.work[0], int(given.work[1]), int(given.work[2]))
        return
    names = given.format or _names()
    waiting = deque(
        (name, start, min(start + _PART, given.seed + given.count))
        for name in names
        for start in range(given.seed, given.seed + given.count, _PART)
    )
    tallies = {name: Tally() for name in names}
    running: list[Worker] = []
    with selectors.DefaultSelector() as ready:
        while waiting or running:
            while waiting and len(running) < given.workers:
                worker = _start(*waiting.popleft())
                running.append(worker)
                ready.register(worker.process.stdout, selectors.EVENT_READ, worker)
            for key, _ in ready.select(_POLL_S):
                _hear(key.data, tallies[key.data.name])
            for worker in list(running):
                if _ended(worker, tallies[worker.name]):
                    ready.unregister(worker.process.stdout)
                    worker.process.communicate()
                    running.remove(worker)
                    if worker.next < worker.stop:
                        waiting.appendleft((worker.name, worker.next, worker.stop))
    raise SystemExit(_report(tallies, given.keep))


def _names() -> list[str]:
    from tests.hostile.formats import prepare

    with tempfile.TemporaryDirectory() as folder:
        return list(prepare(Path(folder)))


def _start(name: str, start: int, stop: int) -> Worker:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.files", "--work", name, str(start), str(stop)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return Worker(name=name, next=start, stop=stop, process=process)


def _hear(worker: Worker, tally: Tally) -> None:
    assert worker.process.stdout is not None
    while line := worker.process.stdout.readline():
        said: dict[str, Any] = json.loads(line)
        if "starts" in said:
            worker.started = time.monotonic()
            continue
        worker.started, worker.next = None, said["seed"] + 1
        tally.ends[said["end"]] += 1
        tally.slowest_s = max(tally.slowest_s, said["seconds"])
        if said["end"] == "traceback":
            tally.findings.append(f"seed {said['seed']}: {said['words']}")


def _ended(worker: Worker, tally: Tally) -> bool:
    """Whether the worker is done, or had to be ended; what it was reading then is a finding."""
    used = _resident_bytes(worker.process.pid)
    tally.peak_bytes = max(tally.peak_bytes, used)
    if used > LIMIT_BYTES:
        end, words = "memory", f"{used / 1e9:.2f} GB"
    elif worker.started is not None and time.monotonic() - worker.started > LIMIT_S:
        end, words = "hang", f"more than {LIMIT_S:g} s"
    elif worker.process.poll() is None:
        return False
    else:
        _hear(worker, tally)
        if worker.next == worker.stop:
            return True
        end, words = "crash", f"the process ended with {worker.process.returncode}"
    tally.ends[end] += 1
    tally.findings.append(f"seed {worker.next}: {end}: {words}")
    worker.next += 1
    for process in (*_children(worker.process.pid), psutil.Process(worker.process.pid)):
        process.kill()
    return True


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _resident_bytes(pid: int) -> int:
    used = 0
    for process in (psutil.Process(pid), *_children(pid)) if psutil.pid_exists(pid) else ():
        try:
            # what a child shares with who started it counts once
            used += process.memory_full_info().uss if process.pid != pid else process.memory_info().rss
        except psutil.Error:
            continue
    return used


def _report(tallies: dict[str, Tally], keep: Path | None) -> int:
    print(f"{'format':20} {'files':>6} {'refused':>8} {'accepted':>9} {'wrong':>11} {'slowest s':>10} {'peak MB':>8}")
    failed = 0
    for name, tally in tallies.items():
        wrong = sum(tally.ends[end] for end in ("traceback", "hang", "memory", "crash"))
        failed += wrong
        print(
            f"{name:20} {tally.ends.total():6} {tally.ends['refused']:8} {tally.ends['accepted']:9} {wrong:11} "
            f"{tally.slowest_s:10.2f} {tally.peak_bytes / 1e6:8.0f}"
        )
    for name, tally in tallies.items():
        for finding in tally.findings[:20]:
            print(f"{name} {finding}")
            if keep is not None:
                _keep(name, int(finding.split()[1].rstrip(":")), keep)
    return int(failed > 0)


def _keep(name: str, seed: int, keep: Path) -> None:
    from tests.hostile.formats import prepare

    with tempfile.TemporaryDirectory() as folder:
        made = prepare(Path(folder))[name].hostile(seed)
    keep.mkdir(parents=True, exist_ok=True)
    (keep / f"{seed}-{name}").write_bytes(made)


def _work(name: str, start: int, stop: int) -> None:
    """The worker: one line before each file and one after it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        from tests.hostile.formats import prepare

        form = prepare(Path(folder))[name]
        path = form.place(Path(folder))
        for seed in range(start, stop):
            path.write_bytes(form.hostile(seed))
            _say({"starts": seed})
            began = time.monotonic()
            end, words = "accepted", ""
            try:
                form.read(path)
            except form.refusals:
                end = "refused"
            except BaseException:
                end = "traceback"
                words = " | ".join(traceback.format_exc(limit=-3).strip().splitlines()[-7:])[-700:]
            _say({"seed": seed, "end": end, "seconds": time.monotonic() - began, "words": words})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
