"""The end of the pipeline on a real session: the curve, the best settings, and the real service under real load."""

from collections.abc import Iterator

import pytest

from tests.tiny import EXPERIMENT, SPACE, write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.front import is_feasible
from workbench.search.pipeline import evaluate
from workbench.search.sweep import confirm
from workbench.shipping.service_confirmation import LoadTrial, confirm_services, served
from workbench.values.candidate import Candidate, Quantization, Serving
from workbench.values.measurement import ServiceResult
from workbench.values.metrics import metrics
from workbench.values.service import ServiceSettings

HOST = "{request_ms: 0.4, batch_ms: 0.2, client_ms: 0.1, cores: 2, origin: a test}"
SERVICE = f"service: {{concurrency: 8, p99_ms: 500, curve: 1s, confirm: 1s, host: {HOST}}}\n"
CHOICES = "service: {max_batch_size: [1, 4, 8], batch_timeout_ms: [0, 5], workers: [1, 2]}\n"
INT8 = Candidate(
    target="onnxruntime",
    quantization=Quantization(scheme="dynamic", weight_granularity="channel"),
    serving=Serving(intra_op_threads=1),
)
Opened = tuple[Experiment, Bench]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("workspace")
    text = EXPERIMENT.replace("[latency_p50_ms, accuracy]", "[service_throughput_per_s, accuracy]") + SERVICE
    file = write_workspace(folder, experiment=text, space=SPACE + CHOICES)
    question = read_experiment(file)
    journal = open_journal(question.workspace, question.name, question.identity, fresh=True)
    store = Store(folder / ".workbench" / "store")
    yield question, open_bench(question, journal, store, lambda candidate, stage: None)
    store.close()


def test_the_last_stage_finds_the_best_settings_and_says_what_untuned_ones_give(opened: Opened) -> None:
    question, bench = opened
    found = evaluate(question, INT8, bench)
    bench.journal.write(found)

    assert (found.status, found.stage_reached) == ("complete", "service")
    service, numbers = found.measurement.service, metrics(found)
    assert service.tried == 10  # 2 without batching, 2 x 2 x 2 with
    assert service.untuned.settings == ServiceSettings()
    assert service.best.throughput_per_s.value >= service.untuned.throughput_per_s.value
    assert "assumed" in service.best.host.origin
    assert (service.curve.batches, service.curve.lengths) == ((1, 4, 8), (0,))
    assert numbers["service_throughput_per_s"] == service.best.throughput_per_s.value
    assert numbers["startup_s"] > 0
    assert is_feasible(question, found)
    assert ("service_p99_ms", 500.0) in [(c.metric, c.limit) for c in question.constraints]


def test_held_out_data_choose_nothing_and_the_front_is_served_and_loaded(opened: Opened) -> None:
    question, bench = opened
    searched = bench.journal.evaluation(INT8.id, "validation")
    front = [searched]
    said: list[str] = []

    def here(trial: LoadTrial) -> ServiceResult:
        return served(question, trial.candidate, bench, report=trial.report, seconds=trial.seconds)

    confirm(question, bench, front)
    confirm_services(question, bench, bench.journal, front, report=said.append, server=here)

    before, confirmed = searched.measurement.service, bench.journal.evaluation(INT8.id, "holdout")
    after = confirmed.measurement.service
    assert after.best.settings == before.best.settings
    assert after.confirmed is not None, after.note
    assert after.confirmed.kind == "measured"
    assert after.confirmed.errors == 0
    assert after.confirmed.throughput_per_s.value > 0
    assert metrics(confirmed)["service_throughput_per_s"] == after.confirmed.throughput_per_s.value
    assert len(said) == 4  # the baseline and one member, two sentences each

    confirm_services(question, bench, bench.journal, front, report=said.append, server=here)
    assert len(said) == 4, "what was measured is not measured again"
