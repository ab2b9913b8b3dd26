"""The layers of a graph that INT8 can serve: which they are, what they multiply, and how often.

Only the top-level graph is looked at; nodes inside `If` and `Loop` bodies stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import onnx
from onnx import TensorProto

from workbench.graph.nodes import DEFAULT_DOMAINS, attributes_of, bodies
from workbench.graph.read import constants, feedable

LAYER_OPERATORS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A node that INT8 can serve: by a constant `weight`, or of two activations (`second`); AveragePool has neither.

    Attributes:
        name: the node's name, unique in a graph from `load_graph`.
        activation: the first input, of shape [batch, ...].
        output: the node's output.
        second: the second input where it is an activation too (attention scores, attention context).
        weight: the constant's name in `constants(proto)`, also where the node reads it through `Identity`;
            several layers may share one.
        weight_shape: as stored, empty without a weight.
        output_axis: the weight's axis of output channels: the last one for MatMul and Gemm, 0 for Conv and for Gemm
            with `transposed`, 1 for ConvTranspose; None without a weight.
        transposed: Gemm with transB=1, its weight stored [out, in].
        groups: of a Conv or ConvTranspose. A Conv's weight is [out, in / groups, ...], a ConvTranspose's
            [in, out / groups, ...]: its axis of output channels holds those of one group.
        parameters: elements of the weight; 0 without one.
        macs: multiply-accumulates per `macs_per` (of an AveragePool: additions); None where the shapes do not tell.
        macs_per: 'sample' for one element of the batch; 'token' for one row of the activation, where the number of
            rows of a sample is a symbolic dimension (multiply by the length).
    """

    name: str
    op_type: str
    activation: str
    output: str
    second: str | None = None
    weight: str | None = None
    weight_shape: tuple[int, ...] = ()
    output_axis: int | None = None
    transposed: bool = False
    groups: int = 1
    parameters: int = 0
    macs: int | None = None
    macs_per: Literal["sample", "token"] = "sample"

    @property
    def output_channels(self) -> int:
        """Output channels of a layer with a weight, those of all groups; 0 without a weight."""
        if self.output_axis is None:
            return 0
        return self.weight_shape[self.output_axis] * (self.groups if self.op_type == "ConvTranspose" else 1)

    @property
    def input_channels(self) -> int:
        """Input channels of a layer with a weight, those of all groups."""
        if self.op_type == "Conv":
            return self.weight_shape[1] * self.groups
        if self.op_type == "ConvTranspose":
            return self.weight_shape[0]
        return self.weight_shape[-1] if self.transposed else self.weight_shape[-2]


def quantizable_layers(proto: onnx.ModelProto) -> tuple[Layer, ...]:
    """Layers that INT8 can serve, in graph order.

    These are float32 Conv, ConvTranspose (4-D), Gemm (alpha = beta = 1, transA = 0) and MatMul by a constant weight,
    MatMul of two activations, and AveragePool (4-D). A tensor that no graph input reaches is not an activation.
    Conditions follow AMCT's table (amct.md §5), so that both targets see the same layers, with two differences: a
    Conv over 3-D tensors counts too, and a MatMul's weight is 2-D, where the manual of 8.5 allows 3-D. The manual of
    8.0 and the balancer do not, and a stack of matrices has no axis of output channels that fits one list of scales.
    Weights that are computed from constants are seen after `quantization.normalize.normalized`.
    """
    known = constants(proto)
    first = {id(tensor): name for name, tensor in reversed(known.items())}  # an Identity repeats another's
    activations = _activations(proto)
    values = (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
    types = {value.name: value.type.tensor_type for value in values}
    layers = []
    for node in proto.graph.node:
        if node.domain not in DEFAULT_DOMAINS or node.op_type not in LAYER_OPERATORS:
            continue
        if node.input[0] not in activations or _element_type(types, node.input[0]) != TensorProto.FLOAT:
            continue
        found: dict[str, Any] | None = None
        if node.op_type == "AveragePool":
            found = _pooling(node, types)
        elif node.input[1] in known:
            tensor = known[node.input[1]]
            found = _by_weight(node, first[id(tensor)], tensor, types)
        elif node.op_type == "MatMul" and node.input[1] in activations:
            found = _of_activations(node, types)
        if found is not None:
            ports = {"activation": node.input[0], "output": node.output[0]}
            layers.append(Layer(name=node.name, op_type=node.op_type, **ports, **found))
    return tuple(layers)


def _activations(proto: onnx.ModelProto) -> set[str]:
    """Tensors that depend on a graph input."""
    reached = {value.name for value in feedable(proto.graph)}
    for node in proto.graph.node:
        # a subgraph may read outer tensors without naming them as inputs: what it gives counts as an activation
        if any(True for _ in bodies(node)) or any(name in reached for name in node.input):
            reached.update(node.output)
    return reached


def _element_type(types: Mapping[str, onnx.TypeProto.Tensor], tensor: str) -> int:
    """Element type by shape inference; float32 where it could not tell, as almost every MatMul is."""
    return types[tensor].elem_type if tensor in types else TensorProto.FLOAT


def _shape(types: Mapping[str, onnx.TypeProto.Tensor], tensor: str) -> tuple[int | None, ...] | None:
    if tensor not in types or not types[tensor].HasField("shape"):
        return None
    return tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in types[tensor].shape.dim)


