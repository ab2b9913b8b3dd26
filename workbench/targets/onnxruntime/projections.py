"""Self-attention with INT8 products: one kernel gives query, key and value in 8 bits (compiled graphs).

    x ─┬─► MatMulIntegerToFloat ─► QuantizeLinear ─► Reshape ─► Transpose ─► query, uint8
       ├─► MatMulIntegerToFloat ─► QuantizeLinear ─► Reshape ─► Transpose ─► key, int8
       └─► MatMulIntegerToFloat ─► QuantizeLinear ─► Reshape ─► Transpose ─► value, int8

    ⇒   x ─► QLinearConv 1x1 ─► Reshape ─► Transpose ─► Split ─┬─► Transpose ─► query
                                                               ├─► Add 128 ─► Cast ─► key
                                                               └─► Add 128 ─► Cast ─► Transpose ─► value

All three are quantized anyway, at scales of the record. QLinearConv writes 8 bits without a float tensor in between:
0.36 ms for 512 x 384 x 384 against 0.54 ms of the two nodes, 63 against 82 µs for 64 rows, 20 against 31 µs for 16
(three at once; onnxruntime 1.31.1, AVX512-VNNI, CPU time of one thread on a busy machine). Its result has one scale and
one zero point, so what differs between the three goes into the scales of the columns and into the bias. It is uint8;
adding 128 in 8 bits gives the bits of the int8 tensor that a product wants as its second factor.

The bias is an integer on the scale of the sums here, and factors are multiplied in another order: a value on the border
of two integers may go to either, 2 to 5 in 10,000 of a MiniLM. Its logits keep their distance from the float model's
(24.0 dB before and after).

A transposition that swaps the middle axes copies rows of one head, 32 bytes, one at a time. Two that move one axis each
run in vectorized kernels: 35 against 99 µs for [8, 64, 12, 32], 5 against 12 µs for [1, 64, 12, 32].

Both together save 8 % of a MiniLM with 6 layers for one text of 16 or 32 tokens, 10 % for 64, 11 % at batch 8 of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, attributes_of, copied, opset_of, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants
from workbench.targets.onnxruntime.fusions import Links, Numbers, layer_of

_LARGEST_BIAS = 2**30  # leaves half of int32 to the sums
_COARSEST_SUM = 1 / 16  # of an integer of the result: what rounding the bias may move it by, at most, twice over
_OPSET = 14  # from which Add takes uint8; Split has its sizes as an input from 13 on
_HEADS_FIRST = [0, 2, 1, 3]
_HEADS_TRANSPOSED = [0, 2, 3, 1]
_LAST_TWO_SWAPPED = [0, 1, 3, 2]
_SEVERAL = " layers in one product"
_GIVES_BYTES = ("QuantizeLinear", "QLinearConv", "QLinearMatMul")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projection:
    """MatMulIntegerToFloat, QuantizeLinear, Reshape and Transpose in a row.

    Attributes:
        nodes: the four.
        shape: of the Reshape, [0, 0, heads, size].
        x_scale: of the input.
        layer: weight [K, N] int8, its scales and bias [N] float64.
        scale, zero_point: of the result; the zero point in uint8, 128 more than that of the tensor where `signed`.
    """

    nodes: tuple[NodeProto, ...]
    shape: tuple[int, ...]
    x_scale: float
    layer: tuple[Numbers, Numbers, Numbers]
    scale: float
    zero_point: int
    signed: bool


def with_convolutions(model: ModelProto) -> ModelProto:
    """The model with projections that are quantized at once and split into heads as one convolution per input.

    Pure; the very same model comes back where there is none. Weights must be symmetric.
    """
    if opset_of(model) < _OPSET:
        return model
    groups: dict[tuple[str, tuple[int, ...]], list[_Projection]] = {}
    for item in _projections(Links(model)):
        groups.setdefault((item.nodes[0].input[0], item.shape), []).append(item)
    if not groups:
        return model
    copy = copied(model)
    names = Names(copy.graph)
    written: dict[str, list[NodeProto]] = {}
    for items in groups.values():
        if nodes := _convolution(copy, names, items):
            written |= {node.output[0]: [] for item in items for node in item.nodes}
            written[items[0].nodes[0].output[0]] = nodes
    _rewrite(copy, written)
    prune_constants(copy.graph)
    return copy


def with_split_transposes(model: ModelProto) -> ModelProto:
    """The model with two transpositions for every one of 8-bit integers that swaps the middle of four axes.

    Pure; the very same model comes back where there is none.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    taken = [
        node
        for node in model.graph.node
        if node.op_type == "Transpose" and _perm(node) == _HEADS_FIRST and _is_bytes(makers, node.input[0])
    ]
    if not taken:
        return model
    copy = copied(model)
    names = Names(copy.graph)
    written = {}
    for node in taken:
        splits = node.input[0] in makers and makers[node.input[0]].op_type == "Reshape"
        # the axis that moves is the sequence when heads are split, and the size of a head when they are merged
        orders = (_HEADS_TRANSPOSED, _LAST_TWO_SWAPPED) if splits else (_LAST_TWO_SWAPPED, [0, 3, 1, 2])
        between, name = (names.fresh(f"{node.output[0]}_{part}") for part in ("between", "first"))
        written[node.output[0]] = [
            helper.make_node("Transpose", [node.input[0]], [between], name=name, perm=orders[0]),
            helper.make_node("Transpose", [between], list(node.output), name=node.name, perm=orders[1]),
        ]
    _rewrite(copy, written)
    return copy


