"""Observing a real model: what is counted, what is refused, and how statistics are kept."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.quantization.networks import saved
from tests.targets.encoder import PRODUCTS, WEIGHT_LAYERS, ids, model_of, run, tiny_encoder
from workbench.graph.read import load_graph
from workbench.quantization.observe import Feeds, observe
from workbench.values.errors import CalibrationError
from workbench.values.model import Model


@pytest.fixture
def encoder(tmp_path: Path) -> Model:
    return saved(tiny_encoder(), tmp_path)


def perceptron(folder: Path, batch: int | str = "batch") -> Model:
    """`x` [batch, 4] → MatMul → Relu → MatMul → `y`; the first layer reads the model's own input."""
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=(4, 4)).astype(np.float32) for name in ("w1", "w2")}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"], name="second"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])
    return saved(model_of(nodes, weights, [x], [y]), folder)


def rows(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


def test_tensors_are_counted_as_the_float_model_computes_them(encoder: Model) -> None:
    feeds = ids(3, 8)

    statistics = observe(encoder, [feeds])

    assert {*WEIGHT_LAYERS, *PRODUCTS} == {layer.name for layer in statistics.layers}
    proto = load_graph(encoder)
    names = sorted(statistics.tensors)
    proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    for name, values in zip(names, run(proto, feeds, names), strict=True):
        seen = statistics.tensors[name]
        np.testing.assert_allclose(
            [seen.histogram.minimum, seen.histogram.maximum], [values.min(), values.max()], rtol=1e-5
        )
        assert values.size == seen.histogram.count
        if seen.channels is not None:
            expected = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            np.testing.assert_allclose(expected, np.maximum(-seen.channels.minima, seen.channels.maxima), rtol=1e-5)
    assert statistics.tensors["query_t_y"].channels is None


@pytest.mark.parametrize("threads", [1, 3])
def test_batching_threads_and_order_do_not_change_the_statistics(tmp_path: Path, threads: int) -> None:
    model, x = perceptron(tmp_path), rows(24)
    whole = observe(model, [{"x": x}], threads=1)

    pieces = observe(model, ({"x": x[i : i + 6]} for i in (18, 0, 12, 6)), threads=threads)

    assert whole.samples == pieces.samples == 24
    assert whole.digest == pieces.digest


def test_no_samples_is_an_error(encoder: Model) -> None:
    with pytest.raises(CalibrationError, match="no calibration samples"):
        observe(encoder, [])


def test_nothing_to_quantize_is_an_error(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [x], [y])

    with pytest.raises(CalibrationError, match="no layer that INT8 can serve"):
        observe(saved(proto, tmp_path), [{"x": rows(1)[0]}])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_activation_is_named_with_its_sample(tmp_path: Path, bad: float) -> None:
    x = rows(20)
    x[13, 2] = bad

    with pytest.raises(CalibrationError, match=f"activation 'x' holds {bad} at sample 13"):
        observe(perceptron(tmp_path), ({"x": x[i : i + 5]} for i in range(0, 20, 5)))


def test_a_bad_weight_is_named(tmp_path: Path) -> None:
    proto = onnx.load(perceptron(tmp_path).path)
    values = np.ones((4, 4), np.float32)
    values[1, 1] = np.nan
    proto.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(values, "w2"))

    with pytest.raises(CalibrationError, match="weight 'w2' of layer 'second'"):
        observe(saved(proto, tmp_path), [{"x": rows(1)}])


@pytest.mark.parametrize(
    "feeds",
    [
        pytest.param({"other": rows(2)}, id="wrong name"),
        pytest.param({"x": rows(2).astype(np.int64)}, id="wrong type"),
        pytest.param({"x": rows(2)[:, :3]}, id="wrong shape"),
    ],
)
def test_feeds_that_the_model_refuses_are_an_error_with_the_sample(tmp_path: Path, feeds: Feeds) -> None:
    with pytest.raises(CalibrationError, match="calibration sample 3"):
        observe(perceptron(tmp_path), [{"x": rows(3)}, feeds])
