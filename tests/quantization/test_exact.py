"""AMCT's own procedure: its numbers, its order of work, and what it may keep in memory."""

import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.data import AMCT
from tests.quantization.golden import GOLDEN, Golden, amct_recipe, cnn, data, mlp
from tests.quantization.networks import choose
from tests.targets.encoder import ids, model_of, save, tiny_encoder
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.exact import calibrate_exactly
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]
IFMR = {"algorithm": "ifmr", "symmetric": False}
HFMG = {"algorithm": "hfmg", "symmetric": False}


def written(tmp_path: Path, proto: onnx.ModelProto) -> Model:
    return read_model(save(proto, tmp_path / "model.onnx"))


# --- golden numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_the_procedure_gives_amcts_numbers(golden: Golden, tmp_path: Path) -> None:
    model = written(tmp_path, golden.build())

    record = calibrate_exactly(model, golden.feeds, amct_recipe(model, golden.settings, golden.balance))

    assert [layer.layer for layer in record.layers] == [layer.layer for layer in golden.layers]
    for layer, expected in zip(record.layers, golden.layers, strict=True):
        assert layer.activation.scale == pytest.approx(expected.scale_d, rel=2e-6)
        assert layer.activation.zero_point == expected.offset_d
        assert layer.weight is not None
        assert layer.weight.scales == pytest.approx(expected.scale_w, rel=2e-6)
        assert layer.balance == (None if expected.balance is None else pytest.approx(expected.balance, rel=2e-6))
    # no runtime between the data and the first layer: every digit that AMCT printed
    assert np.float32(record.layers[0].activation.scale) == np.float32(golden.layers[0].scale_d)


RECORDED: dict[str, tuple[dict[str, Any], float | None]] = {
    "mlp3_asym": (IFMR, None),
    "cnn_asym": (IFMR, None),
    "cnn_hfmg": (HFMG, None),
    "mlp_dmq": (IFMR, 0.5),
}


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_cases_of_amct_come_out_again(case: str) -> None:
    folder = AMCT / case
    model = read_model(folder / "float.onnx")
    with np.load(folder / "calib.npz") as stored:
        feeds = [{"x": stored[name]} for name in stored.files]
    expected = [recorded_layer(text) for text in (folder / "record.txt").read_text().split("record {")[1:]]

    record = calibrate_exactly(model, lambda: feeds, amct_recipe(model, *RECORDED[case]))

    for layer, numbers in zip(record.layers, expected, strict=True):
        assert [layer.activation.scale] == pytest.approx(numbers["scale_d"], rel=2e-6)
        assert [layer.activation.zero_point] == numbers["offset_d"]
        assert list(layer.weight.scales if layer.weight else (1.0,)) == pytest.approx(numbers["scale_w"], rel=2e-6)
        assert list(layer.balance or ()) == pytest.approx(numbers["tensor_balance_factor"], rel=2e-6)


def recorded_layer(text: str) -> dict[str, list[float]]:
    fields = ("scale_d", "offset_d", "scale_w", "tensor_balance_factor")
    return {name: [float(value) for value in re.findall(rf"\b{name}: (\S+)", text)] for name in fields}


# --- order of work -------------------------------------------------------------------------------------------------


