"""The layers that INT8 can serve: found, counted, and left out where a target would leave them out."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.small_graphs import graph_of, saved, weight
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph, read_model
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, tiny_encoder


def layers_of(proto: onnx.ModelProto, folder: Path) -> tuple[Layer, ...]:
    return quantizable_layers(load_graph(read_model(saved(proto, folder))))


def test_an_encoder_has_its_linear_layers_and_its_attention_products(tmp_path: Path) -> None:
    layers = {layer.name: layer for layer in layers_of(tiny_encoder(), tmp_path)}

    assert {*WEIGHT_LAYERS, *PRODUCTS} == set(layers)
    query, classifier, scores = layers["query"], layers["classifier"], layers["scores"]
    assert (query.weight, query.weight_shape, query.output_axis, query.transposed) == ("query_w", (16, 16), 1, False)
    assert (classifier.weight, classifier.weight_shape) == ("classifier_w", (5, 16))
    assert (classifier.output_axis, classifier.transposed) == (0, True)
    assert (scores.activation, scores.second, scores.weight) == ("query_t_y", "key_t_y", None)


def test_multiplications_are_counted_per_token_while_the_length_is_open(tmp_path: Path) -> None:
    open_length = layers_of(tiny_encoder(), tmp_path)
    fixed = layers_of(tiny_encoder(batch=1, length=8), tmp_path)

    by_name = {layer.name: (layer.macs, layer.macs_per) for layer in open_length}
    assert by_name["query"] == (16 * 16, "token")
    assert by_name["scores"] == (None, "sample")
    assert by_name["classifier"] == (5 * 16, "sample")
    by_name = {layer.name: (layer.macs, layer.macs_per) for layer in fixed}
    assert by_name["query"] == (8 * 16 * 16, "sample")
    assert by_name["scores"] == (2 * 8 * 8 * 8, "sample")


def test_convolutions_count_every_position_of_every_group_and_pooling_has_no_second_factor(tmp_path: Path) -> None:
    """A transposed one counts its channels by group and the positions of its input."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 1, 1, 1])
    (layer,) = layers_of(graph_of([node], {"w": weight(6, 2, 3, 3)}, ["batch", 4, 5, 7]), tmp_path)
    assert (layer.output_axis, layer.parameters, layer.macs) == (0, 6 * 2 * 9, 6 * 2 * 9 * 5 * 7)

    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=2, strides=[2, 2])
    (layer,) = layers_of(graph_of([node], {"w": weight(4, 3, 2, 2)}, ["batch", 4, 5, 7]), tmp_path)
    assert (layer.op_type, layer.groups, layer.output_axis, layer.output_channels) == ("ConvTranspose", 2, 1, 6)
    assert layer.macs == 4 * 3 * 2 * 2 * 5 * 7

    for extent in ([5], [5, 7], [3, 5, 7]):
        node = helper.make_node("Conv", ["x", "w"], ["y"], group=4)
        (layer,) = layers_of(graph_of([node], {"w": weight(8, 1, *[1] * len(extent))}, ["n", 4, *extent]), tmp_path)
        assert (layer.groups, layer.output_axis, layer.output_channels) == (4, 0, 8), extent
        assert layer.macs == 8 * np.prod(extent), extent

    node = helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[2, 3])
    (layer,) = layers_of(graph_of([node], {}, ["batch", 4, 5, 7]), tmp_path)
    assert (layer.weight, layer.second, layer.output_axis, layer.output_channels) == (None, None, None, 0)
    assert (layer.activation, layer.output, layer.macs) == ("x", "y", 4 * 4 * 5 * 2 * 3)

    nodes = [
        helper.make_node("AveragePool", ["x"], ["a"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["a", "w"], ["y"], name="conv"),
    ]
    layers = layers_of(graph_of(nodes, {"w": weight(6, 4, 1, 1)}, ["batch", 4, "height", "width"]), tmp_path)
    assert [(layer.name, layer.macs) for layer in layers] == [("pool", None), ("conv", None)], "the extent is open"


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


def test_forms_that_amct_keeps_in_float_and_what_int8_cannot_serve_are_left_out(tmp_path: Path) -> None:
    linear, make = weight(4, 3), helper.make_node
    for name, node, weights, shape in (
        ("transposed over 3-D", make("ConvTranspose", ["x", "w"], ["y"]), {"w": weight(4, 3, 2)}, ["n", 4, 5]),
        (
            "dilated in depth",
            make("Conv", ["x", "w"], ["y"], dilations=[2, 1, 1]),
            {"w": weight(3, 4, 2, 2, 2)},
            ["n", 4, 5, 5, 5],
        ),
        ("pooling over 5-D", make("AveragePool", ["x"], ["y"], kernel_shape=[2, 2, 2]), {}, ["n", 4, 5, 5, 5]),
        ("global pooling", make("GlobalAveragePool", ["x"], ["y"]), {}, ["n", 4, 5, 5]),
        ("largest of", make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), {}, ["n", 4, 5, 5]),
        ("a stack of matrices", make("MatMul", ["x", "w"], ["y"]), {"w": weight(2, 4, 3)}, [2, 4]),
        ("alpha", make("Gemm", ["x", "w"], ["y"], alpha=2.0), {"w": linear}, [2, 4]),
        ("beta", make("Gemm", ["x", "w", "b"], ["y"], beta=0.5), {"w": linear, "b": weight(3)}, [2, 4]),
        ("transA", make("Gemm", ["x", "w"], ["y"], transA=1), {"w": weight(2, 3)}, [2, 4]),
        ("constant first", make("MatMul", ["w", "x"], ["y"]), {"w": weight(3, 2)}, [2, 4]),
        ("vector", make("MatMul", ["x", "w"], ["y"]), {"w": weight(4)}, [2, 4]),
        ("float64", make("MatMul", ["x", "w"], ["y"]), {"w": linear.astype(np.float64)}, [2, 4]),
    ):
        assert layers_of(graph_of([node], weights, shape), tmp_path) == (), name
    nodes = [make("Transpose", ["w"], ["wt"], perm=[1, 0]), make("MatMul", ["x", "wt"], ["y"])]
    assert layers_of(graph_of(nodes, {"w": weight(3, 4)}, ["n", 4]), tmp_path) == (), "computed at run time"
