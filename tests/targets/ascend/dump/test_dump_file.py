"""Dump files and folders: what the emulator writes is read, and nothing else is believed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.rounding import stored as in_memory
from workbench.targets.ascend.dump.dump_file import (
    FRACTAL_NZ,
    MOST_TENSORS,
    NC1HWC0,
    executions,
    in_model_order,
    is_dump,
    read_dump_file,
)
from workbench.values.errors import ConfigError, MeasureError

HALVES = np.arange(6, dtype=np.float16).reshape(2, 3)


def written(folder: Path, content: bytes) -> Path:
    file = folder / "MatMulV3.dense.7.0.1795446940563602"
    file.write_bytes(content)
    return file


def sound() -> bytes:
    inputs = (Values(array=HALVES, dtype="float16"), Values(array=np.array([3, -4], np.int8), dtype="int8"))
    return dump_bytes("encoder/dense", inputs, (), time_us=5, emulator="test 1")


def tagged(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@settings(max_examples=30, deadline=None)
@given(
    values=arrays.arrays(np.float32, arrays.array_shapes(max_dims=4, max_side=4)),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "int8", "int32", "int64", "bool"]),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, values: npt.NDArray[Any], dtype: Any
) -> None:
    plain = values if dtype in ("float32", "float16", "bfloat16") else np.nan_to_num(values).clip(-100, 100)
    stored = in_memory(plain, dtype)
    tensors = (Values(array=HALVES, dtype="float16"),), (Values(array=stored, dtype=dtype, origin=("dense/ä:1", 2)),)

    dump = dump_bytes("encoder/dense", *tensors, time_us=1, emulator="test 1")
    found = read_dump_file(written(tmp_path_factory.mktemp("d"), dump))

    assert (found.op_name, found.emulator, found.outputs[0].dtype) == ("encoder/dense", "test 1", dtype)
    assert found.outputs[0].origin == ("dense/ä:1", 2)
    assert np.array_equal(found.inputs[0].load(), HALVES)
    loaded = found.outputs[0].load()
    if dtype == "bfloat16":
        assert np.array_equal(loaded.view(np.uint32) >> 16, stored)
    else:
        assert loaded.tobytes() == stored.tobytes()


def test_truncated_files_and_hostile_lengths_are_refused_before_they_are_used(tmp_path: Path) -> None:
    beyond = tagged(3, b"\x08\x02" + b"\x1a\x02\x08\x7f" + b"\x30\x02")
    for content, words in (
        *((sound()[:kept], "no sound dump") for kept in (0, 3, 8, 20, 60, -1)),
        (struct.pack("<Q", 2**62) + b"x" * 64, "its header would have"),
        (with_header(tagged(3, b"\x30" + b"\xff" * 9 + b"\x01")), "do not fit"),
        (with_header(beyond, b"ab"), "2 bytes are no float16"),
        (with_header(tagged(3, b"") * (MOST_TENSORS + 1)), "more than 1024 tensors"),
        (with_header(b"\x1a\x7f\x00"), "cut off"),
        (sound() + b"x", "add up"),
    ):
        with pytest.raises(MeasureError, match=words):
            read_dump_file(written(tmp_path, content))


def test_what_the_device_keeps_in_groups_or_blocks_comes_back_in_the_models_order() -> None:
    image = np.arange(2 * 5 * 3 * 4, dtype=np.float32).reshape(2, 5, 3, 4)
    padded = np.zeros((2, 16, 3, 4), np.float32)
    padded[:, :5] = image
    grouped = np.ascontiguousarray(padded.reshape(2, 1, 16, 3, 4).transpose(0, 1, 3, 4, 2))
    matrix = np.arange(3 * 20 * 40, dtype=np.float32).reshape(3, 20, 40)
    padded = np.zeros((3, 32, 48), np.float32)
    padded[:, :20, :40] = matrix
    blocks = np.ascontiguousarray(padded.reshape(3, 2, 16, 3, 16).transpose(0, 3, 1, 2, 4))

    assert np.array_equal(in_model_order(grouped, NC1HWC0, image.shape), image)
    assert np.array_equal(in_model_order(blocks, FRACTAL_NZ, matrix.shape), matrix)


def test_executions_are_told_in_the_order_of_time_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    def file(place: str, name: str) -> Path:
        (folder := tmp_path / place).mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
        return folder / name

    assert not is_dump(tmp_path)
    assert not is_dump(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no dump of a model is in this folder"):
        executions(tmp_path)
    file("20261123101112/0/bert/1/1", kept := "Add.a_b.3.0.1795446940563700")
    file(place := "20261123101112/0/bert/1/0", "MatMul.late.0.0.1795446940563602")
    first = file(place, "Softmax.a.b.9.5.1795446940563601")
    for name in ("Opdebug.Node_OpDebug.5.0.1795446940563603", f"{kept}.csv", "notes.txt", ".draft"):
        file(place, name)
    (tmp_path / place / "Mul.link.2.0.1795446940563602").symlink_to(first)
    file("20261123101112/0/m/one/0", kept)  # no model id
    (tmp_path / "20261123101113").symlink_to(tmp_path / "20261123101112")
    (tmp_path / "elsewhere").mkdir()

    found = executions(tmp_path)

    assert [(one.model, one.index) for one in found] == [("bert", 0), ("bert", 1)]
    assert [(f.op_type, f.op_name, f.task, f.stream) for one in found for f in one.files] == [
        ("Softmax", "a.b", 9, 5),
        ("MatMul", "late", 0, 0),
        ("Add", "a_b", 3, 0),
    ]
    assert found[0].files[0].path == first
