"""Thousands of hostile files of every format through the readers that the commands use.

    python -m tests.hostile.files [--count 5000] [--seed 0] [--workers 2] [--format NAME ...] [--keep FOLDER]

Files are read in worker processes. One that takes longer than 5 s ends its worker, and more than 1 GB is a finding (a
process gets no more than `MOST_BYTES`). Prints a table; exit code 1 on any traceback, hang or excess. A finding is
named by format and seed, and made again by `--format NAME --seed SEED --count 1`; --keep writes the files there.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.hostile.formats import prepare

LIMIT_S, LIMIT_BYTES, MOST_BYTES = 5.0, 1 << 30, 4 << 30
_PART = 250
_WRONG = ("traceback", "hang", "memory", "crash")


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
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.workers) as pool:
        made = prepare(Path(folder))
        names, end = given.format or list(made), given.seed + given.count
        parts = {
            name: [pool.submit(_read, name, at, min(at + _PART, end)) for at in range(given.seed, end, _PART)]
            for name in names
        }
        found = {name: [one for part in parts[name] for one in part.result()] for name in names}
        failed = _report(found)
        for name, each in found.items() if given.keep else ():
            given.keep.mkdir(parents=True, exist_ok=True)
            for one in each:
                if one["end"] in _WRONG:
                    (given.keep / f"{one['seed']}-{name}").write_bytes(made[name].hostile(one["seed"]))
    raise SystemExit(int(failed))


def _read(name: str, start: int, stop: int) -> list[dict[str, Any]]:
    """What became of each file; a worker that a file ended is followed by another."""
    found: list[dict[str, Any]] = []
    while start < stop:
        command = [sys.executable, "-m", "tests.hostile.files", "--work", name, str(start), str(stop)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        found += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        start = found[-1]["seed"] + 1 if found else start
        if start < stop and done.returncode:
            hung = "Timeout (" in done.stderr
            words = " | ".join(done.stderr.strip().splitlines()[-7:])[-700:]
            end = {"end": "hang" if hung else "crash", "words": f"exit code {done.returncode}: {words}"}
            found.append({"seed": start, "seconds": LIMIT_S if hung else 0.0, "bytes": 0, **end})
            start += 1
    return found


def _report(found: dict[str, Sequence[dict[str, Any]]]) -> bool:
    print(f"{'format':20} {'files':>6} {'refused':>8} {'accepted':>9} {'wrong':>11} {'slowest s':>10} {'peak MB':>8}")
    failed = False
    for name, each in found.items():
        ends = Counter(one["end"] for one in each)
        wrong = sum(ends[end] for end in _WRONG)
        failed = failed or wrong > 0
        print(
            f"{name:20} {ends.total():6} {ends['refused']:8} {ends['accepted']:9} {wrong:11} "
            f"{max(one['seconds'] for one in each):10.2f} {max(one['bytes'] for one in each) / 1e6:8.0f}"
        )
    for name, each in found.items():
        for one in [one for one in each if one["end"] in _WRONG][:20]:
            print(f"{name} seed {one['seed']}: {one['end']}: {one['words']}")
    return failed


def _work(name: str, start: int, stop: int) -> None:
    """The worker: one line behind each file."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        form = prepare(Path(folder))[name]
        path = form.place(Path(folder))
        for seed in range(start, stop):
            path.write_bytes(form.hostile(seed))
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            began, end, words = time.monotonic(), "accepted", ""
            try:
                form.read(path)
            except form.refusals:
                end = "refused"
            except BaseException:
                end = "traceback"
                words = " | ".join(traceback.format_exc(limit=-3).strip().splitlines()[-7:])[-700:]
            seconds = time.monotonic() - began
            faulthandler.cancel_dump_traceback_later()
            peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            size = 1024 * sum(peaks)
            if size > LIMIT_BYTES and end != "traceback":
                end, words = "memory", f"{size / 1e9:.2f} GB"
            print(json.dumps({"seed": seed, "end": end, "seconds": seconds, "bytes": size, "words": words}), flush=True)
            if size > LIMIT_BYTES:  # what comes is measured in a new process
                return


if __name__ == "__main__":
    main()