def test_later_layers_see_quantized_weights_and_float_activations(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    minmax = amct_recipe(model, {"algorithm": "minmax", "symmetric": False})
    golden = GOLDEN[0]

    record = calibrate_exactly(model, golden.feeds, minmax)

    proto = load_graph(model)
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    scale = np.float32(record.layers[0].weight.scales[0])
    weight = np.clip(np.rint(values["fc1.weight"] / scale), -128, 127) * scale
    inputs = np.concatenate([feeds["x"] for feeds in golden.feeds()])
    hidden = np.maximum(inputs @ weight.T + values["fc1.bias"], 0)
    assert record.layers[1].activation.high == pytest.approx(float(hidden.max()), rel=1e-6)
    assert record.layers[1].activation.high != pytest.approx(
        float(np.maximum(inputs @ values["fc1.weight"].T + values["fc1.bias"], 0).max()), rel=1e-6
    )


def test_balance_factors_come_from_the_first_batch_alone(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    recipe = amct_recipe(model, IFMR, 0.5)
    golden = GOLDEN[5]
    other = [golden.feeds()[0], {"x": 5 * data((16, 8), 7)}]

    factors = [layer.balance for layer in calibrate_exactly(model, lambda: other, recipe).layers]

    assert factors == [pytest.approx(layer.balance, rel=2e-6) for layer in golden.layers]


def test_the_recorded_tensors_are_those_of_the_prepared_model(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    record = calibrate_exactly(model, GOLDEN[5].feeds, amct_recipe(model, IFMR, 0.5))

    prepared = prepare(load_graph(model), record)

    assert {layer.name: layer.activation for layer in quantizable_layers(prepared)} == {
        layer.layer: layer.activation.tensor for layer in record.layers
    }


def test_ifmr_does_not_depend_on_how_the_data_is_batched(tmp_path: Path) -> None:
    model = written(tmp_path, wide())
    rows = np.random.default_rng(0).standard_t(3, (48, 400)).astype(np.float32)
    whole = [{"x": rows}]
    pieces = [{"x": rows[start : start + 6]} for start in range(42, -1, -6)]
    recipe = amct_recipe(model, IFMR)

    assert (
        calibrate_exactly(model, lambda: whole, recipe).layers
        == calibrate_exactly(model, lambda: pieces, recipe).layers
    )


def test_the_same_batches_give_the_same_record(tmp_path: Path) -> None:
    model = written(tmp_path, cnn())
    recipe = amct_recipe(model, HFMG)
    feeds = GOLDEN[6].feeds()

    records = {calibrate_exactly(model, lambda: feeds, recipe, threads=threads).digest for threads in (1, 2, 3)}

    assert len(records) == 1


def test_products_of_activations_are_symmetric_whatever_the_recipe_says(tmp_path: Path) -> None:
    model = written(tmp_path, tiny_encoder())
    recipe = amct_recipe(model, IFMR)

    record = calibrate_exactly(model, lambda: [ids(4, 8)], recipe)

    zero_points = {
        layer.layer: (layer.activation.zero_point, layer.second.zero_point) for layer in record.layers if layer.second
    }
    assert zero_points == {"scores": (0, 0), "context": (0, 0)}
    assert any(layer.activation.zero_point for layer in record.layers if layer.weight)


def test_layers_that_the_recipe_leaves_out_keep_their_float_weights(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    recipe = amct_recipe(model, {"algorithm": "minmax", "symmetric": False})
    without = replace(recipe, layers={"fc2": recipe.layers["fc2"]}, float_layers=("fc1",))
    feeds = GOLDEN[0].feeds()

    record = calibrate_exactly(model, lambda: feeds, without)

    assert [layer.layer for layer in record.layers] == ["fc2"]
    assert record.float_layers == ("fc1",)
    statistics = observe(model, feeds)
    assert record.layers[0].activation == choose(statistics, without).layers[0].activation


def test_force_fp16_rounds_the_scales_and_marks_the_record(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    recipe = amct_recipe(model, IFMR)
    plain = calibrate_exactly(model, GOLDEN[0].feeds, recipe)

    forced = calibrate_exactly(model, GOLDEN[0].feeds, replace(recipe, force_fp16=True))

    assert forced.force_fp16
    for before, after in zip(plain.layers, forced.layers, strict=True):
        assert after.activation.scale == float(np.float16(before.activation.scale)) != before.activation.scale
        assert after.activation.zero_point == before.activation.zero_point


def test_a_weight_that_two_layers_share_is_quantized_once(tmp_path: Path) -> None:
    model = written(tmp_path, shared_weight())
    recipe = amct_recipe(model, IFMR)

    record = calibrate_exactly(model, lambda: [{"x": data((4, 6), 0)}], recipe)

    assert record.layers[0].weight == record.layers[1].weight
    other = WeightRecipe(algorithm="arq", per_channel=True)
    differing = {**recipe.layers, "b": replace(recipe.layers["b"], weight=other)}
    with pytest.raises(ValueError, match="'a' and 'b' share the weight 'w'"):
        calibrate_exactly(model, lambda: [{"x": data((4, 6), 0)}], replace(recipe, layers=differing))


def shared_weight() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="a"),
        helper.make_node("Tanh", ["h"], ["t"], name="t"),
        helper.make_node("MatMul", ["t", "w"], ["y"], name="b"),
    ]
    weight = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in "xy")
    return model_of(nodes, {"w": weight}, [given], [result])


def test_every_kind_of_convolution_and_pooling_goes_through(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="depthwise", group=4),
        helper.make_node("ConvTranspose", ["a", "w2"], ["b"], name="transposed", group=2),
        helper.make_node("AveragePool", ["b"], ["y"], name="pool", kernel_shape=[2, 2]),
    ]
    weights = {
        "w1": random.normal(size=(4, 1, 2, 2)).astype(np.float32),
        "w2": (random.normal(size=(4, 3, 2, 2)) * [[[[1]]], [[[1]]], [[[9]]], [[[9]]]]).astype(np.float32),
    }
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 6, 6])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6, 5, 5])
    model = written(tmp_path, model_of(nodes, weights, [given], [result]))
    feeds = [{"x": random.normal(size=(3, 4, 6, 6)).astype(np.float32)}]

    depthwise, transposed, pool = calibrate_exactly(model, lambda: feeds, amct_recipe(model, IFMR)).layers

    assert (len(depthwise.weight.scales), depthwise.weight.axis) == (4, 0)
    assert (len(transposed.weight.scales), transposed.weight.axis) == (6, 1)
    # the second group's weights are nine times as large
    assert np.mean(transposed.weight.scales[3:]) > 3 * np.mean(transposed.weight.scales[:3])
    assert pool.weight is None
    assert pool.activation.tensor == "b"


