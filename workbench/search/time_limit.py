"""The time limit of a run, which covers all of it: search, confirmation on held-out data, loads, and the report.

The search gives way to the confirmation: it ends early enough for the front it has found to be confirmed, up to a
share of the limit. The confirmation is cut to what is left. What is in flight at the end is ended.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from workbench.inputs.experiment import Experiment
from workbench.load.result import P99_ANSWERS
from workbench.search.effort import EFFORTS, FULL, Effort
from workbench.search.forecast import Cost
from workbench.search.front import front_of
from workbench.search.stages.accuracy import SEARCHED
from workbench.shipping.load_confirmation import LONGEST_LOAD, load_seconds
from workbench.values.evidence import source_of
from workbench.values.results import Evaluation

REPORT_S, REPORT_SHARE = 10.0, 0.2
"""For MLflow, the pages and the report, which nothing cuts short; at most this share of the limit is kept for them."""
CONFIRMATION_SHARE = 1 / 3
"""Of what is left for search and confirmation, the most that the confirmation takes from a search that goes on."""
FRONT = 5
"""Members that a front is taken to have before one is known, so that there is room for them."""
USUAL_FRONT = 3
"""Members that it mostly has."""
TIMING = 1.1
"""Calls that are made for every one that counts."""


def confirmation_cost(experiment: Experiment, searched: Cost, call_ms: float, rows: float) -> Cost:
    """Before anything is measured, of the baseline and the members of a usual front in the mean.

    Args:
        searched: of a candidate in the search.
        call_ms: of the float model.
        rows: of mean length, that one call of each shape of a candidate computes.
    """
    service, sizes = experiment.service, [experiment.dataset.size(split) for split in ("holdout", "validation")]
    load_s = 0.0
    if service is not None and searched.calls_s:
        slowest_s = min(max(service.confirm_s, 1.5 * P99_ANSWERS * call_ms / 1000), LONGEST_LOAD * service.confirm_s)
        load_s = (slowest_s + USUAL_FRONT * service.confirm_s) / (1 + USUAL_FRONT)
    return replace(
        searched,
        samples_s=searched.samples_s * (sizes[0] + _compared(sizes[0]) + rows) / sizes[1],
        curve_s=0.0 if load_s else searched.curve_s + searched.row_s * rows,
        load_s=load_s,
        asked_load_s=service.confirm_s if service is not None else 0.0,
    )


def known_cost(experiment: Experiment, evaluation: Evaluation | None, known: Mapping[str, Evaluation]) -> Cost:
    """From what its evaluation in the search took, nothing where it has none; the service stage as it mostly takes,
    since the first one of a machine measures the host too. A confirmation reuses nothing: what was reused costs what
    it cost its sources."""
    latency = evaluation.measurement.latency if evaluation is not None else None
    if evaluation is None or latency is None:
        return Cost()
    took = {stage.stage: stage.seconds for stage in evaluation.stages}
    call_ms = latency.mean_ms + latency.baseline_p50_ms
    calls_s = experiment.measure.calls * call_ms * TIMING / 1000
    around_s = 0.0  # of the stage that times calls, what is not calls
    if source_of(evaluation, "latency") is None:
        asked = experiment.measure.calls / latency.samples  # by so much more than a search with less effort timed
        calls_s = min(calls_s, asked * took.get("latency_full", 0.0))
        around_s = took.get("latency_full", 0.0) - calls_s / asked
    accuracy, size = evaluation.measurement.accuracy, experiment.dataset.size("holdout")
    scored_s = took.get("accuracy_subset", 0.0) + took.get("accuracy_full", 0.0)
    scored_s *= (size + _compared(size)) / (
        experiment.dataset.size("validation") if accuracy is None else accuracy.samples
    )
    timed = [e for e in known.values() if e.status == "complete" and source_of(e, "curve") is None]
    curves = [stage.seconds for each in timed for stage in each.stages if stage.stage == "service"]
    curve_s = statistics.median(curves) if curves else 0.0
    if predicted_by_search(experiment, evaluation):
        curve_s = 0.0
    elif source_of(evaluation, "curve") is None:
        curve_s = min(took.get("service", 0.0), curve_s)
    return Cost(
        opening_s=sum(took.get(stage, 0.0) for stage in ("check", "smoke")) + around_s,
        calls_s=calls_s,
        samples_s=max(scored_s, size * experiment.dataset.calls_a_sample * latency.mean_ms / latency.batch / 1000),
        curve_s=curve_s,
        load_s=_load_s(experiment, evaluation),
        asked_load_s=experiment.service.confirm_s if experiment.service is not None else 0.0,
    )


def _compared(size: int) -> int:
    """Answers that the fidelity of a confirmation takes besides: of the candidate and of the float baseline."""
    return 2 * min(size, SEARCHED.samples or size)


def predicted_by_search(experiment: Experiment, searched: Evaluation | None) -> bool:
    """Whether a confirmation leaves the batch curve to the search: it was timed on this very candidate, on a quiet
    machine, and a load measures the service itself next."""
    question = experiment.service
    service = searched.measurement.service if searched is not None else None
    if question is None or question.confirm_s <= 0 or searched is None or service is None or service.best is None:
        return False
    return service.curve.quiet and source_of(searched, "curve") is None and not searched.toolchain.emulated


def _load_s(experiment: Experiment, evaluation: Evaluation) -> float:
    service, question = evaluation.measurement.service, experiment.service
    if question is None or question.confirm_s <= 0 or service is None or service.best is None:
        return 0.0
    return 0.0 if evaluation.toolchain.emulated else load_seconds(service.best, question.confirm_s)


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """What one of several takes in the mean."""
    return Cost(**{f.name: statistics.fmean(getattr(cost, f.name) for cost in costs) for f in fields(Cost)})


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
    wanted_s = (1 + FRONT) * cost.confirmed_s(FULL)
    confirmation_s = min(wanted_s, CONFIRMATION_SHARE * work_s)
    effort, count = fitting([cost] * (1 + FRONT), confirmation_s)
    return Division(
        limit_s=limit_s,
        search_s=work_s - confirmation_s,
        confirmation_s=confirmation_s,
        report_s=report_s,
        members=max(0, count - 1),
        effort=effort,
    )


def least_limit_s(search_s: float, cost: Cost) -> float:
    """The shortest limit with so much time for the search and for confirming the baseline and one member in full."""
    confirmation_s = 2 * cost.confirmed_s(FULL)
    return max(search_s + confirmation_s, search_s / (1 - CONFIRMATION_SHARE)) + REPORT_S


def _report_s(limit_s: float) -> float:
    return min(REPORT_S, REPORT_SHARE * limit_s)


def has_int8(known: Mapping[str, Evaluation]) -> bool:
    """Whether an INT8 candidate was measured: at least what it answers."""
    return any(e.candidate.quantization.scheme != "none" and e.measurement.accuracy is not None for e in known.values())


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
        effort = FULL if has_int8(known) else EFFORTS[-1]
        wanted_s = sum(known_cost(experiment, e, known).confirmed_s(effort) for e in (baseline, *members))
        return self.end - min(wanted_s, CONFIRMATION_SHARE * (self.end - self.began))

    def may_begin(self, experiment: Experiment, known: Mapping[str, Evaluation]) -> bool:
        """Whether there is time enough for one more candidate to come to something: half of what one mostly takes."""
        complete = [e.seconds for i, e in known.items() if e.status == "complete" and i != experiment.baseline.id]
        expected_s = statistics.median(complete) / 2 if complete else 0.0
        return time.perf_counter() + expected_s < self.search_end(experiment, known)
