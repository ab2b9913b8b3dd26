"""Editing an ONNX graph: names that are free, a MatMul in place of a Gemm, and constants that nothing uses any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    version_converter,
)

from workbench.graph.apart import array_of, refers_apart, tensor_of
from workbench.graph.names import Names
from workbench.graph.nodes import replace_nodes
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


def default_opset(model: ModelProto) -> int:
    """Version of the default operator domain.

    Raises:
        LoweringError: the model does not state one.
    """
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    raise LoweringError("The model imports no version of the default ONNX domain. Export it again.")


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
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    version = default_opset(model)
    if version >= opset:
        return copy
    try:
        converted = _converted(copy, opset)
    # onnx raises bare RuntimeError where an adapter is missing, the other where it does not follow the graph
    except (RuntimeError, version_converter.ConvertError) as error:
        raise LoweringError(
            f"The model has opset {version}, INT8 here needs {opset}, and onnx cannot convert it: {error}. "
            f"Export the model with opset {opset} or higher."
        ) from error
    del converted.graph.value_info[:]
    if {node.name for node in model.graph.node} - {node.name for node in converted.graph.node}:
        raise LoweringError(
            f"Raising the opset from {version} to {opset} renames layers. Export the model with opset {opset}."
        )
    return converted


def _converted(model: ModelProto, opset: int) -> ModelProto:
    """The model at another opset. Tensors apart are inputs meanwhile: the converter knows no references."""
    away = [tensor for tensor in model.graph.initializer if refers_apart(tensor)]
    if not away:
        return version_converter.convert_version(model, opset)
    names = {tensor.name for tensor in away}
    listed = {value.name for value in model.graph.input}
    slim = ModelProto()
    slim.CopyFrom(model)
    del slim.graph.initializer[:]
    slim.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in names)
    slim.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in away
        if tensor.name not in listed
    )
    converted = version_converter.convert_version(slim, opset)
    kept = [value for value in converted.graph.input if value.name in listed or value.name not in names]
    inputs = [ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del converted.graph.input[:]
    converted.graph.input.extend(inputs)
    converted.graph.initializer.extend(away)
    return converted


def matmul_parts(node: NodeProto) -> MatMulParts:
    """The factors of a MatMul or Gemm node.

    Raises:
        LoweringError: a Gemm transposes its input, or scales by a factor a weight scale cannot absorb.
    """
    if node.op_type == "MatMul":
        return MatMulParts(x=node.input[0], w=node.input[1])
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
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


def names_read(node: NodeProto) -> Iterator[str]:
    """Every tensor a node reads, those that its subgraphs take from outside included."""
    yield from node.input
    for subgraph in subgraphs(node):
        yield from (output.name for output in subgraph.output)
        for inner in subgraph.node:
            yield from names_read(inner)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


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
