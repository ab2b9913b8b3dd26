"""A sweep on several emulated cards of this machine against one: wall time, front, and what limits the gain.

    python -m benchmarks.cards experiments/loan-intent-small-910b3.yaml [--cards 1 4] [--trials 12] [--folder DIR]

Searches only; nothing is confirmed. Every number of cards has a store and a journal of its own below the folder, so
that none finds what another made. An emulated card computes on the host and its times are modelled, so that the figures
of a candidate do not depend on the cards, and the gain ends where the host's processors are full: the table says how
busy they were. Candidates in flight are proposed without knowing each other's results, so that the candidates, and
with them the front, differ from those of one card.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.atc_runs import volume
from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.bench import open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.search.deferred import THROUGHPUT
from workbench.search.executors import local_members
from workbench.search.front import front_of
from workbench.search.sweep import run_sweep
from workbench.values.metrics import metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Attributes:
    busy: share of the processors' time in which they were not idle.
    outside: share of the wall time in which no evaluation was in flight.
    best: answers a second of the best member of the front, and ids of the front.
    """

    cards: int
    seconds: float
    busy: float
    outside: float
    volume: float
    best: float
    front: tuple[str, ...]
    used: int


def sweep_on(cards: int, file: Path, folder: Path, trials: int) -> Ran:
    with switched_on(emulated_environment(folder, CANN_EMULATOR_DEVICES=str(cards))):
        experiment = read_experiment(file)
        store = Store(folder / "store")
        try:
            bench = open_bench(experiment, open_journal(folder, experiment.name, experiment.identity), store, _silent)
            before, began = _processor_s(), time.perf_counter()
            with local_members(experiment, bench) as members:
                end = run_sweep(
                    experiment,
                    bench,
                    trials=trials,
                    executors=members.cards,
                    compilers=members.compilers,
                    hear=members.hear,
                )
            seconds = time.perf_counter() - began
            found = bench.journal.evaluations()
        finally:
            store.close()
    front = front_of(experiment, found)
    return Ran(
        cards=cards,
        seconds=seconds,
        busy=(_processor_s() - before) / seconds / len(os.sched_getaffinity(0)),
        outside=end.overhead_s / end.search_s,
        volume=volume(experiment, found),
        best=max(metrics(member)[THROUGHPUT] for member in front),
        front=tuple(sorted(member.candidate.short_id for member in front)),
        used=len({e.place for e in found.values()}),
    )


def _silent(candidate: object, stage: str) -> None:
    """A report nobody reads."""


def _processor_s() -> float:
    """That the machine's processors were not idle, whoever used them."""
    spent = psutil.cpu_times()
    return float(sum(spent) - spent.idle - getattr(spent, "iowait", 0.0))


def told(runs: Sequence[Ran]) -> list[str]:
    first, processors = runs[0], len(os.sched_getaffinity(0))
    lines = [f"{'cards':>5} {'seconds':>8} {'times':>6} {'processors busy':>16} {'volume':>8} {'best':>9}  front"]
    for ran in runs:
        lines.append(
            f"{ran.cards:>5} {ran.seconds:>8.1f} {first.seconds / ran.seconds:>6.2f} {ran.busy:>15.0%}"
            f" {ran.volume / first.volume:>8.1%} {ran.best:>7.0f}/s  {' '.join(ran.front)}"
        )
    last = runs[-1]
    why = (
        f"the {processors} processors, which were {last.busy:.0%} busy and compute what cards would"
        if last.busy > 0.8
        else "not the processors: what waits for a single thing (the baseline, a file that several want) or the end"
    )
    return [*lines, f"What limits {last.cards} cards here: {why}. No evaluation in flight for {last.outside:.1%}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--cards", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="kept; a temporary one where it is not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cards-") as temporary:
        folder: Path = (options.folder or Path(temporary)).resolve()
        runs = []
        for cards in options.cards:
            own = folder / f"cards-{cards}"
            own.mkdir(parents=True)
            runs.append(sweep_on(cards, options.experiment, own, options.trials))
            print(f"{cards} cards: {options.trials} candidates in {runs[-1].seconds:.0f} s", flush=True)
        print(f"\n{options.experiment.stem}, {options.trials} candidates, times modelled by the emulator", flush=True)
        print("\n".join(told(runs)))


if __name__ == "__main__":
    main()
