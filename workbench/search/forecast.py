"""How long a search and its confirmation take: before anything is measured by one call of the float model, then by what
this sweep's evaluations took; and how the time limit of a run, which covers all of it, is divided between them.

The search gives way to the confirmation: it ends early enough for the front it has found to be confirmed, up to a
share of the limit. The confirmation is cut to what is left. What is in flight at the end is ended.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.inputs.experiment import Experiment
from workbench.load.result import P99_ANSWERS
from workbench.prediction.curve import FEWEST_CALLS
from workbench.prediction.stage import SURFACE_ROUNDS, service_choices, serving_lengths, surface_shapes
from workbench.search.front import front_of
from workbench.search.stages.accuracy import SEARCHED
from workbench.search.stages.request import EFFORTS, FULL, Effort
from workbench.shipping.service_confirmation import LOAD_START_S, LONGEST_LOAD, SHORTEST_LOAD_S, load_seconds
from workbench.values.evidence import source_of
from workbench.values.results import Evaluation
from workbench.values.reuse import ReuseKind

CALL_SHARE = 0.8
"""One call of a candidate against one of the float model, in the mean: of 8 of the quickstart, at the same lengths, on
one thread or two."""
UNTIMED_CALLS = 90
"""Of each session beside those that count: until the times settle, and one before each block of a round."""
UNTIMED_ROUNDS = 3
MEMORY_S, SIMULATION_S = 1.0, 1.5
"""A process that loads the candidate alone; the service settings of one candidate, roughly."""
REPORT_S, REPORT_SHARE = 10.0, 0.2
"""For MLflow, the pages and the report, which nothing cuts short; at most this share of the limit is kept for them."""
CONFIRMATION_SHARE = 1 / 3
"""Of what is left for search and confirmation, the most that the confirmation takes from a search that goes on."""
FRONT, USUAL_FRONT = 5, 3
"""Members that a front is taken to have before one is known, so that there is room for them; that it mostly has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of measuring one candidate that shares nothing with others.

    Attributes:
        opening_s: of building, opening and checks, and whatever else stays at any effort.
        calls_s, samples_s, curve_s: of timed calls, of scoring, of a batch curve.
        load_s: of load in full, which may be longer than the experiment asks for (`asked_load_s`), to know a P99.
    """

    opening_s: float = 0.0
    samples_s: float = 0.0
    calls_s: float = 0.0
    curve_s: float = 0.0
    load_s: float = 0.0
    asked_load_s: float = 0.0

    def searched_s(self, effort: Effort) -> float:
        """Of a candidate of a search."""
        return self.opening_s + self.samples_s * effort.samples + (self.calls_s + self.curve_s) * effort.calls

    def confirmed_s(self, effort: Effort) -> float:
        """Of its confirmation."""
        curve_s = self.curve_s if effort.curve else 0.0
        measured_s = self.opening_s + self.calls_s * effort.calls + self.samples_s * effort.samples
        return measured_s + curve_s + self.loaded_s(effort)

    def loaded_s(self, effort: Effort) -> float:
        """The part of it for serving and loading."""
        if not self.load_s:
            return 0.0
        return LOAD_START_S + (self.load_s if effort == FULL else max(SHORTEST_LOAD_S, self.asked_load_s * effort.load))


# --- before anything is measured -----------------------------------------------------------------------------------


def search_cost(experiment: Experiment, call_ms: float, opening_s: float, *, timed: bool) -> Cost:
    """Of a candidate in the search, from one call of the float model.

    Args:
        timed: False where times are modelled, which costs next to nothing.
    """
    settings, one_s = experiment.measure, CALL_SHARE * call_ms / 1000
    calls = settings.short_calls + settings.calls + 2 * UNTIMED_CALLS
    served_s = SIMULATION_S if experiment.service is not None else 0.0
    return Cost(
        opening_s=opening_s + MEMORY_S * timed + served_s + experiment.dataset.indexed * one_s,
        samples_s=experiment.dataset.size("validation") * experiment.dataset.calls_a_sample * one_s,
        calls_s=calls * (1 + CALL_SHARE) * call_ms / 1000 * timed,
        curve_s=_curve_s(experiment, CALL_SHARE * call_ms) * timed,
    )


def _curve_s(experiment: Experiment, call_ms: float) -> float:
    """Of timing a curve over batches and lengths: its budget, or the fewest rounds where they take longer.

    Args:
        call_ms: of one call at the batch and the lengths that the baseline is called with.
    """
    if experiment.service is None or experiment.space.service is None:
        return 0.0
    baseline = experiment.baseline
    batches, lengths = surface_shapes(experiment, baseline)
    rounds, computed = FEWEST_CALLS, max(1, sum(lengths)) * sum(batches)
    if service_choices(experiment, baseline).sequence_bins:  # a surface: large batches at three lengths
        ends = lengths[0] + lengths[len(lengths) // 2] + lengths[-1]
        rounds, computed = SURFACE_ROUNDS, sum(lengths) + ends * max(batches)
    # of the baseline's samples as they are padded; 1 where they are no texts
    tokens, bins, mean = experiment.dataset.length_sample(), np.array(serving_lengths(experiment, baseline)), 1.0
    if tokens is not None and len(tokens):
        mean = float(bins[np.minimum(np.searchsorted(bins, tokens), len(bins) - 1)].mean())
    round_s = computed * call_ms / 1000 / baseline.serving.batch / mean
    return UNTIMED_ROUNDS * round_s + max(experiment.service.curve_s, rounds * round_s)


def confirmation_cost(experiment: Experiment, searched: Cost, call_ms: float) -> Cost:
    """Of the baseline and the members of a usual front in the mean.

    Args:
        searched: of a candidate in the search.
        call_ms: of the float model.
    """
    service, load_s = experiment.service, 0.0
    if service is not None and searched.calls_s:
        slowest_s = min(max(service.confirm_s, 1.5 * P99_ANSWERS * call_ms / 1000), LONGEST_LOAD * service.confirm_s)
        load_s = (slowest_s + USUAL_FRONT * service.confirm_s) / (1 + USUAL_FRONT)
    return replace(
        searched,
        samples_s=searched.samples_s * _confirmed_samples(experiment) / experiment.dataset.size("validation"),
        curve_s=0.0 if load_s else searched.curve_s,
        load_s=load_s,
        asked_load_s=service.confirm_s if service is not None else 0.0,
    )


def _confirmed_samples(experiment: Experiment) -> int:
    """Answers that a confirmation takes; agreement takes some besides, of the candidate and of the float baseline."""
    count = experiment.dataset.size("holdout")
    return count + 2 * min(count, SEARCHED.samples or count)


# --- by what evaluations took --------------------------------------------------------------------------------------


def known_cost(experiment: Experiment, evaluation: Evaluation | None, known: Mapping[str, Evaluation]) -> Cost:
    """Of a confirmation, from what its evaluation in the search took, nothing where it has none. A confirmation reuses
    nothing: what was reused costs what it cost the float baseline."""
    latency = evaluation.measurement.latency if evaluation is not None else None
    if evaluation is None or latency is None:
        return Cost()
    baseline, accuracy = known.get(experiment.baseline.id, evaluation), evaluation.measurement.accuracy

    def took(kind: ReuseKind, *stages: str) -> float:
        of = evaluation if source_of(evaluation, kind) is None else baseline
        return sum(each.seconds for each in of.stages if each.stage in stages)

    service, question, count = evaluation.measurement.service, experiment.service, _confirmed_samples(experiment)
    scored_s = took("accuracy", "accuracy_subset", "accuracy_full") / (accuracy.samples if accuracy is not None else 1)
    least_s = experiment.dataset.calls_a_sample * latency.mean_ms / latency.batch / 1000  # some were in the store
    load_s = 0.0
    if question is not None and service is not None and service.best is not None and not evaluation.toolchain.emulated:
        load_s = load_seconds(service.best, question.confirm_s) if question.confirm_s > 0 else 0.0
    return Cost(
        opening_s=sum(each.seconds for each in evaluation.stages if each.stage in ("check", "smoke")),
        calls_s=took("latency", "latency_full") * experiment.measure.calls / latency.samples,
        samples_s=count * max(scored_s, least_s),
        curve_s=0.0 if predicted_by_search(experiment, evaluation) else took("curve", "service"),
        load_s=load_s,
        asked_load_s=question.confirm_s if question is not None else 0.0,
    )


def predicted_by_search(experiment: Experiment, searched: Evaluation | None) -> bool:
    """Whether a confirmation leaves the batch curve to the search: it was timed on this very candidate, on a quiet
    machine, and a load measures the service itself next."""
    question = experiment.service
    service = searched.measurement.service if searched is not None else None
    if question is None or question.confirm_s <= 0 or searched is None or service is None or service.best is None:
        return False
    return service.curve.quiet and source_of(searched, "curve") is None and not searched.toolchain.emulated


# --- the limit -----------------------------------------------------------------------------------------------------


def fitting(costs: Sequence[Cost], left_s: float) -> tuple[Effort, int]:
    """The most effort at which all fit into the time, and how many of them; else the least effort, and as many as fit.

    Args:
        costs: of the candidates, the most important first.
    """
    for effort in EFFORTS:
        if sum(cost.confirmed_s(effort) for cost in costs) <= left_s:
            return effort, len(costs)
    least, count, total = EFFORTS[-1], 0, 0.0
    for cost in costs:
        total += cost.confirmed_s(least)
        if total > left_s:
            break
        count += 1
    return least, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a limit is divided before anything is known: seconds, and what the confirmation would do in its part.

    Attributes:
        members: of the front that fit, beside the baseline; at most `FRONT`.
    """

    limit_s: float
    search_s: float
    confirmation_s: float
    report_s: float
    members: int
    effort: Effort


