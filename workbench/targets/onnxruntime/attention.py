"""Self-attention with INT8 projections as one QAttention, on graphs from ONNX Runtime's optimizer.

    x ─┬─► MatMulIntegerToFloat ─► heads ─┐
       ├─► MatMulIntegerToFloat ─► heads ─┴─► product · 1/√d ─► Add(mask) ─► Softmax ─┐         x ─► QAttention ─►
       └─► MatMulIntegerToFloat ─► heads ─────────────────────────────────────────────┴─► ...

The kernel computes the same: the same integers times the same weights, then attention in float. It writes the
projections straight into heads, so that some twenty nodes and four transpositions per layer go. That saves 8 to 10 % of
a MiniLM with 6 layers for one text of 16 or 32 tokens, 3 to 10 % for 64, and nothing at batch 8 of 64 (onnxruntime
1.31.1, interleaved medians on a busy machine). Products of activations in INT8 keep their own form.

QAttention takes the mask as the model's input has it, not as the float tensor that is added to the scores. That the
one follows from the other is measured (`_mask_inputs`), and without it nothing is fused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, copied, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants
from workbench.targets.onnxruntime.draws import MASKED, Draw, distant_draws, draws, mask_of, needed_nodes
from workbench.targets.onnxruntime.fusions import Links, attribute_of

_HEADS_FIRST = [0, 2, 1, 3]
_KEYS_TRANSPOSED = [0, 2, 3, 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """One self-attention of the graph.

    Attributes:
        projections: the MatMulIntegerToFloat of query, key and value.
        heads: the tensors [batch, length, heads, size] that they become.
        mask: the tensor added to the scores, None where nothing is.
        merged: the tensor [batch, length, hidden] of the result.
        quantize: the QuantizeLinear on the way to `merged`, None where there is none.
        size: of one head.
    """

    projections: tuple[NodeProto, ...]
    heads: tuple[str, ...]
    mask: str | None
    merged: str
    quantize: NodeProto | None
    size: int


def fuse_attention(model: ModelProto) -> tuple[ModelProto, str]:
    """The model with every self-attention fused that can be, and one line about what was done.

    Pure; where nothing can be fused, the very same model comes back.
    """
    graph = Links(model)
    found = [a for node in graph.nodes if node.op_type == "Softmax" and (a := _attention(graph, node)) is not None]
    if not found:
        return model, "no self-attention with INT8 projections and float products"
    masks = _mask_inputs(model, found)
    taken = [a for a in found if a.merged in masks]
    if not taken:
        return model, f"{len(found)} self-attentions left as they are: their mask or their shapes are not plain"
    return _with_kernels(model, graph, taken, masks), f"{len(taken)} of {len(found)} self-attentions are QAttention"


# --- finding -------------------------------------------------------------------------------------------------------


def _attention(graph: Links, softmax: NodeProto) -> _Attention | None:
    add = graph.maker(softmax.input[0], "Add")
    scores, mask = _scores(graph, softmax, add)
    context = graph.reader(softmax, "MatMul")
    if scores is None or context is None or context.input[0] != softmax.output[0] or not _over_last(softmax):
        return None
    keys_transposed = bool(attribute_of(scores, "transB", 0))
    plain = not any(attribute_of(scores, name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    orders = (_HEADS_FIRST, _HEADS_FIRST if keys_transposed else _KEYS_TRANSPOSED, _HEADS_FIRST)
    names = (scores.input[0], scores.input[1], context.input[1])
    parts = [_projection(graph, name, order) for name, order in zip(names, orders, strict=True)]
    projections = [node for part in parts if part is not None for node in part[:1]]
    alpha = float(attribute_of(scores, "alpha", 1.0))
    size = round(1 / alpha**2) if alpha > 0 else 0
    if not plain or len(projections) != 3 or not _fit(graph, projections, size, scores):
        return None
    end = _merged(graph, context)
    if end is None:
        return None
    heads = tuple(part[1] for part in parts if part is not None)
    return _Attention(projections=tuple(projections), heads=heads, mask=mask, merged=end[0], quantize=end[1], size=size)


def _scores(graph: Links, softmax: NodeProto, add: NodeProto | None) -> tuple[NodeProto | None, str | None]:
    """The scaled product of queries and keys, and what is added to it."""
    if add is None:
        return graph.maker(softmax.input[0], "FusedMatMul"), None
    for name, other in (add.input[:2], reversed(add.input[:2])):
        scores = graph.maker(name, "FusedMatMul")
        if scores is not None:
            return scores, other
    return None, None


def _projection(graph: Links, name: str, order: list[int]) -> tuple[NodeProto, str] | None:
    """The product that a tensor of heads comes from, and the tensor before its transposition."""
    transpose = graph.maker(name, "Transpose")
    if transpose is None or list(attribute_of(transpose, "perm", [])) != order:
        return None
    reshape = graph.maker(transpose.input[0], "Reshape")
    product = None if reshape is None else graph.maker(reshape.input[0], "MatMulIntegerToFloat")
    return None if product is None else (product, transpose.input[0])


def _fit(graph: Links, projections: Sequence[NodeProto], size: int, scores: NodeProto) -> bool:
    """One input with one scale, constant symmetric weights of equal shape, and scores divided by √size."""
    shapes = set()
    for node in projections:
        weight = graph.known.get(node.input[1])
        inputs = [*node.input, *[""] * 7][:7]
        zero = graph.known.get(inputs[5])
        constant = all(name in graph.known for name in (inputs[3], inputs[6]) if name)
        if weight is None or weight.data_type != TensorProto.INT8 or not constant:
            return False
        if inputs[5] and (zero is None or array_of(zero).any()):
            return False
        if (inputs[0], inputs[2], inputs[4]) != tuple([*projections[0].input, ""][i] for i in (0, 2, 4)):
            return False
        shapes.add(tuple(weight.dims))
    columns = next(iter(shapes))[-1]
    scale = float(attribute_of(scores, "alpha", 1.0)) * math.sqrt(size)
    return len(shapes) == 1 and size > 0 and columns % size == 0 and abs(scale - 1) < 1e-6


def _merged(graph: Links, context: NodeProto) -> tuple[str, NodeProto | None] | None:
    """The tensor behind the heads' Transpose and Reshape, and the QuantizeLinear among them."""
    quantize, seen, node = None, list[str](), context
    while sorted(seen) != ["Reshape", "Transpose"]:
        following = graph.reader(node, "QuantizeLinear", "Transpose", "Reshape")
        if following is None or following.op_type in seen:
            return None
        if following.op_type == "QuantizeLinear":
            if quantize is not None or not _is_scalar(graph, following.input[1]):
                return None
            quantize = following
        else:
            seen.append(following.op_type)
        if following.op_type == "Transpose" and list(attribute_of(following, "perm", [])) != _HEADS_FIRST:
            return None
        node = following
    return node.output[0], quantize


