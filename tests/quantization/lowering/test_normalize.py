"""Normalization gives one form to the same computation, and computes the same."""

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.layers import quantizable_layers
from workbench.quantization.lowering.normalize import normalized
from workbench.testing.encoder import model_of, run, tiny_encoder, value

Array = npt.NDArray[np.generic]
FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def values(*shape: int, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def named(nodes: list[NodeProto]) -> list[NodeProto]:
    for index, node in enumerate(nodes):
        node.name = node.name or f"{node.op_type}_{index}"
    return nodes


def graph_of(
    nodes: list[NodeProto], weights: dict[str, Array], shape: list[int | str], *, opset: int = 17
) -> onnx.ModelProto:
    """Nodes between the float input `x` and the output `y`."""
    return model_of(named(nodes), weights, [value("x", shape)], [value("y", None)], opset=opset)


def assert_same_results(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    for expected, got in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def initializers(proto: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


# --- nothing to do -------------------------------------------------------------------------------------------------


def test_the_model_given_is_not_changed_and_equal_models_give_equal_ones() -> None:
    proto = tiny_encoder()
    before = proto.SerializeToString(deterministic=True)

    first, second = normalized(proto), normalized(tiny_encoder())

    assert proto.SerializeToString(deterministic=True) == before
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert first.SerializeToString(deterministic=True) != before


# --- biases --------------------------------------------------------------------------------------------------------


def test_what_is_no_bias_stays_where_it_is() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["b", "m"], ["y"])]
    for reason, bias, factor in (
        ("another length", values(1), values(4, 3)),
        ("two dimensions", values(1, 3), values(4, 3)),
        ("a stack of matrices", values(3), values(2, 4, 3)),
    ):
        proto = graph_of(nodes, {"w": factor, "b": bias}, ["batch", 4])
        assert normalized(proto) is proto, reason


# --- constants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 17])
def test_chains_of_constants_fold_to_what_the_runtime_computes(opset: int) -> None:
    """Axes are attributes before opset 13, and inputs from then on; a shape may copy a size or leave one open."""
    old = opset < 13
    nodes = [
        helper.make_node("Cast", ["c"], ["f"], to=FLOAT),
        helper.make_node("Squeeze", ["f"] if old else ["f", "zero"], ["s"], **({"axes": [0]} if old else {})),
        helper.make_node("Unsqueeze", ["s"] if old else ["s", "zero"], ["u"], **({"axes": [0]} if old else {})),
        helper.make_node("Squeeze", ["u"], ["all"], name="all"),
        helper.make_node("Transpose", ["all"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["w"], perm=[1, 0]),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=1, name="dense"),
    ]
    weights: dict[str, Array] = {"c": values(1, 3, 4).astype(np.float16), "shape": np.array([0, -1])}
    weights |= {} if old else {"zero": np.array([0])}
    proto = graph_of(nodes, weights, ["batch", 4], opset=opset)

    after = normalized(proto)

    assert operators(after) == ["Gemm"]
    assert_same_results(proto, after, {"x": values(2, 4)})


def test_layers_that_read_one_weight_the_same_way_share_one_initializer() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["w1"], perm=[1, 0]),
        helper.make_node("Transpose", ["w"], ["w2"], perm=[1, 0]),
        helper.make_node("Identity", ["w"], ["w3"]),
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "w2"], ["b"], name="second"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="third"),
        helper.make_node("MatMul", ["c", "w3"], ["y"], name="fourth"),
    ]
    proto = graph_of(nodes, {"w": values(4, 4)}, ["batch", 4])

    after = normalized(proto)

    weights = {layer.name: layer.weight for layer in quantizable_layers(after)}
    assert weights == {"first": "w1", "second": "w1", "third": "w", "fourth": "w"}
    assert {"w1", "w"} == set(initializers(after))
    assert_same_results(proto, after, {"x": values(2, 4)})