def layers_of(convolution: NodeProto) -> int:
    """How many layers of the model a QLinearConv computes."""
    count, several, _ = convolution.doc_string.partition(_SEVERAL)
    return int(count) if several else 1


def _rewrite(model: ModelProto, written: Mapping[str, Sequence[NodeProto]]) -> None:
    """Other nodes in place of those with these outputs."""
    replace_nodes(model.graph, [new for node in model.graph.node for new in written.get(node.output[0], [node])])


# --- finding -------------------------------------------------------------------------------------------------------


def _projections(graph: Links) -> Iterator[_Projection]:
    for product in graph.nodes:
        nodes = [product] if product.op_type == "MatMulIntegerToFloat" else []
        for op_type in ("QuantizeLinear", "Reshape", "Transpose") if nodes else ():
            reader = graph.reader(nodes[-1], op_type)
            if reader is None or reader.input[0] != nodes[-1].output[0]:
                break
            nodes.append(reader)
        if len(nodes) == 4 and (found := _projection(graph, tuple(nodes))) is not None:
            yield found


def _projection(graph: Links, nodes: tuple[NodeProto, ...]) -> _Projection | None:
    product, quantize, reshape, transpose = nodes
    shape, layer = _heads(graph, reshape), layer_of(graph, product)
    scalars = [product.input[2], *product.input[4:5], *quantize.input[1:]]  # scale and zero point of x and the result
    if shape is None or layer is None or _perm(transpose) not in (_HEADS_FIRST, _HEADS_TRANSPOSED):
        return None
    if len(scalars) != 4 or not all(name in graph.known for name in scalars):
        return None
    x_scale, x_zero, scale, zero = (array_of(graph.known[name]) for name in scalars)
    if x_zero.dtype != np.uint8 or zero.dtype not in (np.uint8, np.int8):
        return None
    if any(values.size != 1 for values in (x_scale, x_zero, scale, zero)) or shape[2] * shape[3] != len(layer[2]):
        return None
    signed = zero.dtype == np.int8
    return _Projection(
        nodes=nodes,
        shape=shape,
        x_scale=float(x_scale.item()),
        layer=(layer[0], layer[1].astype(np.float64), layer[2].astype(np.float64)),
        scale=float(scale.item()),
        zero_point=int(zero.item()) + (128 if signed else 0),
        signed=signed,
    )


def _heads(graph: Links, reshape: NodeProto) -> tuple[int, ...] | None:
    """[0, 0, heads, size], which means the same for [batch, length, hidden] and [batch, length, 1, hidden]."""
    if reshape.input[1] not in graph.known or attributes_of(reshape).get("allowzero", 0):
        return None
    shape = tuple(int(size) for size in array_of(graph.known[reshape.input[1]]))
    return shape if len(shape) == 4 and shape[:2] == (0, 0) and min(shape[2:]) > 0 else None


