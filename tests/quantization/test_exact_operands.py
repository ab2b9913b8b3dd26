"""Sums of 8-bit products are those of integers, in every kernel and on every class of processor (`make test-avx2`)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.apart import FROM_BYTES, kept_aside, tensor_of
from workbench.graph.write import is_apart
from workbench.quantization.sessions import exact, session_on
from workbench.testing.encoder import value
from workbench.values.system.cpu import this_cpu

Array = npt.NDArray[Any]

TYPES = {"u8": np.uint8, "s8": np.int8}
ZERO = {"u8": np.uint8(128), "s8": np.int8(0)}
SCALE, WEIGHT_SCALE = np.float32(2**-4), np.float32(2**-3)
SHAPES = [(1, 64, 8), (1, 768, 70), (33, 100, 7)]
CONVOLUTIONS = {  # shapes of input and weight, groups, padding, stride
    "3 by 3": ((2, 16, 9, 9), (24, 16, 3, 3), 1, 1, 1),
    "three channels": ((1, 3, 16, 16), (8, 3, 3, 3), 1, 1, 2),
    "depthwise": ((1, 32, 9, 9), (32, 1, 3, 3), 32, 1, 1),
    "grouped": ((1, 16, 9, 9), (24, 4, 3, 3), 4, 1, 1),
    "one-dimensional": ((2, 40, 30), (16, 40, 3), 1, 1, 1),
}


def graph_of(nodes: list[onnx.NodeProto], constants: dict[str, Array], feeds: dict[str, Array]) -> onnx.ModelProto:
    kinds = {name: helper.np_dtype_to_tensor_dtype(values.dtype) for name, values in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], values.shape) for name, values in feeds.items()]
    integers = nodes[-1].op_type in ("MatMulInteger", "ConvInteger")
    byte = kinds.get("a", TensorProto.FLOAT) if nodes[-1].op_type.startswith("QLinear") else TensorProto.FLOAT
    y = helper.make_tensor_value_info("y", TensorProto.INT32 if integers else byte, None)
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "kernel", inputs, [y], tensors), opset_imports=opsets, ir_version=8
    )


def output(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    """What the nodes as they stand give in a session of the workbench."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    (values,) = session_on(model, options).run(None, feeds)
    return np.asarray(values)


def extremes(random: np.random.Generator, kind: str, shape: tuple[int, ...], all_ones: bool) -> Array:
    limits = np.iinfo(TYPES[kind])
    choice = [limits.max] if all_ones else [limits.min, limits.min + 1, limits.max - 1, limits.max]
    return random.choice(choice, size=shape).astype(TYPES[kind])


def signed(values: Array, kind: str) -> npt.NDArray[np.int64]:
    return values.astype(np.int64) - int(ZERO[kind])


def convolved(x: Array, w: Array, form: dict[str, Any]) -> Array:
    """The sums of a convolution in float32, which holds them exactly."""
    feeds = {"a": x.astype(np.float32)}
    node = helper.make_node("Conv", ["a", "w"], ["y"], **form)
    return output(graph_of([node], {"w": w.astype(np.float32)}, feeds), feeds).astype(np.int64)


def check_bytes(sums: Array, got: Array, kind: str, scale: np.float32) -> None:
    """A result in 8 bits is the sums' nearest, but for ties in float32."""
    limits = np.iinfo(TYPES[kind])
    wanted = np.clip(np.rint(sums * 2.0**-7 / float(scale)) + int(ZERO[kind]), limits.min, limits.max)
    assert np.abs(wanted - got).max() <= 1


def byte_scale(sums: Array) -> np.float32:
    return np.float32(np.abs(sums).max() * 2.0**-7 / 100 + 1e-9)


