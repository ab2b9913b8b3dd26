"""Running a compiled graph on small made-up texts, to see what its tensors are.

How exporters make shapes and masks differs from version to version, so they are not read off the operators. The graph
is run at several sizes, with masks of ones and random ones. Inputs must be integer matrices [batch, length].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from workbench.graph.nodes import copied, drop_unused, names_read
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.sessions import session_on

MASKED = -1e4
"""The largest number that hides a position: added to a score that shall not count."""

_DRAWS = (((2, 5), False), ((3, 4), True), ((2, 7), True))  # (batch, length), whether the mask hides positions
_DISTANT = (2048, 1024, 512, 256, 128, 64, 32, 16)  # lengths: a sliding window shows only far away
_INTEGERS: dict[int, str] = {TensorProto.INT64: "int64", TensorProto.INT32: "int32"}

Values = npt.NDArray[Any]
Draw = tuple[Mapping[str, Values], Mapping[str, Values]]
"""What was fed, and what the tensors of interest were."""


def draws(model: ModelProto, tensors: Iterable[str]) -> list[Draw]:
    """These tensors for texts of several sizes; empty where inputs are other than integer matrices of one size.

    Raises:
        Whatever the runtime raises where the model cannot be run with ids of 0 and 1.
    """
    inputs = _inputs(model)
    return _drawn(_session(model, tensors), inputs, _DRAWS) if inputs else []


def distant_draws(model: ModelProto, tensors: Iterable[str], *, longest: int = _DISTANT[0]) -> list[Draw]:
    """These tensors for a text of the greatest length that they can be computed for, as `draws`.

    Tables of positions end somewhere, at 512 in most encoders.

    Args:
        longest: what is tried first.
    """
    tensors = set(tensors)
    inputs = _inputs(model)
    if not inputs or not tensors:
        return []
    session = _session(model, tensors, alone=True)
    for length in (longest, *(length for length in _DISTANT[:-1] if length < longest)):
        try:
            return _drawn(session, inputs, (((1, length), False), ((1, length), True)))
        except RUNTIME_ERRORS:
            continue  # too long for this model, as its runtime says in words of its own
    return _drawn(session, inputs, (((1, _DISTANT[-1]), True),))


def mask_of(tensor: str, found: Sequence[Draw]) -> tuple[str, float] | None:
    """(the input that a tensor added to scores is the mask of, the number it adds where that is 0).

    None where the tensor is anything but 0 for every position that the input keeps and one large negative number for
    all others: a causal mask, a sliding window, or one that depends on anything else.
    """
    added = [values[tensor] for _, values in found]
    if not added or any(values.ndim != 4 or values.dtype != np.float32 for values in added):
        return None
    lowest = float(min(values.min() for values in added))
    if not (math.isfinite(lowest) and lowest <= MASKED):
        return None
    for name in found[0][0]:
        if all(_masks(feeds[name], values[tensor], lowest) for feeds, values in found):
            return name, lowest
    return None


def needed_nodes(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes that some of these tensors depend on, in their order."""
    used, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in used for name in node.output):
            kept.append(node)
            used.update(names_read(node))
    return kept[::-1]


def _inputs(model: ModelProto) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name → (type, sizes, 0 where one is free) of the inputs without defaults; empty where they are other than integer
    matrices of one size."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in defaults:
            tensor = value.type.tensor_type
            sizes = tuple(dim.dim_value for dim in tensor.shape.dim)
            found[value.name] = (_INTEGERS.get(tensor.elem_type, ""), sizes)
    alike = len({sizes for _, sizes in found.values()}) == 1
    return found if alike and all(kind and len(sizes) == 2 for kind, sizes in found.values()) else {}


def _drawn(
    session: onnxruntime.InferenceSession,
    inputs: Mapping[str, tuple[str, tuple[int, ...]]],
    wanted: Iterable[tuple[tuple[int, int], bool]],
) -> list[Draw]:
    """Every output for every draw; a free dimension takes the draw's size."""
    needed = {value.name for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    random = np.random.default_rng(0)
    found: list[Draw] = []
    for free, masked in wanted:
        feeds = {
            name: random.integers(
                0 if masked else 1, 2, [fixed or wish for fixed, wish in zip(sizes, free, strict=True)]
            ).astype(kind)
            for name, (kind, sizes) in inputs.items()
        }
        given = {name: values for name, values in feeds.items() if name in needed}
        found.append((feeds, dict(zip(outputs, session.run(outputs, given), strict=True))))
    return found


def _masks(mask: Values, added: Values, lowest: float) -> bool:
    if (added.shape[0], added.shape[3]) != mask.shape:
        return False
    expected = np.where(mask[:, None, None, :] > 0, 0.0, lowest)
    return np.array_equal(np.broadcast_to(expected, added.shape), added)


def _session(model: ModelProto, wanted: Iterable[str], *, alone: bool = False) -> onnxruntime.InferenceSession:
    """The model as it stands with these tensors among its outputs, or the part of it that gives them alone."""
    probe = copied(model)
    if alone:
        del probe.graph.output[:]
    known = {output.name for output in probe.graph.output}
    probe.graph.output.extend(ValueInfoProto(name=name) for name in sorted(set(wanted)) if name not in known)
    if alone:
        drop_unused(probe.graph)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would print as an error, it raises as well
    return session_on(probe, options)
