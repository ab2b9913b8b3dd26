"""What a sweep says first: at most 25 lines and 100 columns, whatever there is to say."""

from dataclasses import replace

from tests.report.summaries import chosen, judge, member
from workbench.report.brief import WIDTH, brief_lines
from workbench.report.summary import Summary

NEXT = ("all of it:       workbench show e.yaml -v", "to open them:    workbench ui e.yaml", "to ship it:      …")


def brief(summary: Summary) -> list[str]:
    return [text for text, _ in brief_lines(summary, NEXT)]


def test_the_verdict_comes_first_with_its_figures_their_evidence_and_what_to_type_next() -> None:
    found = judge(member(2.0), member(1.5, drop_pp=-0.3, threads=2))
    said = brief(found)
    assert said[0].startswith(f"Recommended: {chosen(found)[:12]}")
    assert any(line.split()[:2] == ["speed-up", "2.00x"] and line.endswith("measured") for line in said)
    assert any("accuracy loss" in line and "+0.10 pp" in line and "limit 0.5" in line for line in said)
    assert [line for line in said if line.startswith(f"> {chosen(found)[:12]}")]
    assert said[-3:] == list(NEXT)


def test_where_too_few_calls_were_timed_for_a_p99_the_median_stands_there() -> None:
    found = judge(member(2.0))
    few = found.find(chosen(found))
    assert few is not None
    assert few.measurement.latency is not None
    latency = replace(few.measurement.latency, p99_ms=None)
    said = brief(judge(replace(few, measurement=replace(few.measurement, latency=latency))))
    assert any("P50 of one call" in line and "2.00 ms" in line for line in said)


def test_of_several_that_cannot_be_told_apart_the_chosen_one_is_said_first() -> None:
    found = judge(member(2.0), member(2.0, threads=2), member(2.0, threads=3))
    assert found.recommended is not None
    assert found.recommended.among
    assert brief(found)[0].startswith(f"Cannot be told apart: {chosen(found)[:12]}  INT8")
    assert "2 others, by " in " ".join(brief(found)[:2])


def test_many_members_and_warnings_stay_within_25_lines_of_100_columns() -> None:
    found = judge(*(member(1.2 + 0.3 * i, drop_pp=0.03 * i, threads=1 + i) for i in range(14)))
    assert found.recommended is not None
    warnings = tuple(f"warning {i} " + "word " * 80 for i in range(9))
    found = replace(found, recommended=replace(found.recommended, warnings=warnings), emulated=True)
    said = brief(found)
    assert len(said) <= 25
    assert max(map(len, said)) <= WIDTH
    assert "EMULATED" in said[0]
    assert any("7 more to mind: -v" in line for line in said)
    assert any(line.strip().startswith("and ") and line.endswith("more: -v") for line in said)


def test_where_nothing_is_recommended_that_is_said_first_with_what_to_do() -> None:
    why = "because of that; run it again."
    found = replace(judge(member(2.0, drop_pp=3.0)), recommended=None, nothing_recommended=why)
    assert brief(found)[0] == "Nothing is recommended: because of that; run it again."
