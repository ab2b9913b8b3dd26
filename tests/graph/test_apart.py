"""Models whose weights stay in their files: read, written and run as if they were in memory."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.small_graphs import graph_of
from workbench.graph import apart
from workbench.graph.apart import array_of, kept_aside, refers_apart, tensor_of
from workbench.graph.read import load_graph, read_model
from workbench.graph.write import runnable, write_model
from workbench.quantization.sessions import session_on
from workbench.values.errors import ConfigError


def two_layers() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((32, 48)).astype(np.float32),
        "b": rng.standard_normal(48).astype(np.float32),
        "v": rng.standard_normal((48, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["sum"]),
        helper.make_node("MatMul", ["sum", "v"], ["y"]),
    ]
    model = graph_of(nodes, weights, ["n", 32])
    model.graph.doc_string, model.producer_name = "of this test", "test"
    return model


@pytest.fixture(autouse=True)
def every_model_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    # a small file goes the way of a large one: the limits are lowered, not the code replaced
    monkeypatch.setattr(apart, "FROM_BYTES", 0)
    monkeypatch.setattr(apart, "LARGE_BYTES", 1024)


@pytest.fixture(params=["one file", "external data", "in pieces"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path, model = tmp_path / "model.onnx", two_layers()
    if request.param == "one file":
        onnx.save(model, path)
    elif request.param == "external data":
        onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    else:  # serialized messages merge when they are joined, and readers must know it
        tensors = [onnx.ModelProto(graph=onnx.GraphProto(initializer=[t])) for t in model.graph.initializer]
        del model.graph.initializer[:]
        path.write_bytes(model.SerializeToString() + b"".join(part.SerializeToString() for part in tensors))
    return path


def test_weights_stay_in_their_file_and_are_read_from_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(path)
    found = load_graph(model)

    tensors = {tensor.name: tensor for tensor in found.graph.initializer}
    assert {name for name, tensor in tensors.items() if refers_apart(tensor)} == {"w", "v"}
    for tensor in two_layers().graph.initializer:
        np.testing.assert_array_equal(array_of(tensors[tensor.name]), numpy_helper.to_array(tensor))
    monkeypatch.setattr(apart, "FROM_BYTES", 1 << 40)
    assert read_model(path) == model


def test_what_is_written_is_what_protobuf_writes(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_graph(read_model(path))
    write_model(found, tmp_path / "again.onnx")

    monkeypatch.setattr(apart, "FROM_BYTES", 1 << 40)
    usual = load_graph(read_model(path))
    for tensor in usual.graph.initializer:  # onnx leaves there that data it has loaded are where they usually are
        tensor.ClearField("data_location")
    assert onnx.ModelProto.FromString((tmp_path / "again.onnx").read_bytes()) == usual


def test_beyond_the_limit_of_a_message_weights_lie_beside_it_by_their_content(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.graph.write.BESIDE_BYTES", 1024)
    monkeypatch.setattr("workbench.graph.write.MOST_BYTES", 5000)
    found = load_graph(read_model(path))
    (tmp_path / "out").mkdir()

    files = write_model(found, tmp_path / "out" / "large.onnx")

    assert len(files) == 2
    assert (tmp_path / "out" / "large.onnx").stat().st_size < 5000
    onnx.checker.check_model(str(tmp_path / "out" / "large.onnx"))
    again = load_graph(read_model(tmp_path / "out" / "large.onnx"))
    assert write_model(again, tmp_path / "out" / "again.onnx", beside="weights") == files


def test_it_runs_with_weights_in_several_folders(path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    with kept_aside(1):
        found = load_graph(read_model(path))
        changed = tensor_of(np.ones((48, 8), np.float32), "v")
        next(t for t in found.graph.initializer if t.name == "v").CopyFrom(changed)
        assert refers_apart(changed)
        with runnable(found) as (payload, folder):
            assert len(payload) < 3000
            assert len(list(folder.iterdir())) >= 2
        (y,) = session_on(found).run(None, {"x": x})

    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in two_layers().graph.initializer}
    np.testing.assert_allclose(y, (x @ tensors["w"] + tensors["b"]) @ np.ones((48, 8)), rtol=1e-4)


def test_a_weight_whose_file_was_cut_is_named(path: Path) -> None:
    found = load_graph(read_model(path))
    file = path.with_suffix(".data") if path.with_suffix(".data").exists() else path
    file.write_bytes(file.read_bytes()[:200])

    tensor = next(t for t in found.graph.initializer if t.name == "w")
    with pytest.raises(ConfigError, match="tensor 'w' are cut off"):
        array_of(tensor)
