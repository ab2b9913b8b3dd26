"""Which measurements are reused, which are audited, and what wrong reuse does to the others of its kind."""

from dataclasses import replace

import numpy as np
import pytest

from tests.evaluations import candidate, estimate, evaluation, latency, service
from workbench.evaluation.reuse import AUDITED, doubtful, instead_of, is_audited, reusable_for, stopped_kinds
from workbench.values.candidate import Candidate, Serving
from workbench.values.measurement import Latency
from workbench.values.results import Evaluation, Stop, evaluation_from_json
from workbench.values.reuse import BETWEEN, Audit, Reuse, audit_of_curve, audit_of_latency, between

KEY, OTHER_KEY = "a" * 64, "b" * 64


def known(*evaluations: Evaluation) -> dict[str, Evaluation]:
    return {each.candidate.id: each for each in evaluations}


def with_latency(of: Evaluation, *reuse: Reuse, changed: Latency | None = None) -> Evaluation:
    measurement = of.measurement if changed is None else replace(of.measurement, latency=changed)
    return replace(of, reuse=reuse, measurement=measurement)


def own(key: str = KEY) -> Reuse:
    return Reuse(kind="latency", key=key)


def audited(*, agrees: bool | None) -> Reuse:
    return replace(own(), audit=Audit(source=candidate().id, ratio=estimate(1.5), agrees=agrees))


FIRST = evaluation(threads=1)
REUSED = Reuse(kind="latency", key=KEY, source=FIRST.candidate.id)


def test_what_was_measured_is_reused_under_its_key() -> None:
    later = with_latency(evaluation(threads=2, started_at="2026-01-02T00:00:00+00:00"), own())
    first = with_latency(FIRST, own())

    reusable = reusable_for(candidate(threads=3), known(later, first), seed=0)

    assert reusable.sources == {KEY: FIRST.candidate.id}  # the first of two
    assert reusable_for(FIRST.candidate, known(first), seed=0).sources == {}  # nobody reuses his own


@pytest.mark.parametrize(
    "doubtful",
    [
        with_latency(FIRST, own(), changed=replace(latency(4.0, 1.0), quiet=False, holds=False)),
        with_latency(FIRST, replace(own(), source=candidate(threads=9).id)),
        with_latency(evaluation(stop=Stop(stage="latency_short", reason="slow")), own()),
        replace(with_latency(FIRST, own()), cut=("50 of 1000 timed calls",)),
    ],
    ids=["a noisy machine", "itself reused", "stopped early", "cut short"],
)
def test_what_is_not_a_measurement_of_its_own_is_not_reused(doubtful: Evaluation) -> None:
    assert reusable_for(candidate(threads=2), known(doubtful), seed=0).sources == {}


def test_a_machine_that_only_changed_its_speed_spoils_no_ratio() -> None:
    slowed = with_latency(FIRST, own(), changed=replace(latency(4.0, 1.0), quiet=False, holds=True))

    assert reusable_for(candidate(threads=2), known(slowed), seed=0).sources == {KEY: FIRST.candidate.id}


def test_a_curve_from_a_noisy_machine_is_not_reused() -> None:
    served = service()
    reuse = Reuse(kind="curve", key=KEY)
    quiet = replace(evaluation(served=served), reuse=(reuse,))
    noisy = replace(
        evaluation(served=replace(served, curve=replace(served.curve, quiet=False))),
        reuse=(reuse,),
    )

    assert reusable_for(candidate(threads=2), known(quiet), seed=0).sources == {KEY: FIRST.candidate.id}
    assert reusable_for(candidate(threads=2), known(noisy), seed=0).sources == {}


def test_a_wrong_reuse_stops_its_kind_and_what_was_reused_is_doubtful() -> None:
    source = with_latency(FIRST, own(), Reuse(kind="curve", key=OTHER_KEY))
    source = replace(source, measurement=replace(source.measurement, service=service()))
    reuser = with_latency(evaluation(threads=2), REUSED)
    curve_reuser = with_latency(evaluation(threads=3), Reuse(kind="curve", key=OTHER_KEY, source=FIRST.candidate.id))
    finder = with_latency(evaluation(threads=4), audited(agrees=False))
    everyone = known(source, reuser, curve_reuser, finder)

    reusable = reusable_for(candidate(threads=5), everyone, seed=0)

    assert stopped_kinds(everyone.values()) == reusable.stopped == ("onnxruntime latency",)
    assert reusable.sources == {OTHER_KEY: FIRST.candidate.id}
    assert doubtful(tuple(everyone.values())) == (reuser.candidate,)


@pytest.mark.parametrize("agrees", [True, None], ids=["right", "not to be told"])
def test_other_audits_stop_nothing(agrees: bool | None) -> None:
    everyone = known(
        with_latency(FIRST, own()),
        with_latency(evaluation(threads=2), REUSED),
        with_latency(evaluation(threads=4), audited(agrees=agrees)),
    )

    assert stopped_kinds(everyone.values()) == ()
    assert doubtful(tuple(everyone.values())) == ()


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
    reused = service().curve
    slower = replace(reused, points=tuple(replace(p, p50_ms=estimate(p.p50_ms.value * 1.3)) for p in reused.points))

    assert audit_of_curve(reused, reused, "x").agrees is True
    assert audit_of_curve(slower, reused, "x").agrees is False
    assert audit_of_curve(slower, reused, "x").ratio.value == pytest.approx(1.3)


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
    own, reused = latency(4.0, 1.5), latency(4.0, 1.2)
    assert audit_of_latency(own, reused, "x").agrees is False
    assert audit_of_latency(own, reused, "x", between=between(unsteady)).agrees is True


def test_what_replaces_a_wrongly_reused_measurement_says_so() -> None:
    (reuse,) = instead_of((REUSED,), (own(),))

    assert reuse.replaces == FIRST.candidate.id
    assert instead_of((), (own(),)) == (own(),)


def test_reuse_is_stored_with_its_evaluation_and_read_under_its_earlier_names() -> None:
    stored = with_latency(FIRST, audited(agrees=True))

    assert evaluation_from_json(stored.to_json()) == stored
    assert "reuse" not in FIRST.to_json()
    now = stored.to_json()
    reuse = [{("lender" if k == "source" else k): v for k, v in one.items()} for one in now.pop("reuse")]
    reuse[0]["audit"]["lender"] = reuse[0]["audit"].pop("source")
    assert evaluation_from_json({**now, "facts": reuse}) == stored