seeds = given(seed=st.integers(0, 2**32 - 1), all_ones=st.booleans(), per_channel=st.booleans(), constant=st.booleans())
few = settings(max_examples=4, deadline=None)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kinds", ["u8 u8", "u8 s8", "s8 s8"])
@seeds
@few
def test_products_of_matrices(
    kinds: str, shape: tuple[int, int, int], seed: int, all_ones: bool, per_channel: bool, constant: bool
) -> None:
    first, second = kinds.split()
    rows, inner, columns = shape
    random = np.random.default_rng(seed)
    a, b = extremes(random, first, (rows, inner), all_ones), extremes(random, second, (inner, columns), all_ones)
    sums = signed(a, first) @ signed(b, second)
    along = (columns,) if per_channel else ()
    numbers: dict[str, Array] = {
        "az": ZERO[first],
        "bz": np.full(along, ZERO[second]),
        "as": SCALE,
        "bs": np.full(along, WEIGHT_SCALE),
        "ys": byte_scale(sums),
    }
    feeds = {"a": a} | ({} if constant else {"b": b})
    numbers |= {"b": b} if constant else {}

    def result(op_type: str, *inputs: str, domain: str = "com.microsoft") -> Array:
        model = graph_of([helper.make_node(op_type, inputs, ["y"], domain=domain)], numbers, feeds)
        assert np.array_equal(output(model, feeds), output(exact(model), feeds))
        return output(model, feeds)

    assert np.array_equal(sums, result("MatMulInteger", "a", "b", "az", "bz", domain=""))
    floats = (sums * 2.0**-7).astype(np.float32)
    assert np.array_equal(floats, result("MatMulIntegerToFloat", "a", "b", "as", "bs", "az", "bz"))
    assert np.array_equal(floats, result("QGemm", "a", "as", "az", "b", "bs", "bz"))
    got = result("QLinearMatMul", "a", "as", "az", "b", "bs", "bz", "ys", "az", domain="")
    check_bytes(sums, got, first, numbers["ys"])


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("kinds", ["u8 u8", "u8 s8", "s8 s8", "s8 u8"])
@seeds
@few
def test_convolutions(kinds: str, name: str, seed: int, all_ones: bool, per_channel: bool, constant: bool) -> None:
    of_x, of_w = kinds.split()
    x_shape, w_shape, groups, pad, stride = CONVOLUTIONS[name]
    random = np.random.default_rng(seed)
    x, w = extremes(random, of_x, x_shape, all_ones), extremes(random, of_w, w_shape, all_ones)
    form: dict[str, Any] = {"group": groups, "pads": [pad] * 2 * (x.ndim - 2), "strides": [stride] * (x.ndim - 2)}
    sums = convolved(signed(x, of_x), signed(w, of_w), form)
    along = (w_shape[0],) if per_channel else ()
    numbers: dict[str, Array] = {
        "xz": ZERO[of_x],
        "wz": np.full(along, ZERO[of_w]),
        "one_wz": ZERO[of_w],
        "xs": SCALE,
        "ws": np.full(along, WEIGHT_SCALE),
        "ys": byte_scale(sums),
    }
    feeds = {"a": x} | ({} if constant else {"w": w})
    numbers |= {"w": w} if constant else {}

    integers = helper.make_node("ConvInteger", ["a", "w", "xz", "one_wz"], ["y"], **form)
    bytes_ = helper.make_node("QLinearConv", ["a", "xs", "xz", "w", "ws", "wz", "ys", "xz"], ["y"], **form)

    assert np.array_equal(sums, output(graph_of([integers], numbers, feeds), feeds))
    if kinds != "s8 u8":  # which QLinearConv does not know
        check_bytes(sums, output(graph_of([bytes_], numbers, feeds), feeds), of_x, numbers["ys"])


