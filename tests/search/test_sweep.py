"""The sweep: presets first, nothing twice, nothing lost, whatever kills it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.tiny import EXPERIMENT, write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.confirmation import confirm
from workbench.search.executors import ChildProcess
from workbench.search.front import front_of
from workbench.search.sweep import run_sweep
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.results import Evaluation

ROOT = Path(__file__).parents[2]
SMALL_SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [dynamic]}}
  compile.graph_optimization: {choices: [all, basic]}
  serving.intra_op_threads: {choices: [1, 2]}
forbid:
  - {quantization.scheme: [dynamic], compile.graph_optimization: [basic], reason: stays in float}
"""


def silent(candidate: Candidate, stage: str) -> None:
    """A report nobody reads."""


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[Evaluation, bool]] = []

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        self.seen.append((evaluation, reused))


@pytest.fixture
def question(tmp_path: Path) -> Experiment:
    return read_experiment(write_workspace(tmp_path))


@pytest.fixture(scope="module")
def warm_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one sweep had compiled serves the next, where compiling is not what is tested."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def bench(question: Experiment) -> Iterator[Bench]:
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")
    yield open_bench(question, journal, store, silent)
    store.close()


@pytest.fixture
def warm_bench(question: Experiment, warm_store: Path) -> Iterator[Bench]:
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(warm_store)
    yield open_bench(question, journal, store, silent)
    store.close()


def test_a_sweep_evaluates_baseline_and_presets_first_and_distinct_candidates_only(
    question: Experiment, bench: Bench
) -> None:
    recorder = Recorder()

    end = run_sweep(question, bench, listeners=(recorder,))

    assert (end.reason, end.new, end.reused) == ("budget", 6, 0)
    order = [evaluation.candidate for evaluation, _ in recorder.seen]
    assert order[0] == question.baseline
    assert [c.quantization.scheme for c in order[:3]] == ["none", "dynamic", "static"]
    assert len({c.id for c in order}) == 6
    assert all(evaluation.status != "failed" for evaluation, _ in recorder.seen)


def test_going_on_reuses_everything_and_a_larger_budget_adds_the_difference(
    question: Experiment, warm_bench: Bench
) -> None:
    run_sweep(question, warm_bench, trials=3)
    recorder = Recorder()

    again = run_sweep(question, warm_bench, trials=3, listeners=(recorder,))
    more = run_sweep(question, warm_bench, trials=5)

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
    journal = open_journal(question.workspace, question.name, question.identity)
    bench = open_bench(question, journal, Store(warm_store), silent)

    end = run_sweep(question, bench, trials=50)

    # float: 2 levels x 2 thread counts; dynamic: level all x 2 thread counts
    assert (end.reason, end.new) == ("exhausted", 6)


def test_the_front_is_confirmed_on_the_holdout_split_once(question: Experiment, warm_bench: Bench) -> None:
    run_sweep(question, warm_bench, trials=4)
    front = front_of(question, warm_bench.journal.evaluations())

    confirmed = confirm(question, warm_bench, front)
    recorder = Recorder()
    again = confirm(question, warm_bench, front, listeners=(recorder,))

    assert {question.baseline.id, *(e.candidate.id for e in front)} == set(confirmed)
    assert all(e.split == "holdout" and e.status == "complete" for e in confirmed.values())
    assert again == confirmed
    assert recorder.seen == []


def test_an_unmeetable_constraint_leaves_an_empty_front_and_no_failure(tmp_path: Path, warm_store: Path) -> None:
    text = EXPERIMENT.replace("accuracy_drop_pp: 2.0", "accuracy_drop_pp: 2.0, latency_p99_ms: 0.000001")
    question = read_experiment(write_workspace(tmp_path, experiment=text))
    journal = open_journal(question.workspace, question.name, question.identity)
    bench = open_bench(question, journal, Store(warm_store), silent)

    run_sweep(question, bench, trials=3)
    evaluations = bench.journal.evaluations()

    assert front_of(question, evaluations) == []
    stopped = [e for e in evaluations.values() if e.stop is not None]
    assert {e.stop.stage for e in stopped if e.stop} == {"latency_short"}
    assert all(e.stop.violations["latency_p99_ms"] > 0 for e in stopped if e.stop)


