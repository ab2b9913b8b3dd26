"""Which measurements are lent, which are audited, and what a wrong loan does to the others of its kind."""

from dataclasses import replace

import numpy as np
import pytest

from tests.evaluations import candidate, estimate, evaluation, latency, service
from workbench.evaluation.facts import AUDITED, instead_of, is_audited, loans_for, owed, stopped_kinds
from workbench.values.candidate import Candidate, Serving
from workbench.values.facts import BETWEEN, Audit, Fact, audit_of_curve, audit_of_latency, between
from workbench.values.measurement import Latency
from workbench.values.results import Evaluation, Stop, evaluation_from_json

KEY, OTHER_KEY = "a" * 64, "b" * 64


def known(*evaluations: Evaluation) -> dict[str, Evaluation]:
    return {each.candidate.id: each for each in evaluations}


def with_latency(of: Evaluation, *facts: Fact, changed: Latency | None = None) -> Evaluation:
    measurement = of.measurement if changed is None else replace(of.measurement, latency=changed)
    return replace(of, facts=facts, measurement=measurement)


def own(key: str = KEY) -> Fact:
    return Fact(kind="latency", key=key)


def audited(*, agrees: bool | None) -> Fact:
    return replace(own(), audit=Audit(lender=candidate().id, ratio=estimate(1.5), agrees=agrees))


FIRST = evaluation(threads=1)
LENT = Fact(kind="latency", key=KEY, lender=FIRST.candidate.id)


def test_what_was_measured_is_lent_under_its_key() -> None:
    later = with_latency(evaluation(threads=2, started_at="2026-01-02T00:00:00+00:00"), own())
    first = with_latency(FIRST, own())

    loans = loans_for(candidate(threads=3), known(later, first), seed=0)

    assert loans.lenders == {KEY: FIRST.candidate.id}  # the first of two
    assert loans_for(FIRST.candidate, known(first), seed=0).lenders == {}  # nobody borrows from himself


@pytest.mark.parametrize(
    "doubtful",
    [
        with_latency(FIRST, own(), changed=replace(latency(4.0, 1.0), quiet=False, holds=False)),
        with_latency(FIRST, replace(own(), lender=candidate(threads=9).id)),
        with_latency(evaluation(stop=Stop(stage="latency_short", reason="slow")), own()),
        replace(with_latency(FIRST, own()), cut=("50 of 1000 timed calls",)),
    ],
    ids=["a noisy machine", "itself borrowed", "stopped early", "cut short"],
)
def test_what_is_not_a_measurement_of_its_own_is_not_lent(doubtful: Evaluation) -> None:
    assert loans_for(candidate(threads=2), known(doubtful), seed=0).lenders == {}


def test_a_machine_that_only_changed_its_speed_spoils_no_ratio() -> None:
    slowed = with_latency(FIRST, own(), changed=replace(latency(4.0, 1.0), quiet=False, holds=True))

    assert loans_for(candidate(threads=2), known(slowed), seed=0).lenders == {KEY: FIRST.candidate.id}


def test_a_curve_from_a_noisy_machine_is_not_lent() -> None:
    served = service()
    fact = Fact(kind="curve", key=KEY)
    quiet = replace(evaluation(served=served), facts=(fact,))
    noisy = replace(
        evaluation(served=replace(served, curve=replace(served.curve, quiet=False))),
        facts=(fact,),
    )

    assert loans_for(candidate(threads=2), known(quiet), seed=0).lenders == {KEY: FIRST.candidate.id}
    assert loans_for(candidate(threads=2), known(noisy), seed=0).lenders == {}


def test_a_wrong_loan_stops_its_kind_and_what_was_borrowed_is_owed() -> None:
    lender = with_latency(FIRST, own(), Fact(kind="curve", key=OTHER_KEY))
    lender = replace(lender, measurement=replace(lender.measurement, service=service()))
    borrower = with_latency(evaluation(threads=2), LENT)
    curve_borrower = with_latency(evaluation(threads=3), Fact(kind="curve", key=OTHER_KEY, lender=FIRST.candidate.id))
    finder = with_latency(evaluation(threads=4), audited(agrees=False))
    everyone = known(lender, borrower, curve_borrower, finder)

    loans = loans_for(candidate(threads=5), everyone, seed=0)

    assert stopped_kinds(everyone.values()) == loans.stopped == ("onnxruntime latency",)
    assert loans.lenders == {OTHER_KEY: FIRST.candidate.id}
    assert owed(tuple(everyone.values())) == (borrower.candidate,)


