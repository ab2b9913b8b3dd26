"""The pipeline: who stops where and why, and how failures become values."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.retrievals import write_retrieval
from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.api.opening import summary_of
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report.table import table_lines
from workbench.search.pipeline import evaluate
from workbench.values.candidate import Candidate, Quantization, Serving
from workbench.values.metrics import metrics
from workbench.values.results import STAGES, Evaluation, evaluation_from_json

DYNAMIC = Candidate(
    target="onnxruntime",
    quantization=Quantization(scheme="dynamic", weight_granularity="channel"),
    serving=Serving(intra_op_threads=1),
)
Opened = tuple[Experiment, Bench]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    benches: list[Bench] = []

    def open_with(
        constraints: str = "accuracy_loss_pp: 2.0", change: Callable[[onnx.ModelProto], None] | None = None
    ) -> Opened:
        text = EXPERIMENT.replace("accuracy_loss_pp: 2.0", constraints)
        file = write_workspace(tmp_path, experiment=text)
        if change is not None:
            path = tmp_path / "data" / "model.onnx"
            proto = onnx.load(path)
            change(proto)
            onnx.save(proto, path)
        question = read_experiment(file)
        bench = bench_of(question, fresh=True)
        benches.append(bench)
        return question, bench

    yield open_with
    for bench in benches:
        bench.store.close()


def stages(evaluation: Evaluation) -> list[str]:
    return [timing.stage for timing in evaluation.stages]


def test_a_sound_candidate_passes_every_stage_in_order(opened: Callable[..., Opened]) -> None:
    question, bench = opened()

    found = evaluate(question, DYNAMIC, bench)

    assert found.status == "complete"
    assert stages(found) == [s for s in STAGES if s not in ("calibrate", "service")]
    assert found.agreement is None, "nobody asks for it in the search"
    assert found.measurement.int8_ops == 3
    assert found.measurement.float_matmuls_left == 0
    assert found.measurement.accuracy.samples == 320
    assert found.measurement.accuracy.comparison.test == "McNemar exact"
    assert found.measurement.latency.samples >= 60
    assert found.measurement.latency.p99_ms is None
    assert found.measurement.peak_memory_bytes is not None
    assert bench.journal.outcomes(DYNAMIC.id, "validation").exists()
    assert bench.journal.latency(DYNAMIC.id, "validation").exists()


def test_the_baseline_and_whoever_has_no_gates_stop_nowhere(opened: Callable[..., Opened]) -> None:
    question, bench = opened("accuracy_loss_pp: -50, size_mb: 0.000001, latency_p50_ms: 0.0000001")

    found = evaluate(question, question.baseline, bench)

    assert found.status == "complete"
    assert found.measurement.accuracy.comparison is None
    assert found.measurement.latency is not None
    assert evaluate(question, DYNAMIC, bench, gates=False).status == "complete"
    confirmed = evaluate(question, DYNAMIC, bench, gates=False, split="holdout")
    assert confirmed.measurement.accuracy is not None
    assert confirmed.agreement.find("served") is not None
    assert metrics(confirmed)["cosine"] > 0.9


def test_a_broken_limit_stops_a_candidate_where_it_is_certain_with_its_amount(opened: Callable[..., Opened]) -> None:
    question, bench = opened("size_mb: 0.000001")
    large = evaluate(question, DYNAMIC, bench)
    assert large.status == "stopped"
    assert large.stop.violations["size_mb"] > 0
    assert "the limit is 1e-06" in large.stop.reason
    assert "smoke" not in stages(large)

    question, bench = opened("accuracy_loss_pp: -50")
    wrong = evaluate(question, DYNAMIC, bench)
    assert wrong.stop.stage == "accuracy_subset"
    assert wrong.measurement.accuracy.samples < 320
    lost = wrong.measurement.accuracy.comparison.drop_pp.value
    assert wrong.stop.violations["accuracy_loss_pp"] == pytest.approx(lost + 50)
    assert "certainly at least" in wrong.stop.reason
    assert wrong.measurement.latency is None

    question, bench = opened("latency_p99_ms: 0.0000001")
    slow = evaluate(question, DYNAMIC, bench)
    assert slow.stop.stage == "latency_short"
    assert slow.stop.violations["latency_p99_ms"] > 0


def test_nan_in_the_output_is_a_failure_with_stage_message_log_and_command(opened: Callable[..., Opened]) -> None:
    def poison(proto: onnx.ModelProto) -> None:
        bias = next(t for t in proto.graph.initializer if t.name == "b1")
        bias.CopyFrom(numpy_helper.from_array(np.full(bias.dims[0], np.nan, np.float32), "b1"))

    question, bench = opened(change=poison)

    found = evaluate(question, DYNAMIC, bench)

    assert found.failure.stage == "smoke"
    assert "NaN or Inf" in found.failure.message
    assert found.failure.reproduce == f"workbench evaluate {question.path} --candidate {DYNAMIC.short_id}"
    assert "MeasureError" in Path(found.failure.log_path).read_text()
    assert not found.deserves_another, "it would repeat itself"


def test_a_model_the_runtime_refuses_is_a_failure_that_keeps_the_compilers_log(opened: Callable[..., Opened]) -> None:
    def break_shapes(proto: onnx.ModelProto) -> None:
        bias = next(t for t in proto.graph.initializer if t.name == "b1")
        bias.CopyFrom(numpy_helper.from_array(np.zeros(bias.dims[0] - 1, np.float32), "b1"))

    question, bench = opened(change=break_shapes)

    found = evaluate(question, DYNAMIC, bench)

    assert found.failure.stage == "compile"
    assert found.failure.kind == "CompileError"
    log = Path(found.failure.log_path).read_text()
    assert log.startswith("compile: CompileError: ")
    assert len(log.splitlines()) > 1


def test_a_limit_on_the_cosine_is_measured_in_the_search_and_stops_who_breaks_it(opened: Callable[..., Opened]) -> None:
    question, bench = opened("accuracy_loss_pp: 20.0, worst_cosine: 0.9999999")

    evaluation = evaluate(question, DYNAMIC, bench)

    assert evaluation.status == "stopped"
    assert (evaluation.stop.stage, set(evaluation.stop.violations)) == ("accuracy_full", {"worst_cosine"})
    served = evaluation.agreement.find("served")
    assert metrics(evaluation)["worst_cosine"] == served.worst_cosine < 0.9999999
    assert evaluation_from_json(evaluation.to_json()) == evaluation


def test_a_retrieval_has_two_losses_with_intervals_a_self_test_and_a_column_of_its_own(tmp_path: Path) -> None:
    file = write_retrieval(tmp_path, "  relevance: label\n")
    file.write_text(file.read_text().replace("_pp: 5.0", "_pp: 5.0, accuracy_loss_pp_float_index: 0.01"))
    question = read_experiment(file)
    with closing(bench_of(question).store) as store:
        bench = replace(bench_of(question), store=store)
        baseline, found = (evaluate(question, one, bench) for one in (question.baseline, DYNAMIC))
    assert baseline.measurement.accuracy.proof.startswith("recall_at_5 moves from")
    numbers = metrics(found)
    for name in ("accuracy_loss_pp", "accuracy_loss_pp_float_index"):
        assert numbers[f"{name}_low"] < numbers[name] < numbers[f"{name}_high"]
    values = found.measurement.accuracy.values
    lost = baseline.measurement.accuracy.values["recall_at_5"] - values["float_index.recall_at_5"]
    assert numbers["accuracy_loss_pp_float_index"] == pytest.approx(100 * lost)
    assert (found.status == "stopped") == (100 * lost > 0.01)
    assert evaluation_from_json(found.to_json()) == found
    lines = [text for text, _ in table_lines(summary_of(question, bench.journal), 200)]
    assert "float index" in lines[0]