def test_a_weight_that_a_branch_reads_keeps_its_name() -> None:
    inside = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["inner"])],
        "then",
        [],
        [value("inner", None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["m"], ["outer"])],
        "else",
        [],
        [value("outer", None)],
    )
    nodes = [
        helper.make_node("Transpose", ["c"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=inside, else_branch=other),
    ]
    proto = graph_of(nodes, {"c": values(3, 4), "yes": np.array(True)}, ["batch", 4])

    after = normalized(proto)

    assert operators(after) == ["MatMul", "If"]
    assert_same_results(proto, after, {"x": values(2, 4)})


# --- batch normalization -------------------------------------------------------------------------------------------


def norm_weights(channels: int, name: str = "") -> dict[str, Array]:
    random = np.random.default_rng(5)
    return {
        f"scale{name}": random.normal(size=channels).astype(np.float32),
        f"shift{name}": random.normal(size=channels).astype(np.float32),
        f"mean{name}": random.normal(size=channels).astype(np.float32),
        f"variance{name}": random.uniform(0.1, 3, channels).astype(np.float32),
    }


def norm(source: str, target: str, name: str = "", **attributes: object) -> NodeProto:
    parameters = [f"{kind}{name}" for kind in ("scale", "shift", "mean", "variance")]
    return helper.make_node("BatchNormalization", [source, *parameters], [target], **attributes)


@settings(max_examples=40, deadline=None)
@given(
    op_type=st.sampled_from(["Conv", "ConvTranspose"]),
    groups=st.integers(1, 3),
    inputs=st.integers(1, 2),
    outputs=st.integers(1, 3),
    bias=st.booleans(),
    dimensions=st.integers(1, 3),
    epsilon=st.sampled_from([1e-5, 0.1]),
)
def test_batch_normalization_moves_into_the_convolution_before_it(
    op_type: str, groups: int, inputs: int, outputs: int, bias: bool, dimensions: int, epsilon: float
) -> None:
    kernel = (2,) * dimensions
    shape = (groups * outputs, inputs) if op_type == "Conv" else (groups * inputs, outputs)
    weights = {"w": values(*shape, *kernel), **norm_weights(groups * outputs)}
    if bias:
        weights["b"] = values(groups * outputs, seed=2)
    conv = helper.make_node(op_type, ["x", "w", *(["b"] if bias else [])], ["c"], name="conv", group=groups)
    extent = (2, groups * inputs, *(4,) * dimensions)
    proto = graph_of([conv, norm("c", "y", epsilon=epsilon)], weights, ["batch", *extent[1:]])

    after = normalized(proto)

    assert [(node.op_type, node.name, list(node.output)) for node in after.graph.node] == [(op_type, "conv", ["y"])]
    assert {"w_fused", "w_fused_bias"} == set(initializers(after))
    assert_same_results(proto, after, {"x": values(*extent)})
    assert normalized(after) is after


def test_a_convolution_that_others_read_keeps_its_batch_normalization() -> None:
    def branch(kind: str, x: str) -> onnx.GraphProto:
        output = value(kind, None)
        return helper.make_graph([helper.make_node(kind, [x], [kind])], kind, [], [output])

    conv, weights = helper.make_node("Conv", ["x", "w"], ["c"]), {"w": values(3, 3, 1, 1), **norm_weights(3)}
    branches = {"then_branch": branch("Relu", "c"), "else_branch": branch("Neg", "x")}
    for reader in (helper.make_node("Relu", ["c"], ["r"]), helper.make_node("If", ["yes"], ["r"], **branches)):
        nodes = [conv, reader, norm("c", "n"), helper.make_node("Add", ["n", "r"], ["y"])]
        proto = graph_of(nodes, {**weights, "yes": np.array(True)}, ["batch", 3, 4, 4])
        assert normalized(proto) is proto, reader.op_type
    as_output = graph_of([conv, norm("c", "y")], weights, ["batch", 3, 4, 4])
    as_output.graph.output.append(value("c", None))
    assert normalized(as_output) is as_output


@pytest.mark.parametrize("change", ["computed scale", "negative variance", "after an addition"])
def test_a_batch_normalization_that_cannot_move_stays(change: str) -> None:
    weights: dict[str, Array] = {"w": values(3, 3, 1, 1), **norm_weights(3)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), norm("c", "y")]
    if change == "computed scale":
        weights["scale_input"] = weights.pop("scale")
        nodes.insert(0, helper.make_node("Exp", ["scale_input"], ["scale"]))
    elif change == "negative variance":
        weights["variance"] = -weights["variance"]
    else:
        nodes[1:] = [helper.make_node("Add", ["c", "x"], ["d"]), norm("d", "y")]
    proto = graph_of(nodes, weights, ["batch", 3, 4, 4])

    assert normalized(proto) is proto


# --- what scales and shifts a convolution's channels -------------------------------------------------------------


def test_constants_by_channel_behind_a_convolution_move_into_it() -> None:
    x = {"x": values(2, 3, 5, 5)}
    for kind, weight in (("Conv", values(4, 3, 3, 3)), ("ConvTranspose", values(3, 4, 3, 3))):
        nodes = [
            helper.make_node(kind, ["x", "w"], ["c"]),
            helper.make_node("Reshape", ["b", "shape"], ["shift"]),
            helper.make_node("Add", ["shift", "c"], ["d"]),
            helper.make_node("Mul", ["d", "minus"], ["e"]),
            helper.make_node("Div", ["e", "by"], ["f"]),
            helper.make_node("Sub", ["f", "one"], ["y"]),
        ]
        constants = {
            "w": weight,
            "b": values(4),
            "shape": np.array([1, 4, 1, 1]),
            "minus": np.float32(-2),
            "by": np.abs(values(4, 1, 1)) + 1,
            "one": np.float32([0.25]),
        }
        proto = graph_of(nodes, constants, ["n", 3, 5, 5])

        after = normalized(proto)

        assert operators(after) == [kind]
        assert_same_results(proto, after, x)
        assert operators(normalized(proto, scalars=False)) == [node.op_type for node in nodes]


def test_what_a_convolution_cannot_take_up_stays_behind_it() -> None:
    for second, constant in (
        ("Add", values(1, 1, 3, 3)),  # by pixel
        ("Mul", values(1, 1, 1, 1, 1)),  # one axis more
        ("Add", np.float32(np.inf)),
        ("Div", np.float32(0)),
    ):
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(second, ["c", "k"], ["y"])]
        proto = graph_of(nodes, {"w": values(4, 3, 3, 3), "k": np.asarray(constant)}, ["n", 3, 5, 5])

        assert operators(normalized(proto)) == ["Conv", second]
    twice = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mul", ["c", "k"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    proto = graph_of(twice, {"w": values(4, 3, 3, 3), "k": np.float32(2)}, ["n", 3, 5, 5])
    assert operators(normalized(proto)) == ["Conv", "Mul", "Add"], "the convolution's own output is read too"