@pytest.mark.parametrize("agrees", [True, None], ids=["right", "not to be told"])
def test_other_audits_stop_nothing(agrees: bool | None) -> None:
    everyone = known(
        with_latency(FIRST, own()),
        with_latency(evaluation(threads=2), LENT),
        with_latency(evaluation(threads=4), audited(agrees=agrees)),
    )

    assert stopped_kinds(everyone.values()) == ()
    assert owed(tuple(everyone.values())) == ()


def test_a_seeded_share_is_audited() -> None:
    candidates = [Candidate(target="onnxruntime", serving=Serving(batch=number)) for number in range(1, 401)]

    drawn = [is_audited(each, seed=7) for each in candidates]

    assert AUDITED - 0.08 < sum(drawn) / len(drawn) < AUDITED + 0.08
    assert drawn == [is_audited(each, seed=7) for each in candidates]
    assert drawn != [is_audited(each, seed=8) for each in candidates]


def test_an_audit_compares_what_no_drift_touches() -> None:
    """The machine ran at half its speed: times are twice as long, the speed-up is what it was."""
    first, slower = latency(4.0, 1.5), latency(8.0, 1.5, drift=2.0)

    assert audit_of_latency(slower, first, "x").agrees is True
    assert audit_of_latency(latency(4.0, 1.0), first, "x").agrees is False
    assert audit_of_latency(latency(4.0, 1.0), first, "x").ratio.value == pytest.approx(1.5)


def test_noise_finds_only_gross_differences() -> None:
    noisy = replace(latency(4.0, 1.5), quiet=False)

    assert audit_of_latency(noisy, latency(4.0, 2.0), "x").agrees is None
    assert audit_of_latency(noisy, latency(4.0, 1.5), "x").agrees is None
    assert audit_of_latency(noisy, latency(4.0, 6.0), "x").agrees is False


def test_curves_are_compared_over_all_their_points() -> None:
    lent = service().curve
    slower = replace(lent, points=tuple(replace(p, p50_ms=estimate(p.p50_ms.value * 1.3)) for p in lent.points))

    assert audit_of_curve(lent, lent, "x").agrees is True
    assert audit_of_curve(slower, lent, "x").agrees is False
    assert audit_of_curve(slower, lent, "x").ratio.value == pytest.approx(1.3)


def test_an_honest_class_is_hardly_ever_stopped_and_a_false_one_is_found() -> None:
    """Measurements of one artifact that differ by more than their rounds say, as they do between processes."""
    generator = np.random.default_rng(0)

    def measured(speedup: float) -> Latency:
        return latency(4.0, float(speedup * np.exp(generator.normal(0, BETWEEN))))

    def stopped(truth: float, count: int) -> float:
        audits = [audit_of_latency(measured(truth), measured(1.5), "x") for _ in range(count)]
        return sum(audit.agrees is False for audit in audits) / count

    assert stopped(1.5, 20_000) < 0.002
    assert stopped(1.5 * 1.25, 500) > 0.9


def test_a_sweep_that_repeats_itself_badly_asks_more_of_an_audit() -> None:
    steady = [estimate(ratio, 0.01) for ratio in (1.0, 1.01, 0.99, 1.005, 1.0)]
    unsteady = [estimate(ratio, 0.01) for ratio in (1.3, 0.8, 1.15, 0.85, 1.2)]

    assert between(steady) == between(unsteady[:4]) == BETWEEN  # four are too few to say anything
    assert between(unsteady) > 3 * BETWEEN
    own, lent = latency(4.0, 1.5), latency(4.0, 1.2)
    assert audit_of_latency(own, lent, "x").agrees is False
    assert audit_of_latency(own, lent, "x", between=between(unsteady)).agrees is True


def test_what_replaces_a_wrong_loan_says_so() -> None:
    (fact,) = instead_of((LENT,), (own(),))

    assert fact.replaces == FIRST.candidate.id
    assert instead_of((), (own(),)) == (own(),)


def test_facts_are_stored_with_their_evaluation_and_older_ones_have_none() -> None:
    stored = with_latency(FIRST, audited(agrees=True))

    assert evaluation_from_json(stored.to_json()) == stored
    assert "facts" not in FIRST.to_json()