def _mask_inputs(model: ModelProto, found: Sequence[_Attention]) -> dict[str, tuple[str | None, float]]:
    """`merged` of every attention whose shapes and mask are as assumed → (the input that is its mask, the number).

    Found by running the model (`draws`), which raises what the runtime does where it cannot run with ids of 0 and 1.
    """
    near = draws(model, {name for a in found for name in (*a.heads, a.merged, a.mask) if name})
    if not near:
        return {}
    found = [a for a in found if _has_expected_shapes(a, near)]
    distant = distant_draws(model, {a.mask for a in found if a.mask})
    masks: dict[str, tuple[str | None, float]] = {}
    for attention in found:
        # without a mask the number is ONNX Runtime's own default, and not used
        mask = (None, MASKED) if attention.mask is None else mask_of(attention.mask, [*near, *distant])
        if mask is not None:
            masks[attention.merged] = mask
    return masks


def _has_expected_shapes(attention: _Attention, found: Sequence[Draw]) -> bool:
    for feeds, values in found:
        batch, length = next(iter(feeds.values())).shape
        heads = values[attention.heads[0]].shape[2]
        if any(values[name].shape != (batch, length, heads, attention.size) for name in attention.heads):
            return False
        if values[attention.merged].shape != (batch, length, heads * attention.size):
            return False
    return True


# --- writing -------------------------------------------------------------------------------------------------------


def _with_kernels(
    model: ModelProto, graph: Links, taken: Sequence[_Attention], masks: Mapping[str, tuple[str | None, float]]
) -> ModelProto:
    fused = copied(model)
    names = Names(fused.graph)
    replaced: dict[str, list[NodeProto]] = {}
    casts: dict[str, NodeProto] = {}
    for attention in taken:
        mask, number = masks[attention.merged]
        if mask is not None and mask not in casts:
            casts[mask] = helper.make_node("Cast", [mask], [names.fresh(f"{mask}_int32")], to=TensorProto.INT32)
        mask_index = "" if mask is None else casts[mask].output[0]
        replaced[attention.merged] = _kernel(fused, graph, names, attention, mask_index, number)
    nodes = list(casts.values())
    for node in fused.graph.node:
        nodes.extend(replaced.get(node.output[0], [node]))
    replace_nodes(fused.graph, needed_nodes(nodes, {output.name for output in fused.graph.output}))
    prune_constants(fused.graph)
    return fused


def _kernel(
    model: ModelProto, graph: Links, names: Names, attention: _Attention, mask_index: str, number: float
) -> list[NodeProto]:
    weights, scales, biases = [], [], []
    for node in attention.projections:
        inputs = [*node.input, *[""] * 7][:7]
        weight = array_of(graph.known[inputs[1]])
        columns = weight.shape[1]
        weights.append(weight)
        scales.append(np.broadcast_to(array_of(graph.known[inputs[3]]), columns))
        biases.append(array_of(graph.known[inputs[6]]) if inputs[6] else np.zeros(columns, np.float32))
    parts = {"weight": np.concatenate(weights, 1), "scale": np.concatenate(scales), "bias": np.concatenate(biases)}
    parts["zero_point"] = np.zeros((), np.int8)
    stored = {}
    for part, values in parts.items():
        stored[part] = names.fresh(f"{attention.merged}_qkv_{part}")
        model.graph.initializer.append(tensor_of(np.ascontiguousarray(values), stored[part]))
    x, _, x_scale, _, x_zero_point = [*attention.projections[0].input, ""][:5]
    quantize = attention.quantize
    output = attention.merged if quantize is None else names.fresh(f"{attention.merged}_float")
    inputs = [x, stored["weight"], stored["bias"], x_scale, stored["scale"], mask_index, x_zero_point]
    kernel = helper.make_node(
        "QAttention",
        [*inputs, stored["zero_point"]],
        [output],
        name=names.fresh(f"{attention.merged}_QAttention"),
        domain="com.microsoft",
        num_heads=parts["scale"].size // (3 * attention.size),
        unidirectional=0,
        mask_filter_value=number,
    )
    if quantize is None:
        return [kernel]
    last = NodeProto()
    last.CopyFrom(quantize)
    last.input[0], last.output[0] = output, attention.merged
    return [kernel, last]


def _is_scalar(graph: Links, name: str) -> bool:
    return name in graph.known and not graph.known[name].dims


def _over_last(softmax: NodeProto) -> bool:
    return int(attribute_of(softmax, "axis", -1)) in (-1, 3)
