"""How often the gate on accuracy is wrong: releases with planted losses, beside a gate that asks the figure alone.

    python -m benchmarks.gate_errors [--releases 10000]

A row plants one loss, in shares of the limit of 0.5 pp with a zone of half of it, on as many samples as the gate asks
for, then on 2000 whatever it asks for. Columns, in % of the releases; `!` marks a wrong answer, of which 5 are allowed:

    passed, failed, undecided     by the gate
    samples                       mean used, in % of the fixed size: of one test with both errors at 5 %
    figure                        passed by the figure alone on the whole split, as a fixed limit does

Then whole releases, from the search to promotion, and chains of them. What is bootstrapped runs over a tenth.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores
from workbench.values.sequential import Gate, decide, least_drop, look_schedule
from workbench.values.significance import compare, score_interval

GATE = Gate.around(0.5)
LOW, HIGH = GATE.limit - GATE.zone, GATE.limit + GATE.zone
LOSSES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
Z_STEP, Z_FIXED = 2.2164, 1.6449
"""Quantiles of the gate's own errors (`STEP`), and of 5 %."""
CANDIDATES, CONFIRMED, CHAIN, STEP = 200, 8, 10, 0.3 * GATE.limit
Numbers = npt.NDArray[np.number]
Counts = npt.NDArray[np.int64]


