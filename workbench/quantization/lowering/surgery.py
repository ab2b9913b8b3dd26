"""Editing an ONNX graph: a copy at an opset, a MatMul in place of a Gemm, constants that nothing uses any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from workbench.graph.apart import array_of, refers_apart
from workbench.graph.intake.opset import CONVERSION_ERRORS, converted
from workbench.graph.nodes import attributes_of, copied, names_read, opset_of, replace_nodes
from workbench.quantization.record import LayerRecord
from workbench.values.errors import LoweringError, nearest


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


def weight_is_transposed(node: NodeProto) -> bool:
    """Whether a MatMul or Gemm has its weight as [out, in], where a MatMul wants [in, out].

    Raises:
        LoweringError: a Gemm that transposes its input, or has factors.
    """
    values = attributes_of(node)
    if values.get("transA", 0) or not values.get("alpha", 1.0) == 1.0 == values.get("beta", 1.0):
        raise LoweringError(f"{node.name}: only a Gemm with alpha = beta = 1 and transA = 0 can be INT8 (amct.md §5).")
    return bool(values.get("transB", 0))


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
