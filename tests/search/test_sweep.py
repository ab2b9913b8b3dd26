"""The sweep: presets first, nothing twice, nothing lost, whatever kills it or fills its disk."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.search.sweeping import SMALL_SPACE, Recorder, journal_of, start
from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.worker_pool import Workers
from workbench.search.forecast import RunTime
from workbench.search.stages.request import Task
from workbench.search.sweep import run_sweep
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.results import Evaluation


def test_a_sweep_evaluates_baseline_and_presets_first_and_distinct_candidates_only(
    question: Experiment, bench: Bench
) -> None:
    recorder = Recorder()

    end = run_sweep(question, bench, listeners=(recorder,))

    assert (end.reason, end.new, end.reused) == ("budget", 6, 0)
    order = [evaluation.candidate for evaluation, _ in recorder.seen]
    assert order[0] == question.baseline
    assert {c.quantization.scheme for c in order[1:3]} == {"dynamic", "static"}
    assert len({c.id for c in order}) == 6
    assert all(evaluation.status != "failed" for evaluation, _ in recorder.seen)


def test_going_on_reuses_everything_and_a_larger_budget_adds_the_difference(
    question: Experiment, warm_bench: Bench
) -> None:
    none = run_sweep(question, warm_bench, time=RunTime(0.001))
    run_sweep(question, warm_bench, trials=3)
    recorder = Recorder()

    again = run_sweep(question, warm_bench, trials=3, listeners=(recorder,))
    more = run_sweep(question, warm_bench, trials=5)

    assert (none.reason, none.new) == ("timeout", 0)
    assert (again.new, again.reused) == (0, 3)
    assert all(reused for _, reused in recorder.seen)
    assert (more.new, more.reused) == (2, 3)


def test_results_of_another_machine_or_runtime_are_not_mixed_with_new_ones(
    question: Experiment, warm_bench: Bench
) -> None:
    run_sweep(question, warm_bench, trials=1)
    moved = {name: replace(chain, device="another CPU") for name, chain in warm_bench.toolchains.items()}
    elsewhere = replace(warm_bench, toolchains=moved)

    with pytest.raises(ConfigError, match=r"here is another CPU.*--fresh"):
        run_sweep(question, elsewhere, trials=2)


def test_an_exhausted_space_ends_the_sweep(tmp_path: Path, warm_store: Path) -> None:
    question = read_experiment(write_workspace(tmp_path, space=SMALL_SPACE))
    bench = bench_of(question, warm_store)

    end = run_sweep(question, bench, trials=50)

    # float: 2 levels x 2 thread counts; dynamic: level all x 2 thread counts
    assert (end.reason, end.new) == ("exhausted", 6)


@dataclass
class Remembered:
    """An executor that knows every candidate's result, a function of the candidate, and is interrupted at some."""

    bench: Bench
    interrupted_at: frozenset[int] = frozenset()
    asked: list[str] = field(default_factory=list)

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        candidate, number = task.candidate, len(self.asked)
        self.asked.append(candidate.id)
        if number in self.interrupted_at:
            raise KeyboardInterrupt
        digits = int(candidate.id[:6], 16)
        stamp = f"2026-01-01T00:00:{number:02d}+00:00"
        found = evaluation(accuracy=0.9 + digits % 97 / 1000, p50_ms=1 + digits % 89 / 10, started_at=stamp)
        return replace(found, candidate=candidate, toolchain=self.bench.toolchain(candidate))


@pytest.mark.parametrize(
    ("sampler", "objectives"),
    [("auto", "latency_p50_ms, accuracy"), ("auto", "speedup, size_mb, accuracy"), ("random", "latency_p50_ms")],
)
def test_a_sweep_that_is_interrupted_anywhere_asks_what_an_undisturbed_one_asks_in_its_order(
    tmp_path: Path, sampler: str, objectives: str
) -> None:
    text = EXPERIMENT.replace("[latency_p50_ms, accuracy]", f"[{objectives}]") + f"sampler: {sampler}\n"
    file, orders, said = write_workspace(tmp_path, experiment=text), [], []
    for often in (False, True):
        question = read_experiment(file, tmp_path / str(often))
        bench = bench_of(question)
        executor = Remembered(bench, frozenset(range(1, 99, 3)) if often else frozenset())
        while len(bench.journal.evaluations()) < 12:
            with contextlib.suppress(KeyboardInterrupt):
                workers = Workers(cards=(executor,))
                run_sweep(question, bench, trials=12, workers=workers, trying=lambda _, why: said.append(why))
            (bench.journal.root / "study.log").write_text("of a sweep of an earlier revision")
        bench.store.close()
        orders.append(list(bench.journal.evaluations()))
    assert orders[0] == orders[1]
    assert len(executor.asked) > len(orders[1])
    assert any(words.startswith("expected ") for words in said) == (sampler == "auto")


def test_a_sweep_killed_at_any_stage_goes_on_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    file = write_workspace(tmp_path, experiment=EXPERIMENT.replace("trials: 6", "trials: 4"))
    kept: dict[str, Evaluation] = {}
    # twice at the static candidate: a kill from outside never counts against it
    for moment in ("none latency_full", "dynamic compile", "static calibrate", "static smoke"):
        with start(file) as process:
            for line in process.stdout:
                if line.strip() == moment:
                    break
            process.kill()
        before, kept = kept, journal_of(file).evaluations()
        assert {i: kept[i] for i in before} == before

    with start(file) as process:
        _, errors = process.communicate(timeout=300)

    assert process.returncode == 0, errors
    after = journal_of(file).evaluations()
    assert len(after) == 4
    assert {i: after[i] for i in kept} == kept
    assert {e.candidate.quantization.scheme for e in list(after.values())[1:3]} == {"dynamic", "static"}
    assert all(e.status != "failed" and e.attempt == 1 for e in after.values())


def test_ctrl_c_stops_cleanly_and_the_candidate_in_flight_comes_back(tmp_path: Path) -> None:
    file = write_workspace(tmp_path, experiment=EXPERIMENT.replace("trials: 6", "trials: 3"))
    with start(file) as process:
        for line in process.stdout:
            if line.startswith("dynamic"):
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=300)
    assert process.returncode != 0

    with start(file) as process:
        output, errors = process.communicate(timeout=300)

    assert process.returncode == 0, errors
    assert "dynamic check" in output
    assert len(journal_of(file).evaluations()) == 3


def test_a_full_disk_stops_the_sweep_and_keeps_what_was_measured(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        question = read_experiment(write_workspace(tmp_path), workspace=small)
        bench = bench_of(question)
        with pytest.raises(ToolchainError, match=r"[Nn]o space|full|free"):
            run_sweep(question, bench, trials=40)
        bench.store.close()
        kept = bench.journal.evaluations()
        assert kept
        assert all(e.status in ("complete", "stopped") for e in kept.values())
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        again = bench_of(question)
        end = run_sweep(question, again, trials=len(kept) + 1)
        again.store.close()
        assert end.new == 1
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# --- second attempts, and who is given up ----------------------------------------------------------------------------


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
