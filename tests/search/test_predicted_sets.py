"""Sets of compiled shapes, predicted before they are compiled: a sweep of texts on the emulated device."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.binned_texts import SERVICE_QUESTION, write_binned_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.search.sweeping import Recorder
from tests.tiny import bench_of
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.front import audit_failed, is_deferred, may_be_on_front
from workbench.search.sweep import run_sweep

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
    for evaluation in whole:
        service, prediction = evaluation.measurement.service, evaluation.prediction
        assert service.best.throughput_per_s.value <= prediction.throughput_per_s.high * 1.001

    assert run_sweep(question, bench).new == 0
    assert bench.journal.evaluations() == found
