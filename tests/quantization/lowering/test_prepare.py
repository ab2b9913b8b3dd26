"""Preparation leaves the function alone: balanced models compute what they did, where the factors go is told here."""

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.quantization.networks import CONVOLUTIONS, convolutions, images, perceptron, rows, showing
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import balanced, corrected
from workbench.quantization.lowering.surgery import editable_copy
from workbench.quantization.weights import grouped_weight
from workbench.testing.encoder import HEADS, WEIGHT_LAYERS, WIDTH, ids, model_of, run, tiny_encoder, value
from workbench.values.errors import LoweringError

Feeds = dict[str, npt.NDArray[np.generic]]


def factors_for(proto: onnx.ModelProto, names: tuple[str, ...], seed: int = 1) -> dict[str, tuple[float, ...]]:
    """Factors between about 1/20 and 20, one vector per tensor that the layers read."""
    random = np.random.default_rng(seed)
    known = constants(proto)
    vectors: dict[str, tuple[float, ...]] = {}
    found = {}
    for layer in quantizable_layers(proto):
        if layer.name not in names or layer.weight is None:
            continue
        groups, _, cin, _ = grouped_weight(numpy_helper.to_array(known[layer.weight]), layer).shape
        drawn = np.exp(random.normal(size=groups * cin)).astype(np.float32)
        found[layer.name] = vectors.setdefault(layer.activation, tuple(float(v) for v in drawn))
    assert found.keys() == set(names)
    return found


def names_of(proto: onnx.ModelProto, op_type: str) -> list[str]:
    return [node.name for node in proto.graph.node if node.op_type == op_type]


def added_muls(proto: onnx.ModelProto) -> list[str]:
    return [name for name in names_of(proto, "Mul") if name.endswith(".mul")]


def assert_same_function(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Feeds) -> None:
    onnx.checker.check_model(after, full_check=True)
    assert [n.name for n in quantizable_layers(before)] == [n.name for n in quantizable_layers(after)]
    for a, b in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(np.abs(a).max()))


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("case", ["encoder", "convolutions", "gemm", "matmul"])
def test_a_balanced_model_computes_the_same(case: str, fold: bool) -> None:
    proto, names, feeds = {
        "encoder": (tiny_encoder(), WEIGHT_LAYERS, ids(3, 6)),
        "convolutions": (convolutions(), CONVOLUTIONS, images(2)),
        "gemm": (perceptron(), ("fc1", "fc2"), rows(4)),
        "matmul": (perceptron(gemm=False), ("fc1", "fc2"), rows(4)),
    }[case]
    proto = normalized(proto)
    before = proto.SerializeToString()

    after = balanced(proto, factors_for(proto, names), fold=fold)

    assert proto.SerializeToString() == before
    assert_same_function(proto, after, feeds)
    if not fold:
        assert len(added_muls(after)) == len(names)


def test_factors_fold_through_attention_into_the_projection_of_the_values() -> None:
    proto = normalized(tiny_encoder())

    after = balanced(proto, factors_for(proto, ("out",)), fold=True)

    assert not added_muls(after)
    changed = {
        t.name
        for t, u in zip(proto.graph.initializer, after.graph.initializer, strict=True)
        if t.SerializeToString() != u.SerializeToString()
    }
    assert changed == {"value_w", "value_b", "out_w"}
    assert_same_function(proto, after, ids(2, 7))


