"""Does a sweep on a cluster whose parts are killed at random moments end where an undisturbed one ends?

    python -m benchmarks.cluster_faults                 # 50 kills with kill -9; needs the extra [cluster]
    python -m benchmarks.cluster_faults --kills 10 --seed 3

Two nodes with two made-up cards each (`tests.standin`), on this machine. Killed are: an actor that holds a card, the
raylet of a node (its object store is a thread of the raylet, so it goes with it; another node joins), and the driver,
which is started again. The undisturbed sweep has the same space, all of which is evaluated. In the end the same
candidates must have the same statuses, accuracies and times, each evaluated once as far as the journal counts. Exit
code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.standin import installed, space
from tests.standin.nodes import AUTH, Nodes, nodes
from tests.tiny import EXPERIMENT, write_workspace
from workbench.evaluation.journal import Journal
from workbench.values.results import Evaluation

WAYS = ("an actor", "a raylet with its object store", "the driver")
WEIGHTS = (5, 2, 3)
CARDS, PROCESSORS = 2, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--variants", type=int, default=12, help="half the number of candidates")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a compile, and of a measurement")
    parser.add_argument("--pause", type=float, default=8.0, help="between two kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        environment = {
            **installed(folder / "site"),
            **AUTH,
            "STANDIN_CARDS": "64",
            "STANDIN_COMPILE_S": str(options.seconds),
            "STANDIN_TIMING_S": str(options.seconds),
        }
        sys.path.insert(0, str(folder / "site"))  # the journal names the target, here too
        with nodes(environment) as cluster:
            while cluster.count < 2:
                cluster.add(cards=CARDS, processors=PROCESSORS)
            environment = {**os.environ, **environment}
            calm, began = _workspace(folder / "calm", options.variants), time.monotonic()
            _start(calm, cluster, environment).wait()
            wanted = _evaluations(calm)
            print(f"undisturbed: {len(wanted)} candidates in {time.monotonic() - began:.0f} s", flush=True)
            done: list[str] = []
            rounds, good = 0, len(wanted) == 2 * options.variants
            while len(done) < options.kills:
                rounds += 1
                file = _workspace(folder / f"killed{rounds}", options.variants)
                runs = _disturbed(file, cluster, environment, rng, options, done)
                good = _same(wanted, file) and good
                print(f"  round {rounds}: {runs} runs of the driver, {len(done)} kills so far", flush=True)
    counts = ", ".join(f"{count} x {way}" for way, count in sorted(Counter(done).items()))
    print(f"{len(done)} kills ({counts}), seed {options.seed}: {'as undisturbed' if good else 'NOT AS UNDISTURBED'}")
    sys.exit(0 if good else 1)


def _workspace(root: Path, variants: int) -> Path:
    return write_workspace(root, experiment=EXPERIMENT.replace("trials: 6", "trials: 1000"), space=space(variants))


def _start(file: Path, cluster: Nodes, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (file.parent / "sweep.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", "sweep", str(file), "--cluster", cluster.address],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def _disturbed(
    file: Path,
    cluster: Nodes,
    environment: dict[str, str],
    rng: random.Random,
    options: argparse.Namespace,
    done: list[str],
) -> int:
    """Kill until there were enough kills or the sweep has ended; how often the driver was started."""
    runs, process = 1, _start(file, cluster, environment)
    while True:
        if len(done) < options.kills:
            end = time.monotonic() + rng.uniform(0.0, 2 * options.pause)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
        else:
            process.wait()
        if process.poll() is not None:
            if process.returncode not in (0, -9):
                print((file.parent / "sweep.log").read_text(encoding="utf-8")[-3000:])
                sys.exit(f"the sweep ended with code {process.returncode}")
            if not _unlucky(file):
                return runs
            runs, process = runs + 1, _start(file, cluster, environment)
            continue
        way = rng.choices(WAYS, WEIGHTS)[0]
        if way == WAYS[0] and not cluster.kill_actor(rng):
            continue
        if way == WAYS[1]:
            if cluster.count < 2 and not cluster.add(cards=CARDS, processors=PROCESSORS):
                continue
            cluster.kill_raylet(rng)
            cluster.add(cards=CARDS, processors=PROCESSORS)
        if way == WAYS[2]:
            process.kill()
            process.wait()
            runs, process = runs + 1, _start(file, cluster, environment)
        done.append(way)
        print(f"    kill {len(done)}: {way}, {len(_evaluations(file))} evaluated", flush=True)


def _unlucky(file: Path) -> bool:
    """Whether a candidate lost so many cards that it counts as failed, and the next run tries it again."""
    return any(evaluation.deserves_another for evaluation in _evaluations(file).values())


def _evaluations(file: Path) -> dict[str, Evaluation]:
    root = file.parents[1] / ".workbench" / "sweeps" / "tiny" / "0001"
    return Journal(root=root).evaluations() if (root / "evaluations").exists() else {}


def _told(evaluation: Evaluation) -> str:
    accuracy, latency = evaluation.measurement.accuracy, evaluation.measurement.latency
    numbers = "" if accuracy is None else " ".join(f"{name}={value!r}" for name, value in accuracy.values.items())
    return f"{evaluation.status} {evaluation.stage_reached} {numbers} {latency and latency.p50_ms!r}"


def _same(wanted: dict[str, Evaluation], file: Path) -> bool:
    found = _evaluations(file)
    missing, added = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    other = [i for i in wanted.keys() & found.keys() if _told(wanted[i]) != _told(found[i])]
    again = sum(evaluation.attempt > 1 for evaluation in found.values())
    print(
        f"  {len(found)} evaluations: {len(missing)} lost, {len(added)} too many, {len(other)} different, "
        f"{again} tried again in a later run",
        flush=True,
    )
    for i in other:
        print(f"    {i[:12]}: {_told(wanted[i])} undisturbed, {_told(found[i])} killed")
    return not (missing or added or other)


if __name__ == "__main__":
    main()
