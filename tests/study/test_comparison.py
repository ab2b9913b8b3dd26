"""Two models compared layer by layer, on real models in real engines."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.evaluation.recurrent import SIZES, recurrent, sequences
from tests.small_graphs import write_graph
from tests.tiny import HIDDEN, write_model
from workbench.api import study
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.qdq import lower_static
from workbench.study.compared import FLOAT, INT8, Comparison, Limits
from workbench.study.comparison import compare, side_of
from workbench.testing.encoder import Array, ids, record_for, run, save, tiny_encoder
from workbench.values.errors import ConfigError

FEEDS = [ids(4, 8), ids(3, 12, seed=1)]


def compared(a: Path, b: Path, feeds: Sequence[dict[str, Array]] = FEEDS, **more: Any) -> Comparison:
    return compare(side_of(str(a)), side_of(str(b)), feeds, data="x", **more)


def save_unchecked(proto: onnx.ModelProto, path: Path) -> Path:
    """Deploy models hold operators that the checker does not know."""
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "float.onnx")


def changed(file: Path, weight: str, change: float, to: Path) -> Path:
    """The model with one weight times a factor (NaN included)."""
    proto = onnx.load(file)
    for tensor in proto.graph.initializer:
        if tensor.name == weight:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(change), weight))
    onnx.save(proto, to)
    return to


def linear(path: Path, *, rows: int = 6, columns: int = 5, seed: int = 0) -> Path:
    """x [batch, rows] → MatMul → y; weights are multiples of 1/127 and reach 1, so that INT8 keeps them exactly."""
    rng = np.random.default_rng(seed)
    weight = (rng.integers(-127, 128, (rows, columns)) / 127).astype(np.float32)
    weight[0] = 1
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="dense")]
    return write_graph(path, nodes, {"x": ["batch", rows]}, {"y": ["batch", columns]}, w=weight)


def normal(shape: tuple[int, ...], seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)}


def test_a_model_against_itself_is_equal_in_every_tensor(encoder: Path) -> None:
    found = compared(encoder, encoder, every=True)

    assert (found.equal, found.passed, found.first_jump, found.only_in_a) == (True, True, None, 0)
    assert all(row.cosine == 1.0 and row.max_abs == 0.0 and row.sqnr_db is None for row in found.rows)


def test_a_damaged_weight_is_named_as_the_first_jump(encoder: Path, tmp_path: Path) -> None:
    for part in ("value", "up", "out"):
        found = compared(encoder, changed(encoder, f"{part}_w", 0.6, tmp_path / "damaged.onnx"))

        assert found.first_jump.tensor == f"{part}_bias_y"
        assert found.first_beyond_limits is found.first_jump
        assert all(row.max_abs == 0.0 for row in found.rows[: found.rows.index(found.first_jump)])
        assert not found.passed


def test_the_numbers_are_those_of_the_tensors_themselves(encoder: Path, tmp_path: Path) -> None:
    damaged = changed(encoder, "down_w", 0.9, tmp_path / "damaged.onnx")
    pairs = [(run(onnx.load(encoder), feeds)[0], run(onnx.load(damaged), feeds)[0]) for feeds in FEEDS]
    a, b = (np.concatenate([pair[side].ravel() for pair in pairs]).astype(np.float64) for side in (0, 1))

    found = compared(encoder, damaged)

    (row,) = [row for row in found.rows if row.is_output]
    assert row.tensor == "logits"
    assert row.elements == a.size
    assert row.cosine == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-6)
    assert row.max_abs == pytest.approx(float(np.abs(a - b).max()), rel=1e-5)
    assert row.mae == pytest.approx(float(np.abs(a - b).mean()), rel=1e-5)
    assert row.sqnr_db == pytest.approx(10 * math.log10(float(a @ a) / float((a - b) @ (a - b))), rel=1e-5)


def test_float_against_int8_shows_quantization_noise_in_every_layer(encoder: Path, tmp_path: Path) -> None:
    record = record_for(encoder, FEEDS[0], per_channel=True, products=True)
    int8 = save_unchecked(lower_static(load_graph(read_model(encoder)), record), tmp_path / "int8.onnx")

    found = compared(encoder, int8)

    every = {"query_bias_y", "scores_y", "softmax_y", "context_y", "norm_y", "logits"}
    assert {row.tensor for row in found.rows} >= every
    assert all(row.sqnr_db is not None and 10 < row.sqnr_db < 80 for row in found.rows)
    assert found.first_jump is not None
    assert found.limits == INT8
    assert found.passed
    assert not compared(encoder, int8, limits=FLOAT).passed


def test_the_integers_inside_a_deploy_model_are_not_taken_for_floats(tmp_path: Path) -> None:
    write_model(tmp_path / "float.onnx")
    record = record_for(tmp_path / "float.onnx", normal((64, 16)), symmetric=True)
    proto = load_graph(read_model(tmp_path / "float.onnx"))
    deploy = save_unchecked(lower_deploy(proto, record, merge_bias=True), tmp_path / "deploy.onnx")

    found = compared(tmp_path / "float.onnx", deploy, [normal((8, 16), 1)], every=True)

    tensors = [row.tensor for row in found.rows]
    assert tensors == ["a0", "r0", "a1", "r1", "logits"]  # m0, m1 and m2 are int32 sums there
    assert found.only_in_a == 3
    assert all(row.cosine > 0.99 for row in found.rows)


def test_nan_in_one_model_is_named_where_it_appears_and_never_passes(encoder: Path, tmp_path: Path) -> None:
    broken = changed(encoder, "up_w", math.nan, tmp_path / "nan.onnx")

    found = compared(encoder, broken, limits=Limits(cosine=-2, max_abs=9, mae=9))

    assert found.first_jump.tensor == "up_bias_y"
    assert found.first_jump.not_finite == found.first_beyond_limits.not_finite > 0
    assert not found.passed
    assert next(row for row in found.rows if row.is_output).not_finite > 0


def masked_attention(path: Path, mask: float, scale: float) -> Path:
    """x → MatMul → + mask at the last column → Softmax → MatMul → y; `scale` multiplies the first weight."""
    rng = np.random.default_rng(3)
    weights: dict[str, Array] = {
        "w": (rng.normal(size=(6, 5)) * scale).astype(np.float32),
        "mask": np.array([0, 0, 0, 0, mask], np.float32),
        "v": rng.normal(size=(5, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], name="scores"),
        helper.make_node("Mul", ["scores", "scores"], ["squares"], name="square"),
        helper.make_node("Add", ["squares", "mask"], ["masked"], name="mask_add"),
        helper.make_node("Softmax", ["masked"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="out"),
    ]
    return write_graph(path, nodes, {"x": ["batch", 6]}, {"y": ["batch", 3]}, **weights)


def test_masked_positions_do_not_hide_the_error_of_the_others(tmp_path: Path) -> None:
    for mask in (-1e4, float(np.finfo(np.float32).min), -math.inf):
        a, b = (masked_attention(tmp_path / f"{scale}.onnx", mask, scale) for scale in (1.0, 0.9))

        found = compared(a, b, [normal((8, 6))], every=True)

        masked = next(row for row in found.rows if row.tensor == "masked")
        assert (masked.elements, masked.not_finite) == (8 * 4, 0)
        assert masked.relative_error == pytest.approx(1 - 0.81, rel=1e-3)
        assert found.first_jump.tensor == "scores"


def test_a_scale_moved_into_the_next_weight_is_no_error(tmp_path: Path) -> None:
    write_model(tmp_path / "a.onnx")
    factors = np.linspace(0.25, 4, HIDDEN).astype(np.float32)
    proto = onnx.load(tmp_path / "a.onnx")
    moved = {"w0": 1 / factors, "b0": 1 / factors, "w1": factors[:, None]}
    for tensor in proto.graph.initializer:
        if tensor.name in moved:
            values = (numpy_helper.to_array(tensor) * moved[tensor.name]).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, tmp_path / "b.onnx")

    found = compared(tmp_path / "a.onnx", tmp_path / "b.onnx", [normal((32, 16))])

    rows = {row.tensor: row for row in found.rows}
    assert {name for name, row in rows.items() if row.rescaled} == {"a0", "r0"}
    assert rows["r0"].relative_error > 0.1
    assert found.first_jump is None
    assert found.first_beyond_limits is None
    assert found.passed


def test_different_shapes_are_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    wide, narrow = linear(tmp_path / "wide.onnx"), linear(tmp_path / "narrow.onnx", columns=4)

    with pytest.raises(ConfigError, match=r"'y' has shape \[\w+, 5\] in A and \[\w+, 4\] in B"):
        compared(wide, narrow, [normal((4, 6))])


def test_whole_numbers_and_outputs_of_other_length_are_compared_and_counted(tmp_path: Path) -> None:
    def model(file: Path, bias: float) -> Path:
        nodes = [
            helper.make_node("Add", ["x", "bias"], ["s"]),
            helper.make_node("ArgMax", ["s"], ["ids"], axis=1, keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["above"]),
            helper.make_node("Compress", ["s", "kept"], ["some"], axis=1),
            helper.make_node("ReduceMax", ["above8"], ["kept8"], axes=[0], keepdims=0),
            helper.make_node("Cast", ["kept8"], ["kept"], to=TensorProto.BOOL),
            helper.make_node("Cast", ["above"], ["above8"], to=TensorProto.FLOAT),
        ]
        told = {"ids": (TensorProto.INT64, ["n"]), "some": ["n", "m"]}
        weights = {"bias": np.array([0, 0, 0, bias], np.float32), "zero": np.zeros(1, np.float32)}
        return write_graph(file, [nodes[i] for i in (0, 1, 2, 6, 4, 5, 3)], {"x": ["n", 4]}, told, 13, **weights)

    x = np.array([[2, 1, -1, -3], [1, 2, -1, -3]], np.float32)
    a, b = model(tmp_path / "a.onnx", 0.0), model(tmp_path / "b.onnx", 9.0)

    itself, found = compared(a, a, [{"x": x}]), compared(a, b, [{"x": x}])

    rows = {row.tensor: row for row in found.rows}
    assert itself.equal
    assert itself.passed
    assert rows["ids"].differing == 2
    assert rows["some"].resized == 1
    assert not found.passed


def test_whole_sequences_are_scored_where_a_state_is_carried(tmp_path: Path) -> None:
    """Single steps that begin with the float model's states give the same outputs: only sequences show the drift."""
    model = recurrent(tmp_path / "a.onnx")
    sequences(tmp_path, model, "outputs: {y: values, hN: state}\n")
    other = onnx.load(tmp_path / "a.onnx")
    other.graph.initializer[0].CopyFrom(helper.make_tensor("half", 1, [], [0.6]))
    onnx.save(other, tmp_path / "b.onnx")

    found = study.compare(tmp_path / "a.onnx", tmp_path / "b.onnx", data=tmp_path / "m.yaml")

    errors, values = 0.0, 0.0
    for x, size in zip(np.load(tmp_path / "data.npz")["x"], SIZES, strict=True):
        ours, theirs = np.zeros(2), np.zeros(2)
        for step in x[:size]:
            errors += np.abs(ours - theirs).sum()
            values += np.abs(step + ours).sum()
            ours, theirs = ours * 0.5 + step, theirs * 0.6 + step
    judged = {judgement.metric: judgement for judgement in found.meaning}
    assert judged["y.relative_error"].b == pytest.approx(errors / values, rel=1e-5)
    assert judged["y.relative_error"].a == 0
    assert next(row for row in found.rows if row.tensor == "y").sqnr_db is None  # equal, step by step
