"""What a sweep advises on its space, from measured differences alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.evaluations import evaluation, service
from tests.report.summaries import BASELINE, judge
from workbench.report.advice import LEAST_CANDIDATES, advise
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar
from workbench.values.objectives import Objective
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse

OFFERED: dict[str, tuple[Scalar, ...]] = {
    "quantization.scheme": ("none", "dynamic", "static"),
    "quantization.keep_float": (0, 1, 2, 4),
    "serving.intra_op_threads": (1, 2, 4, 8),
}


def static(keep_float: int, threads: int, speedup: float) -> Evaluation:
    return evaluation(
        scheme="static", keep_float=keep_float, threads=threads, drop_pp=0.1, p50_ms=4 / speedup, speedup=speedup
    )


def swept() -> list[Evaluation]:
    """Threads decide; keep_float changes nothing; dynamic loses to static everywhere."""
    speed = {1: 1.5, 2: 2.0, 4: 2.5, 8: 3.0}
    found = [static(keep, threads, speed[threads] * (1 + keep / 1000)) for keep in (0, 1, 2, 4) for threads in (1, 8)]
    found += [static(0, threads, speed[threads]) for threads in (2, 4)]
    found += [
        evaluation(scheme="dynamic", threads=t, drop_pp=0.2, p50_ms=4 / (0.6 * speed[t]), speedup=0.6 * speed[t])
        for t in (1, 2, 4)
    ]
    return [BASELINE, *found]


def assignment(of: Candidate) -> dict[str, Scalar]:
    known = of.parameters()
    return {name: known[name] for name in OFFERED if name in known}


def advised(found: Sequence[Evaluation]) -> list[str]:
    chosen = {e.candidate.id: assignment(e.candidate) for e in found}
    return advise(judge(*found[1:]), lambda *_: None, chosen, OFFERED)


def unseen(said: list[str]) -> list[str]:
    return [one for one in said if "no difference beyond noise" in one]


def test_what_made_no_difference_always_lost_or_won_at_the_edge_is_named_with_its_bound() -> None:
    same, lost, edge = advised(swept())
    assert same.startswith("quantization.keep_float: no difference beyond noise in 12 pairs")
    assert same.endswith("at most 3.3 % of speed and 0.42 pp"), "0.4 % and what two intervals of 2 % leave open"
    # six pairs to static, one to float
    assert lost == "quantization.scheme dynamic: lost for certain in all 7 pairs that differ in it alone"
    assert edge == "serving.intra_op_threads: 8 won and is the largest on offer: a larger one may be better"
    assert not unseen(advised([*swept(), static(4, 2, 1.5)])), "one pair that differs keeps a dimension"


def test_that_all_candidates_with_a_choice_were_beaten_says_nothing_without_pairs() -> None:
    found = [e for e in swept() if e.candidate.quantization.scheme != "dynamic"]
    found += [evaluation(scheme="dynamic", threads=t, drop_pp=0.2, p50_ms=4.0, speedup=1.0) for t in (16, 32, 64)]

    assert not [one for one in advised(found) if "lost for certain" in one]


def test_candidates_of_one_class_with_equal_outcomes_are_pairs_wherever_they_differ() -> None:
    """No two differ in one dimension alone, so that only what they are made of tells."""
    found = [BASELINE]
    for algorithm, shift in (("minmax", 0), ("mse", 1)):
        for place, keep in enumerate((0, 1, 2, 4)):
            own = replace(static(keep, 2 ** ((place + shift) % 4), 2.0), reuse=(Reuse(kind="latency", key="same"),))
            settings = replace(own.candidate.quantization, algorithm=algorithm)
            found.append(replace(own, candidate=replace(own.candidate, quantization=settings)))
    algorithms = {e.candidate.id: e.candidate.quantization.algorithm for e in found}
    chosen = {e.candidate.id: assignment(e.candidate) | {"algorithm": algorithms[e.candidate.id]} for e in found}
    offered = {name: OFFERED[name] for name in ("quantization.keep_float", "serving.intra_op_threads")}
    outcomes = np.ones(50, dtype=np.bool_)

    told = unseen(advise(judge(*found[1:]), lambda *_: outcomes, chosen, offered))
    unknown = unseen(advise(judge(*found[1:]), lambda *_: None, chosen, offered))

    assert {one.partition(":")[0] for one in told} == set(offered)
    assert "or are equal by content" in told[0]
    assert unknown == []


def test_few_candidates_and_modelled_times_advise_nothing() -> None:
    few = "7 candidates measured to the end: too few to say which dimensions matter; 8 are needed."
    assert advised(swept()[: LEAST_CANDIDATES - 1]) == [few]
    emulated = [replace(e, toolchain=replace(e.toolchain, emulated=True)) for e in swept()]
    (modelled,) = advised(emulated)
    assert "Its times are modelled" in modelled


def test_a_prediction_may_keep_a_dimension_and_drops_none() -> None:
    """Alike in every measurement; the predicted service tells them apart."""
    found = [
        replace(e, measurement=replace(e.measurement, service=service(500 + 100 * e.candidate.quantization.keep_float)))
        if e.candidate.quantization.scheme == "static"
        else replace(e, measurement=replace(e.measurement, service=service(300)))
        for e in swept()
    ]
    chosen = {e.candidate.id: assignment(e.candidate) for e in found}
    summary = replace(judge(*found[1:]), objectives=(Objective(metric="service_throughput_per_s"),))

    assert not unseen(advise(summary, lambda *_: None, chosen, OFFERED))
