"""A sweep on several emulated cards: the same answer as on one, whatever becomes of a card."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.binned_texts import SERVICE_QUESTION, write_binned_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.search.sweeping import Recorder
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.executors.worker_pool import local_workers
from workbench.search.front import front_of
from workbench.search.stages.request import Task
from workbench.search.sweep import confirm, run_sweep
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

CARDS = 3
SPACE = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16, must_keep_origin_dtype]}
  compile.batches: {choices: ["1", "1 2"]}
  compile.sequence_bins: {choices: ["48", "8 48"]}
service: {max_batch_size: [1, 2], batch_timeout_ms: [0], workers: [1]}
"""
"""As many candidates as are asked for, of few files each."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cards")
    file = write_binned_workspace(folder, "classification")
    (folder / "search_spaces" / "bins.yaml").write_text(SPACE, encoding="utf-8")
    text = file.read_text(encoding="utf-8").replace("objectives: [latency_p50_ms]\n", SERVICE_QUESTION)
    file.write_text(text.replace("trials: 2", "trials: 8") + "compile: all\n", encoding="utf-8")
    environment = emulated_environment(folder / "cann", CANN_EMULATOR_DEVICES=str(CARDS))
    with switched_on(environment), pytest.MonkeyPatch.context() as patch:
        for path in environment["PYTHONPATH"].split(":"):
            patch.syspath_prepend(path)  # what the processes of the cards see, this one sees too
        yield file


@pytest.fixture
def opened(workspace: Path, tmp_path: Path) -> Iterator[tuple[Experiment, Bench]]:
    question = read_experiment(workspace)
    journal = open_journal(tmp_path, question.name, question.identity)
    store = Store(workspace.parents[1] / "store")
    yield question, open_bench(question, journal, store, lambda candidate, stage: None)
    store.close()


def numbers(evaluations: dict[str, Evaluation]) -> dict[str, list[float]]:
    """What the device decides; the rest is the host's."""
    names = ("accuracy", "latency_p50_ms", "speedup", "service_throughput_per_s")
    return {i: [metrics(e)[name] for name in names] for i, e in evaluations.items()}


def test_several_cards_measure_what_one_measures_each_beside_the_baseline(opened: tuple[Experiment, Bench]) -> None:
    question, bench = opened
    recorder = Recorder()
    with local_workers(question, bench, compilers=1) as workers:
        assert (len(workers.cards), workers.here, len(workers.compilers)) == (CARDS, CARDS, 1)
        end = run_sweep(question, bench, listeners=(recorder,), workers=workers)
        first = workers.cards[0]
        front = front_of(question, bench.journal.evaluations())
        confirmed = confirm(question, bench, front, workers=workers)
        alone = {e.candidate.id: first.evaluate(Task(candidate=e.candidate, gates=False)) for e, _ in recorder.seen[:3]}

    assert set(confirmed) == {question.baseline.id, *(e.candidate.id for e in front)}
    assert len({e.place for e in confirmed.values()}) == min(CARDS, len(confirmed))
    found = bench.journal.evaluations()
    assert (end.reason, len(found), len(recorder.seen)) == ("budget", 8, 8)
    assert len({e.place for e in found.values()}) > 1
    assert all(e.place is not None and e.place.card in {"0", "1", "2"} for e in found.values())
    assert recorder.seen[0][0].candidate.id == question.baseline.id  # what all are compared with comes alone
    compared = {i: found[i] for i in alone if found[i].status == "complete"}
    assert compared
    assert numbers({i: alone[i] for i in compared}) == numbers(compared)
