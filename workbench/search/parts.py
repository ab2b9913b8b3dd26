"""What to measure next: the assignment that may change the front most for what it costs.

What decides the outputs and what decides the time are different choices, and each is learned from everything that was
measured of it: one process for every quantity (`surrogate`), so that n numerics and m structures say what all n × m
candidates are like, with intervals. A candidate is worth its expected gain of hypervolume over what it is expected to
cost, and that is little where its outputs or its times are known already (`classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.search.surrogate import Axes, Codes, Floats, Surrogate, fit
from workbench.space.space import Assignment
from workbench.values.metrics import METRICS
from workbench.values.objectives import Constraint, Objective, nondominated

Interval = tuple[Floats, Floats]
"""Mean and standard deviation of each of a pool; logarithms where ratios count."""
_DRAWS = 48
_LIKELY = 400
"""Candidates of a large pool that are looked at closely, by what they would gain at the hopeful end of the interval."""
_PROBES = 2000
"""Random points by which a gain on three and more axes is measured."""
_HOPE = 2.0
_LITTLE, _DOUBT = 0.005, 1.0
"""Where no candidate is expected to gain as much, in shares of the box: what counts is what each of a class that nobody
has measured would gain if it were better than expected by so much of the spread of all."""
BESIDE_RUNS = 0.25
"""What a candidate costs beside its compiler's runs, in runs: one that needs none is not free."""
_ELSEWHERE = 0.3
"""Of a class that clears a parameter in the same context: what one of another context says."""
FEWEST = 4
"""Measured candidates from which anything is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a candidate that was tried.

    Attributes:
        numbers: metric → value, for whatever was measured; errors: metric → standard error, where one is known.
        numerics, time: the classes that decide its outputs and its times; empty where nobody knows them.
        failed: it cannot be built or run.
    """

    assignment: Assignment
    numbers: Mapping[str, float]
    errors: Mapping[str, float]
    numerics: str = ""
    time: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What trying a candidate costs.

    Attributes:
        each_s, numerics_s, time_s: seconds of every candidate, of one with unknown outputs, of one with unknown times.
        runs: place in the pool → runs of a compiler that takes minutes for each shape; nothing else counts where it is
            given.
    """

    each_s: float = 1.0
    numerics_s: float = 1.0
    time_s: float = 1.0
    runs: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What is expected of a pool.

    Attributes:
        order: indices, the most worth trying first.
        gain: expected gain of each, in shares of the box between the best hoped for and the worst of the front.
        cost: expected cost of each, in seconds or in runs of a compiler.
        predicted: metric → mean and standard deviation of each; logarithms where ratios count (`logged`).
        new_numerics, new_time: the probability that nobody has measured its class.
    """

    order: npt.NDArray[np.int64]
    gain: Floats
    cost: Floats
    predicted: Mapping[str, Interval]
    new_numerics: Floats
    new_time: Floats


def rank(
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    axes: Axes,
    pool: Codes,
    seen: Sequence[Seen],
    costs: Costs,
    rng: np.random.Generator,
) -> Ranking:
    """What each of the pool is worth; deterministic for a generator's state.

    Args:
        pool: [n, parameters].
        seen: at least `FEWEST`.
    """
    codes = axes.codes([s.assignment for s in seen])
    numerics, time = (match_classes(codes, [getattr(s, c) for s in seen], pool) for c in ("numerics", "time"))
    cost = costs.each_s + costs.numerics_s * numerics.new + costs.time_s * time.new
    metrics = dict.fromkeys([o.metric for o in objectives] + [c.metric for c in constraints])
    fitted = {name: _fitted(name, axes, codes, seen) for name in metrics}
    predicted = {
        name: _by_class(name, each.predict(pool), each.left, numerics if name.startswith("accuracy") else time, seen)
        for name, each in fitted.items()
        if each is not None
    }
    keeps = _chance_to_run(axes, codes, pool, seen)
    for constraint in constraints:
        if constraint.metric in predicted:
            from scipy import special  # a quarter of a second that whoever tests nothing need not spend

            mean, deviation = predicted[constraint.metric]
            left = ((np.log(constraint.limit) if logged(constraint.metric) else constraint.limit) - mean) / deviation
            keeps = keeps * special.ndtr(left if constraint.known.direction == "minimize" else -left)
    gain = _gain(objectives, constraints, predicted, keeps, seen, np.maximum(numerics.new, time.new), rng)
    if costs.runs is not None:
        likely = np.argsort(-gain, kind="stable")[:_LIKELY]
        cost = np.full(len(pool), np.inf)
        cost[likely] = [BESIDE_RUNS + costs.runs(int(place)) for place in likely]
    return Ranking(
        order=np.argsort(-gain / cost, kind="stable"),
        gain=gain,
        cost=cost,
        predicted=predicted,
        new_numerics=numerics.new,
        new_time=time.new,
    )


# --- what is expected ------------------------------------------------------------------------------------------


def logged(metric: str) -> bool:
    """Whether ratios of it matter rather than differences: times, rates and sizes, not shares or counts."""
    known = METRICS.get(metric)
    return known is not None and known.unit in ("ms", "/s", "x", "MB", "s")


