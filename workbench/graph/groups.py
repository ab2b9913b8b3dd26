"""Groups of layers that play one part in a transformer block, found by the graph's structure, not by names.

    x ─► query, key, value ─► scores ─► Softmax ─► context ─► attention output ─► Add ─► FFN in ─► FFN out ─► Add
         ───── qkv ────────

Sensitivity is easier to read per group, and a search over groups is smaller than one over layers. Names do not tell
groups: the dynamo exporter calls every layer `node_MatMul_<number>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import onnx

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.nodes import reached

_FIRST_INPUT_ONLY = {
    *("Expand", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze"),
    *("Tile", "TopK", "Unsqueeze"),
}
"""Operators whose other inputs are shapes or indices: no values flow from there."""

_NO_VALUES = {"Shape", "Size"}

_POINTWISE = {
    *("Add", "BiasGelu", "Cast", "Celu", "Clip", "Div", "Dropout", "Elu", "Erf", "Exp", "FastGelu", "Gelu"),
    *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish", "Mul", "Neg", "PRelu", "Pow", "QuickGelu"),
    *("Relu", "Reshape", "Selu", "Sigmoid", "Slice", "Softplus", "Split", "Sqrt", "Sub", "Swish", "Tanh", "Where"),
}
"""What an activation function is made of: a gated one has a Split, and Reshapes stand around a Gemm."""

_FUSED_ATTENTION = {"Attention", "MultiHeadAttention"}


class _Attention(NamedTuple):
    """softmax(q · kᵀ) · v, the names of the products and the tensors q, k, v; or one operator that computes it, whose
    products have no names."""

    scores: str | None
    context: str | None
    sources: tuple[str, ...]
    output: str


def layer_groups(proto: onnx.ModelProto, layers: Sequence[Layer]) -> dict[str, tuple[str, ...]]:
    """Group → names of its layers; every one of `layers` is in exactly one group.

    A block is an attention and the feed-forward network behind it, numbered from 0 in graph order. Its groups are
    'block 0 / qkv', 'block 0 / scores', 'block 0 / context', 'block 0 / attention output', 'block 0 / FFN in' and
    'block 0 / FFN out'. In a model with attention, layers without a block that feed an output without another layer
    between make the group 'classifier'. All other layers are groups of their own, by name.

    Args:
        proto: with node names, in topological order; those of `load_graph` and `normalized` are.
        layers: some or all of the model's quantizable layers.

    Returns:
        Groups and their layers, both in graph order.
    """
    graph = _Graph(proto)
    part_of = _parts(graph)
    taken = set(part_of.values())
    groups: dict[str, list[str]] = {}
    for layer in layers:
        # a layer on its own may have the name of a group, as one called "classifier"
        alone = f"{layer.name} / alone" if layer.name in taken else layer.name
        groups.setdefault(part_of.get(layer.name, alone), []).append(layer.name)
    return {group: tuple(names) for group, names in groups.items()}


class _Graph:
    """Who gives and who reads which tensor, and which nodes are layers."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.nodes = list(proto.graph.node)
        self.outputs = [output.name for output in proto.graph.output]
        self.layers = {layer.name: layer for layer in quantizable_layers(proto)}
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in values_read(node):
                self.readers.setdefault(name, []).append(node)
        # tensors that depend on what is fed, not on its shape alone: a bias is none, the ids of an embedding tell it
        initializers = {tensor.name for tensor in proto.graph.initializer}
        self.activations = {value.name for value in proto.graph.input} - initializers
        for node in self.nodes:
            if node.op_type not in _NO_VALUES and any(name in self.activations for name in node.input):
                self.activations.update(node.output)

    def layers_before(self, tensor: str) -> list[Layer]:
        """The nearest layers whose output flows into a tensor, in no particular order."""

        def onward(name: str) -> list[str]:
            node = self.producers.get(name)
            return [] if node is None or node.name in self.layers else values_read(node)

        makers = (self.producers.get(name) for name in reached([tensor], onward))
        return [self.layers[node.name] for node in makers if node is not None and node.name in self.layers]

    def nodes_after(self, tensor: str) -> Iterator[tuple[str, onnx.NodeProto]]:
        """Tensors that a tensor flows into and their readers, nearest first; it ends at layers and with them."""

        def onward(name: str) -> list[str]:
            readers = (node for node in self.readers.get(name, ()) if node.name not in self.layers)
            return [output for node in readers for output in node.output]

        for name in reached([tensor], onward):
            for node in self.readers.get(name, ()):
                yield name, node


def values_read(node: onnx.NodeProto) -> list[str]:
    """The inputs whose values flow into the outputs: no shapes, indices or conditions."""
    if node.op_type in _NO_VALUES:
        return []
    if node.op_type in _FIRST_INPUT_ONLY:
        return list(node.input[:1])
    if node.op_type == "Where":
        return list(node.input[1:])
    return [name for name in node.input if name]


# --- parts of blocks -----------------------------------------------------------------------------------------------


