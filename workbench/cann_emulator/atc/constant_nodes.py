"""Values of nodes that read nothing but constants: in NumPy where it is quick, by ONNX's reference otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from workbench.cann_emulator.atc.operator_types import words

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]

LARGEST = 1 << 26
"""Elements of a result; what would be larger is left to the device."""

_NEVER = words("""
    AscendQuant AscendDequant AscendAntiQuant RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial
    Bernoulli Loop Scan If
    """)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attribute name → value; text as str."""
    found = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode() if attribute.type == AttributeProto.STRING else value
    return found


def constant_value(node: NodeProto) -> Array | None:
    """Of a Constant node; None for forms that are no plain tensor."""
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return numpy_helper.to_array(value)
        if attribute.name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if attribute.name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    return None


def evaluate(node: NodeProto, inputs: Sequence[Array | None], opsets: Mapping[str, int]) -> list[Array] | None:
    """A node's outputs; None where it cannot or should not be computed beforehand."""
    if node.op_type in _NEVER or any(a.g.node or a.graphs for a in node.attribute):
        return None
    try:
        quick = _QUICK.get(node.op_type)
        if quick is not None:
            value = quick(attributes_of(node), *inputs)
            if value is not None:
                return [np.asarray(value)]
        return _by_reference(node, inputs, opsets)
    except (ValueError, TypeError, IndexError, KeyError, NotImplementedError, RuntimeError, MemoryError):
        return None  # a node that has no value, such as a reshape that does not fit: shape inference reports it


def _by_reference(node: NodeProto, inputs: Sequence[Array | None], opsets: Mapping[str, int]) -> list[Array] | None:
    # imported late: most models need none of it
    from onnx.reference import ReferenceEvaluator

    graph = helper.make_graph(
        [node],
        "constant",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(node.input, inputs, strict=True)
            if array is not None
        ],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
    results = evaluator.run(None, feeds)
    return [np.asarray(result) for result in results] if isinstance(results, list) else None


def _gather(attributes: Attributes, data: Array, indices: Array) -> Array:
    return np.take(data, indices, axis=attributes.get("axis", 0))


def _cast(attributes: Attributes, x: Array) -> Array:
    return x.astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _axes(attributes: Attributes, axes: Array | None) -> tuple[int, ...] | None:
    if axes is not None:
        return tuple(int(axis) for axis in axes.reshape(-1))
    return tuple(attributes["axes"]) if "axes" in attributes else None


def _unsqueeze(attributes: Attributes, x: Array, axes: Array | None = None) -> Array | None:
    where = _axes(attributes, axes)
    return None if where is None else np.expand_dims(x, where)


def _squeeze(attributes: Attributes, x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, _axes(attributes, axes))


def _reshape(attributes: Attributes, x: Array, shape: Array) -> Array:
    target = [int(d) for d in shape.reshape(-1)]
    if not attributes.get("allowzero", 0):
        target = [x.shape[i] if d == 0 else d for i, d in enumerate(target)]
    return x.reshape(target)


def _slice(attributes: Attributes, x: Array, *parts: Array | None) -> Array | None:
    if "starts" in attributes:
        starts, ends = list(attributes["starts"]), list(attributes["ends"])
        axes, steps = list(attributes.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        lists = [None if part is None else [int(v) for v in part.reshape(-1)] for part in parts]
        starts, ends = lists[0] or [], lists[1] or []
        axes = (lists[2] if len(lists) > 2 else None) or list(range(len(starts)))
        steps = (lists[3] if len(lists) > 3 else None) or [1] * len(starts)
    if any(step < 0 for step in steps):
        return None  # ends beyond the beginning have rules of their own
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return x[tuple(index)]


def _expand(_: Attributes, x: Array, shape: Array) -> Array | None:
    target = np.broadcast_shapes(x.shape, tuple(int(d) for d in shape))
    return np.broadcast_to(x, target) if np.prod(target) <= LARGEST else None


def _constant_of_shape(attributes: Attributes, shape: Array) -> Array | None:
    size = tuple(int(d) for d in shape)
    if np.prod(size) > LARGEST:
        return None
    fill = numpy_helper.to_array(attributes["value"]).reshape(()) if "value" in attributes else np.float32(0)
    return np.full(size, fill)


def _divide(_: Attributes, a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        return np.trunc(np.divide(a, b)).astype(a.dtype) if (b != 0).all() else np.asarray(None)
    return np.asarray(np.divide(a, b), a.dtype)


def _binary(function: Callable[..., Any], *, result: type | None = None) -> Callable[..., Array]:
    def compute(_: Attributes, a: Array, b: Array) -> Array:
        return np.asarray(function(a, b), result or a.dtype)

    return compute


_QUICK: Mapping[str, Callable[..., Array | None]] = {
    "Gather": _gather,
    "Cast": _cast,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Identity": lambda _, x: x,
    "Transpose": lambda a, x: np.ascontiguousarray(np.transpose(x, a.get("perm"))),
    "Concat": lambda a, *xs: np.concatenate(xs, axis=a["axis"]),
    "Range": lambda _, start, limit, step: np.arange(start, limit, step, dtype=start.dtype),
    "Where": lambda _, condition, a, b: np.asarray(np.where(condition, a, b)),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _divide,
    "Equal": _binary(np.equal, result=np.bool_),
    "Less": _binary(np.less, result=np.bool_),
    "Greater": _binary(np.greater, result=np.bool_),
    "GreaterOrEqual": _binary(np.greater_equal, result=np.bool_),
    "LessOrEqual": _binary(np.less_equal, result=np.bool_),
    "Max": lambda _, *xs: functools.reduce(np.maximum, xs),
    "Min": lambda _, *xs: functools.reduce(np.minimum, xs),
    "GatherElements": lambda a, x, indices: np.take_along_axis(x, indices, a.get("axis", 0)),
    "And": _binary(np.logical_and, result=np.bool_),
    "Or": _binary(np.logical_or, result=np.bool_),
    "Not": lambda _, x: np.logical_not(x),
    "Sqrt": lambda _, x: np.sqrt(x),
    "Neg": lambda _, x: np.negative(x),
    "Floor": lambda _, x: np.floor(x),
}
