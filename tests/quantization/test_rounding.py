"""Learned rounding of real models: how it is stored, that outputs come closer, and what is refused."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from tests.quantization.deploy_models import min_max_record
from tests.quantization.networks import convolutions, images, perceptron, showing
from workbench.graph.read import constants, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.quantization.record import QuantizationRecord, record_from_json
from workbench.quantization.rounding import Rounding, best_rounding, learn_rounding, losses, nearest, problem
from workbench.quantization.weights import integers_of, scales_along
from workbench.testing.encoder import Array, run
from workbench.values.candidate import WeightAlgorithm
from workbench.values.errors import CalibrationError


def recipe_for(record: QuantizationRecord, algorithm: WeightAlgorithm = "adaround", **other: bool) -> ModelRecipe:
    activation = ActivationRecipe(algorithm="minmax", symmetric=False)
    weight = WeightRecipe(algorithm=algorithm, per_channel=True)
    layers = {layer.layer: LayerRecipe(activation=activation, weight=weight) for layer in record.layers}
    return ModelRecipe(layers=layers, **other)


def coarse(proto: onnx.ModelProto, feeds: dict[str, Array], *, skip: tuple[str, ...] = ()) -> QuantizationRecord:
    """Weights in about 14 steps of every layer; activation scales do not matter here."""
    record = min_max_record(proto, feeds, per_channel=True)
    wide = [
        (one, replace(one.weight, scales=tuple(18 * scale for scale in one.weight.scales))) for one in record.layers
    ]
    return replace(record, layers=tuple(replace(one, weight=w) for one, w in wide if one.layer not in skip))


def test_convolutions_of_every_grouping_come_closer_to_their_float_output(tmp_path: Path) -> None:
    proto = normalized(convolutions())
    onnx.save(proto, tmp_path / "model.onnx")
    feeds = images(16)
    record = coarse(proto, feeds, skip=("up",))

    learned = learn_rounding(read_model(tmp_path / "model.onnx"), lambda: [feeds], record, recipe_for(record))

    assert record_from_json(learned.to_json()) == learned
    for before, after in zip(record.layers, learned.layers, strict=True):
        node = next(node for node in proto.graph.node if node.name == before.layer)
        expected = run(showing(proto, node.output[0]), feeds, [node.output[0]])[0]
        errors = []
        assert replace(after.weight, rounding=None) == before.weight
        for layer in (before, after):
            changed = onnx.ModelProto()
            changed.CopyFrom(proto)
            for tensor in changed.graph.initializer:
                if tensor.name == node.input[1]:
                    values = numpy_helper.to_array(tensor)
                    rounded = integers_of(values, layer.weight) * scales_along(layer.weight, values.shape)
                    tensor.CopyFrom(numpy_helper.from_array(rounded.astype(np.float32), tensor.name))
            found = run(showing(changed, node.output[0]), feeds, [node.output[0]])[0]
            errors.append(float(np.mean((found - expected) ** 2)))
        assert errors[1] < 0.95 * errors[0], before.layer


def test_with_bias_correction_the_mean_error_is_not_its_business(tmp_path: Path) -> None:
    """Inputs far from zero: what matters is the spread of the error once the mean is corrected."""
    proto = normalized(perceptron())
    onnx.save(proto, tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    random = np.random.default_rng(2)
    x = (5 + random.normal(size=(400, 3)) @ random.normal(size=(3, 8))).astype(np.float32)
    record = coarse(proto, {"x": x}, skip=("fc2",))
    w = numpy_helper.to_array(constants(proto)["fc1_w"])

    spread = []
    for corrects in (False, True):
        recipe = recipe_for(record, bias_correction=corrects)
        scale = learn_rounding(model, lambda: [{"x": x}], record, recipe).layers[0].weight
        assert scale is not None
        errors = x @ (integers_of(w, scale) * scales_along(scale, w.shape) - w).T
        spread.append(float(errors.var(axis=0).sum()))
    assert spread[1] < spread[0]


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    proto = normalized(convolutions())
    onnx.save(proto, tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    record = coarse(proto, images(2))

    with pytest.raises(CalibrationError, match="up: rounding of a ConvTranspose is not learned"):
        learn_rounding(model, lambda: [images(2)], record, recipe_for(record))
    renamed = replace(record, layers=(replace(record.layers[0], layer="nope"),))
    with pytest.raises(CalibrationError, match="'nope' of the record is none of this model"):
        learn_rounding(model, lambda: [images(2)], renamed, recipe_for(renamed))


# --- the search -------------------------------------------------------------------------------------------------------


def correlated(seed: int, rows: int, size: int, outputs: int) -> tuple[Rounding, Array, Array]:
    """Weights in coarse steps, and inputs that lie near a space of half their dimensions, as activations do."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, max(1, size // 2))) @ random.normal(size=(max(1, size // 2), size))
    x = (x + 0.3 * random.normal(size=x.shape) + random.normal(size=size)).astype(np.float32)
    w = random.normal(size=(outputs, size)).astype(np.float32)
    steps = (np.abs(w).max(axis=1, keepdims=True) / 15).astype(np.float32)
    return problem(w, steps), x, x.T @ x / np.float32(rows)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 24), st.integers(1, 8))
def test_no_channel_gets_worse_than_nearest(seed: int, size: int, outputs: int) -> None:
    rounding, _, moments = correlated(seed, 50, size, outputs)

    found = best_rounding(rounding, moments)

    assert ((found == rounding.lower) | (found == rounding.upper)).all()
    assert (losses(rounding, moments, found) <= losses(rounding, moments, nearest(rounding))).all()


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_come_close_to_the_best_of_all_roundings(seed: int) -> None:
    rounding, _, moments = correlated(seed, 100, 8, 4)
    choices = np.array(list(itertools.product((0, 1), repeat=8)), np.float32)
    exhaustive = []
    for row in range(4):
        one = problem(
            np.repeat(rounding.weights[row : row + 1], 256, axis=0), np.repeat(rounding.steps[row], 256)[:, None]
        )
        exhaustive.append(losses(one, moments, one.lower + choices).min())

    found = losses(rounding, moments, best_rounding(rounding, moments)).sum()
    plain = losses(rounding, moments, nearest(rounding)).sum()

    best = np.sum(exhaustive)
    assert best * (1 - 1e-4) <= found
    assert found - best < 0.5 * (plain - best)


def test_clipped_weights_and_silent_inputs_are_no_trouble() -> None:
    """Weights beyond the integers have one choice only; without any input every rounding is as good."""
    weights = np.array([[200.0, -300.0, 127.4, 0.5, 127.0]], np.float32)
    rounding = problem(weights, np.ones((1, 1), np.float32))
    moments = np.diag(np.array([1, 1, 1, 0, 1], np.float32))

    found = best_rounding(rounding, moments)

    np.testing.assert_array_equal(found[0, [0, 1, 2, 4]], [127, -128, 127, 127])
    nothing = best_rounding(rounding, np.zeros((5, 5), np.float32))
    np.testing.assert_array_equal(nothing, nearest(rounding))
