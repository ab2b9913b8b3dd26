"""A modelled sweep as it is shown: intervals, who stays on the front, and what to measure."""

from dataclasses import replace
from functools import partial

from tests import evaluations
from tests.evaluations import evaluation
from tests.modelled import call, latency, service
from tests.report.summaries import judge as judged
from workbench.report import lines, to_json
from workbench.report.page import pareto_html
from workbench.report.rests_on import REFIT
from workbench.report.written.document import Commands, Table
from workbench.report.written.performance import on_the_model
from workbench.report.written.wording import speaking
from workbench.values.measurement import Latency
from workbench.values.modelled_times.figures import with_intervals
from workbench.values.modelled_times.statement import CallCosts
from workbench.values.results import Evaluation

EMULATED = replace(evaluations.TOOLCHAIN, emulated=True)


def modelled(found: Evaluation, costs: CallCosts, *, served: bool = False) -> Evaluation:
    timed: Latency = with_intervals(latency(costs))
    measurement = replace(found.measurement, latency=timed, service=service(costs) if served else None)
    return replace(found, measurement=measurement, toolchain=EMULATED)


BASELINE = modelled(evaluation(), call(float16=100))
INT8 = modelled(evaluation(scheme="static", drop_pp=0.0), call(int8=100))
HALF = modelled(evaluation(scheme="static", keep_float=4, drop_pp=0.0), call(float16=50))
"""As fast as INT8 by the clock that is run, to the last digit of a double or so; slower or faster by others."""
judge = partial(judged, baseline=BASELINE)


def test_a_modelled_order_that_errors_leave_open_is_said_to_be_so_with_what_narrows_it() -> None:
    summary = judge(INT8, HALF)
    text = lines(summary)
    for said in (
        "Modelled, not measured",
        "Cannot be told apart: ",
        "the int8_gain of a test: 100% of the time",
        REFIT,
    ):
        assert said in text
    assert "the int8_gain of a test" in pareto_html(summary)
    assert summary.recommended is not None
    assert summary.recommended.settled_by[-1] == "the same sweep on a real device"
    assert to_json(summary)["modelled_errors"][0]["factor_95"] > 1
    with speaking("zh"):
        *_, table, commands = on_the_model(summary)
    assert isinstance(table, Table)
    assert isinstance(commands, Commands)
    assert commands.lines == (REFIT,)
    measured = judge(evaluation(scheme="static", drop_pp=0.0), baseline=evaluation())
    assert "Modelled" not in lines(measured)
    assert to_json(measured)["modelled_errors"] == []


def test_only_candidates_whose_order_errors_leave_open_share_a_letter() -> None:
    """Against INT8 it depends on the gain; with five launches more than the same work it is slower by every clock."""
    slower = modelled(evaluation(scheme="dynamic", accuracy=0.96, drop_pp=0.0), call(float16=50, launches=5))

    letters = {member.id: set(member.letters) for member in judge(INT8, HALF, slower).front}

    assert letters[INT8.candidate.id] & letters[HALF.candidate.id]
    assert letters[INT8.candidate.id] & letters[slower.candidate.id]
    assert not letters[HALF.candidate.id] & letters[slower.candidate.id]


def test_an_older_journal_without_stated_costs_is_shown_as_before() -> None:
    old = replace(
        INT8, measurement=replace(INT8.measurement, latency=replace(evaluations.latency(2.0, 2.0), clock="modelled"))
    )

    summary = judge(old, baseline=replace(evaluation(), toolchain=EMULATED))

    assert "2.00x [1.96, 2.04]" in lines(summary)


def test_factors_of_a_speed_up_are_taken_clock_by_clock() -> None:
    quick = modelled(evaluation(scheme="static", drop_pp=0.0), call(int8=30))
    text = lines(judge(quick))

    assert quick.measurement.latency is not None
    speedup = quick.measurement.latency.speedup
    assert f"All of its {speedup.value:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]" in text