def drops(rows: Numbers, counts: Numbers) -> npt.NDArray[np.float64]:
    """Losses in pp, [...], of counts [..., kinds]."""
    a, b, a2, b2 = (counts @ column for column in rows.T)
    return np.asarray(100 * (a / b - a2 / b2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Samples of a few kinds, of which the second is lost and the third won by the candidate.

    Attributes:
        rows: [kinds, 4] numerators and denominators, as `least_drop` takes them.
        alike: shares of the other kinds among the samples that do not differ.
    """

    name: str
    rows: Numbers
    alike: tuple[float, ...]
    differing: float

    def shares(self, loss: float) -> npt.NDArray[np.float64]:
        """Of the kinds, for a loss in pp."""
        first, *rest = (1 - self.differing) * np.array(self.alike)
        low, high = 0.0, self.differing
        for _ in range(60):
            lost = (low + high) / 2
            shares = np.array([first, lost, self.differing - lost, *rest])
            low, high = (low, lost) if drops(self.rows, shares) > loss else (lost, high)
        return shares

    def needed(self, z: float) -> int:
        """Samples of a test of either end of the zone, by linearization."""
        (a, b, a2, b2), s = self.rows.T, self.shares(HIGH)
        parts = (a - b * (s @ a) / (s @ b)) / (s @ b) - (a2 - b2 * (s @ a2) / (s @ b2)) / (s @ b2)
        return math.ceil((z * 100 * math.sqrt(s @ parts**2) / GATE.zone) ** 2)

    def outcomes(self, counts: Counts, among: int = 1) -> list[str]:
        """Of each release by the product's own comparison; of so many neighbours at once."""
        drop, n = [], int(counts[:1].sum())
        if self.name == "correct":  # all at once
            ends = drops(self.rows, counts), *(100 * end for end in score_interval(counts[:, 1], counts[:, 2], n))
            drop = [Estimate(value=value, low=low, high=high) for value, low, high in np.stack(ends, 1).tolist()]
        for each in counts if not drop else ():
            a, b, a2, b2 = np.repeat(self.rows, each, axis=0).T
            if self.name == "counts":  # of correct, predicted and gold entities
                sides = [np.stack([x // 2, y - b // 2, b // 2], 1).astype(np.int64) for x, y in ((a, b), (a2, b2))]
            else:
                sides = [PairedScores(numerators=x, denominators=y) for x, y in ((a, b), (a2, b2))]
            drop.append(compare(*sides).drop_pp)
        groups = [drop[at : at + among] for at in range(0, len(drop), among)]
        return [decide(GATE, d, samples=n, unit="pp", among=group).outcome for group in groups for d in group]

    def searched(self, loss: float, total: int, releases: int) -> tuple[Counts, Counts]:
        """(counts of the whole split, samples at the look that stops each or all of them)."""
        used, before, counts = np.full(releases, total), 0, np.zeros((releases, len(self.rows)), dtype=np.int64)
        for look in (*look_schedule(total), total):
            counts, before = counts + RANDOM.multinomial(look - before, self.shares(loss), size=releases), look
            certain = 100 * least_drop(self.rows, counts, entities=self.name == "counts") > LOW
            used[certain & (drops(self.rows, counts) > GATE.limit) & (used == total)] = look
        return counts, used


RANDOM = np.random.default_rng(31)
RIGHT = np.array([[1.0, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]])
GRADED = np.array([[0.8, 1, 0.8, 1], [0.8, 1, 0.6, 1], [0.7, 1, 0.9, 1], [0.4, 1, 0.4, 1], [0.9, 1, 0.91, 1]])
TAGGED = np.array([[6.0, 6, 6, 6], [6, 6, 4, 7], [2, 4, 4, 4], [2, 4, 2, 4]])
FORMS = (
    *(Form(name="correct", rows=RIGHT, alike=(1.0,), differing=share) for share in (0.01, 0.02, 0.05, 0.2)),
    *(Form(name="scores", rows=GRADED, alike=(0.5, 0.45, 0.05), differing=share) for share in (0.08, 0.2)),
    *(Form(name="counts", rows=TAGGED, alike=(0.7, 0.3), differing=share) for share in (0.02, 0.06)),
)


def row(form: Form, loss: float, total: int, releases: int) -> str:
    counts, used = form.searched(loss, total, releases)
    found = form.outcomes(counts[used == total])
    passed, undecided = (100 * found.count(which) / releases for which in ("passed", "undecided"))
    figure = 100 * np.mean(drops(form.rows, counts) <= GATE.limit)
    good, bad = " !"[loss <= LOW], " !"[loss >= HIGH]
    wrong = f"{figure:6.2f}{bad}" if good == " " else f"{figure:6.2f} ({100 - figure:.2f}!)"
    samples = 100 * used.mean() / form.needed(Z_FIXED)
    return f"{passed:6.2f}{bad} {100 - passed - undecided:6.2f}{good} {undecided:9.2f} {samples:8.0f}  {wrong}"


def falsely_passed(form: Form, n: int, count: int) -> str:
    """The lossier a candidate the faster it is; of those that validation keeps by their figures the fastest are
    confirmed, and the fastest that passes is taken."""
    losses = GATE.limit * np.linspace(0.5, 2, CANDIDATES)
    shares = np.stack([form.shares(loss) for loss in losses])
    kept = drops(form.rows, RANDOM.multinomial(n, shares, size=(count, CANDIDATES))) <= GATE.limit
    chosen = np.sort(np.where(kept, np.arange(CANDIDATES), 0), axis=1)[:, -CONFIRMED:]
    held, bad = RANDOM.multinomial(n, shares[chosen]).reshape(count * CONFIRMED, -1), losses[chosen] >= HIGH
    passed = np.reshape(form.outcomes(held, CONFIRMED), bad.shape) == "passed"
    figure = np.reshape(drops(form.rows, held), bad.shape) <= GATE.limit
    gate, by_figure = (100 * np.mean(np.any(bad & by, axis=1)) for by in (passed, figure))
    return f"{gate:.2f} % by the gate, {by_figure:.2f} % by the figure"


def released(form: Form, n: int, count: int) -> list[float]:
    """In %: candidates of 0.5x that fail anywhere from the search to promotion; chains of releases in which one of 1.5x
    or more passes against float, and in which all pass by their figures against the one before."""

    def found(loss: float, outcome: str) -> npt.NDArray[np.bool_]:
        return np.array(form.outcomes(RANDOM.multinomial(n, form.shares(loss), size=count))) == outcome

    counts, used = form.searched(LOW, n, count)
    over = (used < n) | (drops(form.rows, counts) > GATE.limit)  # stopped, or passed over on validation
    alarm = over | found(LOW, "failed") | found(LOW, "failed")  # against float, and against the current bundle
    passed, unseen = np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
    for loss in STEP * np.arange(1, CHAIN + 1):
        unseen &= drops(form.rows, RANDOM.multinomial(n, form.shares(STEP), size=count)) <= GATE.limit
        passed |= found(loss, "passed") & (loss >= HIGH)
    return [100 * float(each.mean()) for each in (alarm, passed, unseen)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--releases", type=int, default=10_000)
    count, began = parser.parse_args(arguments).releases, time.process_time()
    print("form    differ  samples  loss   passed  failed  undecided  samples  figure")
    for size, losses in ((0, LOSSES), (2000, (0.5, 1.5, 2.0))):
        for form in FORMS:
            total, many = size or form.needed(Z_STEP), count if form.name == "correct" else max(1, count // 10)
            for share in losses:
                said = row(form, share * GATE.limit, total, many)
                print(f"{form.name:8}{form.differing:6.0%}{total:9}{share:5g}x  {said}", flush=True)
    form, n = FORMS[1], FORMS[1].needed(Z_STEP)
    for size in (n, 2000):
        print(
            f"a sweep of {CANDIDATES} with {size} samples: 1.5x or more passes in {falsely_passed(form, size, count)}"
        )
    alarm, ours, theirs = released(form, n, count)
    print(f"of 0.5x with {n} samples fail anywhere from the search to promotion: {alarm:.2f} %")
    print(f"{CHAIN} releases of 0.3x more each: 1.5x or more passes in {ours:.2f} %; by figures all {theirs:.2f} %")
    load, spent = os.getloadavg()[0], time.process_time() - began
    print(f"\n{spent:.0f} s of one core; {platform.machine()}, {os.cpu_count()} processors, load {load:.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
