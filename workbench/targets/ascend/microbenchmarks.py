"""Small measurements on a device, each of which tells one thing that a modelled clock only assumes.

    python -m workbench.targets.ascend.microbenchmarks int8_gain copy_latency --to clock.json

Differences of times, in which launches, casts and copies that are not asked for cancel out. What is written is read by
`workbench show --clock`.

Values are in the units that the clock's unknowns have. Where a figure counts what the clock counts (instructions of a
softmax, reads and writes of L2), the count is the clock's own, so that the value takes its place.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.read import read_model
from workbench.targets.ascend.settings import AscendCompile, Shapes
from workbench.targets.ascend.target import AscendTarget
from workbench.targets.base import DeviceSession, times_of
from workbench.targets.int8_layer import unit_record
from workbench.values.artifact import Toolchain
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, MeasureError, WorkbenchError
from workbench.values.model import Model
from workbench.values.modelled_times.measured import VERSION
from workbench.values.system.files import temporary_beside
from workbench.values.system.steps import Steps

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


# --- what each measures -----------------------------------------------------------------------------------------------


_COLUMNS = 1024
_INNER = (1024, 2048)
_COUNTS = (1, 3)
_SOFTMAX_INSTRUCTIONS = 12
"""Vector instructions an element that the clock counts for a softmax [inferred]."""
_HALF_BYTES = 2
_READ_OVER_WRITE = 110 / 86
"""Rates of L2, bytes a cycle (platform file, atc.md §7.2): a written byte costs as much as so many read ones."""
_LINKS = (8, 40)
_REVERSALS = (2, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work and how often.

    Attributes:
        rows: of matrix products; 20480 are 40 texts of 512 positions, and fill 20 cores evenly.
        elements: the unit of memory tests; four of them are beyond what L2 keeps of one kernel.
        calls: timed ones of each size.
    """

    rows: int = 20480
    elements: int = 4 * 2**20
    calls: int = 30


def matrix_float16(effort: Effort) -> float:
    """TFLOPS of products."""
    return 1 / _product_us_per_mflop("float16", effort)


def matrix_float32(effort: Effort) -> float:
    """TFLOPS of products that stay in float32."""
    return 1 / _product_us_per_mflop("float32", effort)


def int8_gain(effort: Effort) -> float:
    """How much less an INT8 product takes than a float16 one of the same shape."""
    return _product_us_per_mflop("float16", effort) / _product_us_per_mflop("int8", effort)


def vector(effort: Effort) -> float:
    """TB/s of operands through vector instructions, in a softmax."""
    # casts of the float32 input and output grow with the rows, and not with the count
    few, many = (
        _more_us(repeated("Softmax", count, _COLUMNS, axis=-1), (1, 2), "float16", effort) for count in _COUNTS
    )
    spent_us = _positive((many - few) / (_COUNTS[1] - _COUNTS[0]), "a softmax")
    return _SOFTMAX_INSTRUCTIONS * effort.elements * _HALF_BYTES / 1e6 / spent_us


def far_memory(effort: Effort) -> float:
    """TB/s between HBM and the cores."""
    return 2 * 4 * effort.elements / 1e6 / _more_us(repeated("Neg", 1, _COLUMNS), (4, 6), "float32", effort)


def near_memory(effort: Effort) -> float:
    """TB/s between L2 and the cores, as reads."""
    spent_us = _more_us(repeated("Neg", 1, _COLUMNS), (1, 2), "float32", effort)
    return 4 * effort.elements / 1e6 * (1 + _READ_OVER_WRITE) / spent_us


def kernel_launch(effort: Effort) -> float:
    """Microseconds a kernel, of a chain of very small ones."""
    return _link_us(effort)[0]


def execute_launch(effort: Effort) -> float:
    """Microseconds of an execution beyond its kernels."""
    link_us, short = _link_us(effort)
    return _positive(short.execute_us - short.kernels * link_us, "an execution beyond its kernels")


def aicpu_task(effort: Effort) -> float:
    """Microseconds of an operator on the AI CPU."""
    found = [spent(reversals(count, 8, 16), (1,), calls=effort.calls)[1].execute_us for count in _REVERSALS]
    return _positive((found[1] - found[0]) / (_REVERSALS[1] - _REVERSALS[0]), "an AI CPU operator")


