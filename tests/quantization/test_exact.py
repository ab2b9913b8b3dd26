"""AMCT's own procedure: its numbers, its order of work, and what it may keep in memory."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

from tests.data import AMCT, AMCT_CASES
from tests.quantization.deploy_models import data, golden_batches, golden_float_model, golden_record, mlp
from tests.quantization.literal_ifmr import literal_search
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.amct.config import parse_config, recipe_of_config
from workbench.quantization.calibrate import calibrate_exactly
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.testing.encoder import model_of, save, value
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]
IFMR = {"algorithm": "ifmr", "symmetric": False}
HFMG = {"algorithm": "hfmg", "symmetric": False}


def feeds() -> list[dict[str, Floats]]:
    """Of `mlp`, as AMCT's golden cases had them."""
    return [{"x": data((16, 8), batch)} for batch in range(3)]


def written(tmp_path: Path, proto: onnx.ModelProto) -> Model:
    return read_model(save(proto, tmp_path / "model.onnx"))


# --- golden numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AMCT_CASES)
def test_the_procedure_gives_amcts_numbers(case: str, tmp_path: Path) -> None:
    folder = AMCT / case
    proto = golden_float_model(folder)
    batches = [{"x": batch} for batch in golden_batches(folder)]
    config = parse_config((folder / "config.json").read_text())

    record = calibrate_exactly(
        written(tmp_path, proto), lambda: batches, recipe_of_config(config, quantizable_layers(normalized(proto)))
    )

    golden = golden_record(folder, proto).layers
    for layer, expected in zip(record.layers, golden, strict=True):
        assert layer.activation.scale == pytest.approx(expected.activation.scale, rel=2e-6)
        assert layer.activation.zero_point == expected.activation.zero_point
        if layer.weight is not None:
            assert layer.weight.scales == pytest.approx(expected.weight.scales, rel=2e-6)
        assert (layer.balance or ()) == pytest.approx(expected.balance or (), rel=2e-6)
    # no runtime between the data and the first layer: every digit that AMCT printed
    assert np.float32(record.layers[0].activation.scale) == np.float32(golden[0].activation.scale)


def amct_recipe(model: Model, settings: dict[str, Any], balance: float | None = None) -> ModelRecipe:
    """AMCT's defaults for every layer: ARQ, per channel for convolutions."""
    found = {}
    for layer in quantizable_layers(load_graph(model)):
        weight = WeightRecipe(algorithm="arq", per_channel=layer.op_type in ("Conv", "ConvTranspose"))
        found[layer.name] = LayerRecipe(
            activation=ActivationRecipe(**settings),
            weight=weight if layer.weight else None,
            balance=balance if layer.weight else None,
        )
    return ModelRecipe(layers=found)


# --- order of work -------------------------------------------------------------------------------------------------


def test_force_fp16_rounds_the_scales_and_marks_the_record(tmp_path: Path) -> None:
    model = written(tmp_path, mlp())
    recipe = amct_recipe(model, IFMR)
    plain = calibrate_exactly(model, feeds, recipe)

    forced = calibrate_exactly(model, feeds, replace(recipe, force_fp16=True))

    assert forced.force_fp16
    for before, after in zip(plain.layers, forced.layers, strict=True):
        assert after.activation.scale == float(np.float16(before.activation.scale)) != before.activation.scale
        assert after.activation.zero_point == before.activation.zero_point


def test_a_weight_that_two_layers_share_is_quantized_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="a"),
        helper.make_node("Tanh", ["h"], ["t"], name="t"),
        helper.make_node("MatMul", ["t", "w"], ["y"], name="b"),
    ]
    weight = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    model = written(tmp_path, model_of(nodes, {"w": weight}, [value("x", [4, 6])], [value("y", [4, 6])]))
    recipe = amct_recipe(model, IFMR)

    record = calibrate_exactly(model, lambda: [{"x": data((4, 6), 0)}], recipe)

    assert record.layers[0].weight == record.layers[1].weight
    other = WeightRecipe(algorithm="arq", per_channel=True)
    differing = {**recipe.layers, "b": replace(recipe.layers["b"], weight=other)}
    with pytest.raises(ValueError, match="'a' and 'b' share the weight 'w'"):
        calibrate_exactly(model, lambda: [{"x": data((4, 6), 0)}], replace(recipe, layers=differing))


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
    ends = [value("x", ["rows", 400])], [value("y", ["rows", 2])]
    return model_of([node], {"w": np.ones((400, 2), np.float32)}, *ends)


def plain_ifmr(values: Floats, recipe: ActivationRecipe) -> tuple[float, int]:
    """AMCT's search as it is written down (amct.md §4.2): all values at once."""
    ordered = np.sort(values)
    top = values.size - int(recipe.max_percentile * values.size) or 1
    bottom = values.size - int(recipe.min_percentile * values.size) or 1
    high, low = max(ordered[-top], np.float32(0)), min(ordered[bottom - 1], np.float32(0))
    best, _ = min(literal_search(values, recipe, low, high), key=lambda tried: tried[1])
    return float(best), 0 if recipe.symmetric else -int(np.rint(low / best)) - 128


# --- errors and memory ---------------------------------------------------------------------------------------------


def test_batches_that_change_between_the_passes_are_refused(tmp_path: Path) -> None:
    model = written(tmp_path, wide())
    rows = iter([3, 4])

    with pytest.raises(CalibrationError, match=r"1200 values in the first pass .* and 1600 in the last one"):
        calibrate_exactly(model, lambda: [{"x": np.ones((next(rows), 400), np.float32)}], amct_recipe(model, IFMR))


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
        calibrate_exactly(model, lambda count=count: batches(count), recipe)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] + 400_000
