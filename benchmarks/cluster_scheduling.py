"""How much of what cards and compile slots allow does a pool reach, in processes of this machine and on a Ray cluster?

    python -m benchmarks.cluster_scheduling                   # 200 candidates, 8 cards, 8 slots, a sixth of real time
    python -m benchmarks.cluster_scheduling --scale 30 --candidates 64 --on ray

The target's compiles and measurements sleep (`tests.standin`): 30 s ± 50 % by the candidate and 10 s, divided by
`--scale`. The bound is what the fuller of the two allows: the sum of compiles over the slots and one measurement, or
the sum of measurements over the cards and the shortest compile. Every process is started before the clock. Everything
else of an evaluation (lowering, scoring a small model, files) is real and takes this machine's processors, which on a
cluster many hosts share: their use is printed beside. Driver overhead is the processor time of the driver's process
between the first candidate and the last, with all threads, divided by tasks: a compile and an evaluation are two.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from tests.standin import installed, space
from tests.standin.nodes import AUTH, nodes
from tests.tiny import EXPERIMENT, write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.executors import ChildProcess, Executor, Members, Task, WorkerPool
from workbench.search.executors.ray import ClusterSettings, cluster_members
from workbench.space.space import build, complete
from workbench.targets.description import Card
from workbench.values.candidate import Candidate
from workbench.values.results import Evaluation

COMPILE_S, TIMING_S = 30.0, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--scale", type=float, default=6.0)
    parser.add_argument("--on", choices=("local", "ray"), nargs="*", default=("local", "ray"))
    options = parser.parse_args()
    for where in options.on:
        with tempfile.TemporaryDirectory(prefix="scheduling-") as name:
            _measured(where, Path(name), options)


def _measured(where: str, folder: Path, options: argparse.Namespace) -> None:
    made = installed(folder / "site")
    times = {"STANDIN_COMPILE_S": str(COMPILE_S / options.scale), "STANDIN_TIMING_S": str(TIMING_S / options.scale)}
    os.environ |= {**made, **AUTH, "STANDIN_CARDS": str(options.cards)}
    sys.path.insert(0, str(folder / "site"))
    warm = options.cards + options.slots
    variants = options.candidates + warm
    question = read_experiment(write_workspace(folder / "ws", experiment=EXPERIMENT, space=space(variants + 1)))
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")
    bench = open_bench(question, journal, store, lambda candidate, stage: None)
    candidates = [
        build(question.space, complete(question.space, {"quantization.scheme": "static", "compile.variant": n + 1}))
        for n in range(variants)
    ]
    os.environ |= times
    with _members(where, question, bench, options) as members:
        assert (len(members.cards), len(members.compilers)) == (options.cards, options.slots)
        _run(members, [question.baseline])
        _run(members, candidates[:warm])
        before, processors = time.process_time(), psutil.cpu_times_percent(interval=None)
        took_s = _run(members, candidates[warm:])
        driver_ms = (time.process_time() - before) / (2 * options.candidates) * 1e3
        processors = psutil.cpu_times_percent(interval=None)
    store.close()
    bound_s = _bound_s(candidates[warm:], options)
    print(
        f"{where}: {options.candidates} candidates on {options.cards} cards, {options.slots} compile slots: "
        f"{took_s:.1f} s; the bound is {bound_s:.1f} s: {bound_s / took_s:.1%} of it reached. Driver: "
        f"{driver_ms:.1f} ms of its processor a task. Processors of this machine: {100 - processors.idle:.0f} % busy, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()}",
        flush=True,
    )


@contextlib.contextmanager
def _members(where: str, question: Experiment, bench: Bench, options: argparse.Namespace) -> Iterator[Members]:
    with contextlib.ExitStack() as stack:
        if where == "local":
            cards = [Card(name=str(n), environment={"STANDIN_CARD": str(n)}) for n in range(options.cards)]
            yield Members(
                cards=tuple(stack.enter_context(ChildProcess(question, bench, card)) for card in cards),
                compilers=tuple(
                    stack.enter_context(ChildProcess(question, bench, compiler=n)) for n in range(options.slots)
                ),
            )
            return
        cluster = stack.enter_context(nodes(dict(os.environ)))
        cluster.add(cards=options.cards, processors=options.cards + options.slots)
        settings = ClusterSettings(address=cluster.address, compile_slots=options.slots, card_s=300.0)
        yield stack.enter_context(cluster_members(settings, question, bench))


def _run(members: Members, candidates: Sequence[Candidate]) -> float:
    """Seconds until all are evaluated."""
    waiting, began = list(candidates), time.monotonic()
    with WorkerPool[Candidate](members.cards, members.compilers, members.hear) as pool:
        done = 0
        while done < len(candidates):
            while waiting and pool.free:
                candidate = waiting.pop(0)
                pool.begin(candidate, lambda it=candidate: _work(it), ahead=candidate)  # type: ignore[misc]
            ended = pool.first()
            if ended is not None:
                assert ended.future.result().status == "complete"
                done += 1
    return time.monotonic() - began


def _work(candidate: Candidate) -> Callable[[Executor], Evaluation]:
    return lambda executor: executor.evaluate(Task(candidate=candidate, gates=False))


def _bound_s(candidates: Sequence[Candidate], options: argparse.Namespace) -> float:
    from tests.standin.target import share

    compiles = [COMPILE_S / options.scale * (0.5 + share(candidate)) for candidate in candidates]
    timing = TIMING_S / options.scale
    by_slots = sum(compiles) / options.slots + timing
    by_cards = timing * len(candidates) / options.cards + min(compiles)
    return max(by_slots, by_cards)


if __name__ == "__main__":
    main()
