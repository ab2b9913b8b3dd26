"""From recipe to record: which steps run, how often the data is read, and that the pieces belong to one model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

from tests.quantization.networks import choose, convolutions, images, perceptron, rows, saved
from workbench.graph.read import constants, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.statistics import Statistics
from workbench.testing.encoder import WEIGHT_LAYERS, ids, model_of, run, save, value
from workbench.values.candidate import EVERYTHING_INT8, Quantization
from workbench.values.model import Model


class Data:
    """Calibration batches that count how often they are read."""

    def __init__(self, batches: list[Feeds]) -> None:
        self.batches, self.passes = batches, 0

    def __call__(self) -> Iterator[Feeds]:
        self.passes += 1
        return iter(self.batches)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Two Linear layers whose first input channel is thirty times as large as the others."""
    return read_model(save(perceptron(), tmp_path_factory.mktemp("perceptron") / "model.onnx"))


def sentences() -> Data:
    return Data([ids(4, 7 + seed, seed) for seed in range(4)])


def lopsided() -> Data:
    batches = [rows(32, seed) for seed in range(4)]
    return Data([{"x": (feeds["x"] * np.array([30, 1, 1, 1, 1, 1, 1, 1], np.float32)) + 0.3} for feeds in batches])


def derived(model: Model, data: Data, recipe: Quantization) -> QuantizationRecord:
    statistics = observe(model, data())
    data.passes = 0
    return derive_record(model, recipe_of(recipe, statistics.layers), statistics, data)


def changes(model: Model, record: QuantizationRecord, data: Data) -> npt.NDArray[np.float64]:
    """What INT8 changes in the outputs, [samples, outputs]."""
    proto = onnx.load(model.path)
    lowered = lower_static(proto, record)
    found = [run(lowered, feeds)[0] - run(proto, feeds)[0] for feeds in data.batches]
    return np.concatenate(found).astype(np.float64)


def squared_error(model: Model, record: QuantizationRecord, data: Data) -> float:
    return float(np.square(changes(model, record, data)).mean())


@pytest.mark.parametrize("weights", ["minmax", "mse", "arq"])
def test_a_recipe_without_balance_rounding_or_correction_reads_no_data(encoder: Model, weights: str) -> None:
    data = sentences()
    recipe = replace(EVERYTHING_INT8, algorithm="mse", weight_algorithm=weights)

    record = derived(encoder, data, recipe)

    assert data.passes == 0
    statistics = observe(encoder, data())
    assert record == choose(encoder, statistics, recipe)
    assert {layer.layer for layer in record.layers} == {*WEIGHT_LAYERS, "scores", "context"}


def test_ranges_of_a_balanced_layer_are_those_of_the_balanced_model(encoder: Model) -> None:
    data = sentences()

    record = derived(encoder, data, replace(EVERYTHING_INT8, balance=0.5))

    prepared = prepare(onnx.load(encoder.path), record)
    wanted = {layer.activation.tensor for layer in record.layers}
    prepared.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted))
    seen = [dict(zip(sorted(wanted), run(prepared, feeds, sorted(wanted)), strict=True)) for feeds in data.batches]
    for layer in record.layers:
        values = [batch[layer.activation.tensor] for batch in seen]
        assert layer.activation.low == pytest.approx(min(0, *(v.min() for v in values)), rel=1e-5, abs=1e-6)
        assert layer.activation.high == pytest.approx(max(0, *(v.max() for v in values)), rel=1e-5, abs=1e-6)
    assert {layer.layer for layer in record.layers if layer.balance is not None} == set(WEIGHT_LAYERS)


def test_balancing_helps_where_one_channel_dwarfs_the_others(layers: Model) -> None:
    data = lopsided()
    plain = squared_error(layers, derived(layers, data, EVERYTHING_INT8), data)

    for balance in (0.5, "auto"):
        record = derived(layers, data, replace(EVERYTHING_INT8, balance=balance))
        assert squared_error(layers, record, data) < plain / 2


