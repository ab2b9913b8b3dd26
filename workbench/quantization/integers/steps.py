"""The layers of a deploy model as NumPy steps: int8 by int8 to int32, and the int32 bias (amct.md §6).

Bounds on every sum are known beforehand, so that it is added in a type that holds it exactly (kernels.py) and
can be shown to fit the device's int32, or is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto

from workbench.graph.apart import array_of, refers_apart
from workbench.graph.nodes import attributes_of
from workbench.quantization.integers.kernels import (
    EXACT_FLOAT64,
    Attributes,
    Integers,
    average_pool,
    conv,
    conv_transpose,
    exact_type,
    product,
)
from workbench.quantization.lowering.ascend_quant import (
    ANTI_QUANT,
    DEQUANT,
    QUANT,
    Arithmetic,
    Array,
    IntegerTensor,
    Step,
    Values,
    anti_quantize,
    dequantize,
    quantize,
)
from workbench.values.errors import LoweringError, MeasureError

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def integer_step(
    node: NodeProto,
    known: Mapping[str, TensorProto],
    integers: Mapping[str, IntegerTensor],
    arithmetic: Arithmetic,
) -> Step:
    """The step of a node that is an Ascend operator or reads an integer tensor.

    Raises:
        LoweringError: an operator, attribute or input that the deploy form does not have.
    """
    attributes = attributes_of(node)
    if node.op_type in (QUANT, DEQUANT, ANTI_QUANT) and attributes.get("sqrt_mode", 0):
        raise LoweringError(f"{node.name}: sqrt_mode is not interpreted. Write the factor itself, with sqrt_mode 0.")
    if node.op_type == QUANT:
        return quantize(node, attributes, arithmetic)
    if node.input[0] not in integers:
        raise LoweringError(f"{node.name}: {node.op_type} reads {node.input[0]!r}, which no AscendQuant leads to.")
    first = integers[node.input[0]]
    if node.op_type == DEQUANT:
        return dequantize(node, attributes, _constant(node, 1, known), first, arithmetic)
    if node.op_type == ANTI_QUANT:
        return anti_quantize(node, attributes, first)
    if node.op_type == "AveragePool" and first.kind == "int8":
        return _pool(node, attributes, first)
    if node.op_type in ("Conv", "ConvTranspose") and first.kind == "int8":
        return _convolve(node, attributes, known, first)
    if node.op_type in ("MatMul", "Gemm") and first.kind == "int8":
        if node.op_type == "MatMul" and node.input[1] in integers:
            return _multiply(node, first, integers[node.input[1]])
        return _multiply_constant(node, attributes, known, first)
    if node.op_type == "Add" and first.kind == "int32":
        return _add(node, known, first)
    raise LoweringError(
        f"{node.name}: {node.op_type} on {first.kind} values is not part of a deploy model (amct.md §6)."
    )


def _pool(node: NodeProto, attributes: Attributes, first: IntegerTensor) -> Step:
    source = node.input[0]
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=lambda values: average_pool(values[source], attributes),
        integer=IntegerTensor(kind="mean", bound=first.bound, channel_axis=1),
    )


def _convolve(node: NodeProto, attributes: Attributes, known: Mapping[str, TensorProto], first: IntegerTensor) -> Step:
    weight = _weight(node, known)
    source, groups = node.input[0], int(attributes.get("group", 1))
    if node.op_type == "Conv":
        kernel, reach = conv, np.abs(weight).sum(axis=tuple(range(1, weight.ndim)), dtype=np.float64)
    else:
        split = np.abs(weight).reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        kernel, reach = conv_transpose, split.sum(axis=(1, 3), dtype=np.float64).reshape(-1)
    bound = _checked_bound(node, first.bound * float(reach.max()))
    bias = None
    if len(node.input) > 2 and node.input[2]:
        bias = _bias(node, 2, known).reshape(-1, *[1] * (weight.ndim - 2))
        reach = first.bound * reach + np.abs(bias.reshape(-1))
    total = float(reach.max()) if bias is not None else bound

    held = _held(node, known, weight)
    del weight

    def compute(values: Values) -> Array:
        return _finish(node, kernel(values[source], held(), attributes, bound), bias, total)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=total, channel_axis=1),
    )


def _multiply_constant(
    node: NodeProto, attributes: Attributes, known: Mapping[str, TensorProto], first: IntegerTensor
) -> Step:
    plain = attributes.get("alpha", 1.0) == 1.0 == attributes.get("beta", 1.0) and not attributes.get("transA", 0)
    if not plain:
        raise LoweringError(f"{node.name}: a Gemm of a deploy model has alpha = beta = 1 and transA = 0.")
    weight = _weight(node, known)
    if attributes.get("transB", 0):
        weight = np.ascontiguousarray(weight.T)
    source = node.input[0]
    reach = np.abs(weight).sum(axis=-2 if weight.ndim > 1 else 0, dtype=np.float64)
    bound = _checked_bound(node, first.bound * float(np.max(reach, initial=0.0)))
    has_bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
    bias = _bias(node, 2, known) if has_bias else None
    total = bound if bias is None else bound + float(np.abs(bias).max(initial=0.0))

    held = _held(node, known, weight)
    del weight

    def compute(values: Values) -> Array:
        return _finish(node, product(values[source], held(), bound), bias, total)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=total),
    )


def _multiply(node: NodeProto, first: IntegerTensor, second: IntegerTensor) -> Step:
    left, right = node.input

    def compute(values: Values) -> Array:
        a, b = values[left], values[right]
        bound = first.bound * second.bound * a.shape[-1]
        return _finish(node, product(a, b, bound), None, bound)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=math.inf),
    )


def _add(node: NodeProto, known: Mapping[str, TensorProto], first: IntegerTensor) -> Step:
    bias = _bias(node, 1, known)
    total = first.bound + float(np.abs(bias).max(initial=0.0))
    source = node.input[0]
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=lambda values: _finish(node, values[source], bias, total),
        integer=IntegerTensor(kind="int32", bound=total, channel_axis=first.channel_axis),
    )


def _finish(node: NodeProto, sums: Integers, bias: Integers | None, bound: float) -> Integers:
    """Sums with their bias, in a type that holds them; refused where the device's int32 would not hold them."""
    if bias is not None:
        kind = exact_type(bound)
        sums = sums.astype(kind, copy=False) + bias.astype(kind, copy=False)
    if bound > _INT32_MAX and sums.size:
        low, high = float(sums.min()), float(sums.max())
        if low < _INT32_MIN or high > _INT32_MAX:
            raise MeasureError(
                f"{node.name}: a sum reaches {high if high > _INT32_MAX else low:.0f}, outside int32. "
                "The device would wrap or saturate; keep this layer in float."
            )
    return sums