def _by_weight(
    node: onnx.NodeProto, name: str, weight: TensorProto, types: Mapping[str, onnx.TypeProto.Tensor]
) -> dict[str, Any] | None:
    """A weight is used once per row of a MatMul, per output position of a Conv, per input position of its transpose;
    for groups too: every element of it meets one channel of one position."""
    shape, given = tuple(int(d) for d in weight.dims), attributes_of(node)
    once = math.prod(shape)
    if weight.data_type != TensorProto.FLOAT or once == 0:
        return None
    transposed, axis, per = bool(given.get("transB", 0)), 1, "sample"
    macs: int | None = once
    if node.op_type in ("Conv", "ConvTranspose"):
        # as AMCT quantizes them (amct.md §5); 3-D is ours in addition
        deep = len(shape) == 5 and given.get("dilations", [1])[0] == 1
        if not (len(shape) == 4 or (node.op_type == "Conv" and (deep or len(shape) == 3))):
            return None
        axis = int(node.op_type == "ConvTranspose")
        positions = _elements(types, node.input[0] if axis else node.output[0], first_axis=2)
        macs = None if positions is None else once * positions
    elif len(shape) != 2 or given.get("transA", 0) or given.get("alpha", 1) != 1 or given.get("beta", 1) != 1:
        return None
    elif node.op_type == "MatMul":
        rows = _shape(types, node.input[0])
        known = None if rows is None else [size for size in rows[1:-1] if size is not None]
        per = "token" if rows is None or known is None or len(known) < len(rows[1:-1]) else "sample"
        macs = once * math.prod(known or ()) if per == "sample" else once
    return {
        "weight": name,
        "weight_shape": shape,
        "output_axis": 0 if transposed else axis,
        "transposed": transposed,
        "groups": given.get("group", 1),
        "parameters": once,
        "macs": macs,
        "macs_per": per,
    }


def _pooling(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto.Tensor]) -> dict[str, Any] | None:
    """The window's dimensions tell the tensor's, also where shape inference could not."""
    window = attributes_of(node).get("kernel_shape", ())
    outputs = _elements(types, node.output[0], first_axis=1)
    return {"macs": None if outputs is None else outputs * math.prod(window)} if len(window) == 2 else None


def _elements(types: Mapping[str, onnx.TypeProto.Tensor], tensor: str, *, first_axis: int) -> int | None:
    """Elements of a tensor from one of its axes on; None where the shape is not known."""
    shape = _shape(types, tensor)
    extents = [extent for extent in (shape or ())[first_axis:] if extent is not None]
    return None if shape is None or len(extents) < len(shape) - first_axis else math.prod(extents)


def _of_activations(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto.Tensor]) -> dict[str, Any] | None:
    if _element_type(types, node.input[1]) != TensorProto.FLOAT:
        return None
    first, output = _shape(types, node.input[0]) or (), _shape(types, node.output[0]) or ()
    extents = [first[-1], *output[1:]] if len(first) > 2 and len(output) > 2 else [None]
    known = [extent for extent in extents if extent is not None]
    return {"second": node.input[1], "macs": math.prod(known) if len(known) == len(extents) else None}