RUNNER = """
import pathlib, sys
from tests.search.test_sweep import silent
from workbench.evaluation.bench import open_bench
from workbench.search.executors import ChildProcess
from workbench.inputs.experiment import read_experiment
from workbench.evaluation.sweep_folders import exclusive, open_journal
from workbench.evaluation.store import Store
from workbench.search.sweep import run_sweep
question = read_experiment(pathlib.Path(sys.argv[1]))
journal = open_journal(question.workspace, question.name, question.identity)
def report(candidate, stage):
    print(candidate.quantization.scheme, stage, flush=True)
with exclusive(journal):
    store = Store(question.workspace / ".workbench" / "store")
    bench = open_bench(question, journal, store, report)
    with ChildProcess(question, bench) as executor:
        run_sweep(question, bench, executor=executor)
"""


def journal_of(experiment: Path) -> Journal:
    question = read_experiment(experiment)
    return open_journal(question.workspace, question.name, question.identity)


def start(experiment: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(experiment)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_a_sweep_killed_at_any_stage_goes_on_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    kept: dict[str, Evaluation] = {}
    # twice at the static candidate: a kill from outside never counts against it
    for moment in ("none latency_full", "dynamic compile", "static calibrate", "static smoke"):
        with start(file) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == moment:
                    break
            process.kill()
        before, kept = kept, journal_of(file).evaluations()
        assert {i: kept[i] for i in before} == before

    with start(file) as process:
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    after = journal_of(file).evaluations()
    assert len(after) == 6
    assert {i: after[i] for i in kept} == kept
    assert [e.candidate.quantization.scheme for e in after.values()][:3] == ["none", "dynamic", "static"]
    assert all(e.status != "failed" and e.attempt == 1 for e in after.values())


def test_a_candidate_whose_evaluation_dies_twice_while_the_sweep_lives_is_given_up(
    question: Experiment, bench: Bench
) -> None:
    deaths: list[str] = []

    def report(candidate: Candidate, stage: str) -> None:
        if candidate.quantization.scheme == "static" and stage == "smoke":
            if len(deaths) == 1 and "stopped" not in deaths[0]:
                deaths[0] += ", stopped"
                raise KeyboardInterrupt  # between the two: the first is not forgotten
            deaths.append(candidate.id)
            assert executor.pid is not None
            os.kill(executor.pid, signal.SIGSEGV)

    watched = replace(bench, report=report)
    with ChildProcess(question, watched) as executor:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(question, watched, trials=4, executor=executor)
        end = run_sweep(question, watched, trials=4, executor=executor)

    evaluations = bench.journal.evaluations()
    assert (end.reason, len(evaluations), len(deaths)) == ("budget", 4, 2)
    (failed,) = [e for e in evaluations.values() if e.failure is not None]
    assert failed.candidate.id == deaths[1]
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.stage) == ("CrashError", "smoke")
    assert "crashed 2 times" in failed.failure.message
    assert "SIGSEGV" in failed.failure.message
    assert not failed.deserves_another


