"""Compile a small model through the target and time it by the device's own events."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import onnx

from workbench.graph.read import read_model
from workbench.targets.ascend.settings import AscendCompile, Shapes
from workbench.targets.ascend.target import AscendTarget
from workbench.targets.base import DeviceSession, times_of
from workbench.targets.int8_layer import unit_record
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.errors import MeasureError
from workbench.values.model import Model

Dtype = Literal["float16", "float32", "int8"]
_WARMUP = 3
_INT8 = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=True,
    weight_granularity="tensor",
    attention_matmul=False,
    keep_float=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Medians of calls with one number of rows, in microseconds.

    Attributes:
        kernels: that one execution launches, as the compiler tells.
    """

    to_device_us: float
    execute_us: float
    kernels: int


def spent(
    proto: onnx.ModelProto, rows: tuple[int, ...], *, dtype: Dtype = "float16", calls: int, shapes: Shapes = "static"
) -> Mapping[int, Spent]:
    """Rows → what calls of so many take.

    Raises:
        CandidateError: the model cannot be compiled or run.
        ToolchainError: there is no compiler, or no device.
    """
    target, ascending = AscendTarget(), tuple(sorted(rows))
    candidate = Candidate(
        target=target.name,
        precision=Precision(mode="must_keep_origin_dtype" if dtype == "float32" else "force_fp16"),
        quantization=_INT8 if dtype == "int8" else Quantization(),
        compile=AscendCompile(batches=ascending, shapes=shapes),
        serving=Serving(batch=ascending[-1]),
    )
    with tempfile.TemporaryDirectory(prefix="microbenchmark-") as folder:
        root = Path(folder)
        onnx.save(proto, root / "model.onnx")
        model = read_model(root / "model.onnx")
        for name in ("lowered", "compiled"):
            (root / name).mkdir()
        record = unit_record(model) if dtype == "int8" else None
        lowered = target.lower(model, candidate, record, root / "lowered")
        artifact = target.compile(lowered, candidate, root / "compiled")
        if dtype == "int8" and not artifact.int8_ops:
            raise MeasureError("not one product runs in INT8, so nothing can be said of INT8.")
        session = target.open(artifact, root / "compiled", candidate)
        assert isinstance(session, DeviceSession)  # the target computes on a device
        try:
            kernels = sum(artifact.kernels.values())
            warmup, calls = (0, 1) if artifact.toolchain.emulated else (_WARMUP, calls)  # stated costs never differ
            return {count: _timed(session, model, count, kernels, warmup, calls) for count in ascending}
        finally:
            session.close()


def _timed(session: DeviceSession, model: Model, rows: int, kernels: int, warmup: int, calls: int) -> Spent:
    rng = np.random.default_rng(rows)
    taken = model.inputs[0]
    shape = (rows, *(int(size) for size in taken.shape[1:] if isinstance(size, int)))
    feeds = {taken.name: rng.uniform(-1, 1, shape).astype(np.float32)}
    times = []
    for _ in range(warmup + calls):
        session.run(feeds)
        times.append(times_of(session))
    times = times[warmup:]
    return Spent(
        to_device_us=1000 * median(each.host_to_device_ms for each in times),
        execute_us=1000 * median(each.execute_ms for each in times),
        kernels=kernels,
    )
