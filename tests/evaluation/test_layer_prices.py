"""Prices of layers on a device: kernels of two files mapped to layers."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.ascend_workspace import write_ascend_workspace
from tests.emulated_cann import emulated_environment, switched_on
from workbench.cann_emulator.om import load_om
from workbench.cann_emulator.timing import stream_us
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.journal import Journal
from workbench.evaluation.layer_prices import layer_prices
from workbench.evaluation.store import Store
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.lowering.normalize import normalized
from workbench.study.layers import plain_recipe
from workbench.values.candidate import Candidate
from workbench.values.modelled_times.device_data import load_device_data


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Experiment, Bench]]:
    file = write_ascend_workspace(tmp_path_factory.mktemp("workspace"))
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"))):
        question = read_experiment(file)
        store = Store(question.workspace / ".workbench" / "store")
        journal = Journal(root=tmp_path_factory.mktemp("journal"))
        yield question, open_bench(question, journal, store, lambda candidate, stage: None)
        store.close()


def test_layers_are_priced_by_the_files_of_the_device_with_their_fusions(asked: tuple[Experiment, Bench]) -> None:
    question, bench = asked
    feeds = next(calibration_feeds(question.dataset, question.model, batch=1, samples=1))
    names = [layer.name for layer in quantizable_layers(normalized(load_graph(question.model)))]

    layers, found = layer_prices(question, bench, plain_recipe(), feeds, names)

    def device_us(candidate: Candidate) -> float:
        artifact, directory = artifact_of(question, candidate, bench)
        om = load_om(directory / artifact.files[0].file)
        return stream_us(om, 0, load_device_data("Ascend910B3"))

    assert (found.level, found.batch, found.length) == ("modelled", 1, 8)
    assert found.unpriced == ()
    assert set(layers) == set(names)
    assert found.call_us == pytest.approx(device_us(question.baseline), abs=0.1)
    assert all(plain > 0 and int8 > 0 for plain, int8 in layers.values())
    quantized = device_us(replace(question.baseline, quantization=plain_recipe()))
    by_recipe = [layers[name] for name in names if name not in ("scores", "context")]
    told = sum(plain - int8 for plain, int8 in by_recipe)
    assert told == pytest.approx(found.call_us - quantized, rel=0.1)  # a little is in kernels of no layer
    # query, key and value read one tensor: one AscendQuant is for all three
    assert layers["query"] == layers["key"] == layers["value"]
