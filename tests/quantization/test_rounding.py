"""Learned rounding of real models: how it is stored, that outputs come closer, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.quantization.networks import convolutions, images, perceptron, showing
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
    record_from_json,
)
from workbench.quantization.rounding import learn_rounding
from workbench.quantization.weights import integers_of, scales_along
from workbench.testing.encoder import run
from workbench.values.candidate import WeightAlgorithm
from workbench.values.errors import CalibrationError


def recipe_for(record: QuantizationRecord, algorithm: WeightAlgorithm = "adaround", **other: bool) -> ModelRecipe:
    activation = ActivationRecipe(algorithm="minmax", symmetric=False)
    weight = WeightRecipe(algorithm=algorithm, per_channel=True)
    layers = {layer.layer: LayerRecipe(activation=activation, weight=weight) for layer in record.layers}
    return ModelRecipe(layers=layers, **other)


def coarse(proto: onnx.ModelProto, *, skip: tuple[str, ...] = ()) -> QuantizationRecord:
    """Per-channel weights in 14 steps of every layer; activation scales do not matter here."""
    known = constants(proto)
    layers = []
    for layer in quantizable_layers(proto):
        if layer.weight is None or layer.name in skip:
            continue
        values = numpy_helper.to_array(known[layer.weight])
        others = tuple(axis for axis in range(values.ndim) if axis != layer.output_axis)
        scales = tuple(float(v) / 7 for v in np.abs(values).max(axis=others))
        activation = ActivationScale(tensor=layer.activation, scale=0.1, zero_point=0, low=-12.8, high=12.7)
        weight = WeightScale(scales=scales, axis=layer.output_axis)
        layers.append(LayerRecord(layer=layer.name, op_type=layer.op_type, activation=activation, weight=weight))
    provenance = Provenance(engine="native", recipe={}, statistics=None, code_revision="test")
    return QuantizationRecord(model_sha256="0" * 64, layers=tuple(layers), float_layers=(), provenance=provenance)


def test_convolutions_of_every_grouping_come_closer_to_their_float_output(tmp_path: Path) -> None:
    proto = normalized(convolutions())
    onnx.save(proto, tmp_path / "model.onnx")
    feeds = images(16)
    record = coarse(proto, skip=("up",))

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
    record = coarse(proto, skip=("fc2",))
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
    record = coarse(proto)

    with pytest.raises(CalibrationError, match="up: rounding of a ConvTranspose is not learned"):
        learn_rounding(model, lambda: [images(2)], record, recipe_for(record))
    renamed = replace(record, layers=(replace(record.layers[0], layer="nope"),))
    with pytest.raises(CalibrationError, match="'nope' of the record is none of this model"):
        learn_rounding(model, lambda: [images(2)], renamed, recipe_for(renamed))