def _parts(graph: _Graph) -> dict[str, str]:
    """Layer → group, for the layers whose part is known."""
    found: dict[str, str] = {}

    def assign(layers: Iterable[str | None], group: str) -> None:
        for name in layers:
            if name is not None:
                found.setdefault(name, group)

    attentions = _attentions(graph)
    for number, attention in enumerate(attentions):
        assign([attention.scores], f"block {number} / scores")
        assign([attention.context], f"block {number} / context")
    for number, attention in enumerate(attentions):
        before = [layer for source in attention.sources for layer in graph.layers_before(source)]
        assign((layer.name for layer in before if layer.weight is not None), f"block {number} / qkv")
        after = (graph.layers.get(node.name) for _, node in graph.nodes_after(attention.output))
        nearest = next((layer for layer in after if layer is not None), None)
        if nearest is not None and nearest.weight is not None:
            assign([nearest.name], f"block {number} / attention output")
    blocks = _latest_attention(graph, attentions)
    for layer in graph.layers.values():
        network = _feed_forward(graph, layer)
        if network is None:
            continue
        inner, joined = network
        block = blocks.get(joined, -1)
        if block >= 0 and not any(name in found for name in (*inner, layer.name)):
            assign(inner, f"block {block} / FFN in")
            assign([layer.name], f"block {block} / FFN out")
    if attentions:
        last = [layer for output in graph.outputs for layer in graph.layers_before(output)]
        assign((layer.name for layer in last if layer.weight is not None), "classifier")
    return found


def _attentions(graph: _Graph) -> list[_Attention]:
    """Every attention, in the order in which the graph gives its result."""
    found = []
    pending: dict[str, _Attention] = {}
    for node in graph.nodes:
        layer = graph.layers.get(node.name)
        if node.name in pending:
            found.append(pending.pop(node.name))
        elif node.op_type in _FUSED_ATTENTION:
            sources = tuple(name for name in node.input[:3] if name in graph.activations)
            found.append(_Attention(scores=None, context=None, sources=sources, output=node.output[0]))
        elif layer is not None and layer.second is not None:
            attention = _attention_of(graph, layer)
            if attention is not None and attention.context is not None:
                pending[attention.context] = attention
    return found


def _attention_of(graph: _Graph, scores: Layer) -> _Attention | None:
    """The attention that begins with a product, if its result goes through Softmax into another product."""
    assert scores.second is not None
    softmax = next((node for _, node in graph.nodes_after(scores.output) if node.op_type == "Softmax"), None)
    if softmax is None:
        return None
    for tensor, node in graph.nodes_after(softmax.output[0]):
        context = graph.layers.get(node.name)
        if context is not None and context.second is not None:
            value = context.second if tensor == context.activation else context.activation
            sources = (scores.activation, scores.second, value)
            return _Attention(scores.name, context.name, sources, context.output)
    return None


def _latest_attention(graph: _Graph, attentions: Sequence[_Attention]) -> dict[str, int]:
    """Tensor → the last attention it depends on, by number; tensors before any are absent."""
    latest = {attention.output: number for number, attention in enumerate(attentions)}
    for node in graph.nodes:
        numbers = [latest[name] for name in values_read(node) if name in latest]
        for name in node.output:
            if numbers:
                latest[name] = max(latest.get(name, -1), *numbers)
    return latest


def _feed_forward(graph: _Graph, last: Layer) -> tuple[tuple[str, ...], str] | None:
    """The layers before an activation function whose result `last` brings back to the width they read.

    Returns:
        Their names and the tensor of the residual Add that takes the output of `last`.
    """
    if last.weight is None or last.op_type not in ("MatMul", "Gemm"):
        return None
    first = _through_activation_function(graph, last.activation)
    joined = _residual_add(graph, last.output)
    if not first or joined is None or len({layer.activation for layer in first}) != 1:
        return None
    if any(layer.input_channels != last.output_channels for layer in first):
        return None
    return tuple(layer.name for layer in first), joined


def _through_activation_function(graph: _Graph, tensor: str) -> list[Layer]:
    """The layers with weights that a tensor is a pointwise function of; none where anything else flows in."""

    def onward(name: str) -> list[str]:
        node = graph.producers.get(name)
        if node is None or node.name in graph.layers or node.op_type not in _POINTWISE:
            return []
        return [given for given in values_read(node) if given in graph.activations]

    found: dict[str, Layer] = {}
    for name in reached([tensor], onward):
        node = graph.producers.get(name)
        layer = None if node is None else graph.layers.get(node.name)
        if layer is not None and layer.weight is not None and layer.op_type in ("MatMul", "Gemm"):
            found[layer.name] = layer
        elif layer is not None or node is None or node.op_type not in _POINTWISE:
            return []
    return list(found.values())


def _residual_add(graph: _Graph, tensor: str) -> str | None:
    """The output of the Add of a layer's output, its bias added, and another activation."""
    for _, node in graph.nodes_after(tensor):
        if node.op_type == "Add" and all(other in graph.activations for other in node.input):
            return str(node.output[0])
        if node.op_type not in ("Add", "Cast", "Dropout", "Identity", "Mul", "Reshape"):
            return None
    return None