def test_heads_that_a_reshape_does_not_tell_are_left_alone() -> None:
    """Split into another number of heads than the width gives, channels of several positions would mix."""
    proto = tiny_encoder()
    for tensor in proto.graph.initializer:
        if tensor.name == "heads":  # the last two axes no longer hold one position's channels
            tensor.CopyFrom(numpy_helper.from_array(np.array([0, -1, HEADS // 2, WIDTH // HEADS]), "heads"))
        if tensor.name == "merged":
            tensor.CopyFrom(numpy_helper.from_array(np.array([0, -1, WIDTH]), "merged"))
    proto = normalized(proto)

    after = balanced(proto, factors_for(proto, ("out",)), fold=True)

    assert added_muls(after) == ["out.mul"]
    assert_same_function(proto, after, ids(2, 6))


def test_layers_that_share_an_input_share_one_mul_and_a_residual_connection_keeps_its_tensor() -> None:
    """`up` reads the sum of a decomposed LayerNormalization that a residual Add reads as well."""
    proto = normalized(tiny_encoder())

    after = balanced(proto, factors_for(proto, ("query", "key", "value")), fold=True)

    assert added_muls(after) == ["query.mul"]
    inputs = {layer.name: layer.activation for layer in quantizable_layers(after)}
    assert inputs["query"] == inputs["key"] == inputs["value"] == "query.mul.output0"
    assert added_muls(balanced(proto, factors_for(proto, ("up",)), fold=True)) == ["up.mul"]


def normalization(*, decomposed: bool, residual: bool = False, shared: bool = False) -> onnx.ModelProto:
    """`x` [batch, 5, 8] → LayerNormalization → MatMul → `y`; the norm's output may be an output of the model too."""
    random = np.random.default_rng(8)
    weights: dict[str, npt.NDArray[np.generic]] = {
        "gain": random.uniform(0.5, 2, 8).astype(np.float32),
        "shift": random.normal(size=8).astype(np.float32),
        "w": random.normal(size=(8, 8 if shared else 6)).astype(np.float32),
    }
    if decomposed:
        weights |= {"two": np.array(2, np.float32), "epsilon": np.array(1e-5, np.float32)}
        nodes = [
            helper.make_node("ReduceMean", ["x"], ["mean"], name="mean", axes=[-1]),
            helper.make_node("Sub", ["x", "mean"], ["centred"], name="sub"),
            helper.make_node("Pow", ["centred", "two"], ["square"], name="pow"),
            helper.make_node("ReduceMean", ["square"], ["variance"], name="variance", axes=[-1]),
            helper.make_node("Add", ["variance", "epsilon"], ["stable"], name="stable"),
            helper.make_node("Sqrt", ["stable"], ["deviation"], name="sqrt"),
            helper.make_node("Div", ["centred", "deviation"], ["normal"], name="div"),
            helper.make_node("Mul", ["normal", "gain"], ["gained"], name="gained"),
            helper.make_node("Add", ["gained", "shift"], ["norm"], name="shifted"),
        ]
    else:
        nodes = [helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["norm"], name="norm")]
    nodes.append(helper.make_node("Shape", ["norm"], ["shape"], name="shape"))
    nodes.append(helper.make_node("MatMul", ["norm", "w"], ["y"], name="dense"))
    outputs = [
        value("y", ["batch", 5, weights["w"].shape[1]]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [3]),
    ]
    if shared:
        nodes.append(helper.make_node("MatMul", ["x", "w"], ["z"], name="other"))
        nodes.append(helper.make_node("Mul", ["z", "gain"], ["scaled"], name="scaled"))
        outputs.append(value("scaled", ["batch", 5, 8]))
    if residual:
        outputs.append(value("norm", ["batch", 5, 8]))
    return model_of(nodes, weights, [value("x", ["batch", 5, 8])], outputs)


def test_factors_fold_into_a_layer_normalization_unless_the_model_gives_it_out() -> None:
    """Constants that others read stay: the weight of two layers, the gain of another node."""
    feeds: Feeds = {"x": np.random.default_rng(3).normal(size=(3, 5, 8)).astype(np.float32)}
    for proto, muls in (
        (normalization(decomposed=True), []),
        (normalization(decomposed=False), []),
        (normalization(decomposed=True, shared=True), []),
        (normalization(decomposed=False, residual=True), ["dense.mul"]),
    ):
        before = normalized(proto)
        after = balanced(before, factors_for(before, ("dense",)), fold=True)
        assert added_muls(after) == muls
        assert_same_function(before, after, feeds)


@pytest.mark.parametrize(
    ("proto", "layer", "channels", "feeds"),
    [
        (perceptron(), "fc1", 6, rows(3)),
        (perceptron(gemm=False), "fc2", 3, rows(3)),
        (convolutions(), "up", 6, images(2)),
        (convolutions(), "grouped", 4, images(2)),
        (normalization(decomposed=False), "dense", 6, {"x": np.ones((2, 5, 8), np.float32)}),
    ],
    ids=["gemm", "matmul and add", "transposed", "conv without bias", "matmul without bias"],
)
def test_a_correction_is_added_to_every_output_of_its_channel(
    proto: onnx.ModelProto, layer: str, channels: int, feeds: Feeds
) -> None:
    proto = normalized(proto)
    correction = np.arange(1, channels + 1, dtype=np.float32)

    after = corrected(proto, {layer: tuple(float(v) for v in correction)})

    onnx.checker.check_model(after, full_check=True)
    node = next(node for node in proto.graph.node if node.name == layer)
    adds = [n for n in proto.graph.node if n.op_type == "Add" and n.input[0] == node.output[0] and n.name == "fc2_bias"]
    tensor = (adds[0] if adds else node).output[0]
    values = [run(showing(p, tensor), feeds, [tensor])[0] for p in (proto, after)]
    axis = 1 if "Conv" in node.op_type else -1
    difference = np.moveaxis(values[1] - values[0], axis, -1)
    np.testing.assert_allclose(difference, np.broadcast_to(correction, difference.shape), atol=1e-4)


def test_factors_and_corrections_that_do_not_fit_are_refused() -> None:
    for layer, factors, message in (
        ("fc3", [1.0] * 8, "'fc3' of the record is not in the model. Did you mean 'fc"),
        ("fc1", [1.0] * 7, "7 balance factors do not fit a weight of shape"),
        ("fc1", [0.0] * 8, "must be positive"),
        ("relu", [1.0] * 6, "only a layer with a constant weight"),
    ):
        with pytest.raises(LoweringError, match=message):
            balanced(perceptron(), {layer: factors}, fold=True)
    with pytest.raises(LoweringError, match="5 bias corrections do not fit"):
        corrected(perceptron(), {"fc1": [0.0] * 5})


def test_a_file_that_onnx_does_not_follow_is_refused_in_our_words() -> None:
    """Of opset 6, with weights that are no inputs, as that opset wants them."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")
    x, y = (value(n, ["batch", 4]) for n in "xy")
    old = model_of([node], {"w": np.ones((4, 4), np.float32), "b": np.ones(4, np.float32)}, [x], [y], opset=6)
    old.ir_version = 3

    with pytest.raises(LoweringError, match=r"has opset 6, INT8 here needs 13, and onnx cannot convert it"):
        editable_copy(old, opset=13)
