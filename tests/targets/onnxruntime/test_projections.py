from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, ValueInfoProto, numpy_helper

from tests.targets.encoder import HEADS, WIDTH, Array, ids, record_for, run, save, tiny_encoder
from workbench.graph.read import read_model
from workbench.quantization.lowering.qdq import lower_static
from workbench.targets.onnxruntime.compiler import count_kernels
from workbench.targets.onnxruntime.fusions import fused
from workbench.targets.onnxruntime.projections import with_convolutions, with_split_transposes
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.testing.conformance import STATIC, compiled
from workbench.values.candidate import Candidate

BENCH = Path(__file__).parents[3] / "../shared/bench/banking77/minilm_l6_banking77.onnx"


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


def test_two_transpositions_do_what_one_did(optimized: ModelProto) -> None:
    split = with_split_transposes(optimized)

    kernels = [Counter(node.op_type for node in model.graph.node) for model in (optimized, split)]
    assert kernels[1] - kernels[0] == Counter(Transpose=3)  # query, value, context
    for feeds in (ids(1, 1), ids(3, 9), ids(2, WIDTH // HEADS)):
        assert np.array_equal(run(optimized, feeds)[0], run(split, feeds)[0])


@pytest.mark.skipif(not BENCH.exists(), reason="the reference benchmark is not beside the checkout")
def test_every_layer_of_a_real_encoder_gets_its_convolution(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        "input_ids": random.integers(1000, 20000, (4, 16)),
        "attention_mask": np.ones((4, 16), np.int64),
    }
    record = record_for(BENCH, feeds, per_channel=True, products=True)

    artifact, _ = compiled(
        OnnxRuntimeTarget(), read_model(BENCH), Candidate(target="onnxruntime", quantization=STATIC), record, tmp_path
    )

    assert (artifact.int8_ops, artifact.float_matmuls_left) == (6 * 8 + 1, 0)
    expected = {"QLinearConv": 6, "Split": 6, "Reshape": 18, "Transpose": 30, "Where": 1, "Gather": 3}
    assert {kind: artifact.kernels.get(kind) for kind in expected} == expected
