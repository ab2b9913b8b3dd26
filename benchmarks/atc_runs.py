"""How many runs of the compiler a sweep on the emulated 910B3 needs: all sets compiled whole, or the front alone.

    python -m benchmarks.atc_runs experiments/loan-intent-small-910b3.yaml [--trials 24] [--validation 60]
        [--compile all deferred] [--sampler tpe parts] [--folder DIR]

Starts no confirmation: what is counted is the search. Every way has a workspace of its own below the folder, so that
none finds what another compiled; a second start goes on where the first was ended. Prints for each way the runs of the
compiler, the runs that sharing files saved, the hypervolume (answers per second × accuracy above the float baseline's
less a point), the share of the first way's, the front, and what the audits of predictions found.

Times are modelled by the emulator, so that a busy machine changes how long this takes and not what it prints.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.bench import open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import CompileFirst, Experiment, Sampler, read_experiment
from workbench.search.deferred import THROUGHPUT, audit_words, is_deferred
from workbench.search.front import front_of
from workbench.search.sweep import run_sweep
from workbench.values.candidate_words import describe
from workbench.values.hypervolume import hypervolume
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

BELOW_BASELINE = 0.01
"""Accuracy that the reference point of the hypervolume lies below the float baseline's; its throughput is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    name: str
    compile: CompileFirst
    sampler: Sampler


class Said:
    """One line for each candidate, as it ends."""

    def __init__(self) -> None:
        self.runs = 0

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        self.runs += 0 if reused else evaluation.compiled
        numbers, stop = metrics(evaluation), evaluation.stop
        rate = f"{numbers[THROUGHPUT]:.0f}/s" if THROUGHPUT in numbers else stop.reason if stop else evaluation.status
        accuracy = f"{numbers['accuracy']:.4f}" if "accuracy" in numbers else "-"
        files = f"{evaluation.compiled} compiled, {evaluation.shared} shared"
        print(f"    {evaluation.candidate.short_id} {files}; accuracy {accuracy}; {rate[:110]}", flush=True)


def search(experiment: Experiment, folder: Path) -> Mapping[str, Evaluation]:
    store = Store(folder / "store")
    try:
        journal = open_journal(folder, experiment.name, experiment.identity)
        bench = open_bench(experiment, journal, store, lambda candidate, stage: None)
        run_sweep(experiment, bench, listeners=[Said()])
        return journal.evaluations()
    finally:
        store.close()


def volume(experiment: Experiment, evaluations: Mapping[str, Evaluation]) -> float:
    least = metrics(evaluations[experiment.baseline.id])["accuracy"] - BELOW_BASELINE
    members = [metrics(e) for e in front_of(experiment, evaluations)]
    return hypervolume([[-n[THROUGHPUT], -n["accuracy"]] for n in members], [0.0, -least])


def told(way: Way, experiment: Experiment, evaluations: Mapping[str, Evaluation], seconds: float) -> list[str]:
    found = [*evaluations.values()]
    compiled, shared = sum(e.compiled for e in found), sum(e.shared for e in found)
    lines = [
        f"{way.name}: {len(found)} candidates, {compiled} compiler runs ({shared} saved by sharing files), "
        f"hypervolume {volume(experiment, evaluations):.4f}, {sum(map(is_deferred, found))} never compiled whole, "
        f"{seconds:.0f} s",
    ]
    lines += [f"  {sentence}" for sentence in [audit_words(found)] if sentence]
    for member in front_of(experiment, evaluations):
        numbers = metrics(member)
        lines.append(
            f"  {member.candidate.short_id} {numbers[THROUGHPUT]:8.1f}/s  accuracy {numbers['accuracy']:.4f}  "
            f"{describe(member.candidate)}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--validation", type=int, default=60)
    parser.add_argument("--sampler", nargs="+", default=["tpe"], choices=["tpe", "parts", "random"])
    parser.add_argument("--compile", nargs="+", default=["all", "deferred"], choices=["all", "deferred"])
    parser.add_argument("--folder", type=Path, help="kept, and gone on with; a temporary one where it is not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atc-runs-") as temporary:
        folder: Path = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with switched_on(emulated_environment(folder)):
            report(options.experiment, folder, options)


def report(file: Path, folder: Path, options: argparse.Namespace) -> None:
    asked = read_experiment(file)
    asked = replace(asked, trials=options.trials, dataset=asked.dataset.first(validation=options.validation))
    ways = [
        Way(name=f"{compile_first}, {sampler}", compile=compile_first, sampler=cast(Sampler, sampler))
        for sampler in options.sampler
        for compile_first in cast(Sequence[CompileFirst], options.compile)
    ]
    results = []
    for way in ways:
        print(f"{way.name}:", flush=True)
        experiment, began = replace(asked, compile=way.compile, sampler=way.sampler), time.perf_counter()
        found = search(experiment, folder / way.name.replace(", ", "-"))
        results.append((way, experiment, found, time.perf_counter() - began))
    print(f"\n{asked.name}, {options.trials} candidates, {options.validation} samples, times modelled")
    _, first, before, _ = results[0]
    runs, size = sum(e.compiled for e in before.values()), volume(first, before)
    for way, experiment, found, seconds in results:
        print(*told(way, experiment, found, seconds), sep="\n")
        own = sum(e.compiled for e in found.values())
        print(f"  {own / runs:.0%} of the runs, {volume(experiment, found) / size:.1%} of the hypervolume", flush=True)


if __name__ == "__main__":
    main()
