"""A headline speed-up taken apart: which group of settings it comes from, by candidates measured in between.

    factors = taken_apart(summary)
    factors.words()     # '2.90x [2.81, 2.99] = 1.92x [1.90, 1.94] by lengths × 1.51x [1.45, 1.56] by INT8, …'

A step leads from one measured candidate to another that has one group of settings more from the recommended one, so
the product is the total, and every factor holds on top of those before it. Where the candidate between two steps was
not measured, their factor is one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.report.summary import Summary
from workbench.report.words import interval
from workbench.values.candidate import Candidate
from workbench.values.measurement import Estimate, Latency
from workbench.values.modelled_times.figures import ratio
from workbench.values.setting_groups import GROUPS, Group, corners, differing_groups

_EXACTLY_ONE = Estimate(value=1.0, low=1.0, high=1.0)
Corner = frozenset[Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What one group of settings brings, or several that were not told apart, on top of the factors before.

    Attributes:
        names: what its settings are called in words.
        candidate_id: the candidate that has them, measured.
    """

    groups: tuple[Group, ...]
    names: tuple[str, ...]
    gain: Estimate
    candidate_id: str

    def words(self) -> str:
        *others, last = self.names
        names = f"{', '.join(others)} and {last} together" if others else last
        return f"{interval(self.gain, 'x', 2)} by {names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """A speed-up over the float baseline, in the search's own measurements on the validation split.

    Attributes:
        metric: 'speedup', or 'throughput_per_s' where the batch sizes differ.
    """

    candidate_id: str
    metric: str
    total: Estimate
    factors: tuple[Factor, ...]

    def words(self) -> str:
        """'6.80x [6.61, 7.02] = 2.90x [2.80, 3.01] by lengths × 2.34x [2.21, 2.48] by INT8'."""
        unit = " samples a second" if self.metric == "throughput_per_s" else ""
        product = " \N{MULTIPLICATION SIGN} ".join(factor.words() for factor in self.factors)
        return f"{interval(self.total, 'x', 2)}{unit} = {product}"

    def sentence(self) -> str:
        """The same with what it means."""
        if len(self.factors) == 1 and len(self.factors[0].names) == 1:
            total, name = interval(self.total, "x", 2), self.factors[0].names[0]
            return f"All of its {total} on the validation split comes from {name}."
        words = f"Where its speed on the validation split comes from: {self.words()}"
        words += ", each on top of those before it" if len(self.factors) > 1 else ""
        joint = any(len(factor.names) > 1 for factor in self.factors)
        return words + ("; what is given together was not measured apart." if joint else ".")


def taken_apart(summary: Summary) -> Factors | None:
    """Of the recommended candidate; None where there is none, or it is the baseline."""
    ends = _ends(summary)
    if ends is None:
        return None
    baseline, chosen = ends
    every, times, groups = corners(baseline, chosen), _times(summary), differing_groups(baseline, chosen)
    origin, target = frozenset[Group](), frozenset(groups)
    metric = "throughput_per_s" if "batch" in target else "speedup"
    gains: dict[Corner, Estimate] = {
        corner: _gain(times[c.id], times[baseline.id], metric) for corner, c in every.items() if c.id in times
    }
    gains[origin] = _EXACTLY_ONE
    if target not in gains:
        return None
    measured = ([corner for corner in chain if corner in gains] for chain in _chains(groups))
    path = [origin, *max(measured, key=len)]  # by as many measured steps as there are
    factors = []
    for before, after in itertools.pairwise(path):
        added = tuple(group for group in GROUPS if group in after - before)
        by_clock = ratio(times[every[after].id], times[every[before].id if before else baseline.id], metric)
        factors.append(
            Factor(
                groups=added,
                names=tuple(_name(group, baseline, chosen) for group in added),
                gain=by_clock or _over(gains[after], gains[before]),
                candidate_id=every[after].id,
            )
        )
    return Factors(candidate_id=chosen.id, metric=metric, total=gains[target], factors=tuple(factors))


def missing_between(summary: Summary) -> tuple[Candidate, ...]:
    """The fewest candidates that, once timed, tell every group of the recommended one's settings apart, in the order
    in which they are worth it; none where all are measured."""
    ends = _ends(summary)
    if ends is None:
        return ()
    every, times = corners(*ends), _times(summary)
    chains = [chain[:-1] for chain in _chains(differing_groups(*ends))]
    missing = [
        tuple(every[corner] for corner in chain if every[corner].id not in times)
        for chain in chains
        if all(corner in every for corner in chain)
    ]
    return min(missing, key=len, default=())


def _ends(summary: Summary) -> tuple[Candidate, Candidate] | None:
    """The baseline and the recommended candidate, both measured and not the same."""
    baseline, chosen = summary.baseline, summary.chosen
    if baseline is None or chosen is None or chosen is baseline or baseline.status != "complete":
        return None
    return baseline.candidate, chosen.candidate


def _times(summary: Summary) -> dict[str, Latency]:
    """Candidate id → its times on the validation split; those of the search go before those taken beside it."""
    beside = {n.candidate.id: n.latency for n in summary.neighbours}
    searched = {
        e.candidate.id: e.measurement.latency
        for e in summary.evaluations
        if e.measurement.latency is not None and (e.status == "complete" or e.stop is not None)
    }
    return {**beside, **searched}


def _gain(latency: Latency, baseline: Latency, metric: str) -> Estimate:
    if metric == "speedup":
        return latency.speedup
    by_clock = ratio(latency, baseline, metric)
    if by_clock is not None:
        return by_clock

    def rate(of: Latency) -> Estimate:
        value, p50 = of.throughput_per_s * of.drift, of.p50_ms
        return Estimate(value=value, low=value * p50.value / p50.high, high=value * p50.value / p50.low)

    return _over(rate(latency), rate(baseline))


def _over(after: Estimate, before: Estimate) -> Estimate:
    """The ratio of two positive quantities measured apart, its interval as in `significance.may_be_equal`."""
    value = after.value / before.value
    low = math.hypot(math.log(after.value / after.low), math.log(before.high / before.value))
    high = math.hypot(math.log(after.high / after.value), math.log(before.value / before.low))
    return Estimate(value=value, low=value * math.exp(-low), high=value * math.exp(high))


def _chains(groups: Sequence[Group]) -> Iterator[list[Corner]]:
    """Every way from nothing to all of the groups, one after the other, those in the order of `GROUPS` first."""
    for order in itertools.permutations(groups):
        yield [frozenset(order[:count]) for count in range(1, len(order) + 1)]


def _name(group: Group, baseline: Candidate, chosen: Candidate) -> str:
    if group == "precision":
        quantized = chosen.quantization.scheme != "none" or baseline.quantization.scheme != "none"
        return "INT8" if quantized else f"{chosen.precision.mode} instead of {baseline.precision.mode}"
    return {"engine": "the engine", "graph": "graph settings"}.get(group, group)
