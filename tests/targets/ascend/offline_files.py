"""Compiled artifacts for the session's tests: a tiny text model in every form a file can have, without the compiler.

Its results are whole numbers, exact in float16 too, and depend on nothing but the row and the text under the mask:

    logits [batch, 3]           sum over the text of mask · table[ids]
    tokens [batch, length, 2]   ids · mask, and that doubled
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import built
from tests.targets.ascend.played_atc import CHAIN
from workbench.cann_emulator.om import Dtype, OfflineModel, write_om
from workbench.targets.ascend.interface import Interface, Port, write_interface
from workbench.targets.common import compiled_file
from workbench.testing.encoder import model_of, value
from workbench.values.artifact import Artifact

Array = npt.NDArray[Any]

VOCABULARY = 30
TABLE = np.random.default_rng(3).integers(-8, 8, (VOCABULARY, 3)).astype(np.float32)
TEXT = Interface(
    inputs=(
        Port(name="ids", dtype="int64", shape=("batch", "sequence")),
        Port(name="mask", dtype="int64", shape=("batch", "sequence")),
    ),
    outputs=(
        Port(name="logits", dtype="float32", shape=("batch", 3)),
        Port(name="tokens", dtype="float32", shape=("batch", "sequence", 2)),
    ),
)


def text_model(batch: int | str, length: int | str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["mask"], ["kept"], name="cast_mask", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["ids"], ["numbers"], name="cast_ids", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"], name="unsqueeze"),
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embed"),
        helper.make_node("Mul", ["rows", "column"], ["seen"], name="hide"),
        helper.make_node("ReduceSum", ["seen", "one"], ["logits"], name="sum", keepdims=0),
        helper.make_node("Mul", ["numbers", "kept"], ["shown"], name="show"),
        helper.make_node("Unsqueeze", ["shown", "last"], ["shown_column"], name="unsqueeze_shown"),
        helper.make_node("Mul", ["shown_column", "weights"], ["tokens"], name="double"),
    ]
    shape = [batch, length]
    constants = {"table": TABLE, "last": np.array([2]), "one": np.array([1]), "weights": np.array([1, 2], np.float32)}
    inputs = [value(name, shape, TensorProto.INT64) for name in ("ids", "mask")]
    outputs = [value("logits", [batch, 3]), value("tokens", [batch, length, 2])]
    return model_of(nodes, constants, inputs, outputs)


def expected(feeds: Mapping[str, Array]) -> dict[str, Array]:
    kept = feeds["mask"].astype(np.float32)
    shown = feeds["ids"] * kept
    return {
        "logits": (TABLE[feeds["ids"]] * kept[:, :, None]).sum(axis=1),
        "tokens": np.stack([shown, 2 * shown], axis=2).astype(np.float32),
    }


def assert_right(outputs: dict[str, Array], feeds: dict[str, Array]) -> None:
    wanted = expected(feeds)
    assert outputs.keys() == wanted.keys()
    for name, values in wanted.items():
        assert outputs[name].dtype == np.float32
        assert np.array_equal(outputs[name], values), name


def texts(batch: int, length: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length + 1, batch)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return {"ids": random.integers(0, VOCABULARY, (batch, length)), "mask": mask}


def static_model(batch: int, length: int, *, ids: Dtype = "int64", floats: Dtype = "float32") -> OfflineModel:
    """A file for one shape; `ids` and `floats` are the types it takes and gives."""
    model = built(text_model(batch, length))
    inputs, outputs = (
        tuple(replace(tensor, dtype=dtype) for tensor in tensors)
        for tensors, dtype in ((model.inputs, ids), (model.outputs, floats))
    )
    return replace(model, name=f"b{batch}_s{length}", inputs=inputs, outputs=outputs)


def gear_model(shapes: Sequence[tuple[int, int]]) -> OfflineModel:
    """One file for several shapes."""
    shape, gears = "ids:-1,-1;mask:-1,-1", ";".join(f"{batch},{size},{batch},{size}" for batch, size in shapes)
    model = built(text_model("batch", "length"), input_shape=shape, dynamic_dims=gears, input_format="ND")
    return replace(model, name="gears")


def artifact_of(
    models: Mapping[tuple[int | None, int | None], OfflineModel],
    directory: Path,
    *,
    interface: Interface = TEXT,
    device: str = "Ascend910B3",
) -> Artifact:
    """Write the files as a compile does, and describe them."""
    files = []
    for (batch, length), model in models.items():
        (directory / f"{model.name}.om").write_bytes(write_om(model))
        files.append(compiled_file(directory, f"{model.name}.om", batch=batch, sequence_bin=length))
    return Artifact(
        target="ascend910b3",
        files=(*files, compiled_file(directory, write_interface(interface, directory).name)),
        toolchain=replace(CHAIN, device=device),
        int8_ops=0,
        float_matmuls_left=0,
        kernels={},
    )


def grid(batches: Sequence[int], lengths: Sequence[int], directory: Path, **types: Dtype) -> Artifact:
    models = {(b, n): static_model(b, n, **types) for b, n in itertools.product(batches, lengths)}
    return artifact_of(models, directory)
