"""Editing an ONNX graph: a copy at an opset, a MatMul in place of a Gemm, constants that nothing uses any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import array_of, refers_apart, tensor_of
from workbench.graph.intake.opset import CONVERSION_ERRORS, converted
from workbench.graph.nodes import Names, attributes_of, copied, names_read, opset_of, replace_nodes
from workbench.quantization.record import LayerRecord
from workbench.values.errors import LoweringError, nearest

MAX_PROTO_BYTES = 2**31 - 1
"""Protobuf refuses larger messages; a larger model needs external data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatMulParts:
    """A MatMul or Gemm as `y = alpha · (x @ w) + bias`, with `w` as it stands in the model.

    Attributes:
        transposed: the model's weight is [out, in]; a MatMul wants [in, out].
        alpha, beta: a Gemm's factors of the product and of the bias; 1 for a MatMul.
        bias: name of the tensor added, None when there is none.
    """

    x: str
    w: str
    transposed: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    bias: str | None = None


def editable_copy(model: ModelProto, *, opset: int) -> ModelProto:
    """A deep copy at `opset` or higher, without recorded shapes; converted only when the model is older.

    The tensors change, and the runtime infers its own shapes. Inferred ones in the file would do harm: they let
    ONNX Runtime 1.31.1 form SkipLayerNormalization, which is several times slower than Add and
    LayerNormalization.

    Raises:
        LoweringError: the model refers to external data that was not loaded, or cannot be converted.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and not refers_apart(tensor):
            raise LoweringError(f"{tensor.name}: its external data was not loaded. Load the model with its data.")
    copy = copied(model)
    del copy.graph.value_info[:]
    version = opset_of(model)
    if version >= opset:
        return copy
    try:
        raised = converted(copy, opset)
    except CONVERSION_ERRORS as error:
        raise LoweringError(
            f"The model has opset {version}, INT8 here needs {opset}, and onnx cannot convert it: {error}. "
            f"Export the model with opset {opset} or higher."
        ) from error
    if {node.name for node in model.graph.node} - {node.name for node in raised.graph.node}:
        raise LoweringError(
            f"Raising the opset from {version} to {opset} renames layers. Export the model with opset {opset}."
        )
    return raised


def matmul_parts(node: NodeProto) -> MatMulParts:
    """The factors of a MatMul or Gemm node.

    Raises:
        LoweringError: a Gemm transposes its input, or scales by a factor a weight scale cannot absorb.
    """
    if node.op_type == "MatMul":
        return MatMulParts(x=node.input[0], w=node.input[1])
    values = attributes_of(node)
    if values.get("transA", 0):
        raise LoweringError(f"{node.name}: a Gemm with transA cannot be lowered. Keep it in float.")
    alpha, beta = float(values.get("alpha", 1.0)), float(values.get("beta", 1.0))
    if alpha <= 0:
        raise LoweringError(f"{node.name}: a Gemm with alpha {alpha:g} cannot be lowered. Keep it in float.")
    return MatMulParts(
        x=node.input[0],
        w=node.input[1],
        transposed=bool(values.get("transB", 0)),
        alpha=alpha,
        beta=beta,
        bias=node.input[2] if len(node.input) > 2 and node.input[2] else None,
    )


def float_constant(name: str, tensor: TensorProto, layer: str) -> npt.NDArray[np.float32]:
    """The values of a float32 constant of a layer.

    Raises:
        LoweringError: another type, or a value that is NaN or infinite.
    """
    if tensor.data_type != TensorProto.FLOAT:
        kind = TensorProto.DataType.Name(tensor.data_type)
        raise LoweringError(f"{layer}: {name} is {kind}, only FLOAT can be quantized. Export the model in float32.")
    values = array_of(tensor)
    bad = int(values.size - np.isfinite(values).sum())
    if bad:
        raise LoweringError(f"{layer}: {name} holds {bad} NaN or infinite values. The trained model is damaged.")
    return values


def bias_add(
    names: Names, graph: GraphProto, node: NodeProto, parts: MatMulParts, product: str, known: dict[str, TensorProto]
) -> NodeProto:
    """The float Add that gives a Gemm's output from its product; scales a constant bias by the Gemm's beta.

    Raises:
        LoweringError: beta is not 1 and the bias is no constant.
    """
    assert parts.bias is not None
    bias = parts.bias
    if parts.beta != 1.0:
        if bias not in known:
            raise LoweringError(f"{node.name}: a Gemm with beta {parts.beta:g} and a computed bias. Keep it in float.")
        values = float_constant(bias, known[bias], node.name) * np.float32(parts.beta)
        bias = names.fresh(f"{bias}_scaled")
        graph.initializer.append(tensor_of(values, bias))
    return helper.make_node("Add", [product, bias], [node.output[0]], name=names.fresh(f"{node.name}_bias"))


def check_layers(model: ModelProto, layers: Mapping[str, LayerRecord]) -> None:
    """Raises LoweringError when a recorded layer is not in the model, or is another operator there."""
    found = {node.name: node.op_type for node in model.graph.node if node.name}
    for name, layer in layers.items():
        if name not in found:
            candidates = [n for n, op_type in found.items() if op_type == layer.op_type]
            raise LoweringError(f"Layer {name!r} of the record is not in the model. {nearest(name, candidates)}")
        if found[name] != layer.op_type:
            raise LoweringError(f"Layer {name!r} is a {layer.op_type} in the record and a {found[name]} in the model.")


def prune_constants(graph: GraphProto) -> None:
    """Remove initializers, Constant and Identity nodes that no node, subgraph or output uses."""
    used = {output.name for output in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if node.op_type not in ("Constant", "Identity") or node.output[0] in used:
            kept.append(node)
            used.update(names_read(node))
    if len(kept) != len(graph.node):
        replace_nodes(graph, reversed(kept))
    unused = {tensor.name for tensor in graph.initializer} - used
    for field in (graph.initializer, graph.input):
        for index in reversed([i for i, item in enumerate(field) if item.name in unused]):
            del field[index]


def serialize(model: ModelProto) -> bytes:
    """The bytes to write; equal models give equal bytes.

    Raises:
        LoweringError: larger than a protobuf may be.
    """
    if model.ByteSize() > MAX_PROTO_BYTES:
        raise LoweringError("The lowered model is larger than the 2 GiB an ONNX file may have.")
    payload: bytes = model.SerializeToString(deterministic=True)
    return payload


def rewired(node: NodeProto, inputs: Iterable[str], outputs: Iterable[str] | None = None) -> NodeProto:
    """A copy of a node that reads other tensors, and gives others where it is told."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    if outputs is not None:
        del copy.output[:]
        copy.output.extend(outputs)
    return copy


def scalar_or_vector(values: Iterable[float], *, per_channel: bool) -> npt.NDArray[np.float32]:
    """Scales as ONNX wants them: shape [] for one per tensor, [channels] otherwise."""
    array = np.asarray(list(values), dtype=np.float32)
    return array if per_channel else array.reshape(())
