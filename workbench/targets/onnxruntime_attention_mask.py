"""Which graph input is the mask of a self-attention, found by running the model.

How exporters make the float tensor that is added to the scores from the mask of the input differs from version to
version, so it is not read off the operators. The model is run with masks of ones and random masks at several sizes. An
input is the mask where the added tensor is 0 for every position that it keeps, and one large negative number for all
others. A causal mask, a sliding window, or one that depends on anything else, is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from workbench.quantization.observe import RUNTIME_ERRORS
from workbench.quantization.surgery import names_read, replace_nodes

_MASKED = -1e4  # added to a score that shall not count; ONNX Runtime's own default for QAttention
_DRAWS = (((2, 5), False), ((3, 4), True), ((2, 7), True))  # (batch, length), whether the mask hides positions
_DISTANT = (2048, 1024, 512, 256, 128, 64, 32, 16)  # lengths for the mask alone: a sliding window shows only far away
_INTEGERS: dict[int, str] = {TensorProto.INT64: "int64", TensorProto.INT32: "int32"}

_Values = npt.NDArray[Any]
_Draw = tuple[Mapping[str, _Values], Mapping[str, _Values]]
"""What was fed, and what the tensors of interest were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One self-attention of the graph.

    Attributes:
        projections: the MatMulIntegerToFloat of query, key and value.
        heads: the tensors [batch, length, heads, size] that they become.
        mask: the tensor added to the scores, None where nothing is.
        merged: the tensor [batch, length, hidden] of the result.
        quantize: the QuantizeLinear on the way to `merged`, None where there is none.
        size: of one head.
    """

    projections: tuple[NodeProto, ...]
    heads: tuple[str, ...]
    mask: str | None
    merged: str
    quantize: NodeProto | None
    size: int


def mask_inputs(model: ModelProto, found: Sequence[Attention]) -> dict[str, tuple[str | None, float]]:
    """`merged` of every attention whose shapes and mask are as assumed → (the input that is its mask, the number).

    Raises:
        Whatever the runtime raises where the model cannot be run with ids of 0 and 1.
    """
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in defaults]
    sizes = {_matrix_size(value) for value in inputs}
    if len(sizes) != 1 or None in sizes:
        return {}
    size = next(iter(sizes)) or (0, 0)
    wanted = {name for a in found for name in (*a.heads, a.merged, a.mask) if name}
    draws = list(_drawn(_session(model, wanted), inputs, size, _DRAWS))
    found = [a for a in found if _has_expected_shapes(a, draws)]
    added = {a.mask for a in found if a.mask}
    distant = _distant(_session(_only(model, added), added), inputs, size) if added else []
    masks: dict[str, tuple[str | None, float]] = {}
    for attention in found:
        mask = (None, _MASKED) if attention.mask is None else _mask_of(attention.mask, [*draws, *distant])
        if mask is not None:
            masks[attention.merged] = mask
    return masks


def needed_nodes(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes that some of these tensors depend on, in their order."""
    used, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in used for name in node.output):
            kept.append(node)
            used.update(names_read(node))
    return kept[::-1]


def _distant(
    session: onnxruntime.InferenceSession, inputs: Sequence[ValueInfoProto], size: tuple[int, int]
) -> list[_Draw]:
    """Draws of the greatest length that the model takes: tables of positions end somewhere, 512 in most encoders."""
    for length in _DISTANT[:-1]:
        try:
            return list(_drawn(session, inputs, size, (((1, length), False), ((1, length), True))))
        except RUNTIME_ERRORS:
            continue  # too long for this model, as its runtime says in words of its own
    return list(_drawn(session, inputs, size, (((1, _DISTANT[-1]), True),)))


def _only(model: ModelProto, tensors: Iterable[str]) -> ModelProto:
    """The part of a model that gives these tensors; without outputs yet."""
    part = ModelProto()
    part.CopyFrom(model)
    replace_nodes(part.graph, needed_nodes(model.graph.node, tensors))
    del part.graph.output[:]
    read = {name for node in part.graph.node for name in names_read(node)}
    for index in reversed([i for i, tensor in enumerate(part.graph.initializer) if tensor.name not in read]):
        del part.graph.initializer[index]
    return part


def _drawn(
    session: onnxruntime.InferenceSession,
    inputs: Sequence[ValueInfoProto],
    size: tuple[int, int],
    draws: Iterable[tuple[tuple[int, int], bool]],
) -> Iterator[_Draw]:
    """Every output for every draw; a free dimension takes the draw's size."""
    needed = {value.name for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    random = np.random.default_rng(0)
    for free, masked in draws:
        shape = tuple(fixed or wish for fixed, wish in zip(size, free, strict=True))
        low = 0 if masked else 1
        feeds = {v.name: random.integers(low, 2, shape).astype(_INTEGERS[_element_type(v)]) for v in inputs}
        given = {name: values for name, values in feeds.items() if name in needed}
        yield feeds, dict(zip(outputs, session.run(outputs, given), strict=True))


def _has_expected_shapes(attention: Attention, draws: Sequence[_Draw]) -> bool:
    for feeds, values in draws:
        batch, length = next(iter(feeds.values())).shape
        heads = values[attention.heads[0]].shape[2]
        if any(values[name].shape != (batch, length, heads, attention.size) for name in attention.heads):
            return False
        if values[attention.merged].shape != (batch, length, heads * attention.size):
            return False
    return True


def _mask_of(tensor: str, draws: Sequence[_Draw]) -> tuple[str, float] | None:
    added = [values[tensor] for _, values in draws]
    lowest = float(min(values.min() for values in added))
    if not (math.isfinite(lowest) and lowest <= _MASKED):
        return None
    for name in draws[0][0]:
        if all(_masks(feeds[name], values[tensor], lowest) for feeds, values in draws):
            return name, lowest
    return None


def _masks(mask: _Values, added: _Values, lowest: float) -> bool:
    if added.ndim != 4 or (added.shape[0], added.shape[3]) != mask.shape:
        return False
    expected = np.where(mask[:, None, None, :] > 0, 0.0, lowest)
    return np.array_equal(np.broadcast_to(expected, added.shape), added)


def _matrix_size(value: ValueInfoProto) -> tuple[int, int] | None:
    """Sizes of an integer input of two dimensions, 0 where one is free; None for any other input."""
    dims = value.type.tensor_type.shape.dim
    if _element_type(value) not in _INTEGERS or len(dims) != 2:
        return None
    return dims[0].dim_value, dims[1].dim_value


def _element_type(value: ValueInfoProto) -> int:
    return int(value.type.tensor_type.elem_type)


def _session(model: ModelProto, wanted: Iterable[str]) -> onnxruntime.InferenceSession:
    """The model as it stands, these tensors among its outputs."""
    probe = ModelProto()
    probe.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    probe.graph.output.extend(ValueInfoProto(name=name) for name in sorted(wanted) if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would print as an error, it raises as well
    return onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
