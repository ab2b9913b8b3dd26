"""Does a sweep that is killed again and again end where an undisturbed one ends?

    python -m tests.kills                    # 60 kills, 6 candidates, some 15 minutes
    python -m tests.kills --kills 12 --seed 3 --service

The undisturbed sweep runs first and says how long a candidate takes. The other one is killed with SIGKILL at random
moments and started again, until it has had all its kills, then runs to its end; where it ends before, another begins.
Three ways of killing take turns at random: the sweep alone, its process group, and every process below it in a random
order, as `pkill -9` and a container's end do. In the end the same candidates must have the same statuses and the same
accuracies, none may have failed, and no process or temporary folder may be left. Exit code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.tiny import EXPERIMENT, SPACE, write_workspace
from workbench.evaluation.journal import Journal
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs.experiment import read_experiment
from workbench.search.front import front_of
from workbench.values.results import Evaluation

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("the sweep alone", "its group", "all, in any order")
SERVICE = """service: {concurrency: 8, p99_ms: 5000, curve: 1s, confirm: 1s}
"""
CHOICES = """service: {max_batch_size: [1, 4, 8], batch_timeout_ms: [0, 5], workers: [1, 2]}
"""
MARK = "WORKBENCH_KILLS"
_POLL_S = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--service", action="store_true", help="with a service, whose front is loaded for real")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT), MARK: name}
        text = EXPERIMENT.replace("trials: 6", f"trials: {options.trials}") + SERVICE * options.service
        space = SPACE + CHOICES * options.service
        calm = write_workspace(folder / "calm", experiment=text, space=space)
        first_s, whole_s = _undisturbed(calm, environment)
        print(f"undisturbed: first evaluation after {first_s:.1f} s, the end after {whole_s:.1f} s", flush=True)
        kills, rounds, good = 0, 0, True
        while kills < options.kills:
            rounds += 1
            file = write_workspace(folder / f"killed{rounds}", experiment=text, space=space)
            done = _killed(file, environment, rng, options.kills - kills, first_s)
            kills += len(done)
            print(f"\nsweep {rounds}: {len(done)} kills, {_ways(done)}")
            good = _same(calm, file) and good
        good = _nothing_left(folder / "tmp", name) and good
    print(f"\n{kills} kills, seed {options.seed}: {'as undisturbed' if good else 'NOT AS UNDISTURBED'}")
    sys.exit(0 if good else 1)


def _start(file: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    log = file.parent / "sweep.log"
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", "sweep", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _undisturbed(file: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds until the first evaluation was kept, and until the end."""
    began = time.monotonic()
    process = _start(file, environment)
    first_s = 0.0
    while process.poll() is None:
        if not first_s and _evaluated(file):
            first_s = time.monotonic() - began
        time.sleep(_POLL_S)
    if process.returncode != 0:
        sys.exit((file.parent / "sweep.log").read_text(encoding="utf-8"))
    return first_s, time.monotonic() - began


def _evaluated(file: Path) -> int:
    folder = file.parents[1] / ".workbench" / "sweeps" / "tiny" / "0001" / "evaluations"
    return len(list(folder.glob("[0-9a-f]*.json"))) if folder.exists() else 0


def _killed(
    file: Path, environment: dict[str, str], rng: random.Random, kills: int, first_s: float
) -> list[tuple[str, int]]:
    """Kill and start again, at most so many times, then let it end: the way of each kill, and what was evaluated."""
    done: list[tuple[str, int]] = []
    while True:
        began = time.monotonic()
        process = _start(file, environment)
        if len(done) == kills:
            process.wait()
        else:
            _wait(process, file, rng, first_s)
        if process.poll() is None:
            way = rng.choice(WAYS)
            _kill(process, way, rng)
            done.append((way, _evaluated(file)))
            after_s = time.monotonic() - began
            print(f"  kill {len(done)} after {after_s:.1f} s: {way}, {done[-1][1]} evaluated", flush=True)
        elif process.returncode != 0:
            print((file.parent / "sweep.log").read_text(encoding="utf-8")[-3000:])
            sys.exit(f"the sweep ended with code {process.returncode}")
        else:
            return done