def _fitted(metric: str, axes: Axes, codes: Codes, seen: Sequence[Seen]) -> Surrogate | None:
    """The process of a metric; None where too little of it was measured."""
    rows = [i for i, s in enumerate(seen) if np.isfinite(s.numbers.get(metric, np.nan))]
    values = np.array([seen[i].numbers[metric] for i in rows])
    errors = np.array([seen[i].errors.get(metric, 0.0) for i in rows])
    if logged(metric):
        positive = values > 0
        rows, values, errors = [r for r, p in zip(rows, positive, strict=True) if p], values[positive], errors[positive]
        values, errors = np.log(values), errors / values
    return fit(axes, codes[rows], values, errors) if len(rows) >= 3 else None  # as `fit` asks


def _chance_to_run(axes: Axes, codes: Codes, pool: Codes, seen: Sequence[Seen]) -> Floats:
    """Probability that a candidate can be built and run, by what became of others; 1 while none has failed."""
    failed = np.array([s.failed for s in seen], dtype=np.float64)
    if not failed.any():
        return np.ones(len(pool))
    if failed.all():  # nothing tells why: what differs in most from all of them
        apart: Floats = axes.distances(pool, codes).sum(axis=0).min(axis=1) / len(axes.names)
        return np.clip(apart, 0.02, 1.0)
    mean, _ = fit(axes, codes, failed, np.full(len(seen), 0.05)).predict(pool)
    return np.clip(1 - mean, 0.02, 1.0)


def _by_class(metric: str, predicted: Interval, left: float, match: ClassMatch, seen: Sequence[Seen]) -> Interval:
    """What a process says, where a candidate's class may be known: with that probability it is what was measured of it.

    Args:
        left: standard deviation of what no choice explains: a class that nobody has measured has its share of it.
    """
    mean, deviation = predicted
    values = np.array([s.numbers.get(metric, np.nan) for s in seen])[match.member]
    errors = np.array([s.errors.get(metric, 0.0) for s in seen])[match.member]
    if logged(metric):
        values = np.where(values > 0, values, np.nan)
        errors, values = errors / values, np.log(values)
    new = np.where(np.isfinite(values), match.new, 1.0)
    values, errors = (np.where(np.isfinite(each), each, 0.0) for each in (values, errors))
    between = new * (1 - new) * (mean - values) ** 2
    variance = new * (deviation**2 + left**2) + (1 - new) * np.minimum(errors, deviation) ** 2 + between
    return new * mean + (1 - new) * values, np.sqrt(np.maximum(variance, 1e-16))


