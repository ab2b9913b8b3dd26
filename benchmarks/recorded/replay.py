"""Strategies of search against a recorded table: hypervolume against cost, in seconds.

    python -m benchmarks.recorded.replay TABLE.npz [...] [--strategies ours random] [--seeds 20] [--noise]

Every strategy asks as a sweep does (`asking.Queue`), the presets first; proposals that are known or forbidden count.
Only the evaluation is looked up. `ours` pays for classes that nobody has measured yet; `random` pays every candidate
whole, as sweeps did before measurements were shared. With `--noise` every measurement of a time class is drawn with the
error that measuring again was seen to have.

Cost is a share of the exhaustive cost, that of measuring every candidate whole. Hypervolume is that of the true figures
of the measured front, between the float baseline's throughput and the least accuracy allowed, as a share of the
exhaustive front's. Regret is how much less the candidate serves that was measured to serve most than the best does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.recorded.looked_up import Lookup, question_of
from benchmarks.recorded.tables import FOLDER, Table, load_table
from workbench.inputs.experiment import Experiment
from workbench.search.asking import Queue
from workbench.search.front import front_of
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

STRATEGIES = {"ours": "auto", "random": "random"}
_REACHED = 0.95


def hypervolume(points: Sequence[Sequence[float]] | np.ndarray, reference: Sequence[float]) -> float:
    """Volume between the points, of which less is better, and the reference; points beyond it add nothing."""
    bound = np.asarray(reference, dtype=np.float64)
    found = np.asarray(points, dtype=np.float64).reshape(-1, len(bound))
    return _volume(found[(found < bound).all(axis=1)], bound)


def _volume(points: np.ndarray, bound: np.ndarray) -> float:
    """By slabs along the last axis."""
    if not len(points) or len(bound) == 1:
        return float(bound[0] - points.min()) if len(points) else 0.0
    points = points[np.argsort(points[:, -1], kind="stable")]
    widths = np.diff(points[:, -1], append=bound[-1])
    return sum(w * _volume(points[: i + 1, :-1], bound[:-1]) for i, w in enumerate(widths) if w > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """After one more candidate: what has been paid, as a share of everything, and what the measured front is worth."""

    cost: float
    volume: float
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    steps: tuple[Step, ...]
    slowest_s: float

    def cost_to(self, volume: float) -> float:
        """Infinite where it was not reached."""
        return next((s.cost for s in self.steps if s.volume >= volume), float("inf"))

    def at(self, cost: float) -> Step | None:
        """The last step that cost no more."""
        return next((s for s in reversed(self.steps) if s.cost <= cost), None)


class Worth:
    """What a measured front is worth, by the true figures of a table."""

    def __init__(self, table: Table, experiment: Experiment) -> None:
        lookup = Lookup(table, experiment)
        base = lookup.index_of(experiment.baseline_assignment)
        self.lookup, self.table = lookup, table
        serves, right = table.throughput_per_s[table.time], table.accuracy[table.numerics]
        limit = table.meta["constraints"]["accuracy_loss_pp"]
        self.feasible = np.isfinite(serves) & (table.drop_pp[table.numerics] <= limit + 1e-9)
        least = table.accuracy[table.numerics[base]] - limit / 100
        self.best = float(serves[self.feasible].max())
        self.reference = [-float(serves[base]), -(least - 1e-6)]
        self.points = np.stack([-serves, -right], axis=1)
        self.whole = hypervolume(self.points[self.feasible], self.reference)

    def volume(self, members: Sequence[int]) -> float:
        kept = [m for m in members if self.feasible[m]]
        if not self.whole:  # nothing beats the baseline, so that the baseline is all there is to find
            return float(bool(kept))
        return hypervolume(self.points[kept], self.reference) / self.whole if kept else 0.0

    def regret(self, member: int | None) -> float:
        return 1.0 if member is None or not self.feasible[member] else 1 + float(self.points[member, 0]) / self.best


def replay(
    table: Table,
    strategy: str,
    seed: int,
    *,
    noise: bool = False,
    most: int = 400,
    enough: float = _REACHED,
) -> Run:
    """One run of a strategy, until its front is worth `enough` or `most` candidates were measured."""
    experiment = question_of(table, sampler=STRATEGIES[strategy], seed=seed)
    worth = Worth(table, experiment)
    bench = worth.lookup.bench(
        shares=strategy == "ours",
        rng=np.random.default_rng(seed) if noise else None,
    )
    presets = [("preset", p.assignment) for p in experiment.space.presets]
    queue = Queue(experiment, [("baseline", experiment.baseline_assignment), *presets])
    known: dict[str, Evaluation] = {}
    index: dict[str, int] = {}
    steps: list[Step] = []
    slowest_s = 0.0
    while len(known) < min(most, len(table)):
        began = time.perf_counter()
        trial = queue.next(known)
        slowest_s = max(slowest_s, time.perf_counter() - began)
        if trial is None:
            break
        candidate, _ = trial
        index[candidate.id] = worth.lookup.index_of(queue.trials[candidate.id][0])
        known[candidate.id] = bench.evaluate(candidate, index[candidate.id])
        front = front_of(experiment, known)
        serves_most = max(front, key=lambda e: metrics(e)[experiment.objectives[0].metric], default=None)
        steps.append(
            Step(
                cost=bench.paid / worth.lookup.exhaustive,
                volume=worth.volume([index[e.candidate.id] for e in front]),
                regret=worth.regret(None if serves_most is None else index[serves_most.candidate.id]),
            )
        )
        if steps[-1].volume >= enough:
            break
    return Run(steps=tuple(steps), slowest_s=slowest_s)


def table_of(runs: dict[str, list[Run]], costs: Sequence[float]) -> str:
    """One line for each strategy."""
    head = f"{'strategy':<10}" + "".join(f"{f'hv at {c:.1%}':>16}" for c in costs)
    lines = [head + f"{'cost to 95 %':>20}{'reached':>9}{'regret then':>13}{'slowest ask':>13}"]
    for name, found in runs.items():
        cells = ""
        for cost in costs:
            volumes = [s.volume if (s := r.at(cost)) is not None else 0.0 for r in found]
            cells += f"{f'{np.mean(volumes):.1%} ± {np.std(volumes):.1%}':>16}"
        paid = np.array([r.cost_to(_REACHED) for r in found])
        done = np.isfinite(paid)
        mean = f"{paid[done].mean():.2%} ± {paid[done].std():.2%}" if done.any() else "never"
        regrets = [next((s.regret for s in r.steps if s.volume >= _REACHED), r.steps[-1].regret) for r in found]
        lines.append(
            f"{name:<10}{cells}{mean:>20}{f'{done.sum()}/{len(found)}':>9}{np.mean(regrets):>13.2%}"
            f"{max(r.slowest_s for r in found):>11.2f} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path, default=sorted(FOLDER.glob("*.npz")))
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--most", type=int, default=400)
    options = parser.parse_args()
    for path in options.tables:
        table = load_table(path)
        noise = "recorded noise" if options.noise else "no noise"
        print(f"\n{path.name}: {len(table)} candidates, {noise}; cost in shares of seconds")
        runs: dict[str, list[Run]] = {}
        for name in options.strategies or list(STRATEGIES):
            began = time.perf_counter()
            runs[name] = [
                replay(table, name, seed, noise=options.noise, most=options.most) for seed in range(options.seeds)
            ]
            print(f"  {name}: {(time.perf_counter() - began) / options.seeds:.1f} s a run", flush=True)
        print(table_of(runs, (0.005, 0.01, 0.02, 0.05)), flush=True)


if __name__ == "__main__":
    main()
