"""The limit of a run covers all of it: how it is divided, what a short one leaves out, and what is confirmed."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import workbench
from tests.search.sweeping import Recorder, silent
from tests.tiny import write_workspace
from workbench.api.sweep import plan_lines
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.worker_pool import Workers
from workbench.search.forecast import Cost, RunTime, divided
from workbench.search.front import front_of
from workbench.search.pipeline import evaluate
from workbench.search.plan import make_plan
from workbench.search.stages.request import EFFORTS, FULL, Effort
from workbench.search.sweep import confirm, run_sweep
from workbench.values.results import Evaluation

COST = Cost(opening_s=2.0, calls_s=8.0, samples_s=10.0, curve_s=6.0, load_s=17.0, asked_load_s=8.0)


def test_a_limit_keeps_a_part_for_the_confirmation_and_says_how_much_of_it_fits() -> None:
    ample, short = divided(3600.0, COST), divided(120.0, COST)

    assert ample.search_s + ample.confirmation_s + ample.report_s == pytest.approx(3600.0)
    assert (ample.members, ample.effort) == (5, FULL)
    assert ample.confirmation_s == pytest.approx(6 * COST.confirmed_s(FULL))
    assert short.search_s + short.confirmation_s + short.report_s == pytest.approx(120.0)
    assert (short.members, short.effort) == (1, EFFORTS[-1])


def test_a_confirmation_without_time_is_left_out_and_a_cut_one_is_made_again_in_full(
    question: Experiment, warm_bench: Bench
) -> None:
    run_sweep(question, warm_bench, trials=3)
    front = front_of(question, warm_bench.journal.evaluations())
    assert confirm(question, warm_bench, front, time=RunTime(0.0)) == {}

    least = Effort(calls=0.1, samples=0.25)
    cut = evaluate(question, question.baseline, warm_bench, split="holdout", gates=False, effort=least)
    warm_bench.journal.write(cut)
    recorder = Recorder()
    confirmed = confirm(question, warm_bench, front, listeners=(recorder,), time=RunTime(600.0))

    assert cut.cut == ("50 of 60 timed calls", f"100 of {question.dataset.size('holdout')} samples")
    assert cut.measurement.accuracy.samples == 100
    assert warm_bench.journal.evaluation(question.baseline.id, "holdout") == confirmed[question.baseline.id]
    assert not any(e.cut for e in confirmed.values())
    assert question.baseline.id in {e.candidate.id for e, _ in recorder.seen}
    assert {question.baseline.id, *(e.candidate.id for e in front)} == set(confirmed)
    assert all(e.split == "holdout" and e.status == "complete" for e in confirmed.values())
    assert confirm(question, warm_bench, front, listeners=(again := Recorder(),)) == confirmed
    assert again.seen == [], "once"


class AfterTheBaseline(RunTime):
    """The search's time is up a moment after the second candidate has begun, however slow the machine is."""

    def search_end(self, experiment: Experiment, known: Mapping[str, Evaluation]) -> float:
        return time.perf_counter() + (0.02 if known else 600.0)

    def may_begin(self, experiment: Experiment, known: Mapping[str, Evaluation]) -> bool:
        return True


def test_what_was_in_flight_at_the_end_is_named_and_comes_first_when_the_sweep_goes_on(
    question: Experiment, warm_bench: Bench
) -> None:
    resumed: list[str] = []
    recorder = Recorder()

    with ChildProcess(question, warm_bench) as executor:
        first = run_sweep(
            question, warm_bench, trials=3, time=AfterTheBaseline(600.0), workers=Workers(cards=(executor,))
        )
        second = run_sweep(
            question,
            warm_bench,
            trials=3,
            listeners=(recorder,),
            workers=Workers(cards=(executor,)),
            resumed=lambda candidate: resumed.append(candidate.id),
        )

    assert (first.reason, first.new) == ("timeout", 1)
    assert resumed == [first.interrupted.candidate.id]
    assert next(e.candidate.id for e, reused in recorder.seen if not reused) == first.interrupted.candidate.id
    assert (second.new, second.interrupted) == (2, None)


def test_a_limit_that_is_over_before_anything_is_measured_is_said(tmp_path: Path) -> None:
    with pytest.raises(workbench.ConfigError, match="before the float model has been compiled"):
        workbench.sweep(write_workspace(tmp_path), timeout_s=0.01)


def test_a_limit_shortens_measurements_before_it_has_no_room_for_two_int8_candidates(tmp_path: Path) -> None:
    experiment = read_experiment(write_workspace(tmp_path))
    bench = open_bench(experiment, Journal(root=tmp_path), Store(tmp_path / "store"), silent)
    limits = (3600.0, 200.0, 20.0)
    plans = [make_plan(experiment, bench, limit_s=limit_s, probe=lambda: 60.0) for limit_s in limits]

    efforts = [EFFORTS.index(made.effort) for made in plans]
    assert efforts[0] == 0
    assert efforts == sorted(efforts)
    assert efforts[1] > 0
    assert efforts[-1] == len(EFFORTS) - 1
    assert [made.candidate_s for made in plans] == sorted((made.candidate_s for made in plans), reverse=True)
    said = ["\n".join(plan_lines(made)) for made in plans]
    assert "with fewer timed calls" not in said[0]
    assert "with fewer timed calls" in said[1].partition(", then at most")[0]
    assert "Too short for the float baseline and 2 INT8 candidates: allow" in said[-1]
    again = make_plan(experiment, bench, limit_s=plans[-1].least_s, probe=lambda: 60.0)
    assert "Too short" not in "\n".join(plan_lines(again))
