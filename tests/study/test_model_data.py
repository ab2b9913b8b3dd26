"""Batches for one model: NPZ files as AMCT's users have them, manifests, and random values."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.small_graphs import write_graph
from tests.tiny import write_model
from workbench.graph.read import read_model
from workbench.study.model_data import open_data, random_data
from workbench.testing.encoder import tiny_encoder
from workbench.values.errors import ConfigError
from workbench.values.model import Model


@pytest.fixture
def one_input(tmp_path: Path) -> Model:
    write_model(tmp_path / "model.onnx")
    return read_model(tmp_path / "model.onnx")


@pytest.fixture
def two_inputs(tmp_path: Path) -> Model:
    node, shape = helper.make_node("Add", ["a", "b"], ["y"]), ["batch", 3]
    return read_model(write_graph(tmp_path / "two.onnx", [node], {"a": shape, "b": shape}, {"y": shape}))


def batches(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.full(shape, number, np.float32) for number, shape in enumerate(shapes)]


def test_arrays_come_in_the_order_of_their_numbers_again_and_again(one_input: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", *batches(*[(2, 16)] * 11))

    data = open_data(tmp_path / "data.npz", one_input, batch=4, samples=8)

    assert data.count == 11
    assert [feeds["x"][0, 0] for feeds in data.read()] == list(range(11))  # not 0, 1, 10, 2 …
    assert [feeds["x"][0, 0] for feeds in data.first(2)()] == [0, 1]


def test_samples_named_as_the_inputs_are_batched_by_their_size(two_inputs: Model, tmp_path: Path) -> None:
    both = np.arange(18, dtype=np.float32).reshape(6, 3)
    np.savez(tmp_path / "data.npz", a=both, b=both, labels=np.arange(6))

    data = open_data(tmp_path / "data.npz", two_inputs, batch=4)

    assert (data.count, data.usual) == (2, 2)
    assert [len(feeds["a"]) for feeds in data.read()] == [4, 2]
    assert np.array_equal(np.concatenate([feeds["b"] for feeds in data.read()]), both)


def test_a_fixed_batch_is_obeyed_whatever_is_asked(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.zeros((40, 16), np.float32))

    data = open_data(tmp_path / "data.npz", model, batch=16)

    assert (data.count, data.usual) == (40, 40)
    assert {len(feeds["x"]) for feeds in data.read()} == {1}


def test_arrays_that_do_not_fit_are_refused(one_input: Model, tmp_path: Path) -> None:
    cases: tuple[tuple[dict[str, np.ndarray], str], ...] = (
        ({"arr_0": np.zeros((2, 16), np.float32), "arr_2": np.zeros((2, 16), np.float32)}, "arr_1 is missing"),
        ({"first": np.zeros((2, 16), np.float32)}, "'first' is no batch of an input"),
        ({"arr_0": np.zeros((2, 15), np.float32)}, r"shape \(2, 15\), input 'x' takes \('batch', 16\)"),
        ({"arr_0": np.zeros((2, 16), np.float64) + 1e-9}, "is float64, input 'x' takes float32"),
        ({"arr_0": np.zeros((2, 16), np.int64)}, "is int64, input 'x' takes float32"),
        ({}, "arr_0 is missing"),
    )
    for arrays, message in cases:
        np.savez(tmp_path / "data.npz", **arrays)
        with pytest.raises(ConfigError, match=message):
            open_data(tmp_path / "data.npz", one_input, batch=4, samples=8)
    (tmp_path / "data.npz").write_bytes(b"not a zip")
    with pytest.raises(ConfigError, match=r"data\.npz: cannot be read: File is not a zip file"):
        open_data(tmp_path / "data.npz", one_input, batch=4, samples=8)


def test_integers_of_another_width_are_converted_when_nothing_is_lost(tmp_path: Path) -> None:
    onnx.save(tiny_encoder(), tmp_path / "encoder.onnx")
    model = read_model(tmp_path / "encoder.onnx")
    name = model.inputs[0].name
    np.savez(tmp_path / "data.npz", np.array([[1, 2, 3]], np.int32))

    (feeds,) = open_data(tmp_path / "data.npz", model, batch=4, samples=8).read()

    assert feeds[name].dtype == np.int64


def test_random_token_ids_stay_inside_the_vocabulary(tmp_path: Path) -> None:
    onnx.save(tiny_encoder(), tmp_path / "encoder.onnx")
    model = read_model(tmp_path / "encoder.onnx")

    first, second = (list(random_data(model, batch=3, samples=6).read()) for _ in range(2))

    assert len(first) == 2
    for one, other in zip(first, second, strict=True):
        for name, values in one.items():
            assert np.array_equal(values, other[name])
            assert values.shape[0] == 3