def divided(limit_s: float, cost: Cost) -> Division:
    """The division of a limit where confirming one candidate costs so much."""
    report_s = _report_s(limit_s)
    work_s = limit_s - report_s
    confirmation_s = min((1 + FRONT) * cost.confirmed_s(FULL), CONFIRMATION_SHARE * work_s)
    effort, count = fitting([cost] * (1 + FRONT), confirmation_s)
    return Division(
        limit_s=limit_s,
        search_s=work_s - confirmation_s,
        confirmation_s=confirmation_s,
        report_s=report_s,
        members=max(0, count - 1),
        effort=effort,
    )


def _report_s(limit_s: float) -> float:
    return min(REPORT_S, REPORT_SHARE * limit_s)


class RunTime:
    """The time of one run; moments are those of `time.perf_counter`."""

    def __init__(self, limit_s: float, *, began: float | None = None) -> None:
        self.limit_s = limit_s
        self.began = time.perf_counter() if began is None else began

    @property
    def end(self) -> float:
        """When nothing may be measured any more; what is left of the limit is the report's."""
        return self.began + self.limit_s - _report_s(self.limit_s)

    @property
    def gone_s(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        return self.end - time.perf_counter()

    def search_end(self, experiment: Experiment, known: Mapping[str, Evaluation]) -> float:
        """When the search must end, so that what it has found can be confirmed.

        Until the baseline is complete there is nothing to confirm, and the search has all the time.
        """
        baseline = known.get(experiment.baseline.id)
        if baseline is None or baseline.status != "complete":
            return self.end
        members = [e for e in front_of(experiment, known) if e is not baseline] or [baseline]
        # until INT8 is measured, its measurement comes before a confirmation in full
        scored = (e for e in known.values() if e.measurement.accuracy is not None)
        effort = FULL if any(e.candidate.quantization.scheme != "none" for e in scored) else EFFORTS[-1]
        wanted_s = sum(known_cost(experiment, e, known).confirmed_s(effort) for e in (baseline, *members))
        return self.end - min(wanted_s, CONFIRMATION_SHARE * (self.end - self.began))

    def may_begin(self, experiment: Experiment, known: Mapping[str, Evaluation]) -> bool:
        """Whether there is time enough for one more candidate to come to something: half of what one mostly takes."""
        complete = [e.seconds for i, e in known.items() if e.status == "complete" and i != experiment.baseline.id]
        expected_s = statistics.median(complete) / 2 if complete else 0.0
        return time.perf_counter() + expected_s < self.search_end(experiment, known)
