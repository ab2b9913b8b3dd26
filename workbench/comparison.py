"""Compare two models layer by layer: where along the graph do their numbers part, and by how much.

Float against INT8, ONNX Runtime against OpenVINO or against the deploy model on integers: the two only have to share
names of tensors, which every lowering of the workbench keeps. Both run batch by batch; of a tensor only sums are
kept, so memory does not grow with the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from workbench.canonical import encode
from workbench.errors import ConfigError, nearest
from workbench.graph import constants, load_graph, read_model
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.observe import Feeds
from workbench.targets import TARGETS, open_target

Array = npt.NDArray[Any]
Run = Callable[[Feeds], Mapping[str, Array]]
"""One batch → the compared tensors by name."""

DEPLOY = "deploy"
"""The engine that executes an AMCT deploy model on integers."""

JUMP_SHARE = 0.5
"""A step counts as a jump when it adds at least this share of the largest step along the graph."""

_VALUE_KEEPING = {
    "Cast",
    "Concat",
    "DequantizeLinear",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "QuantizeLinear",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
}
"""Operators that compute no new numbers: their output tells nothing that their input did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When two tensors count as the same. The defaults are the acceptance limits of a float path."""

    cosine: float = 0.999
    max_abs: float = 1e-3
    mae: float = 1e-4

    def met(self, cosine: float, max_abs: float, mae: float) -> bool:
        return cosine > self.cosine and max_abs < self.max_abs and mae < self.mae


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """One tensor over all batches; A is the reference.

    Attributes:
        node, op_type: what makes the tensor in A.
        sqnr_db: 10 log10(Σa² / Σ(a - b)²), +inf for equal tensors.
        relative_error: the same as a ratio of norms: |a - b| / |a|.
        added_error: relative error beyond the largest of the compared tensors it is computed from; 0 at least.
        jump: `added_error` is at least `JUMP_SHARE` of the largest along the graph.
    """

    tensor: str
    node: str
    op_type: str
    is_output: bool
    elements: int
    cosine: float
    max_abs: float
    mae: float
    sqnr_db: float
    relative_error: float
    added_error: float
    jump: bool
    within_limits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two models compared.

    Attributes:
        a, b: what was compared, in words.
        rows: in graph order of A.
        only_in_a: how many tensors of A the other side lacks (fused away, or named otherwise).
    """

    a: str
    b: str
    data: str
    batches: int
    limits: Limits
    rows: tuple[TensorComparison, ...]
    only_in_a: int

    @property
    def first_jump(self) -> TensorComparison | None:
        """The first tensor in graph order where the error jumps."""
        return next((row for row in self.rows if row.jump), None)

    @property
    def first_beyond_limits(self) -> TensorComparison | None:
        return next((row for row in self.rows if not row.within_limits), None)

    @property
    def passed(self) -> bool:
        """Whether every model output is within the limits."""
        return all(row.within_limits for row in self.rows if row.is_output)

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, "passed": self.passed, **encode(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two models.

    Attributes:
        about: for people.
        engine: a target's name, or `DEPLOY`.
        path: an ONNX file as the engine takes it (lowered, not compiled).
    """

    about: str
    engine: str
    path: Path


def side_of(text: str) -> Side:
    """`FILE` or `ENGINE:FILE`; a deploy model is recognized by its operators, anything else runs in ONNX Runtime.

    Raises:
        ConfigError: no such engine or file.
    """
    engine, separator, rest = text.partition(":")
    engines = (*(name for name in TARGETS if name != "ascend910b3"), DEPLOY)
    if not separator or Path(text).exists():
        engine, rest = "", text
    elif engine not in engines:
        raise ConfigError(f"{engine!r} is not an engine.", key=text, hint=nearest(engine, engines))
    path = Path(rest)
    if not path.is_file():
        raise ConfigError("no such ONNX file.", file=path, hint="Check the path.")
    if not engine:
        proto = onnx.load(path, load_external_data=False)
        deploy = any(node.op_type in ("AscendQuant", "AscendDequant") for node in proto.graph.node)
        engine = DEPLOY if deploy else "onnxruntime"
    return Side(about=f"{path.name} in {engine}", engine=engine, path=path)


def compare(a: Side, b: Side, batches: Iterable[Feeds], *, data: str, limits: Limits | None = None) -> Comparison:
    """Run both sides over the batches and compare every tensor that both have.

    Raises:
        ConfigError: they share no tensor, or there is no batch.
        MeasureError: an engine cannot load or run its model.
    """
    limits = limits or Limits()
    graph = load_graph(read_model(a.path))
    wanted = _comparable(graph)
    theirs = _tensors(b)
    shared = [name for name in wanted if name in theirs]
    if not shared:
        raise ConfigError(
            f"{a.about} and {b.about} share no tensor name.", hint="Compare two files made from the same float model."
        )
    run_a, run_b = _runner(a, shared), _runner(b, shared)
    sums = {name: _Sums() for name in shared}
    count = 0
    for feeds in batches:
        ours, others = run_a(feeds), run_b(feeds)
        for name in [name for name in sums if name not in ours or name not in others]:
            del sums[name]  # an engine may be unable to show a tensor; what it cannot show is not compared
        for name, total in sums.items():
            total.add(ours[name], others[name], name)
        count += 1
    if count == 0 or not sums:
        raise ConfigError("there is nothing to compare.", hint="Give at least one batch of data.")
    return Comparison(
        a=a.about,
        b=b.about,
        data=data,
        batches=count,
        limits=limits,
        rows=_rows(graph, sums, limits),
        only_in_a=len(wanted) - len(sums),
    )


class _Sums:
    """Running sums of one pair of tensors: float64 over the batches, one BLAS call each within a batch."""

    def __init__(self) -> None:
        self.elements = 0
        self.aa = self.bb = self.dd = self.absolute = self.largest = 0.0

    def add(self, a: Array, b: Array, name: str) -> None:
        if a.shape != b.shape:
            raise ConfigError(f"tensor {name!r} has shape {a.shape} in one model and {b.shape} in the other.")
        x = np.ascontiguousarray(a, np.float32).reshape(-1)
        y = np.ascontiguousarray(b, np.float32).reshape(-1)
        if not x.size:
            return
        difference = x - y
        self.elements += x.size
        self.aa += float(np.dot(x, x))
        self.bb += float(np.dot(y, y))
        self.dd += float(np.dot(difference, difference))
        np.abs(difference, out=difference)
        self.absolute += float(difference.sum(dtype=np.float64))
        self.largest = max(self.largest, float(difference.max()))

    def cosine(self) -> float:
        """From the difference: 1 - cos = (|d|² - (|a| - |b|)²) / (2 |a| |b|), exact where a·b would cancel."""
        norms = math.sqrt(self.aa), math.sqrt(self.bb)
        if not all(map(math.isfinite, (*norms, self.dd))):
            return math.nan
        if 0.0 in norms:
            return 1.0 if norms == (0.0, 0.0) else 0.0
        apart = (self.dd - (norms[0] - norms[1]) ** 2) / (2 * norms[0] * norms[1])
        return min(max(1.0 - apart, -1.0), 1.0)

    def relative_error(self) -> float:
        if self.aa > 0:
            return math.sqrt(self.dd / self.aa)
        return math.inf if self.dd > 0 else 0.0


def _comparable(graph: onnx.ModelProto) -> list[str]:
    """Float tensors that hold newly computed numbers, in graph order."""
    fixed = set(constants(graph))
    values = (*graph.graph.value_info, *graph.graph.output)
    types = {value.name: value.type.tensor_type for value in values}
    outputs = {value.name for value in graph.graph.output}
    found = []
    for node in graph.graph.node:
        for name in node.output:
            if not name or name in fixed:
                continue
            known = types.get(name)
            if known is not None and known.elem_type not in (TensorProto.FLOAT, TensorProto.UNDEFINED):
                continue
            if known is not None and known.HasField("shape") and not known.shape.dim and name not in outputs:
                continue
            if name in outputs or node.op_type not in _VALUE_KEEPING:
                found.append(name)
    return found


def _tensors(side: Side) -> set[str]:
    proto = onnx.load(side.path, load_external_data=False)
    return {name for node in proto.graph.node for name in node.output}


def _runner(side: Side, tensors: Sequence[str]) -> Run:
    if side.engine == DEPLOY:
        proto = onnx.load(side.path)
        dequantized = {node.input[0]: node.output[0] for node in proto.graph.node if node.op_type == "AscendDequant"}
        places = {name: dequantized.get(name, name) for name in tensors}
        interpreter = Interpreter(proto)

        def run(feeds: Feeds) -> Mapping[str, Array]:
            values = interpreter.run(feeds, tensors=sorted(set(places.values())))
            return {name: values[place] for name, place in places.items() if place in values}

        return run
    session = open_target(side.engine).probe(side.path, tensors)
    return session.run


def _rows(graph: onnx.ModelProto, sums: Mapping[str, _Sums], limits: Limits) -> tuple[TensorComparison, ...]:
    outputs = {value.name for value in graph.graph.output}
    error_at: dict[str, float] = {}  # every tensor → the relative error it carries, through tensors not compared
    drafts: list[tuple[str, onnx.NodeProto, float]] = []
    for node in graph.graph.node:
        before = max((error_at.get(name, 0.0) for name in node.input), default=0.0)
        for name in node.output:
            if name in sums:
                own = sums[name].relative_error()
                drafts.append((name, node, max(own - before, 0.0)))
                error_at[name] = own
            else:
                error_at[name] = before
    largest = max((added for _, _, added in drafts if math.isfinite(added)), default=0.0)
    rows = []
    for name, node, added in drafts:
        total = sums[name]
        cosine, mae = total.cosine(), total.absolute / max(total.elements, 1)
        rows.append(
            TensorComparison(
                tensor=name,
                node=node.name,
                op_type=node.op_type,
                is_output=name in outputs,
                elements=total.elements,
                cosine=cosine,
                max_abs=total.largest,
                mae=mae,
                sqnr_db=math.inf if total.dd == 0 else 10 * math.log10(total.aa / total.dd) if total.aa else -math.inf,
                relative_error=total.relative_error(),
                added_error=added,
                jump=added > 0 and added >= JUMP_SHARE * largest,
                within_limits=limits.met(cosine, total.largest, mae),
            )
        )
    return tuple(rows)