def test_convolutions_over_three_dimensions_are_symmetric(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="volume")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 3, 3, 3])
    weight = np.random.default_rng(0).normal(size=(2, 2, 2, 2, 2)).astype(np.float32)
    model = written(tmp_path, model_of([node], {"w": weight}, [given], [result]))

    record = calibrate_exactly(model, lambda: [{"x": 1 + data((1, 2, 4, 4, 4), 0)}], amct_recipe(model, IFMR))

    assert record.layers[0].activation.zero_point == 0


# --- percentiles deep inside, and algorithms AMCT does not have -----------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
def test_percentiles_that_need_another_pass_are_exact(tmp_path: Path, symmetric: bool) -> None:
    model = written(tmp_path, wide())
    feeds = [{"x": np.random.default_rng(seed).standard_t(3, (64, 400)).astype(np.float32)} for seed in range(3)]
    settings = IFMR | {"symmetric": symmetric, "max_percentile": 0.9, "min_percentile": 0.8}

    record = calibrate_exactly(model, lambda: feeds, amct_recipe(model, settings))

    scale, zero_point = plain_ifmr(np.concatenate([f["x"].ravel() for f in feeds]), ActivationRecipe(**settings))
    assert (record.layers[0].activation.scale, record.layers[0].activation.zero_point) == (scale, zero_point)


def wide() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 400])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])
    return model_of([node], {"w": np.ones((400, 2), np.float32)}, [given], [result])


