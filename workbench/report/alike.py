"""Who cannot be told apart: a difference that the measurements cannot show is no difference.

Recipes of a language model are each held against the best of the space's presets, which are what is tried without a
search. Differences between recipes are paired over windows, with intervals that hold for all pairs at once
(`significance.all_pairs`): with two dozen recipes one pair in twenty would differ by chance.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.report.summary import Recipe
from workbench.report.words import ACCURACY, SERVICE, SPEED, loss_of, service_estimate, speedup_of
from workbench.values.measurement import Estimate, ServiceResult, Split
from workbench.values.metrics import metrics
from workbench.values.modelled_times.figures import ratio
from workbench.values.objectives import Objective
from workbench.values.paired_scores import PairedScores
from workbench.values.results import Evaluation
from workbench.values.significance import Outcomes, all_pairs, indistinguishable, may_be_equal

_MEDIAN = 1.25
"""A median's standard error over that of a mean."""

OutcomesOf = Callable[[str, Split], Outcomes | None]
"""Candidate id, split → its per-sample outcomes there, None where they were not kept."""


class Alike:
    """Whether two complete evaluations cannot be told apart, with the per-sample outcomes read at most once each."""

    def __init__(self, objectives: Sequence[Objective], outcomes: OutcomesOf, baseline_id: str) -> None:
        self._objectives, self._read, self._baseline_id = objectives, functools.cache(outcomes), baseline_id

    def altogether(self, a: Evaluation, b: Evaluation) -> bool:
        """In speed, in accuracy, and in every objective."""
        names = dict.fromkeys(("speedup", "accuracy", *(o.metric for o in self._objectives)))
        return all(self.in_metric(a, b, name) for name in names)

    def apart(self, a: Evaluation, b: Evaluation, metrics_: Sequence[str]) -> bool:
        """In one of these at least."""
        return not all(self.in_metric(a, b, name) for name in metrics_)

    def by_content(self, a: Evaluation, b: Evaluation) -> bool:
        """Whether what they are made of says so: their calls do the same work (`targets.classes`), and every sample
        has the same outcome. False where one of the two is not known."""
        keys = [{reuse.key for reuse in e.reuse if reuse.kind == "latency"} for e in (a, b)]
        if not keys[0] & keys[1] or a.split != b.split:
            return False
        ours, theirs = self._of(a), self._of(b)
        if isinstance(ours, PairedScores) and isinstance(theirs, PairedScores):
            same = np.array_equal(ours.numerators, theirs.numerators)
            return same and np.array_equal(ours.denominators, theirs.denominators)
        return isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray) and np.array_equal(ours, theirs)

    def in_metric(self, a: Evaluation, b: Evaluation, metric: str) -> bool:
        """Times through the intervals of the speed-up (of the time per call or sample when batch sizes differ),
        modelled ones through the errors that they do not share, accuracy through the paired test, a service through
        its intervals (of a predicted one, with those of the times it rests on), everything else as it stands: sizes
        and counts carry no noise."""
        if metric in ACCURACY:
            return self._in_accuracy(a, b)
        part = "service" if metric in SERVICE else "latency"
        by_model = ratio(getattr(a.measurement, part), getattr(b.measurement, part), metric)
        if by_model is not None:
            return by_model.low <= 1 <= by_model.high
        if metric in SPEED:
            if a.candidate.serving.batch == b.candidate.serving.batch or metric == "speedup":
                return may_be_equal(speedup_of(a), speedup_of(b))
            per_sample = metric == "throughput_per_s"
            return may_be_equal(_time(a, per_sample=per_sample), _time(b, per_sample=per_sample))
        if metric in SERVICE and a.measurement.service is not None and b.measurement.service is not None:
            return may_be_equal(_service(a.measurement.service, metric), _service(b.measurement.service, metric))
        return metrics(a)[metric] == metrics(b)[metric]

    def _in_accuracy(self, a: Evaluation, b: Evaluation) -> bool:
        ours, theirs = (self._of(a), self._of(b)) if a.split == b.split else (None, None)
        if ours is not None and theirs is not None and len(ours) == len(theirs) and type(ours) is type(theirs):
            return indistinguishable(ours, theirs)
        first, second = loss_of(a, self._baseline_id), loss_of(b, self._baseline_id)
        if first is None or second is None:
            return metrics(a)["accuracy"] == metrics(b)["accuracy"]
        return first.low <= second.high and second.low <= first.high

    def _of(self, evaluation: Evaluation) -> Outcomes | None:
        return self._read(evaluation.candidate.id, evaluation.split)


