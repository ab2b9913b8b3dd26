"""Observing a real model: what is counted, what is refused, and how statistics are kept."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper, numpy_helper

from tests.quantization.histograms import content, histogram_of
from tests.quantization.networks import perceptron, rows, saved
from workbench.graph.read import load_graph
from workbench.quantization.activations import ordinary_rows
from workbench.quantization.algorithms import moving_average_range
from workbench.quantization.observe import Accumulator, observe
from workbench.quantization.statistics import TensorStatistics, load_statistics, save_statistics
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, ids, model_of, run, value
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]


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


def test_bad_values_and_feeds_that_the_model_refuses_are_named_with_their_sample(tmp_path: Path) -> None:
    proto = perceptron(gemm=False)
    model, x = saved(proto, tmp_path), rows(20)["x"]
    for bad in (np.nan, np.inf):
        x[13, 2] = bad
        with pytest.raises(CalibrationError, match=f"activation 'x' holds {bad} at sample 13"):
            observe(model, ({"x": x[i : i + 5]} for i in range(0, 20, 5)))
    x = rows(2)["x"]
    for feeds in ({"other": x}, {"x": x.astype(np.int64)}, {"x": x[:, :3]}):
        with pytest.raises(CalibrationError, match="calibration sample 3"):
            observe(model, [rows(3), feeds])
    values = np.ones((6, 3), np.float32)
    values[1, 1] = np.nan
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(values, "fc2_w"))
    with pytest.raises(CalibrationError, match="weight 'fc2_w' of layer 'fc2'"):
        observe(saved(proto, tmp_path), [rows(1)])


# --- accumulators -----------------------------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def seen(values: Floats, axis: int | None, samples: int) -> TensorStatistics:
    accumulator = Accumulator("x", axis)
    accumulator.add(values, np.arange(samples) % 2 == 1)
    return accumulator.statistics()


def check_channels(statistics: TensorStatistics, by_channel: Floats) -> None:
    """Against [channels, values]."""
    channels, exact = statistics.channels, by_channel.astype(np.float64)
    np.testing.assert_array_equal(by_channel.min(axis=1), channels.minima)
    np.testing.assert_array_equal(by_channel.max(axis=1), channels.maxima)
    np.testing.assert_array_equal(np.abs(by_channel).max(axis=1), np.maximum(-channels.minima, channels.maxima))
    scale = np.abs(exact).sum(axis=1)
    assert (np.abs(channels.sums - exact.sum(axis=1)) <= 4e-6 * scale).all()
    np.testing.assert_allclose(channels.squares, (exact**2).sum(axis=1), rtol=4e-6)
    assert channels.rows == by_channel.shape[1]
    assert [channels.sums.dtype.name, channels.squares.dtype.name] == ["float64", "float64"]


def test_channels_of_an_axis_are_measured() -> None:
    """Also of more positions than are added in float32, of a sample and of a position larger than one block."""
    last = ((4, 16, 24), (3, 200, 40), (2, 3, 5, 24), (4, 6), (2, 3000, 100), (2, 1, 131_079))
    for axis, shapes in ((-1, last), (1, ((2, 5, 6, 7), (2, 40, 90, 90), (3, 5)))):
        for shape in shapes:
            values = normal(*shape)
            statistics = seen(values, axis, shape[0])
            check_channels(statistics, np.moveaxis(values, axis, 0).reshape(shape[axis], -1))
            assert content(histogram_of(values)) == content(statistics.histogram), shape


@pytest.mark.parametrize("axis", [None, -1, 1])
def test_extremes_of_the_samples_are_averaged(axis: int | None) -> None:
    values = normal(6, 4, 5)

    statistics = seen(values, axis, 6)

    samples = values.reshape(6, -1).astype(np.float64)
    extremes = samples.min(axis=1).mean(), samples.max(axis=1).mean()
    assert moving_average_range(statistics) == pytest.approx(extremes, rel=1e-15)
    assert (statistics.channels is None) == (axis is None)


def test_tokens_of_massive_activations_are_left_out() -> None:
    values = np.random.default_rng(0).normal(size=(2, 10, 64)).astype(np.float32)
    values[0, 3, 7] = 200.0
    values[1, 0, 7] = -200.0

    rows = ordinary_rows(values)

    assert rows.shape == (18, 64)
    assert np.abs(rows).max() < 10


# --- how statistics are kept -----------------------------------------------------------------------------------------


def test_stored_statistics_come_back_whole(encoder: Model, tmp_path: Path) -> None:
    statistics = observe(encoder, [ids(3, 8)])

    save_statistics(statistics, tmp_path / "statistics.npz")
    restored = load_statistics(tmp_path / "statistics.npz")

    assert statistics.digest == restored.digest
    assert statistics.layers == restored.layers
    seen, again = statistics.tensors["embed_y"], restored.tensors["embed_y"]
    assert content(seen.histogram) == content(again.histogram)
    for name in ("samples", "minimum_sum", "maximum_sum", "halves"):
        assert getattr(seen, name) == getattr(again, name)
    for name in ("minima", "maxima", "sums", "squares", "sums_error", "squares_error"):
        np.testing.assert_array_equal(getattr(seen.channels, name), getattr(again.channels, name))
    assert seen.channels.rows == again.channels.rows == 3 * 8
    assert (restored.tensors["query_t_y"].channels, restored.variant) == (None, "")
    assert [p.name for p in tmp_path.iterdir()] == ["statistics.npz"]


def test_a_flipped_byte_is_refused_or_changes_nothing(encoder: Model, tmp_path: Path) -> None:
    path = tmp_path / "statistics.npz"
    statistics = observe(encoder, [ids(2, 8)])
    save_statistics(statistics, path)
    content = path.read_bytes()
    random = np.random.default_rng(0)

    for position in random.integers(0, len(content), 60).tolist():
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            restored = load_statistics(path)
        except CalibrationError:
            continue
        assert statistics.digest == restored.digest  # it hit what nothing reads, such as a time stamp


def test_statistics_of_another_version_are_refused(tmp_path: Path) -> None:
    header = np.frombuffer(b'{"version":1}', np.uint8)
    np.savez(tmp_path / "statistics.npz", header=header)

    with pytest.raises(CalibrationError, match="version 4"):
        load_statistics(tmp_path / "statistics.npz")
