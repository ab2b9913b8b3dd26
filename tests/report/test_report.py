"""The verdict on a sweep, and how it is shown. Outcomes are made so that the paired test has a known answer."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluations import candidate, evaluation
from tests.report.summaries import BASELINE, chosen, judge, member
from workbench.report import Summary, detail, lines, report_lines, to_json
from workbench.report.alike import letters
from workbench.report.brief import brief_lines
from workbench.report.page import pareto_html
from workbench.report.words import title
from workbench.report.written.wording import metric_name, speaking
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Serving
from workbench.values.evidence import level_of
from workbench.values.measurement import Estimate
from workbench.values.metrics import METRICS, metrics, shown_in
from workbench.values.objectives import Constraint
from workbench.values.results import Evaluation, Failure, Stop
from workbench.values.significance import Outcomes

SAMPLES = 1000


def outcomes_with(errors: int) -> Outcomes:
    """Right everywhere but on the first `errors` samples: more errors contain fewer."""
    return np.arange(SAMPLES) >= errors


def on_holdout(found: Evaluation, *, drop_pp: float, speedup: float) -> Evaluation:
    again = evaluation(drop_pp=drop_pp, accuracy=0.94 - drop_pp / 100, p50_ms=4.0 / speedup, speedup=speedup)
    return replace(found, split="holdout", measurement=again.measurement)


# --- the front and the recommendation ------------------------------------------------------------------------------


def test_the_front_holds_only_feasible_candidates_and_the_fastest_is_recommended() -> None:
    fast, slower, broken = (
        member(2.0, drop_pp=0.3),
        member(1.5, drop_pp=-0.1, threads=2),
        member(3.0, drop_pp=2, threads=4),
    )

    summary = judge(fast, slower, broken)

    assert [m.id for m in summary.front] == [fast.candidate.id, slower.candidate.id]
    assert summary.standing(broken) == "infeasible"
    assert summary.standing(BASELINE) == "dominated"
    assert chosen(summary) == fast.candidate.id
    assert "fastest that meets every constraint" in lines(summary)
    turned = judge(broken, slower, fast)
    assert [to_json(turned)[name] for name in ("recommended", "front")] == [
        to_json(summary)[name] for name in ("recommended", "front")
    ]


def test_a_primary_metric_of_another_name_is_said() -> None:
    found = member(2.0)
    assert found.measurement.accuracy is not None
    values = {"entity_f1": 0.9, "token_f1": 0.95}
    ner = replace(found.measurement.accuracy, primary="entity_f1", values=values)

    summary = judge(replace(found, measurement=replace(found.measurement, accuracy=ner)))
    only_ner = replace(summary, evaluations=summary.evaluations[1:])

    assert "accuracy stands for entity_f1" in lines(only_ner)
    assert "accuracy stands for" not in lines(judge(found))


def test_the_baseline_is_recommended_plainly_when_nothing_is_faster_beyond_the_noise() -> None:
    slower, alike = judge(member(0.9)), judge(member(1.01))

    assert chosen(slower) == chosen(alike) == BASELINE.candidate.id
    assert f"Recommended: {BASELINE.candidate.short_id}" in lines(slower)
    for summary in (slower, alike):
        assert "Ship the float baseline as it is: no candidate that meets every constraint is faster" in lines(summary)
    assert "no other was evaluated" in lines(judge())


def test_a_baseline_that_differs_from_itself_warns_that_the_intervals_are_too_narrow() -> None:
    steady, disturbed = on_holdout(BASELINE, drop_pp=0.0, speedup=1.0), on_holdout(BASELINE, drop_pp=0.0, speedup=0.88)

    assert "Timed against itself" not in lines(judge(member(2.0), confirmed=[steady]))
    assert "Timed against itself on holdout" in lines(judge(member(2.0), confirmed=[disturbed]))


def test_of_two_that_cannot_be_told_apart_the_simpler_and_of_two_equally_fast_the_more_accurate_is_recommended() -> (
    None
):
    simple, fussy = member(2.0, drop_pp=0.1), member(2.01, drop_pp=0.2, keep_float=4)
    summary = judge(simple, fussy, outcomes={e.candidate.id: outcomes_with(51) for e in (simple, fussy)})
    assert chosen(summary) == simple.candidate.id
    assert "simplest among the 2 candidates that cannot be told apart" in lines(summary)

    simple, accurate = member(2.01, drop_pp=0.45), member(2.0, drop_pp=-1.0, keep_float=4)
    apart = {simple.candidate.id: outcomes_with(60), accurate.candidate.id: outcomes_with(30)}
    summary = judge(simple, accurate, outcomes=apart)
    assert chosen(summary) == accurate.candidate.id
    assert "2 cannot be told apart as the fastest, and of these it is the best in accuracy" in " ".join(
        lines(summary).split()
    )


def test_what_the_held_out_data_contradicts_is_passed_over_and_named() -> None:
    lucky, sound = member(2.0, drop_pp=0.2), member(1.5, drop_pp=0.1, threads=2)
    confirmed = [on_holdout(lucky, drop_pp=1.3, speedup=1.9), on_holdout(sound, drop_pp=0.2, speedup=1.5)]

    summary = judge(lucky, sound, confirmed=confirmed)

    assert chosen(summary) == sound.candidate.id
    assert (
        f"{lucky.candidate.short_id} looked better in latency_p50_ms and was passed over" in summary.recommended.reason
    )  # type: ignore[union-attr]  # chosen() asserts it
    assert "breaks accuracy_loss_pp by 0.8 pp" in summary.recommended.reason  # type: ignore[union-attr]  # the same
    lossy = judge(member(3.0, drop_pp=5.0), sound, limits={})  # no limit says how much may be lost
    assert chosen(lossy) == sound.candidate.id
    assert "certainly loses accuracy" in lines(lossy)


def test_the_verdict_states_both_errors_and_who_is_undecided_passes_only_by_the_users_choice() -> None:
    fast = member(2.0, drop_pp=0.2)
    held = {drop: on_holdout(fast, drop_pp=drop, speedup=1.9) for drop in (0.2, 0.48)}
    errors, asked = "false pass and false alarm at most 5 % each", {"limit": 0.5, "zone": 0.1}
    for limits, drop, said in (
        (0.5, 0.2, f"Gate at 0.5 ± 0.25 pp: passed, {errors}."),
        (0.5, 0.48, f"Mind: Gate at 0.5 ± 0.25 pp: undecided, {SAMPLES} samples are too few for {errors}"),
        (asked, 0.48, "on held-out data its gate at 0.5 ± 0.1 pp: undecided"),
        ({**asked, "undecided": "figure"}, 0.48, "its figure decides, wrongly in up to"),
    ):
        summary = judge(fast, confirmed=[held[drop]], limits={"accuracy_loss_pp": limits})
        words, brief = (
            " ".join(text.split()) for text in (lines(summary), " ".join(line for line, _ in brief_lines(summary)))
        )
        assert said in words
        assert (said[:60] in brief) == (limits is not asked)
        assert chosen(summary) == (BASELINE if limits is asked else fast).candidate.id


def test_when_the_held_out_data_contradicts_all_nothing_is_recommended() -> None:
    fast = member(2.0, drop_pp=0.2)
    broken_baseline = replace(BASELINE, measurement=member(1.0, drop_pp=3).measurement)
    summary = judge(fast, baseline=broken_baseline, confirmed=[on_holdout(fast, drop_pp=1.0, speedup=1.9)])

    assert summary.recommended is None
    assert [m.id for m in summary.front] == [fast.candidate.id]
    said = " ".join(lines(summary).split())
    assert "Nothing is recommended: held-out data speaks against every candidate" in said
    assert f"{fast.candidate.short_id}: on held-out data it breaks accuracy_loss_pp by 0.5 pp" in said
    assert "RECOMMENDED" not in said


def unrunnable(found: Evaluation, *, transient: bool = False) -> Evaluation:
    """Its confirmation, which ended by a fault in running it."""
    failure = Failure(
        stage="accuracy_full",
        kind="MeasureError",
        message="Got: 64 Expected: 1",
        reproduce=f"workbench evaluate experiments/loans.yaml --candidate {found.candidate.short_id} --holdout",
        log_path="log.txt",
        transient=transient,
    )
    again = evaluation(failure=failure)
    return replace(again, candidate=found.candidate, split="holdout")


def test_a_candidate_whose_confirmation_failed_is_nowhere_recommended_and_the_next_is() -> None:
    best, dominated = member(2.0, drop_pp=0.1), member(1.5, drop_pp=0.2, threads=2)
    for transient in (False, True):
        confirmed = [on_holdout(BASELINE, drop_pp=0.0, speedup=1.0), unrunnable(best, transient=transient)]
        summary = judge(best, dominated, confirmed=confirmed)
        assert chosen(summary) == dominated.candidate.id
        assert {m.id for m in summary.front} == {dominated.candidate.id, BASELINE.candidate.id}  # confirmed next
        assert [m.id for m in summary.fallen] == [best.candidate.id]
        assert summary.standing(best) == "infeasible"
        assert summary.recommended is not None
        text = " ".join(lines(summary).split())
        assert "could not be run, which says nothing of its accuracy (MeasureError at accuracy_full: Got: 64" in text
        assert ("the same sweep again makes another attempt" in text) is transient
        assert f"RECOMMENDED {summary.title(best.candidate)}" not in text
        assert "not to be recommended" in detail(summary, best.candidate.id)
        assert to_json(summary)["recommended"]["candidate_id"] == dominated.candidate.id


def test_nothing_is_recommended_where_the_baselines_own_confirmation_failed() -> None:
    fast = member(2.0)
    for confirmed in ([unrunnable(BASELINE), unrunnable(fast)], [unrunnable(BASELINE)]):
        summary = judge(fast, confirmed=confirmed)

        assert summary.recommended is None
        for text in (lines(summary), pareto_html(summary), summary.why_none, to_json(summary)["nothing_recommended"]):
            said = " ".join(text.split())
            assert "the confirmation of the float baseline itself could not be run" in said
            assert "no loss of accuracy" in said
            assert f"--candidate {BASELINE.candidate.short_id} --holdout" in said
        assert "RECOMMENDED" not in lines(summary)
        assert to_json(summary)["recommended"] is None


def test_no_recommendation_is_made_where_intervals_overlap_and_nothing_else_decides() -> None:
    """The second was left off the front by a point value that its interval does not bear out."""
    sure, wide = member(2.0), member(1.97, threads=2)
    assert wide.measurement.latency is not None
    speedup = Estimate(value=1.97, low=0.75, high=2.05)
    wide = replace(
        wide, measurement=replace(wide.measurement, latency=replace(wide.measurement.latency, speedup=speedup))
    )

    summary = judge(sure, wide)

    assert wide.candidate.id not in {m.id for m in summary.front}
    assert summary.recommended is not None
    assert summary.recommended.among == (wide.candidate.id,)
    said = " ".join(lines(summary).split())
    assert f"Cannot be told apart: {sure.candidate.short_id} {summary.title(sure.candidate)} and " in said
    assert f" by latency_p50_ms, accuracy. Chosen among these equals: {sure.candidate.short_id}" in said
    assert "What would tell them apart: more timed calls (measure.calls) on a quiet machine" in said
    assert "Recommended:" not in said
    assert "RECOMMENDED" not in said
    data = to_json(summary)
    assert data["recommended"]["among"] == [wide.candidate.id]
    assert data["headline"].startswith("Cannot be told apart: ")
    assert "Cannot be told apart" in pareto_html(summary)


# --- nobody feasible, stops, failures ------------------------------------------------------------------------------


def test_when_nobody_is_feasible_the_closest_is_named_with_its_distance() -> None:
    near, far = member(2.0, drop_pp=-1.5), member(3.0, drop_pp=2.0, threads=2)
    summary = judge(near, far, limits={"accuracy_loss_pp": -2.0})
    assert (summary.recommended, summary.front) == (None, ())
    assert f"Closest: {near.candidate.short_id}" in lines(summary)
    assert "breaks accuracy_loss_pp by 0.5 pp" in " ".join(lines(summary).split())
    stop = Stop(stage="accuracy_subset", reason="too wrong", violations={"accuracy_loss_pp": 0.25})
    stopped = evaluation(threads=2, scheme="static", stop=stop)
    stopped = replace(stopped, measurement=replace(stopped.measurement, accuracy=None))
    summary = judge(stopped, limits={"accuracy_loss_pp": -1.0})
    assert summary.closest is not None
    assert summary.closest.candidate_id == stopped.candidate.id
    assert "by 0.25 pp, as far as it was measured" in " ".join(lines(summary).split())


def test_stops_and_failures_are_counted_by_reason() -> None:
    failure = Failure(stage="compile", kind="CompileError", message="no kernel", reproduce="workbench evaluate")
    dominated = Stop(stage="latency_short", reason="x is better")
    violating = Stop(stage="accuracy_full", reason="too wrong", violations={"accuracy_loss_pp": 1.0})
    found = [evaluation(threads=threads, failure=failure) for threads in (2, 3)]
    found += [evaluation(threads=4, stop=dominated), evaluation(threads=5, stop=violating)]
    summary = judge(*found)
    assert summary.failures == {"compile: CompileError": 2}
    assert summary.stops == {"latency_short: certainly dominated": 1, "accuracy_full: violates accuracy_loss_pp": 1}
    assert "Failed: 2 (2 at compile: CompileError)." in lines(summary)
    nothing = judge(baseline=evaluation(failure=failure))
    assert "No candidate was measured far enough" in lines(nothing)
    assert "The front is empty" in pareto_html(nothing)
    stopped = " ".join(lines(judge(evaluation(scheme="static", stop=violating))).split())
    assert "none of the others came through: 1 stopped at accuracy_full: violates accuracy_loss_pp" in stopped
    assert "measured to the end" not in stopped


def test_emulated_results_are_flagged_in_every_form() -> None:
    emulated = replace(member(2.0), toolchain=replace(BASELINE.toolchain, emulated=True))
    summary = judge(emulated)
    more = detail(summary, emulated.candidate.id)
    for mark, text in (("EMULATED", lines(summary)), ("Emulated:", pareto_html(summary)), ("(emulated)", more)):
        assert mark in text
    assert "EMULATED: no number below" in more
    assert to_json(summary)["emulated"] is True
    assert summary.recommended is not None
    assert "measured" not in summary.recommended.reason
    assert any("emulator" in warning for warning in summary.recommended.warnings)


# --- who cannot be told apart --------------------------------------------------------------------------------------


@given(st.integers(0, 7), st.data())
def test_two_members_share_a_letter_exactly_when_they_are_alike(count: int, data: st.DataObject) -> None:
    pairs = {(i, j) for i in range(count) for j in range(i + 1, count) if data.draw(st.booleans())}

    marks = letters(count, lambda i, j: (i, j) in pairs)

    for i in range(count):
        for j in range(i + 1, count):
            assert bool(set(marks[i]) & set(marks[j])) == ((i, j) in pairs)


def test_the_paired_test_separates_what_overlapping_intervals_would_not() -> None:
    first, second = member(2.0, drop_pp=0.3), member(1.99, drop_pp=-0.1, threads=2)
    apart = {first.candidate.id: outcomes_with(60), second.candidate.id: outcomes_with(40)}

    assert [m.letters for m in judge(first, second).front] == ["a", "a"]
    assert [m.letters for m in judge(first, second, outcomes=apart).front] == ["", ""]


# --- how it is shown -----------------------------------------------------------------------------------------------


def full() -> Summary:
    fast, slower = member(2.0, drop_pp=0.3), member(1.5, drop_pp=-0.1, threads=2, keep_float=2)
    confirmed = [on_holdout(fast, drop_pp=0.4, speedup=1.9), on_holdout(BASELINE, drop_pp=0.0, speedup=1.0)]
    stop = Stop(stage="accuracy_subset", reason="too <wrong>", violations={"accuracy_loss_pp": 0.25})
    return judge(fast, slower, member(3.0, drop_pp=2, threads=4), evaluation(threads=8, stop=stop), confirmed=confirmed)


def test_the_report_fits_112_columns_and_shows_every_number_of_the_front_on_a_narrow_terminal_too() -> None:
    text = lines(full())
    assert max(map(len, text.splitlines())) <= 112
    for shown in (
        *("0.9470", "+0.30 [+0.00, +0.60]", "2.00x [1.96, 2.04]", "1.90x [1.86, 1.94]", "int8/float 25/8"),
        *("RECOMMENDED", ", 1 thread  ", ", 2 threads"),
    ):
        assert shown in text
    assert title(candidate(threads=8), "") == "fp32, 8 threads"
    narrow = "\n".join(line for line, _ in report_lines(full(), 60))
    assert sorted(narrow.split()) == sorted(text.split())


def test_rows_name_the_engine_where_a_sweep_has_several() -> None:
    other = replace(
        member(1.5, drop_pp=0.0, scheme="none"),
        candidate=Candidate(target="openvino", compile=OpenVinoCompile(), serving=Serving(streams=2)),
    )
    alone, both = judge(), judge(other)

    assert "ONNX Runtime" not in lines(alone)
    assert "ONNX Runtime, fp32 (float baseline), 1 thread" in lines(both)
    assert "OpenVINO, fp32, 1 thread, 2 streams" in lines(both)


def test_numbers_of_any_size_touch_nothing_and_stand_below_their_heads() -> None:
    slow = member(0.001, drop_pp=-123.456)
    large = replace(slow, measurement=replace(slow.measurement, size_bytes=10**15, peak_memory_bytes=10**16))
    for width in (60, 80, 100, 120):
        text = "\n".join(line for line, _ in report_lines(judge(large, limits={}), width))
        for shown in ("-123.46 [-123.76, -123.16]", "4000.00", "0.00x [0.00, 0.00]", "1000000000.0", "10000000000"):
            assert f" {shown}" in text
        rows = [line for line in text.splitlines() if "P50 ms" in line or " 4000.00" in line]
        ends = {line.index("P50 ms") + len("P50 ms") for line in rows if "P50 ms" in line}
        assert {line.index("4000.00") + len("4000.00") for line in rows if "4000.00" in line} == ends
        assert max(map(len, rows)) <= width


def test_json_is_plain_data_that_survives_a_round_trip() -> None:
    data = to_json(full())

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["front"][0]["holdout"]["accuracy_loss_pp"] == pytest.approx(0.4)
    assert {c["standing"] for c in data["candidates"]} == {"front", "infeasible", "stopped"}
    assert {m["evidence"] for m in data["front"]} == {"measured held-out", "measured"}


def test_detail_gives_settings_numbers_what_became_of_it_and_the_command_to_run_it_again() -> None:
    summary = full()
    text, again = detail(summary, chosen(summary)), "workbench evaluate experiments/loans.yaml --candidate"
    said = ("quantization.scheme", "Validation", "Holdout", "and recommended", "McNemar exact")
    for shown in (*said, "met: accuracy_loss_pp <= 0.5 pp", f"{again} {chosen(summary)[:12]}"):
        assert shown in text
    with pytest.raises(KeyError):
        detail(summary, "f" * 64)
    failure = Failure(
        stage="compile", kind="CompileError", message="no kernel", reproduce="again", log_path="logs/x.log"
    )
    failed = replace(evaluation(threads=2, failure=failure), stage_reached="compile")
    text = detail(judge(failed), failed.candidate.id)
    assert all(said in text for said in ("Failed at compile.", "CompileError: no kernel", "Log: logs/x.log"))
    assert "attempt" not in text
    first = replace(failed, failure=replace(failure, transient=True))
    assert "the same `workbench sweep` again makes it" in detail(judge(first), first.candidate.id)
    text = detail(judge(replace(first, attempt=2)), first.candidate.id)
    assert "This was attempt 2." in text
    assert "again makes it" not in text


def test_the_page_is_self_contained_and_escapes_what_it_shows() -> None:
    page = pareto_html(full())
    markup = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert not any(loads in markup for loads in ("src=", "href="))
    assert "<script src" not in page
    assert "too <wrong>" not in page.replace("too &lt;wrong&gt;", "")
    for name in (
        *("Pareto front, measured held-out (2)", "Pareto front, measured (1)", "breaks a constraint, measured (1)"),
        *("float baseline", "recommended"),
    ):
        assert name in page


def test_a_metric_that_is_declared_once_stands_wherever_metrics_do(monkeypatch: pytest.MonkeyPatch) -> None:
    files = METRICS["size_mb"]
    added = replace(
        files, read=lambda m: m.size_bytes / 1000, label="kilobytes", label_zh="千字节", head="kB new", form=".3f"
    )
    monkeypatch.setitem(METRICS, "size_kb", replace(added, shown=("view", "holdout")))
    asked = ("size_kb", "accuracy")
    found = replace(judge(member(2.0), objectives=asked), constraints=(Constraint(metric="size_kb", limit=1e9),))
    value = metrics(BASELINE)["size_kb"]
    for text in (lines(found), pareto_html(found)):
        assert "kB" in text
        assert f"{value:.3f}" in text
    assert "size_kb <= 1e+09" in lines(found)
    assert to_json(found)["candidates"][0]["metrics"]["size_kb"] == value
    assert "size_kb" in detail(found, BASELINE.candidate.id)
    assert level_of(BASELINE, "size_kb") == "measured"
    assert "size_kb" in shown_in("view")
    assert "size_kb" in shown_in("holdout")
    for language, label in (("en", "kilobytes"), ("zh", "千字节")):
        with speaking(language):
            assert metric_name("size_kb") == label