def _wait(process: subprocess.Popen[bytes], file: Path, rng: random.Random, first_s: float) -> None:
    """Until a random moment: any before the next evaluation is kept, or one soon after it, or the sweep's end."""
    before, end = _evaluated(file), time.monotonic() + rng.uniform(0.0, 1.15 * first_s)
    while process.poll() is None and time.monotonic() < end:
        if _evaluated(file) > before:
            before, end = 1 << 30, min(end, time.monotonic() + rng.uniform(0.0, 0.3 * first_s))
        time.sleep(_POLL_S)


def _kill(process: subprocess.Popen[bytes], way: str, rng: random.Random) -> None:
    if way == WAYS[0]:
        process.kill()
    elif way == WAYS[1]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        everybody = [process.pid]
        with contextlib.suppress(psutil.NoSuchProcess):
            everybody += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        for pid in rng.sample(everybody, len(everybody)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _ways(done: list[tuple[str, int]]) -> str:
    return ", ".join(f"{count} x {way}" for way, count in sorted(Counter(way for way, _ in done).items()))


def _journal(file: Path) -> Journal:
    question = read_experiment(file)
    journal = current_journal(question.workspace, question.name)
    assert journal is not None, "a sweep has ended here"
    return journal


def _told(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "missing"
    accuracy = evaluation.measurement.accuracy
    numbers = "" if accuracy is None else " ".join(f"{name}={value!r}" for name, value in accuracy.values.items())
    return f"{evaluation.status} at {evaluation.stage_reached} {numbers}".strip()


def _same(calm: Path, killed: Path) -> bool:
    question = read_experiment(calm)
    theirs, ours = _journal(calm).evaluations(), _journal(killed).evaluations()
    good = True
    print(f"  {'candidate':<14}{'undisturbed':<52}killed")
    for candidate_id in dict.fromkeys([*theirs, *ours]):
        wanted, found = _told(theirs.get(candidate_id)), _told(ours.get(candidate_id))
        same = wanted == found
        good = good and same and not found.startswith("failed")
        print(f"  {candidate_id[:12]:<14}{wanted[:50]:<52}{'the same' if same else found[:60]}")
    confirmed, again = _journal(calm).evaluations("holdout"), _journal(killed).evaluations("holdout")
    for candidate_id in confirmed.keys() & again.keys():
        wanted, found = _told(confirmed[candidate_id]), _told(again[candidate_id])
        if wanted != found:
            print(f"  {candidate_id[:12]} on held-out data: {wanted} undisturbed, {found} killed")
            good = False
    for name, kept in (("undisturbed", confirmed), ("killed", again)):
        served = [e.measurement.service for e in kept.values() if e.measurement.service is not None]
        loaded = f", {sum(s.confirmed is not None for s in served)} of {len(served)} loaded" if served else ""
        failed = sum(e.status != "complete" for e in kept.values())
        good = good and not failed
        print(f"  {name}: {len(kept)} confirmed, {failed} of them failed{loaded}")
    fronts = [{e.candidate.short_id for e in front_of(question, found)} for found in (theirs, ours)]
    print(f"  front: {' '.join(sorted(fronts[0]))} undisturbed, {' '.join(sorted(fronts[1]))} killed (times decide)")
    return good


def _nothing_left(temporary: Path, mark: str) -> bool:
    """No process of a killed sweep, and no folder that the last one found and left."""
    alive = [process for process in psutil.process_iter() if _marked(process, mark)]
    folders = sorted(str(path.relative_to(temporary)) for path in temporary.rglob("*"))
    print(f"\nprocesses left: {len(alive)} {[p.info if hasattr(p, 'info') else p for p in alive] or ''}")
    print(f"temporary files left: {len(folders)} {folders[:8] or ''}")
    return not alive and not any(Path(name).name.startswith("workbench-") for name in folders if "/" in name)


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


if __name__ == "__main__":
    main()
