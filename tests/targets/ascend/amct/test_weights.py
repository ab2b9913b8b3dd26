"""AMCT's integers taken from its deploy model, where its record has only scales."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.quantization.deploy_models import min_max_record
from tests.quantization.networks import convolutions, images, perceptron, rows
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.amct.amct import with_amcts_integers
from workbench.values.errors import CalibrationError


def given(gemm: bool = True) -> tuple[onnx.ModelProto, QuantizationRecord, onnx.ModelProto]:
    """Normalized model, record, deploy model."""
    proto = normalized(perceptron(gemm=gemm))
    record = min_max_record(proto, rows(8))
    return proto, record, lower_deploy(proto, record)


def weight_of(deploy: onnx.ModelProto, layer: str) -> onnx.TensorProto:
    name = next(node for node in deploy.graph.node if node.name == layer).input[1]
    return next(tensor for tensor in deploy.graph.initializer if tensor.name == name)


def changed(deploy: onnx.ModelProto, layer: str, steps: Any) -> np.ndarray[Any, Any]:
    tensor = weight_of(deploy, layer)
    values = np.clip(numpy_helper.to_array(tensor).astype(np.int32) + steps, -128, 127).astype(np.int8)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return values


@pytest.mark.parametrize("gemm", [True, False])
def test_weights_rounded_to_the_other_side_become_bits_that_every_lowering_follows(gemm: bool) -> None:
    """A Gemm's weight stands transposed in the deploy model (amct.md §6.4)."""
    proto, record, deploy = given(gemm)
    assert record.layers[0].weight is not None
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}["fc1_w"]
    stored = stored.T if gemm else stored
    quotients = stored / np.float32(record.layers[0].weight.scales[0])
    other = np.floor(quotients) + np.ceil(quotients) - np.rint(quotients)  # of the two integers, not the nearest
    odd = np.arange(stored.size).reshape(stored.shape) % 2 == 1
    wanted = changed(deploy, "fc1", np.where(odd, other - np.rint(quotients), 0).astype(np.int32))

    found = with_amcts_integers(record, proto, deploy, learned=True)

    assert found.layers[0].weight is not None
    assert found.layers[0].weight.rounding is not None
    assert found.layers[1] == record.layers[1]
    np.testing.assert_array_equal(numpy_helper.to_array(weight_of(lower_deploy(proto, found), "fc1")), wanted)


def test_integers_of_another_model_are_refused() -> None:
    proto, record, deploy = given()
    changed(deploy, "fc1", 5)

    with pytest.raises(CalibrationError, match=r"fc1: an integer of AMCT's weight is \d\.\d steps"):
        with_amcts_integers(record, proto, deploy, learned=False)


def test_a_layer_under_another_name_is_taken_for_rounded_to_nearest_unless_it_was_learned() -> None:
    """amct.md §13, question 2: names in amct_onnx's own deploy model are not known."""
    proto, record, deploy = given()
    next(node for node in deploy.graph.node if node.name == "fc1").name = "fc1_quantized"

    assert with_amcts_integers(record, proto, deploy, learned=False) == record
    with pytest.raises(CalibrationError, match="no layer 'fc1' with a constant weight"):
        with_amcts_integers(record, proto, deploy, learned=True)


def test_every_kind_of_convolution_is_compared_in_its_own_layout() -> None:
    proto = normalized(convolutions())
    record = min_max_record(proto, images(2), per_channel=True)
    deploy = lower_deploy(proto, record)

    assert with_amcts_integers(record, proto, deploy, learned=True) == record

    changed(deploy, "up", 3)
    with pytest.raises(CalibrationError, match="up: an integer"):
        with_amcts_integers(record, proto, deploy, learned=True)
