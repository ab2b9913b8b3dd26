"""Sets of compiled shapes, predicted before they are compiled: a sweep of texts on the emulated device."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.binned_texts import SERVICE_QUESTION, write_binned_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.evaluations import candidate, evaluation, service
from tests.search.sweeping import Recorder
from tests.tiny import bench_of
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.front import audit_failed, audit_words, is_deferred, may_be_on_front
from workbench.search.sweep import run_sweep
from workbench.values.measurement import Estimate
from workbench.values.objectives import Objective
from workbench.values.results import Evaluation, Prediction, Stop

SPACE = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16, must_keep_origin_dtype]}
  compile.batches: {choices: ["1", "1 2 4 8"]}
  compile.sequence_bins: {choices: ["48", "8 48", "8 16 48", "8 24 48"]}
service: {max_batch_size: [1, 8], batch_timeout_ms: [0], workers: [1]}
presets:
  - {name: plain}
  - {name: three, compile.batches: "1 2 4 8", compile.sequence_bins: "8 16 48"}
  - {name: two, compile.batches: "1 2 4 8", compile.sequence_bins: "8 48"}
  - {name: float, compile.batches: "1 2 4 8", compile.sequence_bins: "8 48", precision.mode: must_keep_origin_dtype}
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Experiment, Bench]]:
    file = write_binned_workspace(tmp_path, "classification")
    (tmp_path / "search_spaces" / "bins.yaml").write_text(SPACE, encoding="utf-8")
    text = file.read_text(encoding="utf-8").replace("objectives: [latency_p50_ms]\n", SERVICE_QUESTION)
    file.write_text(text.replace("trials: 2", "trials: 3"), encoding="utf-8")
    with switched_on(emulated_environment(tmp_path / "cann")):
        question = read_experiment(file)
        bench = bench_of(question, tmp_path / "store")
        yield question, bench
        bench.store.close()


def test_sets_share_files_are_deferred_and_only_those_on_the_front_are_compiled_whole(
    opened: tuple[Experiment, Bench],
) -> None:
    question, bench = opened
    runs = Recorder()

    run_sweep(question, bench, listeners=[runs])

    found = bench.journal.evaluations()
    assert len(found) == 3
    first = runs.seen[1][0]
    assert is_deferred(first), "three lengths of four batches"
    assert first.compiled < 11, "no more than its times need"
    assert first.prediction is not None
    assert sum(e.compiled for e in found.values()) <= 12, "one set's files are the other's"
    assert may_be_on_front(question, found) == []
    assert not audit_failed(found.values())
    whole = [e for e in found.values() if e.status == "complete" and e.prediction and e.prediction.throughput_per_s]
    assert whole, "what may be on the front was compiled"
    for one in whole:
        service, prediction = one.measurement.service, one.prediction
        assert service.best.throughput_per_s.value <= prediction.throughput_per_s.high * 1.001

    assert run_sweep(question, bench).new == 0
    assert bench.journal.evaluations() == found


# --- which of those that wait are compiled whole ---------------------------------------------------------------------


class _Question:
    """What `may_be_on_front` asks of an experiment."""

    objectives = (Objective(metric="service_throughput_per_s"), Objective(metric="accuracy"))
    constraints = ()
    baseline = candidate(threads=9)


ASKED = cast(Experiment, _Question())


def about(value: float, spread: float = 0.1) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def member(rate: float, accuracy: float, threads: int = 1) -> Evaluation:
    return evaluation(threads=threads, accuracy=accuracy, served=service(rate))


def set_waiting(rate: float, accuracy: float, keep_float: int) -> Evaluation:
    prediction = Prediction(structure="s", shapes=12, throughput_per_s=about(rate), accuracy=accuracy)
    stop = Stop(stage="predict", reason="predicted")
    return replace(evaluation(scheme="static", keep_float=keep_float, stop=stop), prediction=prediction)


def by_id(*found: Evaluation) -> dict[str, Evaluation]:
    return {e.candidate.id: e for e in found}


def test_who_may_be_on_the_front_is_compiled_the_best_first() -> None:
    front = member(900, 0.95)
    quick, slow, exact = set_waiting(1000, 0.94, 0), set_waiting(800, 0.95, 1), set_waiting(500, 0.96, 2)
    near = set_waiting(850, 0.95, 4)  # 935/s at best

    assert may_be_on_front(ASKED, by_id(front, quick, slow, exact, near)) == [quick, near, exact]
    assert may_be_on_front(ASKED, by_id(slow)) == [slow], "nobody is on the front"


def test_a_prediction_that_was_wrong_has_everything_compiled_and_is_said() -> None:
    front, slow = member(900, 0.95), set_waiting(100, 0.5, 1)
    held, wrong = member(900, 0.94, 3), member(900, 0.94, 4)
    predictions = [Prediction(structure="s", shapes=12, throughput_per_s=about(rate)) for rate in (900, 100)]
    held, wrong = (replace(e, prediction=p) for e, p in zip((held, wrong), predictions, strict=True))

    assert may_be_on_front(ASKED, by_id(front, slow, held)) == []
    assert "2 sets of shapes were predicted" in audit_words([front, slow, held])
    found = by_id(front, slow, wrong)
    assert audit_failed(found.values())
    assert slow in may_be_on_front(ASKED, found)
    assert "serves 900/s, predicted were 110 at most" in audit_words([*found.values()])