def plain_ifmr(values: Floats, recipe: ActivationRecipe) -> tuple[float, int]:
    """AMCT's search as it is written down (amct.md §4.2): all values at once, one candidate after another."""
    ordered = np.sort(values)
    top = values.size - int(recipe.max_percentile * values.size) or 1
    bottom = values.size - int(recipe.min_percentile * values.size) or 1
    high, low = max(ordered[-top], np.float32(0)), min(ordered[bottom - 1], np.float32(0))
    losses, scales = [], []
    for factor in np.arange(recipe.search_start, recipe.search_end, recipe.search_step).astype(np.float32):
        if recipe.symmetric:
            clip = factor * max(high, -low)
            scale = clip / np.float32(128 if -low > high else 127)
            clipped = np.clip(values, -clip, clip)
        else:
            clip = factor * high
            scale = (clip - low) / np.float32(255)
            clipped = np.clip(values, low, clip)
        quantized = np.rint(clipped / scale) * scale
        losses.append(float(np.square(quantized - values).astype(np.float64).mean()))
        scales.append(scale)
    best = scales[int(np.argmin(losses))]
    return float(best), 0 if recipe.symmetric else -int(np.rint(low / best)) - 128


@pytest.mark.parametrize("algorithm", ["minmax", "moving_average", "percentile", "kl", "mse"])
def test_algorithms_that_amct_lacks_get_the_histogram_of_the_same_activations(tmp_path: Path, algorithm: str) -> None:
    model = written(tmp_path, wide())
    feeds = [{"x": np.random.default_rng(seed).standard_t(3, (5, 400)).astype(np.float32)} for seed in range(2)]
    settings = {"algorithm": algorithm, "symmetric": False, "percentile": 99.0 if algorithm == "percentile" else None}
    recipe = amct_recipe(model, settings)

    exact = calibrate_exactly(model, lambda: feeds, recipe)

    assert exact.layers == choose(observe(model, feeds), recipe).layers


# --- errors and memory ---------------------------------------------------------------------------------------------


def test_a_value_that_is_not_finite_is_reported_with_tensor_and_sample(tmp_path: Path) -> None:
    model = written(tmp_path, wide())
    feeds = [{"x": np.ones((6, 400), np.float32)} for _ in range(2)]
    feeds[1]["x"][3, 7] = np.nan

    with pytest.raises(CalibrationError, match=r"activation 'x' holds nan at sample 9\."):
        calibrate_exactly(model, lambda: feeds, amct_recipe(model, IFMR))


def test_no_batches_are_refused(tmp_path: Path) -> None:
    model = written(tmp_path, wide())

    with pytest.raises(CalibrationError, match="no calibration samples"):
        calibrate_exactly(model, list, amct_recipe(model, IFMR))


def test_batches_that_change_between_the_passes_are_refused(tmp_path: Path) -> None:
    model = written(tmp_path, wide())
    rows = iter([3, 4])

    with pytest.raises(CalibrationError, match=r"1200 values in the first pass .* and 1600 in the last one"):
        calibrate_exactly(
            model, lambda: [{"x": np.ones((next(rows), 400), np.float32)}], amct_recipe(model, IFMR), threads=1
        )


def test_a_recipe_for_another_model_is_refused(tmp_path: Path) -> None:
    model = written(tmp_path, wide())
    settings = LayerRecipe(activation=ActivationRecipe(**IFMR), weight=None)

    with pytest.raises(ValueError, match="'nowhere', which is no quantizable layer"):
        calibrate_exactly(model, list, ModelRecipe(layers={"nowhere": settings}))
    with pytest.raises(CalibrationError, match="leaves every layer in float"):
        calibrate_exactly(model, list, ModelRecipe(layers={}))


@pytest.mark.parametrize("settings", [IFMR, HFMG, IFMR | {"max_percentile": 0.9}], ids=["ifmr", "hfmg", "deep ifmr"])
def test_memory_does_not_grow_with_the_number_of_batches(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = written(tmp_path, wide())
    recipe = amct_recipe(model, settings)

    def batches(count: int) -> Iterator[dict[str, Floats]]:
        for seed in range(count):
            yield {"x": np.random.default_rng(seed).normal(size=(50, 400)).astype(np.float32)}

    peaks = []
    calibrate_exactly(model, lambda: batches(1), recipe)  # what is made once
    for count in (10, 80):  # 0.8 and 6.4 MB of activations
        tracemalloc.start()
        calibrate_exactly(model, lambda count=count: batches(count), recipe)  # type: ignore[misc]  # bound now
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] + 400_000
