"""Observing a real model: what is counted, what is refused, and how statistics are kept."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.quantization.networks import perceptron, rows, saved
from workbench.graph.read import load_graph
from workbench.quantization.observe import observe
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, ids, model_of, run, value
from workbench.values.errors import CalibrationError
from workbench.values.model import Model


def test_tensors_are_counted_as_the_float_model_computes_them(encoder: Model) -> None:
    feeds = ids(3, 8)

    statistics = observe(encoder, [feeds])

    assert {*WEIGHT_LAYERS, *PRODUCTS} == {layer.name for layer in statistics.layers}
    proto = load_graph(encoder)
    names = sorted(statistics.tensors)
    proto.graph.output.extend(value(name, None) for name in names)
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
    model, x = saved(perceptron(gemm=False), tmp_path), rows(24)["x"]
    whole = observe(model, [{"x": x}], threads=1)

    pieces = observe(model, ({"x": x[i : i + 6]} for i in (18, 0, 12, 6)), threads=threads)

    assert whole.samples == pieces.samples == 24
    assert whole.digest == pieces.digest


def test_no_samples_and_nothing_to_quantize_are_errors(encoder: Model, tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    proto = model_of([relu], {}, [value("x", ["batch", 8])], [value("y", ["batch", 8])])

    with pytest.raises(CalibrationError, match="no calibration samples"):
        observe(encoder, [])
    with pytest.raises(CalibrationError, match="no layer that INT8 can serve"):
        observe(saved(proto, tmp_path), [rows(1)])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_activation_is_named_with_its_sample(tmp_path: Path, bad: float) -> None:
    x = rows(20)["x"]
    x[13, 2] = bad

    with pytest.raises(CalibrationError, match=f"activation 'x' holds {bad} at sample 13"):
        observe(saved(perceptron(gemm=False), tmp_path), ({"x": x[i : i + 5]} for i in range(0, 20, 5)))


def test_a_bad_weight_is_named(tmp_path: Path) -> None:
    proto = perceptron(gemm=False)
    values = np.ones((6, 3), np.float32)
    values[1, 1] = np.nan
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(values, "fc2_w"))

    with pytest.raises(CalibrationError, match="weight 'fc2_w' of layer 'fc2'"):
        observe(saved(proto, tmp_path), [rows(1)])


def test_feeds_that_the_model_refuses_are_an_error_with_the_sample(tmp_path: Path) -> None:
    x = rows(2)["x"]
    for feeds in ({"other": x}, {"x": x.astype(np.int64)}, {"x": x[:, :3]}):
        with pytest.raises(CalibrationError, match="calibration sample 3"):
            observe(saved(perceptron(gemm=False), tmp_path), [rows(3), feeds])
