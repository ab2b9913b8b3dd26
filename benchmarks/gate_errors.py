"""How often the gate on accuracy is wrong: releases with planted losses, beside a gate that asks the figure alone.

    python -m benchmarks.gate_errors [--releases 10000]

Every row plants one loss, in shares of the limit of 0.5 pp, with a zone of half the limit: a loss of 0.5 times it must
not fail, one of 1.5 times must not pass, and in between either answer is right. Columns, in % of the releases:

    passed, failed, undecided     by the gate; `!` marks a wrong answer, at most 5 %
    samples                       mean used, in % of the fixed size: of one test with both errors at 5 %
    figure                        passed by the figure alone on the whole split, as a fixed limit does; `!` as above

First on as many samples as the gate asks for, then on 2000 whatever it asks for; then whole releases, from the search
to promotion, and chains of releases that each lose a little more. What is bootstrapped runs over a fifth of them.
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
LOSSES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
Z_STEP, Z_FIXED = 2.2164, 1.6449
"""Quantiles for the gate's own errors (STEP), and for 5 %."""
CANDIDATES, CONFIRMED, CHAIN = 200, 8, 10
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Samples of a few kinds: the second is lost, the third won by the candidate, in `differing` of all samples.

    Attributes:
        kinds: [kinds, 4] numerators and denominators, as `least_drop` takes them; of entities [kinds, 6] counts.
        others: shares of the first and of the further kinds, which are as they are.
    """

    name: str
    kinds: npt.NDArray[np.number]
    others: tuple[float, ...]
    differing: float

    @property
    def entities(self) -> bool:
        return self.kinds.shape[1] == 6

    @property
    def rows(self) -> Floats:
        k = self.kinds.astype(np.float64)
        return np.stack([2 * k[:, 0], k[:, 1] + k[:, 2], 2 * k[:, 3], k[:, 4] + k[:, 5]], 1) if self.entities else k

    def shares(self, loss: float) -> Floats:
        """Of the kinds, for a loss in pp."""
        low, high = 0.0, self.differing
        for _ in range(60):
            lost = (low + high) / 2
            rest = (1 - self.differing) * np.array(self.others)
            shares = np.array([rest[0], lost, self.differing - lost, *rest[1:]])
            low, high = (low, lost) if drops(self.rows, shares) > loss else (lost, high)
        return shares

    def needed(self, z: float) -> int:
        """Samples of one test of either end of the zone, by linearization."""
        a, b, a2, b2 = self.rows.T
        s = self.shares(GATE.limit + GATE.zone)
        parts = (a - b * (s @ a) / (s @ b)) / (s @ b) - (a2 - b2 * (s @ a2) / (s @ b2)) / (s @ b2)
        return math.ceil((z * 100 * math.sqrt(s @ parts**2) / GATE.zone) ** 2)

    def estimates(self, counts: Counts) -> list[Estimate]:
        """By the product's own comparison of each release."""
        if len(self.kinds) == 3:  # right or wrong: all at once
            lost, won, n = counts[:, 1], counts[:, 2], int(counts[0].sum())
            ends = ((lost - won) / n, *score_interval(lost, won, n))
            return [Estimate(value=v, low=low, high=high) for v, low, high in (100 * np.stack(ends, 1)).tolist()]
        found = []
        for each in counts:
            seen = np.repeat(self.kinds, each, axis=0)
            pair = (seen[:, :3], seen[:, 3:]) if self.entities else (scores(seen[:, :2]), scores(seen[:, 2:]))
            found.append(compare(*pair).drop_pp)
        return found


def scores(columns: npt.NDArray[np.number]) -> PairedScores:
    return PairedScores(numerators=columns[:, 0], denominators=columns[:, 1])


def drops(rows: Floats, counts: npt.NDArray[np.number]) -> Floats:
    """[...] losses in pp of counts [..., kinds]."""
    a, b, a2, b2 = (counts @ column for column in rows.T)
    return np.asarray(100 * (a / b - a2 / b2))


RIGHT = np.array([[1.0, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]])
SHARES = np.array([[0.8, 1, 0.8, 1], [0.8, 1, 0.6, 1], [0.7, 1, 0.9, 1], [0.4, 1, 0.4, 1], [0.9, 1, 0.91, 1]])
TAGGED = np.array([[3, 3, 3, 3, 3, 3], [3, 3, 3, 2, 4, 3], [1, 2, 2, 2, 2, 2], [1, 2, 2, 1, 2, 2]])
FORMS = (
    *(Form(name="correct", kinds=RIGHT, others=(1.0,), differing=d) for d in (0.01, 0.02, 0.05, 0.2)),
    *(Form(name="scores", kinds=SHARES, others=(0.5, 0.45, 0.05), differing=d) for d in (0.08, 0.2)),
    *(Form(name="counts", kinds=TAGGED, others=(0.7, 0.3), differing=d) for d in (0.02, 0.06)),
)


def stopped(form: Form, loss: float, total: int, releases: int, random: np.random.Generator) -> tuple[Counts, Counts]:
    """(counts of the whole split [releases, kinds], samples at the look that stops each, or all) of the search."""
    used, before = np.full(releases, total), 0
    counts, shares = np.zeros((releases, len(form.rows)), dtype=np.int64), form.shares(loss)
    for look in (*look_schedule(total), total):
        counts = counts + random.multinomial(look - before, shares, size=releases)
        before = look
        if look < total:
            beyond = 100 * least_drop(form.rows, counts, entities=form.entities) > GATE.limit - GATE.zone
            hit = beyond & (drops(form.rows, counts) > GATE.limit)
            used = np.where(hit & (used == total), look, used)
    return counts, used


