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

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names, attributes_of, copied, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants, rewired
from workbench.targets.onnxruntime.draws import MASKED, Draw, distant_draws, draws, mask_of, needed_nodes
from workbench.targets.onnxruntime.fusions import Links, Numbers, layer_of

_HEADS_FIRST = [0, 2, 1, 3]
_KEYS_TRANSPOSED = [0, 2, 3, 1]
_Layer = tuple[Numbers, Numbers, Numbers]
"""See `layer_of`."""
_Mask = tuple[str | None, float]
"""(the input that is the mask, the number that is added where it is 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """One self-attention of the graph.

    Attributes:
        given: the tensor that all projections read, its scale and its zero point.
        layers: of query, key and value.
        heads: the tensors [batch, length, heads, size] that they become.
        mask: the tensor added to the scores, None where nothing is.
        merged: the tensor [batch, length, hidden] of the result.
        quantize: the QuantizeLinear on the way to `merged`, None where there is none.
        size: of one head.
    """

    given: tuple[str, str, str]
    layers: tuple[_Layer, ...]
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
    masks = _masks(model, found)
    if not masks:
        return model, f"{len(found)} self-attentions left as they are: their mask or their shapes are not plain"
    taken = {a.merged: a for a in found if a.merged in masks}
    return _with_kernels(model, taken, masks), f"{len(taken)} of {len(found)} self-attentions are QAttention"


# --- finding -------------------------------------------------------------------------------------------------------


def _attention(graph: Links, softmax: NodeProto) -> _Attention | None:
    context, mask = graph.reader(softmax, "MatMul"), None
    scores = graph.maker(softmax.input[0], "FusedMatMul", "Add")
    if scores is not None and scores.op_type == "Add":
        left, right = scores.input[:2]
        makers = ((graph.maker(name, "FusedMatMul"), other) for name, other in ((left, right), (right, left)))
        scores, mask = next((pair for pair in makers if pair[0] is not None), (None, None))
    if scores is None or context is None or context.input[0] != softmax.output[0]:
        return None
    how = attributes_of(scores)
    if attributes_of(softmax).get("axis", -1) not in (-1, 3) or any(
        how.get(name, 0) for name in ("transA", "transBatchA", "transBatchB")
    ):
        return None
    alpha = float(how.get("alpha", 1.0))
    size = round(1 / alpha**2) if alpha > 0 else 0
    parts = [
        _projection(graph, name, order)
        for name, order in (
            (scores.input[0], _HEADS_FIRST),
            (scores.input[1], _HEADS_FIRST if how.get("transB", 0) else _KEYS_TRANSPOSED),
            (context.input[1], _HEADS_FIRST),
        )
    ]
    projections = [part for part in parts if part is not None]
    end = _merged(graph, context)
    if len(projections) != 3 or end is None or size <= 0 or abs(alpha * math.sqrt(size) - 1) >= 1e-6:
        return None
    heads, given, layers = zip(*projections, strict=True)
    weights = [weight for weight, _, _ in layers]
    # one input with one scale, and weights of one shape
    if len(set(given)) != 1 or len({weight.shape for weight in weights}) != 1 or weights[0].shape[1] % size:
        return None
    return _Attention(given=given[0], layers=layers, heads=heads, mask=mask, merged=end[0], quantize=end[1], size=size)


def _projection(graph: Links, name: str, order: list[int]) -> tuple[str, tuple[str, str, str], _Layer] | None:
    """The tensor that is transposed to a tensor of heads; and input, scale, zero point and layer that it comes of."""
    transpose = graph.maker(name, "Transpose")
    if transpose is None or attributes_of(transpose).get("perm") != order:
        return None
    reshape = graph.maker(transpose.input[0], "Reshape")
    product = None if reshape is None else graph.maker(reshape.input[0], "MatMulIntegerToFloat")
    layer = None if product is None else layer_of(graph, product)
    if product is None or layer is None:
        return None
    return transpose.input[0], (product.input[0], product.input[2], [*product.input, ""][4]), layer


def _merged(graph: Links, context: NodeProto) -> tuple[str, NodeProto | None] | None:
    """The tensor behind the heads' Transpose and Reshape, and the QuantizeLinear among them."""
    seen, node = dict[str, NodeProto](), context
    while not {"Reshape", "Transpose"} <= seen.keys():
        following = graph.reader(node, "QuantizeLinear", "Transpose", "Reshape")
        if following is None or following.op_type in seen:
            return None
        if following.op_type == "QuantizeLinear":
            scale = graph.known.get(following.input[1])
            if scale is None or scale.dims:
                return None
        elif following.op_type == "Transpose" and attributes_of(following).get("perm") != _HEADS_FIRST:
            return None
        seen[following.op_type] = node = following
    return node.output[0], seen.get("QuantizeLinear")


