"""The front, and its confirmation on held-out data."""

from dataclasses import replace
from pathlib import Path

from tests.evaluations import evaluation, service
from tests.search.sweeping import Recorder
from tests.tiny import EXPERIMENT, SPACE, bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.confirmation import confirm
from workbench.search.effort import Effort
from workbench.search.front import front_of
from workbench.search.sweep import run_sweep
from workbench.search.time_limit import predicted_by_search
from workbench.values.reuse import Reuse


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
    bench = bench_of(question, warm_store)

    run_sweep(question, bench, trials=3)
    evaluations = bench.journal.evaluations()

    assert front_of(question, evaluations) == []
    stopped = [e for e in evaluations.values() if e.stop is not None]
    assert {e.stop.stage for e in stopped if e.stop} == {"latency_short"}
    assert all(e.stop.violations["latency_p99_ms"] > 0 for e in stopped if e.stop)


def test_a_curve_is_not_timed_again_where_a_load_comes_next(tmp_path: Path) -> None:
    space = SPACE + "service: {max_batch_size: [1], batch_timeout_ms: [0], workers: [1]}\n"
    quiet = service()
    noisy = replace(quiet, curve=replace(quiet.curve, quiet=False))
    stands = []
    for seconds in (0, 2):
        text = f"{EXPERIMENT}service: {{concurrency: 4, confirm: {seconds}}}\n"
        question = read_experiment(write_workspace(tmp_path / str(seconds), experiment=text, space=space))
        stands += [predicted_by_search(question, evaluation(served=each)) for each in (quiet, noisy, None)]

    assert stands == [False, False, False, True, False, False]
    reused = replace(evaluation(served=quiet), reuse=(Reuse(kind="curve", key="0" * 64, source="1" * 64),))
    assert not predicted_by_search(question, reused)
    words = Effort(curve=False, loaded=True).words(question, "holdout")
    assert not any("curve" in word for word in words)