def gear(effort: Effort) -> float:
    """Microseconds by which a file with gears takes longer than one of that shape alone."""
    model = chain(_LINKS[0], 16)
    both = [spent(model, (16, 32), calls=effort.calls, shapes=kind)[16].execute_us for kind in ("gears", "static")]
    return _positive(both[0] - both[1], "a gear")


def copy_latency(effort: Effort) -> float:
    """Microseconds of a copy of no size."""
    small_us, per_mb = _copies(effort)
    return _positive(small_us - 4 * _COLUMNS / 1e6 * per_mb, "a small copy")


def copy_bandwidth(effort: Effort) -> float:
    """GB/s from the host to the device."""
    return 1e3 / _copies(effort)[1]


MEASUREMENTS: Mapping[str, tuple[Callable[[Effort], float], str]] = {
    "matrix_float16": (matrix_float16, "TFLOPS"),
    "int8_gain": (int8_gain, "times float16's rate"),
    "matrix_float32": (matrix_float32, "TFLOPS"),
    "vector": (vector, "TB/s of operands"),
    "far_memory": (far_memory, "TB/s"),
    "near_memory": (near_memory, "TB/s"),
    "kernel_launch": (kernel_launch, "us"),
    "aicpu_task": (aicpu_task, "us"),
    "execute_launch": (execute_launch, "us"),
    "gear": (gear, "us"),
    "copy_latency": (copy_latency, "us"),
    "copy_bandwidth": (copy_bandwidth, "GB/s"),
}
"""Unknown → (measurement, unit of its value)."""


def _product_us_per_mflop(dtype: Dtype, effort: Effort) -> float:
    """By what one product more takes longer with twice the inner size: launches, casts and outputs cancel out."""
    per_product = []
    for inner in _INNER:
        few, many = (
            spent(products(count, inner, _COLUMNS), (effort.rows,), dtype=dtype, calls=effort.calls)[effort.rows]
            for count in _COUNTS
        )
        per_product.append((many.execute_us - few.execute_us) / (_COUNTS[1] - _COUNTS[0]))
    mflop = 2 * effort.rows * (_INNER[1] - _INNER[0]) * _COLUMNS / 1e6
    return _positive(per_product[1] - per_product[0], f"a {dtype} product") / mflop


def _more_us(model: ModelProto, sizes: tuple[int, int], dtype: Dtype, effort: Effort) -> float:
    """Microseconds that `effort.elements` more take, between two sizes in that unit."""
    few, many = (size * effort.elements // _COLUMNS for size in sizes)
    found = spent(model, (few, many), dtype=dtype, calls=effort.calls)
    return _positive((found[many].execute_us - found[few].execute_us) / (sizes[1] - sizes[0]), "a larger tensor")


def _link_us(effort: Effort) -> tuple[float, Spent]:
    """Microseconds of one more link of a chain, and the short chain."""
    short, long = (spent(chain(count, 16), (16,), calls=effort.calls)[16] for count in _LINKS)
    return _positive((long.execute_us - short.execute_us) / (_LINKS[1] - _LINKS[0]), "a small kernel"), short


def _copies(effort: Effort) -> tuple[float, float]:
    """(microseconds of a copy of 4 KiB, microseconds a megabyte)."""
    large = effort.elements // _COLUMNS
    found = spent(repeated("Neg", 1, _COLUMNS), (1, large), calls=effort.calls)
    more_us = _positive(found[large].to_device_us - found[1].to_device_us, "a large copy")
    return found[1].to_device_us, more_us / (4 * (large - 1) * _COLUMNS / 1e6)


def _positive(value: float, what: str) -> float:
    if value <= 0:
        raise MeasureError(f"{what} takes no longer than what it is compared with: time more calls (--calls).")
    return value


# --- models of one kind of work: the batch is free, so that one set has several sizes --------------------------------


OPSET, IR_VERSION = 13, 8
SEED = 0


def products(count: int, inner: int, columns: int) -> ModelProto:
    """`count` products of one input [batch, inner] by weights [inner, columns] of their own, each an output."""
    rng = np.random.default_rng(SEED)
    weights = {f"w{i}": rng.uniform(-1, 1, (inner, columns)).astype(np.float32) for i in range(count)}
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], name=f"matmul{i}") for i in range(count)]
    return _model(nodes, weights, (inner,), {f"y{i}": (columns,) for i in range(count)})