def _checked_bound(node: NodeProto, bound: float) -> float:
    if bound > EXACT_FLOAT64:
        raise LoweringError(f"{node.name}: sums may reach {bound:.3g}, beyond 2**53; no exact sum is possible here.")
    return bound


def _weight(node: NodeProto, known: Mapping[str, TensorProto]) -> npt.NDArray[np.float32]:
    values = _constant(node, 1, known)
    if values.dtype != np.int8:
        raise LoweringError(f"{node.name}: its weight {node.input[1]!r} is {values.dtype}, not int8.")
    return values.astype(np.float32)


def _held(
    node: NodeProto, known: Mapping[str, TensorProto], weight: npt.NDArray[np.float32]
) -> Callable[[], npt.NDArray[np.float32]]:
    """The weight, again and again: from memory, or of a model whose weights are apart from its file each time."""
    if not refers_apart(known[node.input[1]]):
        return lambda: weight
    if any(each.name == "transB" and each.i for each in node.attribute):
        return lambda: np.ascontiguousarray(_weight(node, known).T)
    return lambda: _weight(node, known)


def _bias(node: NodeProto, position: int, known: Mapping[str, TensorProto]) -> npt.NDArray[np.float64]:
    values = _constant(node, position, known)
    if values.dtype != np.int32:
        raise LoweringError(f"{node.name}: its bias {node.input[position]!r} is {values.dtype}, not int32.")
    return values.astype(np.float64)


def _constant(node: NodeProto, position: int, known: Mapping[str, TensorProto]) -> Array:
    if len(node.input) <= position or node.input[position] not in known:
        raise LoweringError(f"{node.name}: {node.op_type} needs a constant as input {position}.")
    return array_of(known[node.input[position]])