def _is_bytes(makers: Mapping[str, NodeProto], name: str) -> bool:
    node = makers.get(name)
    while node is not None and node.op_type == "Reshape":
        node = makers.get(node.input[0])
    return node is not None and node.op_type in _GIVES_BYTES


def _perm(node: NodeProto) -> list[int]:
    return list(attributes_of(node).get("perm", []))


# --- writing -------------------------------------------------------------------------------------------------------


def _convolution(model: ModelProto, names: Names, items: Sequence[_Projection]) -> list[NodeProto]:
    """Nodes that give what the Transposes gave; none where a bias does not fit an integer of the sums."""
    first = items[0]
    x, _, x_scale_name, _, x_zero_point = first.nodes[0].input[:5]
    weights, scales, biases = zip(*(item.layer for item in items), strict=True)
    # integers of the result per one of the sums
    steps = [first.x_scale * scale / item.scale for item, scale in zip(items, scales, strict=True)]
    if any(step.min() <= 0 or step.max() > _COARSEST_SUM for step in steps):
        return []
    shifts = [b / item.scale + (item.zero_point - first.zero_point) for item, b in zip(items, biases, strict=True)]
    bias = np.rint(np.concatenate([shift / step for shift, step in zip(shifts, steps, strict=True)]))
    if not np.all(np.abs(bias) < _LARGEST_BIAS):
        return []
    name = first.nodes[0].output[0]
    nodes: list[NodeProto] = []

    def constant(part: str, values: Numbers) -> str:
        stored = names.fresh(f"{name}_{part}")
        model.graph.initializer.append(tensor_of(np.ascontiguousarray(values), stored))
        return stored

    def step(op_type: str, inputs: list[str], outputs: Sequence[str] = (), **attributes: Any) -> str:
        given = list(outputs) or [names.fresh(f"{name}_{op_type}")]
        label = names.fresh(f"{name}_Split_node" if outputs else f"{given[0]}_node")
        nodes.append(helper.make_node(op_type, inputs, given, name=label, **attributes))
        return given[0]

    rows, columns = weights[0].shape[0], bias.size
    heads, size = first.shape[2:]
    image = step("Reshape", [x, constant("image", np.array([0, 0, 1, rows]))])
    inputs = [image, x_scale_name, x_zero_point] + [
        constant(part, values)
        for part, values in (
            ("kernel", np.concatenate(weights, 1).T.reshape(columns, rows, 1, 1)),
            ("kernel_scale", (np.concatenate(steps) * first.scale / first.x_scale).astype(np.float32)),
            ("kernel_zero", np.zeros(columns, np.int8)),
            ("scale", np.array(first.scale, np.float32)),
            ("zero_point", np.array(first.zero_point, np.uint8)),
            ("bias", bias.astype(np.int32)),
        )
    ]
    result = step("QLinearConv", inputs, channels_last=1, kernel_shape=[1, 1])
    nodes[-1].domain, nodes[-1].doc_string = "com.microsoft", f"{len(items)}{_SEVERAL}"
    split = step("Reshape", [result, constant("heads", np.array([0, 0, len(items) * heads, size]))])
    parts = [step("Transpose", [split], perm=_HEADS_TRANSPOSED)]
    if len(items) > 1:
        sizes, whole = constant("split", np.full(len(items), heads)), parts[0]
        parts = [names.fresh(f"{name}_part") for _ in items]
        step("Split", [whole, sizes], parts, axis=1)
    offset = constant("offset", np.array(128, np.uint8))
    for item, part in zip(items, parts, strict=True):
        if item.signed:  # u + 128 modulo 256 has the bits of the int8 number u - 128
            part = step("Cast", [step("Add", [part, offset])], to=TensorProto.INT8)
        if _perm(item.nodes[3]) != _HEADS_TRANSPOSED:
            part = step("Transpose", [part], perm=_LAST_TWO_SWAPPED)
        nodes[-1].output[0] = item.nodes[3].output[0]
    return nodes
