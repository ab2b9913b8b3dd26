"""Observing a real model: what is counted, what is refused, and how statistics are kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.targets.encoder import PRODUCTS, WEIGHT_LAYERS, ids, model_of, run, tiny_encoder
from workbench.errors import CalibrationError
from workbench.graph import load_graph, read_model
from workbench.model import Model
from workbench.quantization.histogram import histogram_of
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.statistics import (
    Statistics,
    load_statistics,
    merge_statistics,
    observed_range,
    save_statistics,
    stability,
)


def model_from(proto: onnx.ModelProto, folder: Path) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return read_model(folder / "model.onnx")


@pytest.fixture
def encoder(tmp_path: Path) -> Model:
    return model_from(tiny_encoder(), tmp_path)


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
    return model_from(model_of(nodes, weights, [x], [y]), folder)


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
        if seen.channel_maxima is not None:
            expected = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            np.testing.assert_allclose(expected, seen.channel_maxima, rtol=1e-5)
    assert statistics.tensors["query_t_y"].channel_maxima is None


def test_a_layer_may_read_the_models_input(tmp_path: Path) -> None:
    x = rows(5)

    statistics = observe(perceptron(tmp_path), [{"x": x}])

    assert histogram_of(x) == statistics.tensors["x"].histogram
    np.testing.assert_array_equal(np.abs(x).max(axis=0), statistics.tensors["x"].channel_maxima)


def test_weights_are_measured_along_their_output_channels(encoder: Model) -> None:
    statistics = observe(encoder, [ids(1, 8)])

    weights = {t.name: onnx.numpy_helper.to_array(t) for t in load_graph(encoder).graph.initializer}
    np.testing.assert_array_equal(weights["query_w"].min(axis=0), statistics.weights["query"].minima)
    np.testing.assert_array_equal(weights["classifier_w"].max(axis=1), statistics.weights["classifier"].maxima)


def test_a_convolution_has_channels_on_axis_one_and_an_observed_output(tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).normal(size=(6, 3, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6, 5, 5])
    image = np.random.default_rng(1).normal(size=(2, 3, 5, 5)).astype(np.float32)

    statistics = observe(model_from(model_of(nodes, weights, [x], [y]), tmp_path), [{"x": image}])

    np.testing.assert_array_equal(np.abs(image).max(axis=(0, 2, 3)), statistics.tensors["x"].channel_maxima)
    assert statistics.tensors["y"].histogram.count == 2 * 6 * 25


@pytest.mark.parametrize("threads", [1, 3])
def test_batching_threads_and_order_do_not_change_the_statistics(tmp_path: Path, threads: int) -> None:
    model, x = perceptron(tmp_path), rows(24)
    whole = observe(model, [{"x": x}], threads=1)

    pieces = observe(model, ({"x": x[i : i + 6]} for i in (18, 0, 12, 6)), threads=threads)

    assert whole.samples == pieces.samples == 24
    assert whole.digest == pieces.digest


def test_statistics_of_two_halves_merge_into_those_of_the_whole(tmp_path: Path) -> None:
    model, x = perceptron(tmp_path), rows(16)
    a, b = observe(model, [{"x": x[:8]}]), observe(model, [{"x": x[8:]}])

    assert observe(model, [{"x": x}]).digest == merge_statistics(a, b).digest == merge_statistics(b, a).digest


def test_statistics_of_different_models_do_not_merge(encoder: Model) -> None:
    statistics = observe(encoder, [ids(1, 8)])

    with pytest.raises(ValueError, match="cannot be merged"):
        merge_statistics(statistics, replace(statistics, model_sha256="0" * 64))


def test_a_fixed_batch_is_run_as_it_is(tmp_path: Path) -> None:
    done: list[int] = []

    statistics = observe(perceptron(tmp_path, batch=6), [{"x": rows(6)}, {"x": rows(6, 1)}], report=done.append)

    assert (statistics.samples, done) == (12, [6, 12])


def test_batches_of_different_lengths_are_observed(encoder: Model) -> None:
    statistics = observe(encoder, [ids(2, 8), ids(2, 12)])

    assert statistics.tensors["embed_y"].histogram.count == 2 * 8 * 16 + 2 * 12 * 16


def test_external_weights_are_found(tmp_path: Path) -> None:
    onnx.save(
        tiny_encoder(), tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=64
    )

    assert observe(read_model(tmp_path / "m.onnx"), [ids(2, 8)]).samples == 2


def test_no_samples_is_an_error(encoder: Model) -> None:
    with pytest.raises(CalibrationError, match="no calibration samples"):
        observe(encoder, [])


def test_nothing_to_quantize_is_an_error(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [x], [y])

    with pytest.raises(CalibrationError, match="no layer that INT8 can serve"):
        observe(model_from(proto, tmp_path), [{"x": rows(1)[0]}])


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
        observe(model_from(proto, tmp_path), [{"x": rows(1)}])


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


def test_stored_statistics_come_back_whole(encoder: Model, tmp_path: Path) -> None:
    statistics = observe(encoder, [ids(3, 8)])

    save_statistics(statistics, tmp_path / "statistics.npz")
    restored = load_statistics(tmp_path / "statistics.npz")

    assert statistics.digest == restored.digest
    assert statistics.layers == restored.layers
    assert statistics.tensors["embed_y"].histogram == restored.tensors["embed_y"].histogram
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "statistics.npz"]


def test_equal_statistics_are_equal_files(encoder: Model, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_statistics(observe(encoder, [ids(3, 8)]), tmp_path / name)

    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("position", [0.02, 0.3, 0.6, 0.999])
def test_damaged_statistics_are_refused(encoder: Model, tmp_path: Path, position: float) -> None:
    path = tmp_path / "statistics.npz"
    save_statistics(observe(encoder, [ids(2, 8)]), path)
    content = bytearray(path.read_bytes())

    path.write_bytes(content[: int(len(content) * position)])

    with pytest.raises(CalibrationError, match=r"statistics\.npz does not hold statistics"):
        load_statistics(path)


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

    with pytest.raises(CalibrationError, match="version 2"):
        load_statistics(tmp_path / "statistics.npz")


def ranged(statistics: Statistics, tensor: str, low: float, high: float) -> Statistics:
    histogram = histogram_of(np.array([low, high], np.float32))
    changed = replace(statistics.tensors[tensor], histogram=histogram)
    return replace(statistics, tensors={**statistics.tensors, tensor: changed})


def test_stability_is_the_share_of_the_wider_range_that_a_half_misses(encoder: Model) -> None:
    statistics = observe(encoder, [ids(2, 8)])
    a, b = ranged(statistics, "embed_y", -1, 3), ranged(statistics, "embed_y", 0.5, 2)

    differences = stability(a, b)

    assert observed_range(b, "embed_y") == (0.0, 2.0)
    assert next(iter(differences.items())) == ("embed_y", 0.25)
    assert {0.0} == {value for name, value in differences.items() if name != "embed_y"}