def _gain(
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    predicted: Mapping[str, Interval],
    chance: Floats,
    seen: Sequence[Seen],
    new: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Expected gain of hypervolume by each of the pool, in shares of the box below the reference; where nothing
    feasible is known, `chance`, the probability of being feasible."""
    turned = {o.metric: -1.0 if o.direction == "maximize" else 1.0 for o in objectives}  # less is better
    points = []  # of the measured candidates that keep every limit, logarithms where ratios count
    for s in seen:
        numbers = {name: s.numbers.get(name, np.nan) for name in turned}
        kept = all(c.metric in s.numbers and c.violation(s.numbers[c.metric]) <= 0 for c in constraints)
        if kept and np.isfinite([*numbers.values()]).all():
            points.append([turned[name] * float(np.log(n) if logged(name) else n) for name, n in numbers.items()])
    if not points or not predicted.keys() >= turned.keys():
        return chance
    front = nondominated(np.array(points))
    mean = np.stack([sign * predicted[name][0] for name, sign in turned.items()], axis=1)
    deviation = np.stack([predicted[name][1] for name in turned], axis=1)
    # the box in which a gain counts: from the best seen and hoped for to a little beyond the worst of the front, as it
    # is known and as it is expected: that of a single known member would be nothing but its corner
    likely = chance >= np.quantile(chance, 0.5)
    ideal = np.minimum(front.min(axis=0), (mean - _HOPE * deviation)[likely].min(axis=0))
    worst = np.maximum(nondominated(np.vstack([front, mean[likely]])).max(axis=0), front.max(axis=0))
    reference = worst + 0.1 * np.maximum(worst - ideal, 1e-9)
    size = reference - ideal
    front, mean, deviation = (front - ideal) / size, (mean - ideal) / size, deviation / size
    probes = rng.random((_PROBES, front.shape[1]))
    hopeful = improvement(front, mean - _HOPE * deviation, probes) * chance
    gain = 1e-6 * hopeful
    close = np.argsort(-hopeful, kind="stable")[:_LIKELY]
    draws = mean[close, None] + deviation[close, None] * rng.standard_normal((len(close), _DRAWS, front.shape[1]))
    each = improvement(front, draws.reshape(-1, front.shape[1]), probes).reshape(len(close), _DRAWS)
    gain[close] += each.mean(axis=1) * chance[close]
    if gain.max() >= _LITTLE:
        return gain
    # nothing more is expected: the processes may be too sure of combinations that nobody has tried
    hoped = mean - np.maximum(_HOPE * deviation, _DOUBT * mean.std(axis=0) * new[:, None])
    best = np.minimum(hoped[likely].min(axis=0), 0.0)
    return improvement((front - best) / (1 - best), (hoped - best) / (1 - best), probes) * chance


def improvement(front: Floats, points: Floats, probes: Floats) -> Floats:
    """How much of the unit box each point dominates that the front does not.

    Exact on one and two axes; on more, the share of `probes` (random points of the box).

    Args:
        front: [k, m], none dominated, sorted by the first axis; points: [n, m]. Less is better; the reference is 1.
    """
    axes = front.shape[1]
    if axes == 1:
        return np.maximum(min(float(front[0, 0]), 1.0) - np.maximum(points[:, 0], 0.0), 0.0)
    if axes == 2:  # strips between neighbours of the front
        left = np.concatenate([[-np.inf], front[:, 0]])
        right = np.concatenate([front[:, 0], [1.0]])
        top = np.concatenate([[1.0], front[:, 1]])
        width = np.maximum(np.minimum(right, 1.0) - np.maximum(left, np.maximum(points[:, :1], 0.0)), 0.0)
        height = np.maximum(np.minimum(top, 1.0) - np.maximum(points[:, 1:], 0.0), 0.0)
        return np.asarray((width * height).sum(axis=1))
    free = probes[~(front[:, None] <= probes[None]).all(axis=2).any(axis=0)]
    found = np.empty(len(points))
    for begin in range(0, len(points), 512):
        some = points[begin : begin + 512]
        found[begin : begin + 512] = (some[:, None] <= free[None]).all(axis=2).sum(axis=1)
    return found / len(probes)


# --- what is known of classes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMatch:
    """Of each candidate of a pool: the probability that none of the known classes is its own, and otherwise which of
    those seen is most likely of its class."""

    new: Floats
    member: npt.NDArray[np.int64]


def match_classes(codes: Codes, classes: Sequence[str], pool: Codes) -> ClassMatch:
    """What the classes of those seen say of a pool.

    Of every parameter it is learned how often a change of it alone changes the class: a class whose members differ in
    it says that there it changes nothing, however many they are; two members of different classes blame what they
    differ in and nothing has yet cleared, in equal shares. What changes nothing in one class may well do so in
    another, most of all where other parameters apply: each such context learns for itself, and takes what others
    learned for little. A candidate's class is known for nearly certain only beside a class that has cleared, in its own
    members, all that it differs in.
    """
    rows = [i for i, each in enumerate(classes) if each]
    if not rows:
        return ClassMatch(new=np.ones(len(pool)), member=np.zeros(len(pool), dtype=np.int64))
    known = codes[rows]
    _, of = np.unique(np.array([classes[i] for i in rows]), return_inverse=True)
    _, context_of = np.unique(np.vstack([known, pool]) < 0, axis=0, return_inverse=True)
    known_context, pool_context = np.split(context_of.ravel(), [len(rows)])
    # [classes, parameters]: whether members of a class differ in it
    cleared = np.stack([(known[of == c] != known[of == c][0]).any(axis=0) for c in range(of.max() + 1)])
    sizes = 1.0 + np.bincount(of)[:, None]  # the more members a class has, the less is left of the doubt
    kept, member = np.empty(len(pool)), np.empty(len(pool), dtype=np.int64)
    for context in np.unique(pool_context):
        here = known_context == context
        inside = np.isin(np.arange(len(sizes)), of[here])
        change = _change(known[here], of[here], cleared[inside], cleared[~inside])
        logs = np.log1p(-np.minimum(np.where(cleared, change / sizes, change), 0.999))[of]
        places = np.flatnonzero(pool_context == context)
        for begin in range(0, len(places), 512):
            some = places[begin : begin + 512]
            likely = np.einsum("nkp,kp->nk", pool[some, None, :] != known[None, :, :], logs)
            kept[some] = np.exp(likely.max(axis=1))
            member[some] = likely.argmax(axis=1)
    return ClassMatch(new=1 - kept, member=np.array(rows)[member])


def _change(known: Codes, of: npt.NDArray[np.int64], cleared: Floats, elsewhere: Floats) -> Floats:
    """[parameters]: how likely a change of each alone changes the class, in one context.

    Args:
        known: [n, parameters], the members there, of the classes `of`. cleared: [classes, parameters], whether members
            of a class there differ in it; elsewhere: the same of classes of other contexts.
    """
    apart = np.triu(of[:, None] != of[None, :], k=1)
    differ = (known[:, None, :] != known[None, :, :])[apart]
    suspects = differ & ~cleared.any(axis=0)
    suspects = np.where(suspects.any(axis=1, keepdims=True), suspects, differ)
    shares = suspects / np.maximum(suspects.sum(axis=1, keepdims=True), 1)
    blamed = shares.max(axis=0, initial=0.0) * 4
    return np.asarray((0.5 + blamed) / (1.0 + blamed + 2 * cleared.sum(axis=0) + _ELSEWHERE * elsewhere.sum(axis=0)))
