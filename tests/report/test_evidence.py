"""Front and recommendation follow the strongest evidence: under load on held-out data, held-out data, the search."""

from dataclasses import replace
from functools import partial

from tests.evaluations import candidate, estimate, evaluation, figures, service
from tests.report.summaries import chosen, held_out
from tests.report.summaries import judge as judged
from workbench.report import lines, to_json
from workbench.report.page import pareto_html
from workbench.report.rests_on import reuse_sentences
from workbench.tracking.run import candidate_tags
from workbench.values.evidence import LEVELS, level_of, said_of, weakest
from workbench.values.measurement import Estimate
from workbench.values.results import Evaluation
from workbench.values.reuse import Audit, Reuse

BASELINE = evaluation(served=service(200, p99_ms=100))
judge = partial(judged, baseline=BASELINE, objectives=("service_throughput_per_s", "accuracy"))


def searched(
    predicted_per_s: float, *, keep_float: int = 0, accuracy: float = 0.95, p99_ms: float = 60.0
) -> Evaluation:
    return evaluation(
        scheme="static",
        keep_float=keep_float,
        accuracy=accuracy,
        drop_pp=0.0,
        speedup=2.0,
        p50_ms=2.0,
        served=service(predicted_per_s, p99_ms=p99_ms),
    )


def loaded(found: Evaluation, per_s: Estimate, p99_ms: float = 60.0, accuracy: float = 0.94) -> Evaluation:
    """Confirmed on held-out data, and served under load."""
    known = found.measurement.service
    assert known is not None
    measured = replace(figures(per_s.value, p99_ms, measured=True), throughput_per_s=per_s)
    return held_out(found, replace(known, confirmed=measured), accuracy)


def test_the_measured_one_is_recommended_over_one_that_was_only_predicted_to_be_better() -> None:
    """427/s [365, 488] measured, 520 predicted and simpler, beside 494/s [473, 514] with a lower P99."""
    promised, proven = searched(520), searched(500, keep_float=2, accuracy=0.951)
    before = judge(promised, proven)
    after = judge(
        promised,
        proven,
        confirmed=[
            loaded(BASELINE, estimate(190)),
            loaded(promised, Estimate(value=427, low=365, high=488), p99_ms=70),
            loaded(proven, Estimate(value=494, low=473, high=514), p99_ms=50),
        ],
    )

    assert chosen(before) == promised.candidate.id
    assert chosen(after) == proven.candidate.id
    assert [m.id for m in after.front] == [proven.candidate.id]
    assert [m.id for m in after.fallen] == [promised.candidate.id]
    assert after.recommended is not None
    assert after.recommended.evidence == "measured held-out"
    assert f"{promised.candidate.short_id} looked better in service_throughput_per_s" in after.recommended.reason
    for text in (lines(after), pareto_html(after)):
        assert f"{proven.candidate.short_id} is better by the same evidence" in " ".join(text.split())
    data = to_json(after)
    assert [m["id"] for m in data["front"]] == [proven.candidate.id]
    assert {c["id"]: c["standing"] for c in data["candidates"]}[promised.candidate.id] == "dominated"


def test_simplicity_decides_only_where_no_measured_criterion_tells_two_apart() -> None:
    simple, fussy = searched(500), searched(510, keep_float=2)
    base, slow, quick = loaded(BASELINE, estimate(190)), loaded(simple, estimate(490)), loaded(fussy, estimate(495))

    alike = judge(simple, fussy, confirmed=[base, slow, quick])
    sooner = judge(simple, fussy, confirmed=[base, slow, loaded(fussy, estimate(495), p99_ms=40)])

    assert chosen(alike) == simple.candidate.id
    assert {m.letters for m in alike.front} == {"a"}
    assert chosen(sooner) == fussy.candidate.id


def test_a_prediction_is_not_held_against_a_measurement() -> None:
    measured, predicted = searched(500), searched(520, keep_float=2, accuracy=0.94)
    confirmed = [loaded(BASELINE, estimate(190)), loaded(measured, estimate(430))]

    waiting = judge(measured, predicted, confirmed=[*confirmed, held_out(predicted, service(500), 0.94)])

    assert chosen(waiting) == measured.candidate.id
    assert {m.id for m in waiting.front} == {measured.candidate.id, predicted.candidate.id}


