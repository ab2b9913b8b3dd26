"""Which candidates get a second attempt, and which are given up."""

import os
import signal
from dataclasses import replace

import pytest

from tests.search.sweeping import Recorder
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.worker_pool import Workers
from workbench.search.sweep import run_sweep
from workbench.values.candidate import Candidate


def test_a_candidate_whose_evaluation_dies_twice_while_the_sweep_lives_is_given_up(
    question: Experiment, bench: Bench
) -> None:
    deaths: list[str] = []

    def report(candidate: Candidate, stage: str) -> None:
        if candidate.quantization.scheme == "static" and stage == "accuracy_full":  # where no first look comes
            if len(deaths) == 1 and "stopped" not in deaths[0]:
                deaths[0] += ", stopped"
                raise KeyboardInterrupt  # between the two: the first is not forgotten
            deaths.append(candidate.id)
            os.kill(executor.pid, signal.SIGSEGV)

    watched = replace(bench, report=report)
    with ChildProcess(question, watched) as executor:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(question, watched, trials=4, workers=Workers(cards=(executor,)))
        end = run_sweep(question, watched, trials=4, workers=Workers(cards=(executor,)))

    evaluations = bench.journal.evaluations()
    assert (end.reason, len(evaluations), len(deaths)) == ("budget", 4, 2)
    (failed,) = [e for e in evaluations.values() if e.failure is not None]
    assert failed.candidate.id == deaths[1]
    assert (failed.failure.kind, failed.failure.stage) == ("CrashError", "accuracy_full")
    assert "crashed 2 times" in failed.failure.message
    assert "SIGSEGV" in failed.failure.message
    assert not failed.deserves_another


def test_a_candidate_that_ran_out_of_time_is_tried_once_more_when_the_sweep_goes_on(
    question: Experiment, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("workbench.targets.apart.COMPILE_TIMEOUT_S", 0.001)  # the real child is killed
        run_sweep(question, bench, trials=3)
    before = bench.journal.evaluations()
    recorder = Recorder()

    def interrupted(candidate: Candidate, stage: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # a second attempt that was interrupted is queued once
        run_sweep(question, replace(bench, report=interrupted), trials=3)

    end = run_sweep(question, bench, trials=3, listeners=(recorder,))

    assert {e.failure.kind for e in before.values() if e.failure} == {"CompileError"}
    assert (end.new, end.reused) == (3, 0)
    after = bench.journal.evaluations()
    assert set(after) == set(before)
    assert all(e.status != "failed" and e.attempt == 2 for e in after.values())
    assert [(e.candidate.id, reused) for e, reused in recorder.seen] == [(i, False) for i in before]


def test_a_second_transient_failure_stands(question: Experiment, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.targets.apart.COMPILE_TIMEOUT_S", 0.001)  # the real child is killed

    ends = [run_sweep(question, bench, trials=3) for _ in range(3)]

    assert [(end.new, end.reused) for end in ends] == [(3, 0), (3, 0), (0, 3)]
    assert {(e.status, e.attempt) for e in bench.journal.evaluations().values()} == {("failed", 2)}
