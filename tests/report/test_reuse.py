"""How reports say whose times a candidate took, and what became of wrong reusable."""

from dataclasses import replace

from tests.evaluations import candidate, estimate, evaluation, service
from workbench.report.rests_on import reuse_sentences
from workbench.tracking.run import candidate_tags
from workbench.values.evidence import level_of, said_of
from workbench.values.reuse import Audit, Reuse

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