def test_those_that_a_refused_one_hid_come_to_the_front() -> None:
    lucky, hidden = searched(520), searched(400, keep_float=2)
    refused = loaded(lucky, estimate(500), p99_ms=90)

    before = judge(lucky, hidden, limits={"service_p99_ms": 80.0})
    after = judge(lucky, hidden, confirmed=[refused], limits={"service_p99_ms": 80.0})

    assert [m.id for m in before.front] == [lucky.candidate.id]
    assert [m.id for m in after.front] == [hidden.candidate.id]
    assert "breaks service_p99_ms by 10 ms" in after.fallen[0].against


def test_a_load_that_must_not_be_relied_on_is_no_evidence() -> None:
    one = searched(500)
    doubtful = loaded(one, estimate(100))
    known = doubtful.measurement.service
    assert known is not None
    assert known.confirmed is not None
    served = replace(known, confirmed=replace(known.confirmed, reliable=False, note="the client was at its limit"))
    summary = judge(one, confirmed=[replace(doubtful, measurement=replace(doubtful.measurement, service=served))])

    assert summary.evidence(one) == "predicted"
    assert summary.numbers(summary.strongest(one))["service_throughput_per_s"] == 500


def test_what_rests_on_several_levels_is_worth_the_weakest() -> None:
    found = searched(500)
    emulated = replace(found, toolchain=replace(found.toolchain, emulated=True))

    assert [level_of(found, name) for name in ("accuracy", "speedup", "service_p99_ms")] == [
        "measured",
        "measured",
        "predicted",
    ]
    assert level_of(emulated, "accuracy") == "modelled"
    assert weakest(LEVELS) == "modelled"
    assert weakest([]) is None


def test_a_float_model_that_decides_all_alike_is_minded_beside_the_recommendation() -> None:
    of = BASELINE.measurement.accuracy
    assert of is not None
    said = replace(of, alike="The float model decides all alike.")
    alike = replace(BASELINE, measurement=replace(BASELINE.measurement, accuracy=said))

    assert "Mind: The float model decides all alike." in lines(judge(searched(300), baseline=alike))
    assert "decides all alike" not in lines(judge(searched(300)))


# --- whose times a candidate took, and what became of wrong ones ---------------------------------------------------


KEY = "a" * 64
SOURCE = evaluation(threads=1)
REUSER = replace(
    evaluation(threads=2, served=service()),
    reuse=(
        Reuse(kind="latency", key=KEY, source=SOURCE.candidate.id),
        Reuse(kind="curve", key=KEY, source=SOURCE.candidate.id),
    ),
)
SHORT = SOURCE.candidate.short_id


def test_a_reused_time_is_shared_and_names_its_source() -> None:
    assert level_of(REUSER, "latency_p50_ms") == "shared"
    assert said_of(REUSER, "speedup") == f"shared with {SHORT}"
    assert said_of(REUSER, "service_p99_ms") == f"predicted from times shared with {SHORT}"
    assert said_of(REUSER, "accuracy") == "measured"
    tags = candidate_tags(REUSER, "1", feasible=True)
    assert tags["shared_with"] == f"latency of {SHORT}, curve of {SHORT}"
    assert candidate_tags(SOURCE, "1", feasible=True)["shared_with"] == ""


def test_each_stopped_kind_has_a_sentence() -> None:
    audit = Audit(source=SOURCE.candidate.id, ratio=estimate(1.5), agrees=False)
    finder = replace(evaluation(threads=3), reuse=(Reuse(kind="latency", key=KEY, audit=audit),))
    anew = replace(evaluation(threads=4), reuse=(Reuse(kind="latency", key=KEY, replaces=SOURCE.candidate.id),))

    (sentence,) = reuse_sentences([SOURCE, REUSER, finder, anew])

    assert f"{candidate(threads=3).short_id} took 1.50x [1.47, 1.53] what {SHORT}" in sentence
    assert f"Measured anew: {candidate(threads=4).short_id}." in sentence
    assert f"doubtful: {candidate(threads=2).short_id};" in sentence
    assert reuse_sentences([SOURCE, REUSER]) == []
