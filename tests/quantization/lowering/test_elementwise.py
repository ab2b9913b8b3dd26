"""8-bit tensors between layers: the same answers within rounding, and integer operators where float ones were."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.small_graphs import graph_of, saved
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.elementwise import with_hard_sigmoids, with_integers_between
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Precision, Quantization
from workbench.values.errors import ConfigError


def conv(x: str, y: str, channels: int = 4) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, f"w{channels}_{y}"], [y], y, pads=[1, 1, 1, 1])


def node(kind: str, inputs: list[str], y: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [y], y, **attributes)


NETS = {
    "residual": [
        *(conv("x", "a"), node("Relu", ["a"], "b"), node("MaxPool", ["b"], "p", kernel_shape=[2, 2], strides=[2, 2])),
        *(conv("p", "c"), node("Relu", ["c"], "d"), conv("d", "e"), node("Add", ["e", "p"], "f")),
        *(node("Relu", ["f"], "g"), conv("g", "y")),
    ],
    "silu": [
        *(conv("x", "a"), node("Sigmoid", ["a"], "s"), node("Mul", ["a", "s"], "b"), conv("b", "c")),
        *(node("Sigmoid", ["c"], "t"), node("Mul", ["c", "t"], "d"), node("Add", ["b", "d"], "e"), conv("e", "y")),
    ],
    "hard swish": [  # as exporters write it, times one number and plus another
        *(conv("x", "a"), node("Add", ["a", "three"], "a3"), node("Clip", ["a3", "zero", "six"], "a6")),
        *(node("Mul", ["a", "a6"], "am"), node("Div", ["am", "six"], "ad"), node("Mul", ["half", "ad"], "ah")),
        *(node("Add", ["ah", "three"], "b"), conv("b", "y")),
    ],
    "split": [
        *(conv("x", "a"), node("Relu", ["a"], "b"), node("Split", ["b"], "c", axis=1), conv("c2", "d", 2)),
        *(node("Concat", ["c", "c2", "d"], "e", axis=1), conv("e", "y", 6)),
    ],
}
NETS["split"][2].output.append("c2")
NUMBERS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "half": np.float32([0.5])}
INTEGER = {
    "residual": {"QLinearAdd": 1, "QLinearConv": 4},
    "silu": {"QLinearMul": 2, "QLinearAdd": 1, "QLinearConv": 3},
    "hard swish": {"QLinearMul": 1, "QLinearAdd": 2, "QLinearConv": 2},
    "split": {"QLinearConcat": 1, "QLinearConv": 3},
}


def lowered(folder: Path, nodes: list[onnx.NodeProto], symmetric: bool) -> tuple[Path, onnx.ModelProto, np.ndarray]:
    """(float file, its lowered form, samples)"""
    rng = np.random.default_rng(0)
    weights = NUMBERS | {
        n.input[1]: rng.normal(size=(2 if n.name == "d" and "2" in n.input[1] else 4, int(n.input[1][1]), 3, 3)) / 6
        for n in nodes
        if n.op_type == "Conv"
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    path = saved(graph_of(nodes, weights, ["batch", 4, 8, 8]), folder)
    x = rng.normal(size=(32, 4, 8, 8)).astype(np.float32)
    model = read_model(path)
    asked = Quantization(**{**EVERYTHING_INT8.settings(), "activation_symmetric": symmetric})
    recipe = recipe_of(asked, quantizable_layers(normalized(load_graph(model))))
    record = derive_record(model, recipe, observe(model, [{"x": x}]), lambda: iter([{"x": x}]))
    return path, lower_static(with_hard_sigmoids(load_graph(model)), record), x


def answers(proto: onnx.ModelProto | Path, x: np.ndarray, optimized: Path | None = None) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized is not None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.optimized_model_filepath, options.log_severity_level = str(optimized), 3
    source = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    found: np.ndarray = onnxruntime.InferenceSession(source, options).run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_answers_stay_within_rounding_of_float_and_integer_operators_take_over(
    net: str, symmetric: bool, tmp_path: Path
) -> None:
    path, before, x = lowered(tmp_path, NETS[net], symmetric)

    after = with_integers_between(before)

    onnx.checker.check_model(after)
    right, plain, between = answers(path, x), answers(before, x), answers(after, x)
    spread = np.std(right)
    assert np.sqrt(np.mean((between - right) ** 2)) < 2 * np.sqrt(np.mean((plain - right) ** 2)) + 0.01 * spread
    assert with_integers_between(before) == after, "deterministic, and what it was given is not changed"
    if not symmetric or net in ("silu", "hard swish"):
        answers(after, x, tmp_path / "optimized.onnx")
        kinds = Counter(n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node)
        assert INTEGER[net].items() <= kinds.items(), kinds


def test_a_relu_before_a_symmetric_scale_stays(tmp_path: Path) -> None:
    """Its zero point is not the smallest integer: rounding alone would let negative values pass."""
    _, before, x = lowered(tmp_path, NETS["residual"], symmetric=True)

    after = with_integers_between(before)

    made = {name: n.op_type for n in after.graph.node for name in n.output}
    relus = [n.input[0] for n in after.graph.node if n.op_type == "Relu"]
    assert len(relus) == 3
    assert "Conv" not in {made[name] for name in relus}, "the convolution keeps a rounding of its own"
    assert (answers(after, x) == answers(before, x)).mean() > 0.5


def test_a_graph_without_known_scales_stays_as_it_is(tmp_path: Path) -> None:
    proto = onnx.load(saved(graph_of([node("Relu", ["x"], "y")], {}, ["batch", 4]), tmp_path))

    assert with_integers_between(proto) == proto


def test_roundings_that_a_model_has_by_itself_stay_whatever_their_form(tmp_path: Path) -> None:
    """A scale that is computed, a zero point left out, and integers of another operator."""
    nodes = [
        node("ReduceMax", ["x"], "s", keepdims=0),
        *(node("QuantizeLinear", ["x", "s"], "q"), node("DequantizeLinear", ["q", "s"], "d")),
        *(node("Relu", ["d"], "r"), node("QuantizeLinear", ["r", "one", "zero"], "i")),
        *(node("DequantizeLinear", ["i", "one", "zero"], "v"), node("Sigmoid", ["v"], "y")),
    ]
    weights = {"one": np.float32(0.1), "zero": np.uint8(0)}
    proto = onnx.load(saved(graph_of(nodes, weights, ["batch", 4]), tmp_path))

    assert with_integers_between(proto) == proto


def test_a_hard_sigmoid_is_found_however_its_division_is_written_and_nothing_else_is(tmp_path: Path) -> None:
    x = np.linspace(-5, 5, 64, dtype=np.float32).reshape(1, 64)
    numbers = {
        "c": np.float32(2.5),
        "zero": np.float32(0),
        "m": np.float32(5),
        "r": np.float32(0.2),
        "n": np.float32(4),
    }
    start = [node("Add", ["c", "x"], "s"), node("Clip", ["s", "zero", "m"], "k")]
    for ending, merged in (
        ([node("Div", ["k", "m"], "y")], True),
        ([node("Mul", ["r", "k"], "g"), node("Mul", ["g", "x"], "y")], True),
        ([node("Mul", ["x", "k"], "g"), node("Mul", ["g", "r"], "y")], True),
        ([node("Mul", ["x", "k"], "g"), node("Div", ["g", "n"], "y")], False),
        ([node("Div", ["m", "k"], "g"), node("Mul", ["g", "x"], "y")], False),
        ([node("Div", ["k", "m"], "g"), node("Mul", ["g", "k"], "y")], False),
    ):
        proto = onnx.load(
            saved(
                graph_of([*start, *ending], {name: np.float32(n) for name, n in numbers.items()}, ["batch", 64]),
                tmp_path,
            )
        )

        after = with_hard_sigmoids(proto)

        assert ("HardSigmoid" in [n.op_type for n in after.graph.node]) == merged, ending
        assert (after is proto) != merged
        np.testing.assert_allclose(answers(after, x), answers(proto, x), rtol=1e-5, atol=1e-6)


def test_a_target_without_the_choice_refuses_it_and_float_is_no_difference() -> None:
    wanted = Quantization(**{**EVERYTHING_INT8.settings(), "elementwise": "int8"})

    assert Candidate(target="onnxruntime", quantization=wanted).quantization.elementwise == "int8"
    with pytest.raises(ConfigError, match="has no such setting"):
        Candidate(
            target="ascend910b3",
            precision=Precision(mode="force_fp16"),
            quantization=replace(wanted, attention_matmul=False),
        )
    usual = Quantization(**{**EVERYTHING_INT8.settings(), "elementwise": "float"})
    assert (
        Candidate(target="onnxruntime", quantization=usual).id
        == Candidate(target="onnxruntime", quantization=EVERYTHING_INT8).id
    )