def _masks(model: ModelProto, found: Sequence[_Attention]) -> dict[str, _Mask]:
    """`merged` of every attention whose shapes and mask are as assumed → its mask.

    Found by running the model (`draws`), which raises what the runtime does where it cannot run with ids of 0 and 1.
    """
    near = draws(model, {name for a in found for name in (*a.heads, a.merged, a.mask) if name})
    found = [a for a in found if near and all(_has_expected_shapes(a, draw) for draw in near)]
    distant = distant_draws(model, {a.mask for a in found if a.mask})
    # without a mask the number is ONNX Runtime's own default, and not used
    masks = {a.merged: (None, MASKED) if a.mask is None else mask_of(a.mask, [*near, *distant]) for a in found}
    return {merged: mask for merged, mask in masks.items() if mask is not None}


def _has_expected_shapes(attention: _Attention, draw: Draw) -> bool:
    feeds, values = draw
    batch, length = next(iter(feeds.values())).shape
    heads = values[attention.heads[0]].shape[2]
    split = all(values[name].shape == (batch, length, heads, attention.size) for name in attention.heads)
    return split and values[attention.merged].shape == (batch, length, heads * attention.size)


# --- writing -------------------------------------------------------------------------------------------------------


def _with_kernels(model: ModelProto, taken: Mapping[str, _Attention], masks: Mapping[str, _Mask]) -> ModelProto:
    fused = copied(model)
    names = Names(fused.graph)
    casts: dict[str, NodeProto] = {}
    replaced: dict[str, list[NodeProto]] = {}
    for merged, attention in taken.items():
        mask, number = masks[merged]
        if mask is not None and mask not in casts:
            casts[mask] = helper.make_node("Cast", [mask], [names.fresh(f"{mask}_int32")], to=TensorProto.INT32)
        mask_index = "" if mask is None else casts[mask].output[0]
        replaced[merged] = _kernel(fused, names, attention, mask_index, number)
    nodes = list(casts.values())
    for node in fused.graph.node:
        nodes.extend(replaced.get(node.output[0], [node]))
    replace_nodes(fused.graph, needed_nodes(nodes, {output.name for output in fused.graph.output}))
    prune_constants(fused.graph)
    return fused


def _kernel(model: ModelProto, names: Names, attention: _Attention, mask_index: str, number: float) -> list[NodeProto]:
    def constant(part: str, values: Numbers) -> str:
        stored = names.fresh(f"{attention.merged}_qkv_{part}")
        model.graph.initializer.append(tensor_of(np.ascontiguousarray(values), stored))
        return stored

    weight, scale, bias = (np.concatenate(parts, -1) for parts in zip(*attention.layers, strict=True))
    stored = [constant(*part) for part in (("weight", weight), ("scale", scale), ("bias", bias))]
    zero_point = constant("zero_point", np.zeros((), np.int8))
    x, x_scale, x_zero_point = attention.given
    quantize, merged = attention.quantize, attention.merged
    output = merged if quantize is None else names.fresh(f"{merged}_float")
    kernel = helper.make_node(
        "QAttention",
        [x, stored[0], stored[2], x_scale, stored[1], mask_index, x_zero_point, zero_point],
        [output],
        name=names.fresh(f"{merged}_QAttention"),
        domain="com.microsoft",
        num_heads=scale.size // (3 * attention.size),
        unidirectional=0,
        mask_filter_value=number,
    )
    return [kernel] if quantize is None else [kernel, rewired(quantize, [output, *quantize.input[1:]], [merged])]
