"""Before a candidate's times are measured whole: whether it may still serve more than members that are as accurate.

Two cheap looks tell: all of its answers, and a few calls beside the float baseline. Of what the sweep has measured
whole, the logarithm of the service's throughput is a line in the logarithm of the speed-up, with one slope for all and
a level for each way of serving (threads, batch, bins): ordinary least squares, whose interval for another candidate
widens with its distance from what was measured. Who serves less than a member of the front for certain waits, as sets
of shapes do (`search.front`); a seeded share is measured whole all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.evaluation.reuse import is_audited
from workbench.inputs.experiment import Experiment
from workbench.search.front import THROUGHPUT, audit_failed, dominates, may_be_predicted
from workbench.search.stages.request import Request, StageResult
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.measurement import Estimate
from workbench.values.metrics import accuracy_metrics, metrics
from workbench.values.prediction import Prediction
from workbench.values.results import Evaluation
from workbench.values.reuse import error_of

CERTAIN = 0.99
"""Of both ends of a prediction. Where it says so of too many, the audits find it."""
FEWEST = 3
"""Degrees of freedom that the line must leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one candidate was timed at and serves; `how` is what its throughput depends on beside its speed."""

    how: str
    speedup: float
    throughput_per_s: float


def looks_first(request: Request, result: StageResult) -> bool:
    """Whether the candidate's times cost something, and a short look at them may tell enough."""
    emulated = request.bench.toolchain(request.candidate).emulated
    return (
        request.gated
        and not result.source("latency")
        and not emulated
        and may_look_first(request.experiment, request.candidate)
    )


def dominated(request: Request, result: StageResult) -> StageResult:
    """A stop where a member of the front is as accurate and serves more, for certain, by what was predicted."""
    latency, accuracy = result.measurement.latency, result.measurement.accuracy
    assert latency is not None  # both were looked at before
    assert accuracy is not None
    evaluations = request.bench.journal.evaluations()
    if audit_failed(evaluations.values()):
        return result
    known = served(evaluations.values())
    rate = predicted_rate(known, how(request.candidate), latency.speedup)
    if rate is None:
        return result
    prediction = Prediction(
        structure="",
        throughput_per_s=rate,
        accuracy=accuracy_metrics(accuracy)["accuracy"],
        basis=f"a short look at its times, {latency.speedup.value:.2f}x as fast as the float baseline, and what "
        f"{len(known)} candidates of this sweep were timed at and serve",
    )
    better = next((e for e in request.incumbents if dominates(metrics(e), prediction)), None)
    if better is None:
        return result
    result = replace(result, prediction=prediction)
    if is_audited(request.candidate, request.experiment.seed, "audit of its service"):
        return result
    return result.stopped(
        f"predicted to serve {rate.value:.0f}/s [{rate.low:.0f}, {rate.high:.0f}] by a short look at its times; "
        f"{better.candidate.short_id} is as accurate and serves {metrics(better)[THROUGHPUT]:.0f}/s"
    )


def may_look_first(experiment: Experiment, candidate: Candidate) -> bool:
    """Whether throughput and accuracy are all that counts, of a file that serves every shape."""
    return may_be_predicted(experiment) and not candidate.compile.one_file_a_shape()


def how(candidate: Candidate) -> str:
    """What decides a service's throughput beside the speed of a call."""
    return digest([candidate.target, candidate.serving])


def served(evaluations: Iterable[Evaluation]) -> list[Served]:
    """All whose service was searched over times of their own. A noisy machine shows in how they scatter."""
    measured = []
    for evaluation in evaluations:
        numbers, service = metrics(evaluation), evaluation.measurement.service
        if evaluation.status != "complete" or THROUGHPUT not in numbers or "speedup" not in numbers:
            continue
        reused = any(reuse.kind == "curve" and reuse.source for reuse in evaluation.reuse)
        if service is None or reused:
            continue
        measured.append(
            Served(how=how(evaluation.candidate), speedup=numbers["speedup"], throughput_per_s=numbers[THROUGHPUT])
        )
    return measured


def predicted_rate(known: Sequence[Served], how: str, speedup: Estimate) -> Estimate | None:
    """What a candidate of this speed-up would serve, its interval at `CERTAIN` on either side; None where too little
    is known to draw the line, or nothing of this way of serving.

    The interval is that of one more observation of a linear model (Draper and Smith, "Applied Regression Analysis",
    3rd edition, section 3.2), with the error of the speed-up beside it.
    """
    from scipy import special  # a quarter of a second that commands without a search need not spend

    ways = list(dict.fromkeys(each.how for each in known))
    free = len(known) - len(ways) - 1
    if how not in ways or free < FEWEST:
        return None
    x = np.log([each.speedup for each in known])
    y = np.log([each.throughput_per_s for each in known])
    design = np.array([[each.how == way for way in ways] for each in known], dtype=np.float64)
    design = np.column_stack([design, x])
    row = np.array([*(way == how for way in ways), math.log(speedup.value)], dtype=np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    if rank < design.shape[1]:
        return None  # all of one speed
    variance = float(((y - design @ fitted) ** 2).sum()) / free
    leverage = float(row @ np.linalg.inv(design.T @ design) @ row)
    error = math.hypot(math.sqrt(variance * (1 + leverage)), float(fitted[-1]) * error_of(speedup))
    value, reach = float(row @ fitted), float(special.stdtrit(free, CERTAIN)) * error
    low, middle, high = (math.exp(value + sign * reach) for sign in (-1, 0, 1))
    return Estimate(value=middle, low=low, high=high, confidence=2 * CERTAIN - 1)
