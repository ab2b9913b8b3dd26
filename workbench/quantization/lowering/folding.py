"""Folding: where factors per channel can go into constants that a graph already has.

Walking up from a tensor, past operators that commute with positive factors per channel, to the constants that scale
and shift it. What can be said of a walk is an edit list; nothing is changed here.

    LayerNormalization(scale, bias)   Add, Mul, Div with a constant vector   MatMul, Gemm, Conv, ConvTranspose
    past Relu, LeakyRelu, Identity, pooling, and through an attention's heads to the projection of the values
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto

from workbench.graph.apart import array_of
from workbench.graph.nodes import attributes_of, names_read
from workbench.graph.read import constants

_Floats = npt.NDArray[np.float32]
_Target = Sequence[int | str]
"""Per axis a number, or 'dim i' for axis i of a tensor's Shape."""

_COMMUTES = {"Relu", "LeakyRelu", "Identity"}
_POOLS = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}
_SHAPE_ONLY = {"Shape", "Size"}
_HEADS_AND_BACK = [0, 2, 1, 3]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edit:
    """A constant input of a node that must be multiplied by `multiplier`, which broadcasts over it."""

    node: str
    index: int
    multiplier: _Floats


class Wiring:
    """Who makes and who reads every tensor of a graph, and its constants; read only."""

    def __init__(self, proto: ModelProto) -> None:
        self.constants: Mapping[str, TensorProto] = constants(proto)
        self.outputs = {value.name for value in proto.graph.output}
        self.producers = {name: node for node in proto.graph.node for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in proto.graph.node:
            for name in dict.fromkeys(names_read(node)):  # by a body too: such a tensor stays as it is
                self._readers.setdefault(name, []).append(node)

    def readers(self, tensor: str) -> list[NodeProto]:
        """Nodes that read the tensor's values; those that only ask for its shape do not count."""
        return [node for node in self._readers.get(tensor, ()) if node.op_type not in _SHAPE_ONLY]

    def only_read_by(self, tensor: str, nodes: Sequence[str]) -> bool:
        return tensor not in self.outputs and {node.name for node in self.readers(tensor)} <= set(nodes)

    def shape(self, constant: str) -> tuple[int, ...] | None:
        """Of a float32 constant; None where it is none."""
        tensor = self.constants.get(constant)
        if tensor is None or tensor.data_type != TensorProto.FLOAT:
            return None
        return tuple(int(size) for size in tensor.dims)


def edits_that_divide(wiring: Wiring, tensor: str, factors: _Floats, *, channel_axis: int) -> tuple[Edit, ...] | None:
    """The edits after which `tensor` holds its values divided by `factors` per channel, all others unchanged.

    The caller makes sure that whoever reads `tensor` itself wants that.

    Args:
        factors: positive, float32 [C].
        channel_axis: of the tensor's channels: -1 as for MatMul and Gemm, 1 as for convolutions.

    Returns:
        None where no constants can take the factors up.
    """
    node = wiring.producers.get(tensor)
    if node is None or (node.output[0] != tensor):
        return None
    inverse = np.float32(1) / factors
    passes = node.op_type in _COMMUTES or (node.op_type in _POOLS and channel_axis == 1)
    if passes and len([name for name in node.output if name]) == 1:
        return _further(wiring, node, 0, factors, channel_axis)
    if node.op_type == "LayerNormalization":
        places = [index for index, name in enumerate(node.input) if index > 0 and name]
        fits = channel_axis == -1 and all(wiring.shape(node.input[index]) == inverse.shape for index in places)
        return tuple(Edit(node=node.name, index=index, multiplier=inverse) for index in places) if fits else None
    if node.op_type in ("Add", "Sub", "Mul", "Div"):
        return _elementwise(wiring, node, factors, channel_axis)
    if node.op_type in ("MatMul", "Gemm", "Conv", "ConvTranspose"):
        return _linear(wiring, node, inverse, channel_axis)
    if node.op_type == "Reshape" and channel_axis == -1:
        return _attention(wiring, node, factors)
    return None


def _further(
    wiring: Wiring, node: NodeProto, index: int, factors: _Floats, channel_axis: int
) -> tuple[Edit, ...] | None:
    tensor = node.input[index]
    if not wiring.only_read_by(tensor, [node.name]):
        return None
    return edits_that_divide(wiring, tensor, factors, channel_axis=channel_axis)


def _elementwise(wiring: Wiring, node: NodeProto, factors: _Floats, channel_axis: int) -> tuple[Edit, ...] | None:
    """A constant vector of a sum or a product. A constant scalar of a product commutes; the walk goes on behind it."""
    fixed = [index for index in (0, 1) if wiring.shape(node.input[index]) is not None]
    if len(fixed) != 1:
        return None
    index, flow = fixed[0], 1 - fixed[0]
    shape = wiring.shape(node.input[index]) or ()
    divides = node.op_type == "Div"
    if divides and index == 0:
        return None  # constant / x: factors would be turned around
    product = divides or node.op_type == "Mul"
    if product and int(np.prod(shape)) == 1:
        return _further(wiring, node, flow, factors, channel_axis)
    along = _aligned(shape, factors, channel_axis)
    if along is None:
        return None
    own = Edit(node=node.name, index=index, multiplier=along if divides else np.float32(1) / along)
    if product:
        return (own,)
    behind = _further(wiring, node, flow, factors, channel_axis)
    return None if behind is None else (own, *behind)


def _aligned(shape: tuple[int, ...], factors: _Floats, channel_axis: int) -> _Floats | None:
    """The factors, shaped like a constant that holds one value per channel of the tensor it meets.

    With channels on axis 1 the constant must have all axes behind it, [C, 1, ..., 1] or [1, C, 1, ..., 1]; which one
    is told apart by its sizes, and [C, 1, 1] against a 1-D convolution's output cannot be: it is left alone.
    """
    if int(np.prod(shape)) != factors.size:
        return None
    if channel_axis == -1:
        return factors.reshape(shape) if shape and shape[-1] == factors.size else None
    if len(shape) >= 3 and shape[0] == 1 and shape[1] == factors.size:
        return factors.reshape(shape)
    return None


def _linear(wiring: Wiring, node: NodeProto, inverse: _Floats, channel_axis: int) -> tuple[Edit, ...] | None:
    convolution = node.op_type in ("Conv", "ConvTranspose")
    shape = wiring.shape(node.input[1])
    if shape is None or len(shape) < 2 or convolution != (channel_axis == 1):
        return None
    multiplier = along_channels(node, shape, inverse, inputs=False)
    if multiplier is None:
        return None
    edits = [Edit(node=node.name, index=1, multiplier=multiplier)]
    if len(node.input) > 2 and node.input[2]:
        if wiring.shape(node.input[2]) != inverse.shape:
            return None
        edits.append(Edit(node=node.name, index=2, multiplier=inverse))
    return tuple(edits)


def along_channels(node: NodeProto, shape: tuple[int, ...], factors: _Floats, *, inputs: bool) -> _Floats | None:
    """The factors of a layer's input or output channels, shaped so that they broadcast over its weight as stored.

    None where they do not fit it. Of a Conv's inputs and a ConvTranspose's outputs a weight has those of one group
    alone; the rows of a group meet that group's.
    """
    attributes = attributes_of(node)
    if node.op_type in ("Conv", "ConvTranspose"):
        spatial = [1] * (len(shape) - 2)
        if inputs == (node.op_type == "ConvTranspose"):
            return factors.reshape(-1, 1, *spatial) if factors.size == shape[0] else None
        groups = int(attributes.get("group", 1))
        if factors.size != shape[1] * groups:
            return None
        rows = np.repeat(factors.reshape(groups, -1), shape[0] // groups, axis=0)
        return rows.reshape(*rows.shape, *spatial)
    axis = int(inputs == bool(attributes.get("transB", 0)))
    if len(shape) != 2 or factors.size != shape[axis]:
        return None
    return factors[None, :] if axis else factors[:, None]


def _attention(wiring: Wiring, merge: NodeProto, factors: _Floats) -> tuple[Edit, ...] | None:
    """Through the heads of an attention, where the tensor is [batch, length, heads · size] again.

        values [B, L, C] ─ Reshape [B, L, H, D] ─ Transpose ─┐
                                    probabilities ─ MatMul ──┴─ Transpose [B, L, H, D] ─ Reshape [B, L, C]

    The MatMul mixes positions and leaves each channel h · D + d alone, so the factors go on to the values.
    """
    passed: list[NodeProto] = []
    at, tensor = merge, merge.input[0]
    for op_type, index in (("Transpose", 0), ("MatMul", 1), ("Transpose", 0), ("Reshape", 0)):
        node = wiring.producers.get(tensor)
        if node is None or node.op_type != op_type or not wiring.only_read_by(tensor, [at.name]):
            return None
        passed.append(node)
        at, tensor = node, node.input[index]
    back, _, ahead, split = passed
    if any(list(attributes_of(node).get("perm", ())) != _HEADS_AND_BACK for node in (back, ahead)):
        return None
    apart, together = _target(wiring, split), _target(wiring, merge)
    if apart is None or together is None or (len(apart), len(together)) != (4, 3):
        return None
    channels, size = factors.size, apart[3]  # [B, L, C] becomes [B, L, C / D, D], and [B, L, C] again
    if not isinstance(size, int) or size <= 0 or channels % size:
        return None
    for target, wanted in ((apart, channels // size), (together, channels)):
        keeps_two = all(target[axis] in (0, f"dim {axis}") for axis in (0, 1))
        if target[2] != wanted and not (target[2] == -1 and keeps_two):
            return None
    return _further(wiring, split, 0, factors, -1)


def _target(wiring: Wiring, reshape: NodeProto) -> _Target | None:
    """The shape a Reshape asks for; None where the graph does not tell."""
    if any(attribute.name == "allowzero" and attribute.i for attribute in reshape.attribute):
        return None
    return _elements(wiring, reshape.input[1])


def _elements(wiring: Wiring, tensor: str) -> _Target | None:
    if tensor in wiring.constants:
        values = array_of(wiring.constants[tensor])
        return [int(value) for value in values.reshape(-1)] if values.dtype == np.int64 else None
    node = wiring.producers.get(tensor)
    if node is None:
        return None
    if node.op_type == "Concat":
        parts = [_elements(wiring, name) for name in node.input]
        if any(part is None for part in parts):
            return None
        return [value for part in parts for value in part or ()]
    if node.op_type in ("Unsqueeze", "Cast", "Identity"):
        return _elements(wiring, node.input[0])
    if node.op_type == "Gather" and node.input[1] in wiring.constants:
        source, index = wiring.producers.get(node.input[0]), _elements(wiring, node.input[1])
        if source is not None and source.op_type == "Shape" and not source.attribute and index and len(index) == 1:
            return [f"dim {index[0]}"]
    return None