@pytest.mark.parametrize("zero_points", [True, False], ids=["zero points", "no zero points"])
@seeds
@few
def test_operators_that_quantize_for_themselves(
    zero_points: bool, seed: int, all_ones: bool, per_channel: bool, constant: bool
) -> None:
    """DynamicQuantizeMatMul against integers; QAttention and DynamicQuantizeLSTM with weights of either type."""
    random = np.random.default_rng(seed)
    x = random.choice([0, 1, 254, 255], size=(5, 64)).astype(np.float32) / 255
    x[0, :2] = 0, 1  # so that the scale is 1 / 255
    b = extremes(random, "s8", (64, 9), all_ones)
    along = (9,) if per_channel else ()
    numbers: dict[str, Array] = {"bs": np.full(along, WEIGHT_SCALE), "bz": np.zeros(along, np.int8)}
    feeds: dict[str, Array] = {"a": x} | ({} if constant else {"b": b})
    numbers |= {"b": b} if constant else {}
    inputs = ["a", "b", "bs"] + ["bz"] * zero_points

    node = helper.make_node("DynamicQuantizeMatMul", inputs, ["y"], domain="com.microsoft")
    sums = np.rint(x.astype(np.float64) * 255).astype(np.int64) @ b.astype(np.int64)
    floats = sums / 255 * float(WEIGHT_SCALE)
    got = output(graph_of([node], numbers, feeds), feeds)
    assert np.allclose(floats, got, rtol=1e-5, atol=1e-5 * np.abs(floats).max())

    tokens = random.choice([0, 1, 254, 255], size=(1, 4, 16)).astype(np.uint8)
    weight, bias = extremes(random, "s8", (16, 48), all_ones), np.zeros(48, np.float32)
    recurrent, floats_in = extremes(random, "s8", (1, 8, 32), all_ones), random.random((3, 1, 16)).astype(np.float32)
    gates = extremes(random, "s8", (1, 16, 32), all_ones)
    of_attention = ["a", "w", "bias", "as", "ws", "", "az"] + ["wz"] * zero_points
    attention = helper.make_node("QAttention", of_attention, ["y"], domain="com.microsoft", num_heads=2)
    of_lstm = ["a", "w", "r", *[""] * 5, "ws", "wz", "ws", "wz"]
    lstm = helper.make_node("DynamicQuantizeLSTM", of_lstm, ["y"], domain="com.microsoft", hidden_size=8)

    def both(node: onnx.NodeProto, feeds: dict[str, Array], numbers: dict[str, Array]) -> None:
        """A session here gives what unsigned weights give, which are exact everywhere."""
        moved = {
            name: (values.astype(np.int16) + 128).astype(np.uint8) if values.dtype == np.int8 else values
            for name, values in numbers.items()
        }
        node_moved = onnx.NodeProto()
        node_moved.CopyFrom(node)
        if node.op_type == "QAttention" and not zero_points:
            node_moved.input.append("wz")
        wanted = output(graph_of([node_moved], moved, feeds), feeds)
        assert np.array_equal(wanted, output(graph_of([node], numbers, feeds), feeds))

    scales: dict[str, Array] = {"as": np.float32(0.01), "ws": np.float32(0.002), "az": np.uint8(128)}
    both(attention, {"a": tokens}, {"w": weight, "bias": bias, "wz": np.int8(0), **scales})
    zeros = np.zeros(1, np.int8)
    both(lstm, {"a": floats_in}, {"w": gates, "r": recurrent, "wz": zeros, "ws": np.full(1, 0.002, np.float32)})


def test_a_signed_activation_is_quantized_unsigned_at_once() -> None:
    """Rather than moved afterwards; what else reads its signed form keeps it."""
    x = np.linspace(-3, 3, 40, dtype=np.float32).reshape(1, 10, 2, 2)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["y"]),
    ]
    numbers = {"s": SCALE, "z": np.int8(3), "w": np.full((4, 10, 1, 1), 255, np.uint8), "wz": np.uint8(128)}
    model = graph_of(nodes, numbers, {"x": x})
    read_twice = graph_of(
        [nodes[0], helper.make_node("DequantizeLinear", ["q", "s", "z"], ["also"]), nodes[1]], numbers, {"x": x}
    )
    read_twice.graph.output.append(value("also", None))

    rewritten = exact(model)

    assert [node.op_type for node in rewritten.graph.node] == ["QuantizeLinear", "ConvInteger"]
    assert {tensor.data_type for tensor in rewritten.graph.initializer} == {TensorProto.UINT8, TensorProto.FLOAT}
    assert np.array_equal(output(model, {"x": x}), output(rewritten, {"x": x}))
    assert len(exact(read_twice).graph.node) == 4


