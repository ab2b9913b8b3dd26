"""Bias correction: the mean error per channel goes, and nothing else is touched."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.quantization.networks import convolutions, images, perceptron, rows, saved, showing
from tests.targets.encoder import run
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants
from workbench.quantization.bias_correction import bias_corrections
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
)
from workbench.quantization.rounding import integers_of
from workbench.quantization.weights import scales_along
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Feeds = dict[str, npt.NDArray[np.generic]]


def coarse_record(proto: onnx.ModelProto, model: Model, feeds: Feeds, *, kept: float = 0.6) -> QuantizationRecord:
    """Of every layer with a weight: activations clipped at a share of their range, weights in about 30 steps.

    So coarse that the mean error is large, and asymmetric so that it has a sign.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    layers = [layer for layer in quantizable_layers(proto) if layer.weight is not None]
    known = constants(proto)
    for layer in layers:
        if layer.activation != "x":
            shown.graph.output.append(helper.make_tensor_value_info(layer.activation, TensorProto.FLOAT, None))
    records = []
    for layer in layers:
        values = feeds["x"] if layer.activation == "x" else run(shown, feeds, [layer.activation])[0]
        low, high = kept * min(0.0, float(values.min())), kept * float(values.max())
        scale = (high - low) / 255
        activation = ActivationScale(
            tensor=layer.activation, scale=scale, zero_point=round(-128 - low / scale), low=low, high=high
        )
        assert layer.weight is not None
        weight = numpy_helper.to_array(known[layer.weight])
        rounded = WeightScale(scales=(float(np.abs(weight).max()) / 15,), axis=None)
        records.append(LayerRecord(layer=layer.name, op_type=layer.op_type, activation=activation, weight=rounded))
    provenance = Provenance(engine="native", recipe={}, statistics=None, code_revision="test")
    return QuantizationRecord(model_sha256=model.sha256, layers=tuple(records), float_layers=(), provenance=provenance)


def fake_quantized(proto: onnx.ModelProto, recorded: LayerRecord) -> onnx.ModelProto:
    """One layer with rounded weights that reads Q(x), by standard operators; all else in float."""
    faked = onnx.ModelProto()
    faked.CopyFrom(proto)
    node = next(node for node in faked.graph.node if node.name == recorded.layer)
    for tensor in faked.graph.initializer:
        if tensor.name == node.input[1]:
            assert recorded.weight is not None
            values = numpy_helper.to_array(tensor)
            rounded = integers_of(values, recorded.weight) * scales_along(recorded.weight, values.shape)
            tensor.CopyFrom(numpy_helper.from_array(rounded.astype(np.float32), tensor.name))
    scale = recorded.activation
    faked.graph.initializer.append(numpy_helper.from_array(np.float32(scale.scale), "q_scale"))
    faked.graph.initializer.append(numpy_helper.from_array(np.int8(scale.zero_point), "q_zero"))
    position = list(faked.graph.node).index(node)
    pair = [
        helper.make_node("QuantizeLinear", [node.input[0], "q_scale", "q_zero"], ["q_x"], name="q"),
        helper.make_node("DequantizeLinear", ["q_x", "q_scale", "q_zero"], ["dq_x"], name="dq"),
    ]
    node.input[0] = "dq_x"
    for offset, new in enumerate(pair):
        faked.graph.node.insert(position + offset, new)
    return faked


@pytest.mark.parametrize(
    ("proto", "feeds"),
    [(perceptron(), rows(64)), (perceptron(gemm=False), rows(64)), (convolutions(), images(8))],
    ids=["gemm", "matmul", "convolutions"],
)
def test_the_mean_error_of_every_channel_goes(proto: onnx.ModelProto, feeds: Feeds, tmp_path: Path) -> None:
    proto = normalized(proto)
    model = saved(proto, tmp_path)
    record = coarse_record(proto, model, feeds)
    batches = [{"x": feeds["x"][:3]}, {"x": feeds["x"][3:]}]

    corrections = bias_corrections(model, batches, record)

    assert list(corrections) == [layer.layer for layer in record.layers]
    for layer in record.layers:
        node = next(node for node in proto.graph.node if node.name == layer.layer)
        output = node.output[0]
        expected, found = (run(showing(p, output), feeds, [output])[0] for p in (proto, fake_quantized(proto, layer)))
        axis = 1 if "Conv" in layer.op_type else -1
        error = np.moveaxis(expected - found, axis, -1).reshape(-1, corrections[layer.layer].size)
        before = error.mean(axis=0)
        assert np.abs(before).max() > 1e-3
        np.testing.assert_allclose(corrections[layer.layer], before, atol=1e-5 * float(np.abs(expected).max()))


def test_a_record_of_another_model_is_refused(tmp_path: Path) -> None:
    proto = normalized(perceptron())
    model = saved(proto, tmp_path)
    record = coarse_record(proto, model, rows(4))
    renamed = replace(record, layers=(replace(record.layers[0], layer="fc9"),))

    with pytest.raises(CalibrationError, match="'fc9' of the record is none of this model"):
        bias_corrections(model, [rows(4)], renamed)
    with pytest.raises(CalibrationError, match="no calibration samples"):
        bias_corrections(model, [], record)
