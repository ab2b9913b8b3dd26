"""Folded ONNX nodes → operators of Ascend, one each; joining them is fusion's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from onnx import NodeProto, TensorProto

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.folding import Folded, element_type
from workbench.cann_emulator.atc.operator_types import ascend_type, core_of
from workbench.cann_emulator.atc.shapes import Shape
from workbench.cann_emulator.om import Dtype
from workbench.graph.nodes import attributes_of

_DTYPES: Mapping[int, Dtype] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.INT16: "int32",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}


def dtype_of(number: int) -> Dtype:
    """The dtype on the device of an ONNX element type."""
    return _DTYPES.get(number, "int32")


def lower(folded: Folded, inputs: Sequence[str]) -> AscendGraph:
    """Every node as one operator; the tensors keep ONNX's names, their dtypes are the file's own.

    Args:
        inputs: the model's, in order.
    """
    dtypes = {name: dtype_of(number) for name, number in folded.types.items()}
    shapes = dict(folded.shapes)
    ops = [_op(node, index, folded, dtypes) for index, node in enumerate(folded.nodes)]
    for name in (*(name for op in ops for name in op.inputs), *folded.outputs):
        if name not in shapes:
            shapes[name] = folded.constants[name].shape
            dtypes[name] = dtype_of(element_type(folded.constants[name]))
    return AscendGraph(
        ops, constants=folded.constants, shapes=shapes, dtypes=dtypes, inputs=inputs, outputs=folded.outputs
    )


def _op(node: NodeProto, order: int, folded: Folded, dtypes: Mapping[str, Dtype]) -> Op:
    read = [name for name in node.input if name]
    core = core_of(node.op_type)
    kind = ascend_type(node.op_type)
    cube: tuple[tuple[int, int, int, int], ...] = ()
    attributes = attributes_of(node)

    def shape(name: str) -> Shape:
        return folded.constants[name].shape if name in folded.constants else folded.shapes[name]

    if node.op_type == "MatMul":
        kind = "MatMulV2" if len(shape(read[1])) <= 2 else "BatchMatMulV2"
        cube = (_product(shape(read[0]), shape(read[1])),)
    elif node.op_type == "Gemm":
        a, b = shape(read[0]), shape(read[1])
        cube = (_product(a[::-1] if attributes.get("transA") else a, b[::-1] if attributes.get("transB") else b),)
    elif node.op_type in ("Conv", "ConvTranspose"):
        weight = shape(read[1])
        if len(weight) == 5:
            kind = kind.replace("2D", "3D")
        if node.op_type == "Conv" and attributes.get("group", 1) == shape(read[0])[1] > 1:
            kind = "DepthwiseConv2D"
        cube = (_convolution(node.op_type, shape(read[0]), weight, shape(node.output[0]), attributes),)
    elif node.op_type == "Einsum":
        cube = ((1, 1, prod(shape(read[0])), prod(shape(node.output[0])[-1:])),)
    elif node.op_type in ("LSTM", "GRU"):
        length, batch, width = (*shape(read[0]), 1, 1, 1)[:3]
        gates, hidden = shape(read[1])[1], shape(read[2])[2]
        cube = ((1, length * batch, width, gates), (length, batch, hidden, gates))
    elif node.op_type == "Resize" and attributes.get("mode", b"nearest") == b"nearest":
        kind = "ResizeNearestNeighborV2"
    elif node.op_type == "Cast" and len(read) == 1:
        kind = "Cast"
    if core == "none":
        read = read[:1]  # the target shape is known
    return Op(
        name=node.name,
        type=kind,
        onnx=node.op_type,
        core=core,
        nodes=[node.name],
        inputs=read,
        outputs=[name for name in node.output if name],
        order=order,
        attributes=attributes,
        cube=cube,
    )


def _product(a: Shape, b: Shape) -> tuple[int, int, int, int]:
    if len(b) <= 2:
        return 1, prod(a[:-1]), a[-1], b[-1] if len(b) > 1 else 1
    return max(prod(a[:-2]), prod(b[:-2])), a[-2] if len(a) > 1 else 1, a[-1], b[-1]


def _convolution(
    kind: str, data: Shape, weight: Shape, result: Shape, attributes: Mapping[str, object]
) -> tuple[int, int, int, int]:
    """As the product that it is after unfolding: rows are positions, columns output channels of a group."""
    groups = int(str(attributes.get("group", 1)))
    kernel = prod(weight[2:])
    if kind == "Conv":
        return groups, result[0] * prod(result[2:]), weight[1] * kernel, weight[0] // groups
    return groups, data[0] * prod(data[2:]), weight[0] // groups, weight[1] * kernel