@pytest.mark.parametrize("network", ["gemm", "matmul", "convolutions"])
def test_bias_correction_takes_the_mean_error_away_and_reads_the_data_once(tmp_path: Path, network: str) -> None:
    data = Data([images(4, seed) for seed in range(4)]) if network == "convolutions" else lopsided()
    model = saved(convolutions() if network == "convolutions" else perceptron(gemm=network == "gemm"), tmp_path)
    plain = derived(model, data, EVERYTHING_INT8)

    corrected = derived(model, data, replace(EVERYTHING_INT8, bias_correction=True))

    assert data.passes == 1
    assert [replace(layer, bias_correction=None) for layer in corrected.layers] == list(plain.layers)
    channels = 1 if network == "convolutions" else -1
    errors = (np.moveaxis(changes(model, record, data), channels, -1) for record in (plain, corrected))
    before, after = (each.reshape(-1, each.shape[-1]).mean(axis=0) for each in errors)
    assert np.abs(after).sum() < np.abs(before).sum() * 2 / 3


def test_every_step_together_reads_the_data_three_times_and_stays_close_to_float(encoder: Model) -> None:
    data = sentences()
    recipe = replace(
        EVERYTHING_INT8, algorithm="mse", weight_algorithm="adaround", balance="auto", bias_correction=True
    )

    record = derived(encoder, data, recipe)

    assert data.passes == 3
    proto = onnx.load(encoder.path)
    (logits,), (int8,) = (run(model, data.batches[0]) for model in (proto, lower_static(proto, record)))
    assert np.abs(int8 - logits).max() < 0.05 * np.abs(logits).max()


def test_layers_in_float_are_neither_balanced_nor_corrected(encoder: Model) -> None:
    data = sentences()
    statistics = observe(encoder, data())
    recipe = recipe_of(
        replace(EVERYTHING_INT8, balance=0.5, bias_correction=True, keep_float=2), statistics.layers, ["up", "key"]
    )

    record = derive_record(encoder, recipe, statistics, data)

    assert record.float_layers == ("up", "key")
    assert not {"up", "key"} & {layer.layer for layer in record.layers}
    float_weights = {layer.weight for layer in statistics.layers if layer.name in ("up", "key")}
    before, after = (
        constants(model) for model in (normalized(onnx.load(encoder.path)), prepare(onnx.load(encoder.path), record))
    )
    for name in float_weights:
        assert name is not None
        assert before[name] == after[name]


# --- which settings, which scales ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def statistics(encoder: Model) -> Statistics:
    return observe(encoder, [ids(4, 8), ids(4, 12, seed=1)])


def with_activation(recipe: ModelRecipe, layer: str, **settings: object) -> ModelRecipe:
    changed = replace(recipe.layers[layer], activation=replace(recipe.layers[layer].activation, **settings))
    return replace(recipe, layers={**recipe.layers, layer: changed})


def test_layers_that_share_an_input_share_its_scale_only_where_their_settings_agree(
    encoder: Model, statistics: Statistics
) -> None:
    recipe = with_activation(
        recipe_of(EVERYTHING_INT8, statistics.layers), "key", algorithm="percentile", percentile=90.0
    )

    layers = {layer.layer: layer for layer in choose(encoder, statistics, recipe).layers}

    assert layers["query"].activation == layers["value"].activation
    assert layers["key"].activation.tensor == layers["query"].activation.tensor
    assert layers["key"].activation.scale < layers["query"].activation.scale


def test_a_convolutions_output_is_quantized_as_its_reader_asks(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Conv", ["h", "w2"], ["y"], name="second"),
    ]
    weights = {name: random.normal(size=(3, 3, 2, 2)).astype(np.float32) for name in ("w1", "w2")}
    proto = model_of(nodes, weights, [value("x", ["batch", 3, 5, 5])], [value("y", ["batch", 3, 3, 3])])
    model = saved(proto, tmp_path)
    statistics = observe(model, [{"x": random.normal(size=(4, 3, 5, 5)).astype(np.float32)}])
    recipe = with_activation(recipe_of(EVERYTHING_INT8, statistics.layers), "second", symmetric=True)

    first, second = choose(model, statistics, recipe).layers

    assert first.output == second.activation
    assert (second.activation.zero_point, first.activation.zero_point != 0) == (0, True)
    assert second.output.zero_point == 0