def outcome(drop: Estimate, samples: int, among: Sequence[Estimate] = ()) -> str:
    return decide(GATE, drop, samples=samples, unit="pp", among=among).outcome


def rates(form: Form, loss: float, total: int, releases: int, random: np.random.Generator) -> str:
    counts, used = stopped(form, loss, total, releases, random)
    whole = used == total
    found = [outcome(drop, total) for drop in form.estimates(counts[whole])] if whole.any() else []
    passed, undecided = (100 * found.count(which) / releases for which in ("passed", "undecided"))
    figure = 100 * np.mean(drops(form.rows, counts) <= GATE.limit)
    samples = 100 * used.mean() / form.needed(Z_FIXED)
    good, bad = loss <= GATE.limit - GATE.zone, loss >= GATE.limit + GATE.zone
    failed = 100 - passed - undecided
    marks = [f"{value:7.2f}{'!' if wrong else ' '}" for value, wrong in ((passed, bad), (failed, good))]
    wrong = f"{figure:7.2f}{'!' if bad else ' '}" if not good else f"{100 - figure:7.2f}! not"
    return f"{''.join(marks)} {undecided:8.2f}  {samples:8.0f}  {wrong}"


def sweeps(form: Form, count: int, random: np.random.Generator) -> str:
    """Splits as large as the gate asks for. The lossier a candidate the faster it is: of those that validation keeps,
    the fastest are confirmed."""
    n = form.needed(Z_STEP)
    losses = GATE.limit * np.linspace(0.5, 2, CANDIDATES)
    shares = np.stack([form.shares(loss) for loss in losses])
    kept = drops(form.rows, random.multinomial(n, shares, size=(count, CANDIDATES))) <= GATE.limit
    chosen = np.sort(np.where(kept, np.arange(CANDIDATES), 0), axis=1)[:, -CONFIRMED:]
    held = form.estimates(random.multinomial(n, shares[chosen]).reshape(count * CONFIRMED, -1))
    together = [held[i : i + CONFIRMED] for i in range(0, len(held), CONFIRMED)]
    passed = np.array([[outcome(drop, n, among) == "passed" for drop in among] for among in together])
    figure = np.array([[drop.value <= GATE.limit for drop in among] for among in together])
    bad = losses[chosen] >= GATE.limit + GATE.zone
    wrong, by_figure = (100 * np.any(bad & by, axis=1).mean() for by in (passed, figure))
    counts, used = stopped(form, GATE.limit - GATE.zone, n, count, random)
    alarm = (used < n) | (drops(form.rows, counts) > GATE.limit)
    for _ in ("against float", "against the current bundle"):
        found = form.estimates(random.multinomial(n, form.shares(GATE.limit - GATE.zone), size=count))
        alarm |= [outcome(drop, n) == "failed" for drop in found]
    return (
        f"a sweep of {CANDIDATES}, the fastest {CONFIRMED} confirmed: one of 1.5x or more passes in {wrong:.2f} %, by "
        f"the figure in {by_figure:.2f} %; one of 0.5x is stopped, passed over or fails in {100 * alarm.mean():.2f} %"
    )


def chains(form: Form, count: int, random: np.random.Generator) -> str:
    """Each release loses 0.3 times the limit more than the one before: the tenth three times the limit."""
    n, passed, unseen = form.needed(Z_STEP), np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
    for release in range(1, CHAIN + 1):
        loss = 0.3 * release * GATE.limit
        unseen &= drops(form.rows, random.multinomial(n, form.shares(0.3 * GATE.limit), size=count)) <= GATE.limit
        if loss >= GATE.limit + GATE.zone:
            held = form.estimates(random.multinomial(n, form.shares(min(loss, 100 * form.differing)), size=count))
            passed |= [outcome(drop, n) == "passed" for drop in held]
    return (
        f"{CHAIN} releases of 0.3x more each: all pass in {100 * unseen.mean():.1f} % by the figure against the one "
        f"before; one of 1.5x or more passes in {100 * passed.mean():.2f} % by the gate against float"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--releases", type=int, default=10_000)
    count, began, random = parser.parse_args(arguments).releases, time.monotonic(), np.random.default_rng(31)
    heads = f"{'passed':>7}  {'failed':>7}  {'undecided':>9}  {'samples':>7}   figure"
    print(f"{'form':8}{'differ':>7}{'samples':>9}{'loss':>7}  {heads}")
    for size, losses in ((0, LOSSES), (2000, (0.5, 1.5, 2.0))):
        for form in FORMS:
            total = size or form.needed(Z_STEP)
            for share in losses:
                many = count if form.name == "correct" else max(1, count // 5)
                row = rates(form, share * GATE.limit, total, many, random)
                print(f"{form.name:8}{form.differing:7.0%}{total:9}{share:6g}x  {row}", flush=True)
    for form in FORMS[1:4:2]:
        for said in (sweeps, chains):
            print(f"{form.name} {form.differing:.0%}: {said(form, count, random)}", flush=True)
    load = os.getloadavg()[0]
    print(f"\n{time.monotonic() - began:.0f} s; {platform.machine()}, {os.cpu_count()} processors, load {load:.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