def chain(count: int, width: int) -> ModelProto:
    """`count` products [batch, width] × [width, width] one behind the other: next to nothing but launches."""
    rng = np.random.default_rng(SEED)
    weights = {f"w{i}": rng.uniform(-0.1, 0.1, (width, width)).astype(np.float32) for i in range(count)}
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], name=f"matmul{i}") for i in range(count)]
    return _model(nodes, weights, (width,), {"y": (width,)})


def repeated(operator: str, count: int, width: int, **attributes: Any) -> ModelProto:
    """`count` times one operator over [batch, width], such as Softmax or Neg."""
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    nodes = [
        helper.make_node(operator, [names[i]], [names[i + 1]], name=f"{operator.lower()}{i}", **attributes)
        for i in range(count)
    ]
    return _model(nodes, {}, (width,), {"y": (width,)})


def reversals(count: int, steps: int, width: int) -> ModelProto:
    """`count` times ReverseSequence over [batch, steps, width]: scalar work that the AI CPU does [inferred]."""
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    lengths = {"steps": np.full(1, steps, np.int64)}
    nodes = [
        helper.make_node(
            "ReverseSequence", [names[i], "steps"], [names[i + 1]], name=f"reverse{i}", batch_axis=0, time_axis=1
        )
        for i in range(count)
    ]
    return _model(nodes, lengths, (steps, width), {"y": (steps, width)})


def _model(
    nodes: list[NodeProto],
    constants: Mapping[str, npt.NDArray[Any]],
    taken: tuple[int, ...],
    given: Mapping[str, tuple[int, ...]],
) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "microbenchmark",
        [value("x", TensorProto.FLOAT, ["batch", *taken])],
        [value(name, TensorProto.FLOAT, ["batch", *shape]) for name, shape in given.items()],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong arguments. What was measured before a failure is kept."""
    chosen = _parser().parse_args(arguments)
    effort = Effort(rows=chosen.rows, elements=chosen.elements, calls=chosen.calls)
    try:
        toolchain = AscendTarget().toolchain()
        known = _known(chosen.to, toolchain)
        names = chosen.names or list(MEASUREMENTS)
        with Steps(lambda line: print(line, file=sys.stderr, flush=True)) as steps:
            for number, name in enumerate(names, 1):
                steps(f"{name} ({number} of {len(names)})")
                measure, unit = MEASUREMENTS[name]
                value = measure(effort)
                known[name] = {"value": value, "unit": unit, "calls": effort.calls}
                _write(chosen.to, toolchain, known)
                print(f"{name}: {value:.4g} {unit}{' (emulated)' if toolchain.emulated else ''}", flush=True)
    except (WorkbenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = Effort()
    parser = argparse.ArgumentParser(
        prog="python -m workbench.targets.ascend.microbenchmarks",
        description="Measure on this machine's first device what a modelled clock only assumes.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", type=_named, help=f"{', '.join(MEASUREMENTS)}; default: all of them"
    )
    parser.add_argument("--to", type=Path, required=True, help="JSON file; what it holds of other names stays")
    parser.add_argument("--rows", type=_at_least_one, default=defaults.rows, help="of matrix products")
    parser.add_argument("--elements", type=_at_least_one, default=defaults.elements, help="unit of memory tests")
    parser.add_argument("--calls", type=_at_least_one, default=defaults.calls, help="timed calls of each size")
    return parser


def _named(text: str) -> str:
    if text not in MEASUREMENTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(MEASUREMENTS)}")
    return text


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _known(path: Path, toolchain: Toolchain) -> dict[str, Any]:
    """What the file holds already.

    Raises:
        ConfigError: it is of another form, another device, or mixes emulated and measured values.
    """
    if not path.exists():
        return {}
    data = read_json(path)
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("measured"), dict):
        raise ConfigError(
            f"is no file of measured unknowns, version {VERSION}.", file=path, hint="Choose another name."
        )
    here = (toolchain.device, toolchain.emulated)
    if (data.get("device"), data.get("emulated")) != here:
        raise ConfigError("was measured on another device.", file=path, hint="Choose another name for this one.")
    return dict(data["measured"])


def _write(path: Path, toolchain: Toolchain, measured: dict[str, Any]) -> None:
    content = {
        "version": VERSION,
        "device": toolchain.device,
        "emulated": toolchain.emulated,
        "toolchain": toolchain.fingerprint,
        "measured": measured,
    }
    with temporary_beside(path) as draft:
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