@pytest.mark.parametrize("operator", ["MatMulInteger", "MatMulIntegerToFloat"])
def test_a_second_operand_whose_type_only_its_way_tells_is_found(operator: str) -> None:
    """It has no zero point, and a node has moved it since it was quantized."""
    domain, scales = ("", []) if operator == "MatMulInteger" else ("com.microsoft", ["s", "s"])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Transpose", ["q"], ["b"], perm=[1, 0]),
        helper.make_node(operator, ["a", "b", *scales], ["y"], domain=domain),
    ]
    feeds: dict[str, Array] = {"x": np.full((1, 64), 127 / 16, np.float32), "a": np.full((1, 64), 255, np.uint8)}
    model = graph_of(nodes, {"s": SCALE, "z": np.int8(0)}, feeds)

    for candidate in (model, exact(model)):
        assert output(candidate, feeds).item() == 255 * 127 * 64 * (float(SCALE) ** 2 if scales else 1)


def test_a_model_that_is_exact_is_the_same_object_and_one_that_is_not_stays_as_it_was() -> None:
    signed_by_signed = graph_of(
        [helper.make_node("MatMulInteger", ["a", "b", "z", "z"], ["y"])],
        {"b": np.full((64, 1), 127, np.int8), "z": np.int8(0)},
        {"a": np.full((1, 64), 127, np.int8)},
    )
    ones = column_of_ones()
    before = ones.SerializeToString(deterministic=True)

    assert exact(signed_by_signed) is signed_by_signed
    assert exact(ones) is not ones
    assert ones.SerializeToString(deterministic=True) == before
    assert exact(again := exact(ones)) is again


def test_products_within_a_branch_are_exact_too() -> None:
    """Also where their weight is the outer graph's, and its zero point a Constant node."""
    zero = helper.make_node("Constant", [], ["z"], value=numpy_helper.from_array(np.int8(0)))
    product = helper.make_node("MatMulInteger", ["a", "b", "", "z"], ["inner"])
    result = helper.make_tensor_value_info("inner", TensorProto.INT32, None)
    branches = {name: helper.make_graph([zero, product], name, [], [result]) for name in ("then_branch", "else_branch")}
    a = np.full((1, 64), 255, np.uint8)
    feeds: dict[str, Array] = {"a": a, "yes": np.array(True)}
    model = graph_of([helper.make_node("If", ["yes"], ["y"], **branches)], {"b": np.full((64, 1), 127, np.int8)}, feeds)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32

    assert exact(model) is not model
    for candidate in (model, exact(model)):
        assert output(candidate, feeds).item() == 255 * 127 * 64


def test_weights_that_lie_apart_are_exact_too() -> None:
    a, b = np.full((1, 2048), 255, np.uint8), np.full((2048, 64), 127, np.int8)
    model = graph_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {}, {"a": a})
    with kept_aside(FROM_BYTES):
        model.graph.initializer.append(tensor_of(b, "b"))
        assert is_apart(model)

        for candidate in (model, exact(model)):
            assert (output(candidate, {"a": a}) == 255 * 127 * 2048).all()


def column_of_ones() -> onnx.ModelProto:
    """64 products of 255 and 127: what a processor makes of it says its class."""
    product = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    return graph_of([product], {"b": np.full((64, 1), 127, np.int8)}, {"a": np.full((1, 64), 255, np.uint8)})


def test_the_class_of_this_processor_says_what_it_does_with_a_column_of_ones() -> None:
    session = ort.InferenceSession(column_of_ones().SerializeToString(), providers=["CPUExecutionProvider"])

    (sum_,) = session.run(None, {"a": np.full((1, 64), 255, np.uint8)})

    cpu = this_cpu()
    expected = 32_767 * 32 if cpu.saturates and "avx2" in cpu.features else 255 * 127 * 64
    assert sum_.item() == expected, cpu
