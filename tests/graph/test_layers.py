"""The layers that INT8 can serve: found, counted, and left out where a target would leave them out."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.small_graphs import graph_of, saved, weight
from tests.targets.encoder import PRODUCTS, WEIGHT_LAYERS, tiny_encoder
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants, load_graph, read_model


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return saved(tiny_encoder(), tmp_path)


def test_an_encoder_has_its_linear_layers_and_its_attention_products(encoder: Path) -> None:
    layers = {layer.name: layer for layer in quantizable_layers(load_graph(read_model(encoder)))}

    assert {*WEIGHT_LAYERS, *PRODUCTS} == set(layers)
    assert (
        layers["query"].weight,
        layers["query"].weight_shape,
        layers["query"].output_axis,
        layers["query"].transposed,
    ) == ("query_w", (16, 16), 1, False)
    assert (
        layers["classifier"].weight,
        layers["classifier"].weight_shape,
        layers["classifier"].output_axis,
        layers["classifier"].transposed,
    ) == ("classifier_w", (5, 16), 0, True)
    assert (
        layers["scores"].activation,
        layers["scores"].second,
        layers["scores"].weight,
    ) == ("query_t_y", "key_t_y", None)


def test_multiplications_are_counted_per_token_while_the_length_is_open(tmp_path: Path) -> None:
    open_length = quantizable_layers(load_graph(read_model(saved(tiny_encoder(), tmp_path))))
    fixed = quantizable_layers(load_graph(read_model(saved(tiny_encoder(batch=1, length=8), tmp_path))))

    by_name = {layer.name: (layer.macs, layer.macs_per) for layer in open_length}
    assert by_name["query"] == (16 * 16, "token")
    assert by_name["scores"] == (None, "sample")
    assert by_name["classifier"] == (5 * 16, "sample")
    by_name = {layer.name: (layer.macs, layer.macs_per) for layer in fixed}
    assert by_name["query"] == (8 * 16 * 16, "sample")
    assert by_name["scores"] == (2 * 8 * 8 * 8, "sample")


def test_a_convolution_counts_every_output_position(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", group=2, pads=[1, 1, 1, 1])
    proto = graph_of([node], {"w": weight(6, 2, 3, 3)}, ["batch", 4, 5, 7])

    (layer,) = quantizable_layers(load_graph(read_model(saved(proto, tmp_path))))

    assert (layer.output_axis, layer.parameters, layer.macs) == (0, 6 * 2 * 9, 6 * 2 * 9 * 5 * 7)


@pytest.mark.parametrize("extent", [[5], [5, 7], [3, 5, 7]])
def test_a_depthwise_convolution_has_as_many_groups_as_channels(extent: list[int | str], tmp_path: Path) -> None:
    ones = [1] * len(extent)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", group=4)
    proto = graph_of([node], {"w": weight(8, 1, *ones)}, ["batch", 4, *extent])

    (layer,) = quantizable_layers(load_graph(read_model(saved(proto, tmp_path))))

    assert (layer.groups, layer.output_axis, layer.output_channels) == (4, 0, 8)
    assert layer.macs == 8 * np.prod(np.array(extent, np.int64))


def test_a_transposed_convolution_counts_its_channels_by_group_and_its_input_positions(tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", group=2, strides=[2, 2])
    proto = graph_of([node], {"w": weight(4, 3, 2, 2)}, ["batch", 4, 5, 7])

    (layer,) = quantizable_layers(load_graph(read_model(saved(proto, tmp_path))))

    assert (layer.op_type, layer.groups, layer.output_axis, layer.output_channels) == ("ConvTranspose", 2, 1, 6)
    assert layer.macs == 4 * 3 * 2 * 2 * 5 * 7


def test_average_pooling_has_neither_weight_nor_second_factor(tmp_path: Path) -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[2, 3])
    proto = graph_of([node], {}, ["batch", 4, 5, 7])

    (layer,) = quantizable_layers(load_graph(read_model(saved(proto, tmp_path))))

    assert (layer.weight, layer.second, layer.output_axis, layer.output_channels) == (None, None, None, 0)
    assert (layer.activation, layer.output, layer.macs) == ("x", "y", 4 * 4 * 5 * 2 * 3)


def test_multiplications_are_unknown_while_the_extent_is_open(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("AveragePool", ["x"], ["a"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["a", "w"], ["y"], name="conv"),
    ]
    proto = graph_of(nodes, {"w": weight(6, 4, 1, 1)}, ["batch", 4, "height", "width"])

    layers = quantizable_layers(load_graph(read_model(saved(proto, tmp_path))))

    assert [(layer.name, layer.macs) for layer in layers] == [("pool", None), ("conv", None)]


def test_a_weight_is_found_in_a_constant_and_behind_identity(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weight(4, 3), "inner")),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("Identity", ["i"], ["j"]),
        helper.make_node("MatMul", ["x", "j"], ["y"], name="behind"),
    ]
    proto = load_graph(read_model(saved(graph_of(nodes, {}, ["batch", 4]), tmp_path)))

    (layer,) = quantizable_layers(proto)

    assert layer.weight == "c"
    np.testing.assert_array_equal(weight(4, 3), numpy_helper.to_array(constants(proto)["c"]))


def test_layers_may_share_one_weight(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="second"),
    ]
    proto = load_graph(read_model(saved(graph_of(nodes, {"w": weight(4, 4)}, ["batch", 4]), tmp_path)))

    assert [(layer.name, layer.weight) for layer in quantizable_layers(proto)] == [("first", "w"), ("second", "w")]


@pytest.mark.parametrize(
    ("node", "weights", "extent"),
    [
        pytest.param(
            helper.make_node("ConvTranspose", ["x", "w"], ["y"]), {"w": weight(4, 3, 2)}, [5], id="transposed over 3-D"
        ),
        pytest.param(
            helper.make_node("Conv", ["x", "w"], ["y"], dilations=[2, 1, 1]),
            {"w": weight(3, 4, 2, 2, 2)},
            [5, 5, 5],
            id="dilated in depth",
        ),
        pytest.param(
            helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2, 2]), {}, [5, 5, 5], id="pooling over 5-D"
        ),
        pytest.param(helper.make_node("GlobalAveragePool", ["x"], ["y"]), {}, [5, 5], id="global pooling"),
        pytest.param(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), {}, [5, 5], id="largest of"),
    ],
)
def test_forms_that_amct_keeps_in_float_are_left_out(
    node: onnx.NodeProto, weights: dict[str, np.ndarray], extent: list[int | str], tmp_path: Path
) -> None:
    proto = graph_of([node], weights, ["batch", 4, *extent])

    assert quantizable_layers(load_graph(read_model(saved(proto, tmp_path)))) == ()


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        pytest.param(helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": weight(2, 4, 3)}, id="a stack of matrices"),
        pytest.param(helper.make_node("Gemm", ["x", "w"], ["y"], alpha=2.0), {"w": weight(4, 3)}, id="alpha"),
        pytest.param(
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], beta=0.5), {"w": weight(4, 3), "b": weight(3)}, id="beta"
        ),
        pytest.param(helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), {"w": weight(2, 3)}, id="transA"),
        pytest.param(helper.make_node("MatMul", ["w", "x"], ["y"]), {"w": weight(3, 2)}, id="constant first"),
        pytest.param(helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": weight(4)}, id="vector"),
        pytest.param(
            helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": weight(4, 3).astype(np.float64)}, id="float64"
        ),
    ],
)
def test_what_int8_cannot_serve_is_left_out(
    node: onnx.NodeProto, weights: dict[str, np.ndarray], tmp_path: Path
) -> None:
    proto = graph_of([node], weights, [2, 4])

    assert quantizable_layers(load_graph(read_model(saved(proto, tmp_path)))) == ()


def test_a_weight_computed_at_run_time_is_no_activation(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
    ]
    proto = graph_of(nodes, {"w": weight(3, 4)}, ["batch", 4])

    assert quantizable_layers(load_graph(read_model(saved(proto, tmp_path)))) == ()