def throughput_of(evaluation: Evaluation) -> Estimate:
    """Samples per second of a complete evaluation, by its own times."""
    spent = _time(evaluation, per_sample=True)
    return Estimate(value=1000 / spent.value, low=1000 / spent.high, high=1000 / spent.low)


def _time(evaluation: Evaluation, *, per_sample: bool) -> Estimate:
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    scale = latency.batch if per_sample else 1
    p50 = latency.undrifted_p50_ms
    return replace(p50, value=p50.value / scale, low=p50.low / scale, high=p50.high / scale)


def _service(result: ServiceResult, metric: str) -> Estimate:
    """As measured under load; else a prediction's own interval with what was timed for this candidate alone in it: its
    batch curve, and what several of its sessions do at once. What its interval for a measurement holds besides, both
    candidates share."""
    if result.confirmed is not None:
        return service_estimate(result.confirmed, metric)
    predicted = result.best or result.closest
    found = service_estimate(predicted.own or predicted, metric)
    points = [p.p50_ms for p in result.curve.points]
    share = sum(_half_width(p) for p in points) / len(points) if points else 0.0
    if predicted.settings.workers > 1:
        of_medians = [_half_width(one.work) * _MEDIAN / math.sqrt(one.rounds) for one in result.curve.together]
        share = math.hypot(share, max(of_medians, default=0.0))
    return replace(found, low=found.low * (1 - share), high=found.high * (1 + share))


def _half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / (2 * estimate.value)


def letters(count: int, alike: Callable[[int, int], bool]) -> list[str]:
    """For members 0..count-1 their letters, in the order of the members; empty for one that is like no other.

    "Cannot be told apart" is not transitive: a fast one may be like a middling one, which is like a slow one, while
    fast and slow differ for certain. So each largest set of members that are all alike has a letter, and a member may
    carry several (Piepho, Journal of Computational and Graphical Statistics 13, 2004, 456-466).

    Args:
        alike: symmetric; asked once per pair i < j.
    """
    groups: set[frozenset[int]] = {frozenset()}
    for member in range(count):
        like = {other for other in range(member) if alike(other, member)}
        groups |= {group & like | {member} for group in groups}
        groups = {group for group in groups if not any(group < other for other in groups)}
    marks = [""] * count
    for number, group in enumerate(sorted(sorted(group) for group in groups if len(group) > 1)):
        again, place = divmod(number, len(string.ascii_lowercase))
        for member in group:
            marks[member] += string.ascii_lowercase[place] + (str(again) if again else "")  # a … z, then a1 … z1
    return marks


def recipes_of(
    evaluations: Sequence[Evaluation], outcomes: OutcomesOf, presets: Mapping[str, str], baseline_id: str
) -> tuple[Recipe, ...]:
    """Those that were judged in full, the least loss first; nothing of other models.

    Args:
        presets: candidate id → name, of those of the space.
    """
    found: list[tuple[Evaluation, PairedScores]] = []
    for evaluation in evaluations:
        if evaluation.measurement.language is None or evaluation.candidate.id == baseline_id:
            continue
        # kept only of what was judged over the whole split, also where it then was over a limit
        scores = outcomes(evaluation.candidate.id, "validation")
        if isinstance(scores, PairedScores) and (not found or len(scores) == len(found[0][1])):
            found.append((evaluation, scores))
    found.sort(key=lambda each: (float(each[1].numerators.sum()), each[0].candidate.id))
    if not found:
        return ()
    best = next((place for place, (e, _) in enumerate(found) if e.candidate.id in presets), None)
    pairs = all_pairs(np.stack([scores.numerators for _, scores in found]), found[0][1].denominators)
    rows = []
    for place, (evaluation, _) in enumerate(found):
        known, accuracy = None, evaluation.measurement.accuracy
        if best is not None and place != best:
            value, low, high = (float(each[place, best]) for each in (pairs.difference, pairs.low, pairs.high))
            if accuracy is not None and accuracy.unit == "%":
                value, low, high = (100 * math.expm1(min(nats, 50.0)) for nats in (value, low, high))
            known = Estimate(value=value, low=low, high=high)
        name = presets.get(evaluation.candidate.id, "")
        rows.append(Recipe(candidate_id=evaluation.candidate.id, preset=name, against_preset=known))
    return tuple(rows)
