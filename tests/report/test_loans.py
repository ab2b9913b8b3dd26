"""How reports say whose times a candidate took, and what became of wrong loans."""

from dataclasses import replace

from tests.evaluations import candidate, estimate, evaluation, service
from workbench.report.loans import loan_sentences
from workbench.tracking.run import candidate_tags
from workbench.values.evidence import level_of, said_of
from workbench.values.facts import Audit, Fact

KEY = "a" * 64
LENDER = evaluation(threads=1)
BORROWER = replace(
    evaluation(threads=2, served=service()),
    facts=(
        Fact(kind="latency", key=KEY, lender=LENDER.candidate.id),
        Fact(kind="curve", key=KEY, lender=LENDER.candidate.id),
    ),
)
SHORT = LENDER.candidate.short_id


def test_a_borrowed_time_is_shared_and_names_its_lender() -> None:
    assert level_of(BORROWER, "latency_p50_ms") == "shared"
    assert said_of(BORROWER, "speedup") == f"shared with {SHORT}"
    assert said_of(BORROWER, "service_p99_ms") == f"predicted from times shared with {SHORT}"
    assert said_of(BORROWER, "accuracy") == "measured"
    tags = candidate_tags(BORROWER, "1", feasible=True)
    assert tags["shared_with"] == f"latency of {SHORT}, curve of {SHORT}"
    assert candidate_tags(LENDER, "1", feasible=True)["shared_with"] == ""


def test_each_stopped_kind_has_a_sentence() -> None:
    audit = Audit(lender=LENDER.candidate.id, ratio=estimate(1.5), agrees=False)
    finder = replace(evaluation(threads=3), facts=(Fact(kind="latency", key=KEY, audit=audit),))
    anew = replace(evaluation(threads=4), facts=(Fact(kind="latency", key=KEY, replaces=LENDER.candidate.id),))

    (sentence,) = loan_sentences([LENDER, BORROWER, finder, anew])

    assert f"{candidate(threads=3).short_id} took 1.50x [1.47, 1.53] what {SHORT}" in sentence
    assert f"Measured anew: {candidate(threads=4).short_id}." in sentence
    assert f"doubtful: {candidate(threads=2).short_id};" in sentence
    assert loan_sentences([LENDER, BORROWER]) == []
