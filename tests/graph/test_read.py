"""Reading ONNX files, good and damaged, and asking their graphs."""

import hashlib
import os
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.small_graphs import graph_of, saved, weight
from workbench.graph import read
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import digest_of, embedding_rows, load_graph, read_model
from workbench.testing.encoder import WEIGHT_LAYERS, model_of, tiny_encoder
from workbench.values.errors import ConfigError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return saved(tiny_encoder(), tmp_path)


def test_a_model_is_identified_by_the_bytes_of_its_file(encoder: Path) -> None:
    model = read_model(encoder)

    assert hashlib.sha256(encoder.read_bytes()).hexdigest() == model.sha256
    assert encoder.stat().st_size == model.size_bytes
    assert model.opset == 17
    assert [(s.name, s.dtype, s.shape) for s in model.inputs] == [("ids", "int64", ("batch", "length"))]
    assert [(s.name, s.dtype, s.shape) for s in model.outputs] == [("logits", "float32", ("batch", 5))]


def test_external_data_joins_the_digest_and_the_size(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tiny_encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=64)
    before = read_model(path)
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[10] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)

    after = read_model(path)

    assert (tmp_path.resolve() / "weights.bin",) == before.external_files
    assert path.stat().st_size + len(data) == before.size_bytes
    assert before.sha256 != after.sha256
    assert WEIGHT_LAYERS[0] in {layer.name for layer in quantizable_layers(load_graph(after))}


def test_inputs_and_outputs_are_what_a_caller_gives_and_gets(tmp_path: Path) -> None:
    among_inputs = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight(4, 3)}, ["batch", 4])
    among_inputs.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4, 3]))
    twice = tiny_encoder()
    twice.graph.output.append(twice.graph.output[0])
    none = graph_of([helper.make_node("Relu", ["c"], ["y"])], {"c": weight(2)}, ["batch"])
    del none.graph.input[:]

    assert [spec.name for spec in read_model(saved(among_inputs, tmp_path)).inputs] == ["x"]
    with pytest.raises(ConfigError, match=r"output 'logits' is declared more than once.*Export"):
        read_model(saved(twice, tmp_path))
    with pytest.raises(ConfigError, match="no inputs"):
        read_model(saved(none, tmp_path))


@given(share=st.floats(0, 0.999))
def test_a_file_cut_anywhere_is_refused(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = tiny_encoder().SerializeToString()
    path = tmp_path_factory.mktemp("cut") / "model.onnx"
    path.write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(ConfigError, match="not a complete ONNX file"):
        read_model(path)


def test_a_file_that_changed_since_it_was_read_is_refused(encoder: Path) -> None:
    model = read_model(encoder)
    proto = onnx.load(encoder)
    proto.doc_string = "changed"
    onnx.save(proto, encoder)

    with pytest.raises(ConfigError, match="has changed since it was read"):
        load_graph(model)


def test_every_node_gets_a_unique_name_and_keeps_its_own(tmp_path: Path) -> None:
    names = ["", "same", "same", "Relu_4", ""]
    tensors = ["x", "a", "b", "c", "d", "y"]
    nodes = [helper.make_node("Relu", [tensors[i]], [tensors[i + 1]], name=name) for i, name in enumerate(names)]
    model = read_model(saved(graph_of(nodes, {}, ["batch"]), tmp_path))

    assert [n.name for n in load_graph(model).graph.node] == ["Relu_0", "same", "same_1", "Relu_4", "Relu_4_1"]


def found(path: Path) -> str:
    with path.open("rb") as stream:
        return digest_of(stream).hexdigest()


def test_ids_are_followed_through_casts_and_the_smallest_table_counts(tmp_path: Path) -> None:
    ids = helper.make_tensor_value_info("ids", INT64, ["batch", "length"])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    nodes = [
        helper.make_node("Cast", ["ids"], ["narrow"], to=TensorProto.INT32),
        helper.make_node("Gather", ["large", "ids"], ["a"]),
        helper.make_node("Gather", ["small", "narrow"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    proto = model_of(nodes, {"large": weight(9, 2), "small": weight(7, 2)}, [ids], [y])

    assert embedding_rows(load_graph(read_model(saved(proto, tmp_path)))) == {"ids": 7}


def test_a_file_is_read_again_once_it_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_KNOWN_FROM_BYTES", 0)  # a small file is treated as a large one
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    assert found(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"two")  # within the same tick of the clock, perhaps
    assert found(path) == hashlib.sha256(b"two").hexdigest()

    monkeypatch.setattr(read, "_SETTLED_NS", -(10**12))  # as if both had been written long ago
    with path.open("rb") as stream:
        digest_of(stream).update(b"more")  # which changes nothing of what is known
    assert found(path) == hashlib.sha256(b"two").hexdigest()
    size_and_times = path.stat()
    path.write_bytes(b"six")
    os.utime(path, ns=(size_and_times.st_atime_ns, size_and_times.st_mtime_ns))  # only the kernel's own time tells
    assert found(path) == hashlib.sha256(b"six").hexdigest()
