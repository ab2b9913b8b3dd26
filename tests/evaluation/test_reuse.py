"""Which measurements are reused, which are audited, and what wrong reuse does to the others of its kind."""

from dataclasses import replace

import pytest

from tests.evaluations import candidate, estimate, evaluation, latency, service
from workbench.evaluation.reuse import doubtful, reusable_for, stopped_kinds
from workbench.values.measurement import Latency
from workbench.values.results import Evaluation, Prediction, Stop, evaluation_from_json
from workbench.values.reuse import Audit, Reuse, audit_of_latency

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


def test_what_was_measured_is_reused_under_its_key_by_others() -> None:
    later = with_latency(evaluation(threads=2, started_at="2026-01-02T00:00:00+00:00"), own())
    first = with_latency(FIRST, own())

    assert reusable_for(candidate(threads=3), known(later, first), seed=0).sources == {KEY: FIRST.candidate.id}
    assert reusable_for(FIRST.candidate, known(first), seed=0).sources == {}


def test_what_is_not_a_measurement_of_its_own_is_not_reused() -> None:
    changed = replace(latency(4.0, 1.0), quiet=False, holds=True)
    curve = Reuse(kind="curve", key=KEY)
    noisy = replace(service(), curve=replace(service().curve, quiet=False))
    for why, one, reused in (
        ("a noisy machine", with_latency(FIRST, own(), changed=replace(changed, holds=False)), False),
        ("one that only changed its speed", with_latency(FIRST, own(), changed=changed), True),
        ("itself reused", with_latency(FIRST, replace(own(), source=candidate(threads=9).id)), False),
        ("stopped early", with_latency(evaluation(stop=Stop(stage="latency_short", reason="slow")), own()), False),
        ("cut short", replace(with_latency(FIRST, own()), cut=("50 of 1000 timed calls",)), False),
        ("a curve", replace(evaluation(served=service()), reuse=(curve,)), True),
        ("a curve of a noisy machine", replace(evaluation(served=noisy), reuse=(curve,)), False),
    ):
        found = reusable_for(candidate(threads=2), known(one), seed=0).sources
        assert found == ({KEY: FIRST.candidate.id} if reused else {}), why


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
    for agrees in (True, None):
        others = known(source, reuser, with_latency(evaluation(threads=4), audited(agrees=agrees)))
        assert stopped_kinds(others.values()) == doubtful(tuple(others.values())) == ()


def test_an_audit_compares_what_no_drift_touches() -> None:
    """The machine ran at half its speed: times are twice as long, the speed-up is what it was."""
    first, slower = latency(4.0, 1.5), latency(8.0, 1.5, drift=2.0)

    assert audit_of_latency(slower, first, "x").agrees is True
    assert audit_of_latency(latency(4.0, 1.0), first, "x").agrees is False
    assert audit_of_latency(latency(4.0, 1.0), first, "x").ratio.value == pytest.approx(1.5)
    noisy = replace(latency(4.0, 1.5), quiet=False)
    found = [audit_of_latency(noisy, latency(4.0, speedup), "x").agrees for speedup in (2.0, 1.5, 6.0)]
    assert found == [None, None, False], "noise finds only gross differences"


def test_reuse_is_stored_with_its_evaluation_and_read_under_its_earlier_names() -> None:
    stored = with_latency(FIRST, audited(agrees=True))

    assert evaluation_from_json(stored.to_json()) == stored
    assert "reuse" not in FIRST.to_json()
    now = stored.to_json()
    reuse = [{("lender" if k == "source" else k): v for k, v in one.items()} for one in now.pop("reuse")]
    reuse[0]["audit"]["lender"] = reuse[0]["audit"].pop("source")
    assert evaluation_from_json({**now, "facts": reuse}) == stored
    predicted = replace(FIRST, prediction=Prediction(structure="s", accuracy=0.9))
    earlier = predicted.to_json()
    earlier["forecast"] = earlier.pop("prediction")
    assert evaluation_from_json(earlier) == predicted