def test_a_candidate_that_ran_out_of_time_is_tried_once_more_when_the_sweep_goes_on(
    question: Experiment, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("workbench.targets.onnxruntime.compiler._TIMEOUT_S", 0.001)  # the real child is killed
        run_sweep(question, bench, trials=3)
    before = bench.journal.evaluations()
    recorder = Recorder()

    end = run_sweep(question, bench, trials=3, listeners=(recorder,))

    assert {e.failure.kind for e in before.values() if e.failure} == {"CompileError"}
    assert (end.new, end.reused) == (3, 0)
    after = bench.journal.evaluations()
    assert set(after) == set(before)
    assert all(e.status != "failed" and e.attempt == 2 for e in after.values())
    assert [(e.candidate.id, reused) for e, reused in recorder.seen] == [(i, False) for i in before]


def test_a_second_transient_failure_stands(question: Experiment, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.targets.onnxruntime.compiler._TIMEOUT_S", 0.001)  # the real child is killed

    ends = [run_sweep(question, bench, trials=3) for _ in range(3)]

    assert [(end.new, end.reused) for end in ends] == [(3, 0), (3, 0), (0, 3)]
    assert {(e.status, e.attempt) for e in bench.journal.evaluations().values()} == {("failed", 2)}


def test_a_second_attempt_that_was_interrupted_is_queued_once(
    question: Experiment, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("workbench.targets.onnxruntime.compiler._TIMEOUT_S", 0.001)  # the real child is killed
        run_sweep(question, bench, trials=3)

    def interrupted(candidate: Candidate, stage: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(question, replace(bench, report=interrupted), trials=3)
    end = run_sweep(question, bench, trials=3)

    assert (end.new, end.repeats) == (3, 0)
    assert all(e.status != "failed" for e in bench.journal.evaluations().values())


def test_a_failure_that_would_repeat_itself_is_not_tried_again(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    path = tmp_path / "data" / "model.onnx"
    proto = onnx.load(path)
    bias = next(t for t in proto.graph.initializer if t.name == "b1")
    bias.CopyFrom(numpy_helper.from_array(np.full(bias.dims[0], np.nan, np.float32), "b1"))
    onnx.save(proto, path)
    question = read_experiment(file)
    journal = open_journal(question.workspace, question.name, question.identity)
    bench = open_bench(question, journal, Store(tmp_path / ".workbench" / "store"), silent)
    run_sweep(question, bench, trials=1)

    end = run_sweep(question, bench, trials=1)

    assert (end.new, end.reused) == (0, 1)
    assert [e.status for e in journal.evaluations().values()] == ["failed"]


def test_ctrl_c_stops_cleanly_and_the_candidate_in_flight_comes_back(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    with start(file) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("dynamic"):
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=60)
    assert process.returncode != 0

    with start(file) as process:
        output, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert "dynamic check" in output
    assert len(journal_of(file).evaluations()) == 6


def test_a_torn_last_line_of_the_study_is_dropped(question: Experiment, warm_bench: Bench) -> None:
    run_sweep(question, warm_bench, trials=2)
    with warm_bench.journal.study.open("ab") as stream:
        stream.write(b'{"op_code":5,"worker_id":"x')

    end = run_sweep(question, warm_bench, trials=3)

    assert (end.new, end.reused) == (1, 2)


def test_two_sweeps_of_one_experiment_do_not_run_at_once(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    with start(file) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with start(file) as second:
            _, errors = second.communicate(timeout=60)
        first.kill()

    assert second.returncode != 0
    assert f"process {first.pid} is running this sweep already" in errors


def test_the_time_limit_is_kept_between_candidates(question: Experiment, warm_bench: Bench) -> None:
    end = run_sweep(question, warm_bench, timeout_s=0.001)

    assert (end.reason, end.new) == ("timeout", 0)


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
        journal = open_journal(question.workspace, question.name, question.identity)
        bench = open_bench(question, journal, Store(small / ".workbench" / "store"), silent)
        with pytest.raises(ToolchainError, match=r"[Nn]o space|full|free"):
            run_sweep(question, bench, trials=40)
        bench.store.close()
        kept = journal.evaluations()
        assert kept
        assert all(e.status in ("complete", "stopped") for e in kept.values())
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        again = open_bench(question, journal, Store(small / ".workbench" / "store"), silent)
        end = run_sweep(question, again, trials=len(kept) + 1)
        again.store.close()
        assert end.new == 1
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize(
    ("sampler", "objectives"),
    [
        ("auto", "[latency_p50_ms]"),
        ("tpe", "[speedup, size_mb, accuracy]"),
        ("gp", "[latency_p50_ms]"),
        ("gp", "[latency_p50_ms, accuracy]"),
        ("nsga2", "[latency_p50_ms, accuracy]"),
        ("random", "[throughput_per_s, accuracy]"),
    ],
)
def test_every_sampler_searches_with_one_two_or_three_objectives(
    tmp_path: Path, warm_store: Path, sampler: str, objectives: str
) -> None:
    if sampler == "gp":
        pytest.importorskip("torch", reason="the GP sampler needs torch")
    text = EXPERIMENT.replace("[latency_p50_ms, accuracy]", objectives) + f"sampler: {sampler}\n"
    question = read_experiment(write_workspace(tmp_path, experiment=text))
    journal = open_journal(question.workspace, question.name, question.identity)
    bench = open_bench(question, journal, Store(warm_store), silent)

    end = run_sweep(question, bench, trials=6)

    assert end.new == 6
    assert front_of(question, journal.evaluations())
