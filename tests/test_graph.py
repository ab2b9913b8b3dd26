"""Reading ONNX files, good and damaged, and finding the layers that INT8 can serve."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.targets.encoder import PRODUCTS, VOCABULARY, WEIGHT_LAYERS, model_of, tiny_encoder
from workbench.errors import ConfigError
from workbench.graph import (
    constants,
    embedding_rows,
    load_graph,
    operator_counts,
    quantizable_layers,
    read_model,
)

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def graph_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]) -> onnx.ModelProto:
    """Nodes between the float input `x` and the output `y`."""
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    y = helper.make_tensor_value_info("y", FLOAT, None)
    return model_of(nodes, weights, [x], [y])


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return saved(tiny_encoder(), tmp_path)


def test_a_model_is_identified_by_the_bytes_of_its_file(encoder: Path) -> None:
    model = read_model(encoder)

    assert hashlib.sha256(encoder.read_bytes()).hexdigest() == model.sha256
    assert encoder.stat().st_size == model.size_bytes
    assert model.opset == 17
    assert [(s.name, s.dtype, s.shape) for s in model.inputs] == [("ids", "int64", ("batch", "length"))]
    assert [(s.name, s.dtype, s.shape) for s in model.outputs] == [("logits", "float32", ("batch", 5))]


def test_external_data_joins_the_digest_and_the_size(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tiny_encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=64)
    before = read_model(path)
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[10] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)

    after = read_model(path)

    assert (tmp_path.resolve() / "weights.bin",) == before.external_files
    assert path.stat().st_size + len(data) == before.size_bytes
    assert before.sha256 != after.sha256
    assert WEIGHT_LAYERS[0] in {layer.name for layer in quantizable_layers(load_graph(after))}


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tiny_encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=64)
    (tmp_path / "weights.bin").unlink()

    with pytest.raises(ConfigError, match=r"model\.onnx.*weights\.bin.*missing"):
        read_model(path)


def test_truncated_external_data_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tiny_encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=64)
    (tmp_path / "weights.bin").write_bytes((tmp_path / "weights.bin").read_bytes()[:-1])

    with pytest.raises(ConfigError, match=r"weights\.bin has \d+ bytes"):
        read_model(path)


def test_external_data_outside_the_models_folder_is_refused(tmp_path: Path) -> None:
    proto = tiny_encoder()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../elsewhere.bin")

    with pytest.raises(ConfigError, match=r"'\.\./elsewhere\.bin', outside"):
        read_model(saved(proto, tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.onnx: no such ONNX file"):
        read_model(tmp_path / "absent.onnx")


@given(share=st.floats(0, 0.999))
def test_a_file_cut_anywhere_is_refused(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = tiny_encoder().SerializeToString()
    path = tmp_path_factory.mktemp("cut") / "model.onnx"
    path.write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(ConfigError, match="not a complete ONNX file"):
        read_model(path)


def test_a_weight_that_lost_bytes_is_named(tmp_path: Path) -> None:
    proto = tiny_encoder()
    tensor = next(t for t in proto.graph.initializer if t.name == "table")
    tensor.raw_data = tensor.raw_data[:-4]

    with pytest.raises(ConfigError, match="'table' holds 2044 bytes, its shape needs 2048"):
        read_model(saved(proto, tmp_path))


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    proto = graph_of([helper.make_node("Relu", ["c"], ["y"])], {"c": weight(2)}, ["batch"])
    del proto.graph.input[:]

    with pytest.raises(ConfigError, match="no inputs"):
        read_model(saved(proto, tmp_path))


def test_an_initializer_among_the_inputs_is_no_input(tmp_path: Path) -> None:
    proto = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight(4, 3)}, ["batch", 4])
    proto.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4, 3]))

    assert [spec.name for spec in read_model(saved(proto, tmp_path)).inputs] == ["x"]


def test_a_file_that_changed_since_it_was_read_is_refused(encoder: Path) -> None:
    model = read_model(encoder)
    proto = onnx.load(encoder)
    proto.doc_string = "changed"
    onnx.save(proto, encoder)

    with pytest.raises(ConfigError, match="has changed since it was read"):
        load_graph(model)


def test_every_node_gets_a_unique_name_and_keeps_its_own(tmp_path: Path) -> None:
    names = ["", "same", "same", "Relu_4", ""]
    tensors = ["x", "a", "b", "c", "d", "y"]
    nodes = [helper.make_node("Relu", [tensors[i]], [tensors[i + 1]], name=name) for i, name in enumerate(names)]
    model = read_model(saved(graph_of(nodes, {}, ["batch"]), tmp_path))

    assert [n.name for n in load_graph(model).graph.node] == ["Relu_0", "same", "same_1", "Relu_4", "Relu_4_1"]


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


def test_the_vocabulary_is_the_rows_of_the_table_that_the_ids_index(encoder: Path) -> None:
    assert embedding_rows(load_graph(read_model(encoder))) == {"ids": VOCABULARY}


def test_ids_are_followed_through_casts_and_the_smallest_table_counts(tmp_path: Path) -> None:
    ids = helper.make_tensor_value_info("ids", INT64, ["batch", "length"])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    nodes = [
        helper.make_node("Cast", ["ids"], ["narrow"], to=TensorProto.INT32),
        helper.make_node("Gather", ["large", "ids"], ["a"]),
        helper.make_node("Gather", ["small", "narrow"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    proto = model_of(nodes, {"large": weight(9, 2), "small": weight(7, 2)}, [ids], [y])

    assert embedding_rows(load_graph(read_model(saved(proto, tmp_path)))) == {"ids": 7}


def test_operators_are_counted_with_their_domain(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Gelu", ["a"], ["b"], domain="com.microsoft"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    proto = graph_of(nodes, {}, ["batch"])

    assert operator_counts(proto) == {"Relu": 2, "com.microsoft.Gelu": 1}
