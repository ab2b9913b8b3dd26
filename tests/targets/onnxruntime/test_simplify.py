from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from workbench.quantization.lowering.qdq import lower_static
from workbench.targets.onnxruntime.compiler import count_kernels
from workbench.targets.onnxruntime.fusions import fused
from workbench.targets.onnxruntime.projections import with_convolutions
from workbench.targets.onnxruntime.simplify import simplified
from workbench.testing.encoder import HEADS, WIDTH, Array, ids, model_of, record_for, run, save, tiny_encoder, value

LONGEST = 40


def exported_encoder(mask: str = "plain") -> ModelProto:
    """The tiny encoder as exporters write it: shapes computed, a mask from many nodes, and positions."""
    proto = tiny_encoder()
    graph = proto.graph
    random = np.random.default_rng(1)
    weights: dict[str, Array] = {
        "zero": np.array(0),
        "axis0": np.array([0]),
        "axis1": np.array([1]),
        "axes12": np.array([1, 2]),
        "first": np.array(0),
        "second": np.array(1),
        "tail": np.array([HEADS, WIDTH // HEADS]),
        "numbers": np.arange(LONGEST)[None],
        "positions": random.normal(size=(LONGEST, WIDTH)).astype(np.float32),
        "never": np.array(False),
        "none": np.zeros((), np.float32),
        "lowest": np.array(-np.inf if mask == "infinite" else -3e38, np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in weights.items())
    graph.input.append(value("mask", ["batch", "length"], TensorProto.INT64))

    def node(op_type: str, name: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, [name], name=f"{name}_node", **attributes)

    before = [
        node("Shape", "size", ["ids"]),
        node("Gather", "batch_size", ["size", "first"]),
        node("Gather", "length", ["size", "second"]),
        node("Unsqueeze", "batch_1d", ["batch_size", "axis0"]),
        node("Unsqueeze", "length_1d", ["length", "axis0"]),
        node("Concat", "computed_heads", ["batch_1d", "length_1d", "tail"], axis=0),
        node("Slice", "numbers_here", ["numbers", "axis0", "length_1d", "axis1"]),
        node("Gather", "position", ["positions", "numbers_here"]),
        node("Cast", "keeps", ["mask"], to=TensorProto.BOOL),
        node("Unsqueeze", "keeps_4d", ["keeps", "axes12"]),
        node("Or", "keeps_or", ["keeps_4d", "never"]),
        node("Unsqueeze", "one_1d", ["second", "axis0"]),
        node("Concat", "square", ["batch_1d", "one_1d", "length_1d", "length_1d"], axis=0),
        node("Expand", "keeps_square", ["keeps_or", "square"]),
        node("Where", "bias", ["keeps_square", "none", "lowest"]),
    ]
    if mask == "causal":
        before[-2:-1] = [
            node("Expand", "keeps_all", ["keeps_or", "square"]),
            node("Trilu", "keeps_square", ["keeps_all"], upper=0),
        ]
    nodes = before
    for old in graph.node:
        new = onnx.NodeProto.FromString(old.SerializeToString())
        for at, name in enumerate(new.input):
            new.input[at] = {"heads": "computed_heads", "embed_y": "summed"}.get(name, name)
        if new.op_type == "Softmax":
            nodes.append(node("Add", "biased", [new.input[0], "bias"]))
            new.input[0] = "biased"
        nodes.append(new)
        if new.name == "embed":
            nodes.append(node("Add", "summed", ["embed_y", "position"]))
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def fed(batch: int, length: int) -> dict[str, Array]:
    mask = np.ones((batch, length), np.int64)
    mask[-1, length // 2 + 1 :] = 0
    return {**ids(batch, length), "mask": mask}


def kinds_of(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_an_exported_encoder_gives_the_same_results_with_fewer_nodes() -> None:
    model = exported_encoder()
    before = model.SerializeToString(deterministic=True)

    simple = simplified(model)

    assert model.SerializeToString(deterministic=True) == before
    assert simplified(model).SerializeToString(deterministic=True) == simple.SerializeToString(deterministic=True)
    kinds = kinds_of(simple)
    assert len(simple.graph.node) < len(model.graph.node)
    assert [kinds[kind] for kind in ("Concat", "Expand", "Or", "Where")] == [0, 0, 0, 1]
    for feeds in (fed(1, 1), fed(2, 3), fed(5, LONGEST)):
        assert np.allclose(run(model, feeds)[0], run(simple, feeds)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask", ["causal", "infinite"])
def test_a_mask_that_is_more_than_a_mask_keeps_its_nodes(mask: str) -> None:
    model = exported_encoder(mask)

    simple = simplified(model)

    assert kinds_of(simple)["Expand"] > 0
    assert kinds_of(simple)["Or"] == 1
    assert np.allclose(run(model, fed(3, 7))[0], run(simple, fed(3, 7))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [16, 512])
def test_a_shape_that_changes_only_for_long_texts_stays(window: int) -> None:
    """Local attention pads a text to whole windows: their number is 1 for every short text."""
    weights: dict[str, Array] = {
        "window": np.array([window]),
        "rest": np.array([window - 1]),
        "zeros": np.array([0, 0, 0]),
        "one": np.array([1]),
        "last": np.array([2]),
    }
    nodes = [
        helper.make_node("Cast", ["ids"], ["x"], name="x", to=TensorProto.FLOAT),
        helper.make_node("Shape", ["ids"], ["batch"], name="batch", start=0, end=1),
        helper.make_node("Shape", ["ids"], ["length"], name="length", start=1),
        helper.make_node("Add", ["length", "rest"], ["more"], name="more"),
        helper.make_node("Div", ["more", "window"], ["windows"], name="windows"),
        helper.make_node("Mul", ["windows", "window"], ["padded_length"], name="padded_length"),
        helper.make_node("Sub", ["padded_length", "length"], ["missing"], name="missing"),
        helper.make_node("Concat", ["zeros", "missing"], ["pads"], name="pads", axis=0),
        helper.make_node("Pad", ["x", "pads"], ["padded"], name="padded"),
        helper.make_node("Concat", ["batch", "windows", "window"], ["shape"], name="shape", axis=0),
        helper.make_node("Reshape", ["padded", "shape"], ["split"], name="split"),
        helper.make_node("ReduceMax", ["split"], ["logits"], name="logits", axes=[2], keepdims=0),
    ]
    given = value("ids", ["batch", "length"], TensorProto.INT64)
    model = model_of(nodes, weights, [given], [value("logits", ["batch", "windows"])])

    simple = simplified(model)

    for length in (3, window, window + 1, 4 * window):
        assert np.array_equal(run(model, ids(2, length))[0], run(simple, ids(2, length))[0])


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> ModelProto:
    """The tiny encoder, everything in INT8, from the runtime's optimizer and with our first fusions."""
    folder = tmp_path_factory.mktemp("optimized")
    path = save(tiny_encoder(), folder / "model.onnx")
    lowered = lower_static(onnx.load(path), record_for(path, ids(8, 9), per_channel=True, products=True))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    off = ["MatMulAddFusion", "QDQS8ToU8Transformer"]
    ort.InferenceSession(
        lowered.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=off
    )
    return fused(onnx.load(folder / "optimized.onnx"))


def heads(model: ModelProto) -> list[str]:
    """Both factors of both products of activations, without the probabilities."""
    known = {tensor.name for tensor in model.graph.initializer}
    scores = [n for n in model.graph.node if n.op_type == "MatMulIntegerToFloat" and n.input[1] not in known]
    contexts = [n for n in model.graph.node if n.op_type == "QLinearMatMul"]
    assert (len(scores), len(contexts)) == (1, 1)
    return [scores[0].input[0], scores[0].input[1], contexts[0].input[3]]


def looked_into(model: ModelProto, feeds: dict[str, Array], tensors: list[str]) -> list[Array]:
    probe = ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(ValueInfoProto(name=name) for name in tensors)
    return run(probe, feeds, tensors)


def test_one_convolution_gives_the_integers_of_query_key_and_value(optimized: ModelProto) -> None:
    before = optimized.SerializeToString(deterministic=True)
    feeds = ids(6, 11, seed=3)

    one = with_convolutions(optimized)

    expected, got = looked_into(optimized, feeds, heads(optimized)), looked_into(one, feeds, heads(one))
    kernels = [Counter(node.op_type for node in model.graph.node) for model in (optimized, one)]
    assert optimized.SerializeToString(deterministic=True) == before
    assert kernels[1] - kernels[0] == Counter(QLinearConv=1, Split=1, Add=2, Cast=2)
    assert kernels[0]["MatMulIntegerToFloat"] - kernels[1]["MatMulIntegerToFloat"] == 3
    assert [values.dtype for values in got] == [np.uint8, np.int8, np.int8]
    for a, b in zip(expected, got, strict=True):
        apart = np.abs(a.astype(int) - b.astype(int))
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert len(np.unique(a)) > 50
        assert apart.max() <= 1
        assert np.mean(apart) < 0.005
    assert count_kernels(one)[:2] == count_kernels(optimized)[:2]


@pytest.mark.parametrize("change", ["asymmetric weight", "coarse sums", "output", "old opset"])
def test_what_a_convolution_cannot_compute_stays(change: str, optimized: ModelProto) -> None:
    model = ModelProto()
    model.CopyFrom(optimized)
    products = [n for n in model.graph.node if n.op_type == "MatMulIntegerToFloat"]
    (query,) = [n for n in products if "query" in n.output[0]]
    others = 2  # key and value
    if change == "asymmetric weight":
        zero = np.ones(WIDTH, np.int8)
        model.graph.initializer.append(numpy_helper.from_array(zero, "zero"))
        query.input[5] = "zero"
    elif change == "coarse sums":
        known = {t.name: t for t in model.graph.initializer}
        query.input[3] = "coarse"
        model.graph.initializer.append(numpy_helper.from_array(np.full(WIDTH, 1e3, np.float32), "coarse"))
        assert query.input[2] in known
        others = 0
    elif change == "output":
        model.graph.output.append(ValueInfoProto(name=query.output[0]))
    else:
        model.opset_import[0].version = 13
        others = 0

    rewritten = with_convolutions(model)

    made = {node.output[0]: node for node in rewritten.graph.node}
    assert made[query.output[0]].op_type == "MatMulIntegerToFloat"
    assert sum(n.op_type == "MatMulIntegerToFloat" for n in rewritten.graph.node) == len(products) - others
