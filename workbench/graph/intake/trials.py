"""Files on the way to a prepared model: read, run and written, the weights of large ones apart; and feeds to run them
with where nobody gives any: seeded values, in sizes and kinds that the model may accept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto

from workbench.graph.apart import is_large, refers_apart, take_in
from workbench.graph.bounds import MOST_BYTES, parse_model
from workbench.graph.intake.ports import PortPlan
from workbench.graph.nodes import all_graphs
from workbench.graph.read import graph_of
from workbench.graph.write import WEIGHTS_FOLDER, is_apart, link_or_copy, runnable, write_linked
from workbench.values.documents.input_files import read_bytes
from workbench.values.interface import AxisUse
from workbench.values.model import Model

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Outputs of one call by name."""

_SIZES = (8, 32, 64, 16, 128, 4, 3, 2, 1, 100, 160, 192, 224, 256, 320, 512, 576, 640, 48, 96, 5, 7, 1024, 16000)
_KINDS = ("spread", "ones", "zeros", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How feeds are made that a model accepts.

    Attributes:
        size: of free axes besides the batch.
        kind: 'spread' draws integers from the whole range known; 'size' gives the size of the free axes.
        rows: integer input → values allowed below it.
        bins: named axis → size to use.
    """

    size: int
    kind: str
    rows: Mapping[str, int]
    bins: Mapping[str, int]

    def feeds(self, plans: Sequence[PortPlan], batch: int, seed: int) -> Feeds:
        rng = np.random.default_rng(seed)
        return {plan.name: self._values(plan, batch, rng) for plan in plans}

    def _values(self, plan: PortPlan, batch: int, rng: np.random.Generator) -> Array:
        shape = [
            size if isinstance(size, int) else batch if axis == plan.batch else self.bins.get(size or "", self.size)
            for axis, size in enumerate(plan.dims)
        ]
        kind = np.dtype(plan.dtype).kind
        if kind == "f":
            return rng.standard_normal(shape).astype(plan.dtype)
        if kind == "b":
            return np.ones(shape, np.bool_)
        if "len" in plan.name.lower() or self.kind == "size":
            return np.full(shape, self.size, plan.dtype)
        if plan.name in self.rows and self.kind == "spread":
            rows = self.rows[plan.name]
            return rng.integers(0, rows if rows > 2 else 1, shape).astype(plan.dtype)
        return np.full(shape, self.kind != "zeros", plan.dtype)


def recipes(plans: Sequence[PortPlan], axes: Sequence[AxisUse], rows: Mapping[str, int]) -> Iterator[Recipe]:
    """What to try, the likeliest first."""
    bins = {use.name: use.bins[0] for use in axes if use.bins}
    free = any(
        not isinstance(size, int) and axis != plan.batch and size not in bins
        for plan in plans
        for axis, size in enumerate(plan.dims)
    )
    integers = any(np.dtype(plan.dtype).kind in "iu" for plan in plans)
    for kind, size in itertools.product(_KINDS if integers else _KINDS[:1], _SIZES if free else _SIZES[:1]):
        yield Recipe(size=size, kind=kind, rows=rows, bins=bins)


def runner(model: Path | bytes, weights: Path | None = None) -> Run:
    """Outputs by name; raises whatever ONNX Runtime raises.

    Args:
        weights: the folder of the external data of a model that is given as bytes.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if weights is not None:
        options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
    source = model if isinstance(model, bytes) else str(model)
    opened = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in opened.get_outputs()]
    return lambda feeds: dict(zip(names, opened.run(names, dict(feeds)), strict=True))


def difference(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    """The largest difference of all outputs, as a share of the largest value of its output; infinite where shapes or
    whole numbers differ."""
    worst = 0.0
    for name, ours in a.items():
        theirs = b[name]
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return float("inf")
        if ours.dtype.kind != "f":
            if not np.array_equal(ours, theirs):
                return float("inf")
            continue
        x, y = ours.astype(np.float64), theirs.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        x, y = np.nan_to_num(x), np.nan_to_num(y)
        scale = max(float(np.abs(x).max(initial=0.0)), 1e-6)
        worst = max(worst, float(np.abs(x - y).max(initial=0.0)) / scale)
    return worst


def graph_to_prepare(source: Model) -> ModelProto:
    """The graph to work on, of a large file with its weights apart."""
    if is_large(source.size_bytes):
        return graph_of(source.path)
    return parse_model(read_bytes(source.path, limit_bytes=MOST_BYTES), source.path)


def runner_of(proto: ModelProto, path: Path) -> Run:
    """A graph that is run without being written; external data that are not apart lie beside `path`."""
    if is_apart(proto):
        with runnable(proto) as (payload, folder):
            return runner(payload, folder)
    take_all_in(proto, path)
    return runner(bytes(proto.SerializeToString()))


def take_all_in(proto: ModelProto, path: Path) -> None:
    """Hold all external data that are not apart in the graph itself."""
    for graph in all_graphs(proto.graph):
        for tensor in graph.initializer:
            if not refers_apart(tensor):
                take_in(tensor, path)


def write_prepared(proto: ModelProto, target: Path, source: Model) -> None:
    """Write the prepared graph; external data of the source are linked beside it, or copied where links do not work."""
    root = source.path.parent.resolve()
    if is_apart(proto):
        write_linked(proto, target, root, source.external_files)
        return
    payload = proto.SerializeToString(deterministic=True)
    for file in source.external_files:
        link_or_copy(file, target.parent / file.relative_to(root))
    target.write_bytes(payload)
