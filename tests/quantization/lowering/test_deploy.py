"""The deploy ONNX: equal to AMCT's in every integer, and in the form that ATC takes."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.data import AMCT, AMCT_CASES
from tests.model_zoo import BERTS, ZOO
from tests.quantization.deploy_models import golden_float_model, golden_record, min_max_record, plain_run
from tests.quantization.networks import convolutions, images, perceptron, rows
from workbench.graph.nodes import attributes_of, copied
from workbench.graph.read import constants, load_graph, read_model
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.record import QuantizationRecord, WeightScale
from workbench.testing.encoder import ids, model_of, tiny_encoder, value
from workbench.values.errors import LoweringError

ASCEND = ("AscendQuant", "AscendDequant")


def constants_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def nodes_of(proto: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {node.name: node for node in proto.graph.node}


def integer_constants(proto: onnx.ModelProto, layer: str) -> dict[str, np.ndarray]:
    """Weight, bias where it is int32, and factors of one layer."""
    nodes, values = nodes_of(proto), constants_of(proto)
    node = nodes[layer]
    found = {"factors": values[nodes[f"{layer}.dequant"].input[1]]}
    if len(node.input) > 1 and node.input[1] in values:
        found["weight"] = values[node.input[1]]
    if len(node.input) > 2:
        found["bias"] = values[node.input[2]]
    return found


def replaced(record: QuantizationRecord, name: str, **changes: object) -> QuantizationRecord:
    layers = [dataclasses.replace(each, **changes) if each.layer == name else each for each in record.layers]
    return dataclasses.replace(record, layers=tuple(layers))


@pytest.mark.parametrize("case", AMCT_CASES)
def test_the_deploy_model_of_a_golden_record_equals_amcts_in_every_integer(case: str) -> None:
    folder = AMCT / case
    proto = golden_float_model(folder)
    record = golden_record(folder, proto)
    theirs = onnx.load(folder / "q_deploy_model.onnx")

    ours = lower_deploy(proto, record)

    assert Counter(node.op_type for node in ours.graph.node) == Counter(node.op_type for node in theirs.graph.node)
    assert {node.name for node in theirs.graph.node if node.op_type in ASCEND} == {
        node.name for node in ours.graph.node if node.op_type in ASCEND
    }
    for layer in record.layers:
        found, expected = integer_constants(ours, layer.layer), integer_constants(theirs, layer.layer)
        assert set(found) == set(expected)
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name], values, err_msg=f"{layer.layer} {name}")
        for name in (layer.layer, f"{layer.layer}.quant", f"{layer.layer}.dequant"):
            assert attributes_of(nodes_of(ours)[name]) == attributes_of(nodes_of(theirs)[name])
            assert nodes_of(ours)[name].domain == ""
        if layer.balance:
            name = f"{layer.layer}.tensor_balance_factor.output0"
            found, expected = (numpy_helper.to_array(constants(each)[name]) for each in (ours, theirs))
            np.testing.assert_array_equal(found, expected)
            assert nodes_of(ours)[f"{layer.layer}.mul"].output == nodes_of(theirs)[f"{layer.layer}.mul"].output
    assert [value.name for value in ours.graph.output] == [value.name for value in theirs.graph.output]


@pytest.fixture(scope="module")
def encoder() -> tuple[onnx.ModelProto, QuantizationRecord]:
    proto = tiny_encoder()
    return proto, min_max_record(proto, ids(4, 7))


def test_a_bias_added_from_the_left_stays_float_as_in_amct_unless_it_is_merged(encoder: tuple) -> None:
    proto, record = encoder  # the encoder adds its biases from the left, as torch's exporter does

    apart, merged = lower_deploy(proto, record), lower_deploy(proto, record, merge_bias=True)

    assert constants_of(apart)["up_b"].dtype == np.float32
    assert nodes_of(apart)["up_bias"].input[0] == "up.dequant.output0"
    assert constants_of(merged)["up_b"].dtype == np.int32
    assert nodes_of(merged)["up_bias"].input[0] == nodes_of(merged)["up"].output[0]
    assert nodes_of(merged)["up.dequant"].input[0] == nodes_of(merged)["up_bias"].output[0]


def test_a_grouped_transposed_convolution_has_a_factor_for_every_output_channel() -> None:
    proto, feeds = convolutions(), images(3)
    record = min_max_record(proto, feeds, per_channel=True)

    model = lower_deploy(proto, record)

    up = next(layer for layer in record.layers if layer.layer == "up")
    assert len(up.weight.scales) == 6
    constants = integer_constants(model, "up")
    assert constants["factors"].shape == (6,)
    values = constants_of(proto)["up_w"]  # [4, 3, 3, 3] in two groups
    for group, channel in np.ndindex(2, 3):
        scale = np.float32(up.weight.scales[3 * group + channel])
        expected = np.clip(np.rint(values[2 * group : 2 * group + 2, channel] / scale), -128, 127)
        np.testing.assert_array_equal(constants["weight"][2 * group : 2 * group + 2, channel], expected)


def test_force_fp16_clears_the_low_thirteen_bits_of_every_factor_and_leaves_the_bias() -> None:
    proto = perceptron()
    record = min_max_record(proto, rows(16))

    plain = integer_constants(lower_deploy(proto, record), "fc1")
    forced = integer_constants(lower_deploy(proto, dataclasses.replace(record, force_fp16=True)), "fc1")

    np.testing.assert_array_equal(forced["factors"], plain["factors"] & np.uint64(0xFFFFE000))
    np.testing.assert_array_equal(forced["bias"], plain["bias"])


def test_constants_that_other_nodes_read_are_not_changed_under_them() -> None:
    weights = {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="one"),
        helper.make_node("Add", ["p", "b"], ["q"], name="one_bias"),
        helper.make_node("MatMul", ["q", "w"], ["r"], name="two"),
        helper.make_node("Add", ["r", "b"], ["s"], name="two_bias"),
        helper.make_node("Mul", ["s", "b"], ["y"], name="scale"),
    ]
    proto = model_of(nodes, dict(weights), [value("x", ["n", 3])], [value("y", ["n", 3])])
    feeds = {"x": np.float32([[1, 2, 3], [-1, 0, 2]])}

    model = lower_deploy(proto, min_max_record(proto, feeds))

    assert constants_of(model)["b"].dtype == np.float32
    np.testing.assert_allclose(Interpreter(model).run(feeds)["y"], plain_run(proto, feeds)["y"], atol=0.05)


def test_a_layer_whose_output_is_also_an_output_of_the_model_keeps_that_name() -> None:
    proto = perceptron()
    proto.graph.output.extend([value("fc1_y", ["batch", 6])])
    feeds = rows(5)

    model = lower_deploy(proto, min_max_record(proto, feeds))

    nodes = nodes_of(model)
    assert nodes["fc1"].output[0] == "fc1_output0"
    assert nodes["fc1.dequant"].output[0] == nodes["relu"].input[0] == "fc1_y"
    assert set(Interpreter(model).run(feeds)) == {"y", "fc1_y"}


def test_what_has_no_deploy_form_is_refused(encoder: tuple) -> None:
    proto, record = encoder
    plain, rowwise = perceptron(), min_max_record(perceptron(), rows(16))
    context = next(each for each in record.layers if each.layer == "context").activation
    foreign, newer = copied(proto), copied(proto)
    foreign.graph.node[0].domain = "com.microsoft"
    newer.opset_import[0].version = 23
    along_inputs = WeightScale(scales=(0.01,) * 8, axis=1)  # fc1_w is stored [6, 8]
    tiny = dataclasses.replace(rowwise.layers[0].activation, scale=1e-12)
    moved = dataclasses.replace(record.layers[0].activation, tensor="elsewhere")
    shifted = dataclasses.replace(context, zero_point=-128)
    for model, of, message in (
        (plain, replaced(rowwise, "fc1", activation=tiny), r"fc1: Do bias quantize failed.*int32.*Keep this layer in"),
        (plain, replaced(rowwise, "fc1", weight=along_inputs), "fc1: scales along axis 1, the output channels are ax"),
        (proto, replaced(record, "context", activation=shifted), r"context: .*symmetric on Ascend.*-128 and 0"),
        (proto, replaced(record, "query", activation=moved), "query: the record has a scale for 'elsewhere'"),
        (proto, replaced(record, "query", layer="quary"), "'quary' of the record is not in the model. Did you mean"),
        (foreign, record, r"com\.microsoft\.Gather.*E16005"),
        (newer, record, r"opset 23.*8 to 22"),
    ):
        with pytest.raises(LoweringError, match=message):
            lower_deploy(model, of)


@pytest.mark.parametrize("name", [name for name in ZOO if name not in BERTS])
@pytest.mark.parametrize("merge_bias", [False, True])
def test_models_of_the_zoo_keep_their_answers_in_deploy_form(name: str, merge_bias: bool, tmp_path: Path) -> None:
    zoo = ZOO[name]
    zoo.write(tmp_path / "model.onnx")
    proto = load_graph(read_model(tmp_path / "model.onnx"))
    record = min_max_record(proto, zoo.feeds(8, 3), per_channel=True)

    model = lower_deploy(proto, record, merge_bias=merge_bias)

    assert len(record.layers) == zoo.layers
    assert Counter(node.op_type for node in model.graph.node)["AscendDequant"] == zoo.layers
    feeds = zoo.feeds(4, 5)
    found = Interpreter(model).run(feeds)
    for output, expected in plain_run(proto, feeds).items():
        cosine = np.vdot(found[output], expected) / np.linalg.norm(found[output]) / np.linalg.norm(expected)
        assert cosine > 0.999, output
