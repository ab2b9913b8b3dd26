"""Dynamic INT8: weights quantized ahead, activations by their own range at every call; needs no calibration.

    x ─► DynamicQuantizeLinear ─► MatMulInteger ─► Cast ─► Mul(scale) ─► Add(bias)

Only standard operators, in the order ONNX Runtime fuses to DynamicQuantizeMatMul (one reader of `x`) and
MatMulIntegerToFloat (several, which then share one quantization of `x`). It has no counterpart on Ascend.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.nodes import attributes_of, replace_nodes
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq_tensors import QuantizedTensors
from workbench.quantization.lowering.surgery import (
    MatMulParts,
    bias_add,
    editable_copy,
    matmul_parts,
    prune_constants,
    scalar_or_vector,
)
from workbench.quantization.record import WeightScale
from workbench.quantization.weights import integers_of
from workbench.values.candidate import Granularity
from workbench.values.errors import LoweringError

_OPSET = 11  # DynamicQuantizeLinear is there from 11 on


def lower_dynamic(proto: ModelProto, granularity: Granularity) -> ModelProto:
    """The model with every MatMul and Gemm by a constant float32 matrix in dynamic INT8; all else untouched.

    Pure and deterministic as `qdq.lower_static`. Weights are symmetric, scale = max|w| / 127 over the tensor or over
    an output channel.

    Raises:
        LoweringError: no layer can be quantized, weights are NaN, or the model's opset cannot be raised.
    """
    model = editable_copy(normalized(proto), opset=_OPSET)
    rewriter = _Rewriter(model, granularity)
    if not any(rewriter.takes(node) for node in model.graph.node):
        raise LoweringError("No MatMul or Gemm multiplies by a constant float32 matrix; nothing can be INT8 here.")
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes.extend(rewriter.lower(node) if rewriter.takes(node) else [node])
    replace_nodes(model.graph, nodes)
    prune_constants(model.graph)
    return model


class _Rewriter:
    """The growing graph: which tensors are quantized already, and under which names."""

    def __init__(self, model: ModelProto, granularity: Granularity) -> None:
        self._tensors = QuantizedTensors(model)
        self._per_channel = granularity == "channel"
        self._activations: dict[str, tuple[str, str, str]] = {}

    def takes(self, node: NodeProto) -> bool:
        """Whether a node multiplies by a constant matrix and has a form `matmul_parts` knows."""
        if node.op_type not in ("MatMul", "Gemm") or node.domain != "":
            return False
        weight = self._tensors.known.get(node.input[1])
        if weight is None or weight.data_type != TensorProto.FLOAT or len(weight.dims) != 2:
            return False
        values = attributes_of(node)
        return not values.get("transA", 0) and values.get("alpha", 1.0) > 0

    def lower(self, node: NodeProto) -> Iterator[NodeProto]:
        """The nodes that take the place of one layer, in execution order."""
        tensors, parts, output = self._tensors, matmul_parts(node), node.output[0]
        x, x_scale, x_zero_point = yield from self._activation(parts.x)
        w, w_scale, w_zero_point = self._weight(node, parts)
        integers, floats, scale = (tensors.names.fresh(f"{output}_{part}") for part in ("int32", "unscaled", "scale"))
        yield helper.make_node("MatMulInteger", [x, w, x_zero_point, w_zero_point], [integers], name=node.name)
        cast = tensors.node("Cast", [integers], floats)
        cast.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
        yield cast
        yield tensors.node("Mul", [x_scale, w_scale], scale)
        product = output if parts.bias is None else tensors.names.fresh(f"{output}_product")
        yield tensors.node("Mul", [floats, scale], product)
        if parts.bias is not None:
            yield bias_add(tensors.names, tensors.graph, node, parts, product, tensors.known)

    def _activation(self, tensor: str) -> Generator[NodeProto, None, tuple[str, str, str]]:
        """The quantizing node of a tensor where it is still missing; returns names of values, scale, zero point."""
        if tensor not in self._activations:
            names = self._tensors.names
            integers, scale, zero = (names.fresh(f"{tensor}_{kind}") for kind in ("quantized", "scale", "zero_point"))
            name = names.fresh(f"{tensor}_DynamicQuantizeLinear")
            yield helper.make_node("DynamicQuantizeLinear", [tensor], [integers, scale, zero], name=name)
            self._activations[tensor] = (integers, scale, zero)
        return self._activations[tensor]

    def _weight(self, node: NodeProto, parts: MatMulParts) -> tuple[str, str, str]:
        name, values = self._tensors.floats(node.name, parts.w)
        if parts.transposed:
            values = np.ascontiguousarray(values.T)
        weight = _symmetric_scale(values, 1 if self._per_channel else None)
        scale = scalar_or_vector(weight.scales, per_channel=self._per_channel)
        return (
            self._tensors.constant(f"{name}_int8", integers_of(values, weight)),
            self._tensors.constant(f"{name}_scale", scale * np.float32(parts.alpha)),
            self._tensors.constant(f"{name}_zero_point", np.zeros(scale.shape, np.int8)),
        )


def _symmetric_scale(values: npt.NDArray[np.float32], axis: int | None) -> WeightScale:
    largest = np.abs(values).max(keepdims=True) if axis is None else np.abs(values).max(axis=1 - axis)
    # a channel of zeros stays zeros under any scale
    scales = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    return WeightScale(scales=tuple(scales.ravel().tolist()), axis=axis)
