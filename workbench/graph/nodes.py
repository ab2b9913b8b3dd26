"""Graphs with bodies: walking nodes at any depth, the names they use and do not use, and editing them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

T = TypeVar("T", bound=Hashable)

DEFAULT_DOMAINS = ("", "ai.onnx")


def copied(proto: ModelProto) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(proto)
    return model


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """The tensor of a `Constant` node; None of any other node, and of one that holds no dense numbers."""
    if node.op_type != "Constant" or node.domain not in DEFAULT_DOMAINS:
        return None
    for name, value in attributes_of(node).items():
        if name == "value":
            return cast(TensorProto, value)
        if name.startswith(("value_float", "value_int")):
            kind = np.float32 if name.startswith("value_float") else np.int64
            return numpy_helper.from_array(np.asarray(value, kind), node.output[0])
    return None


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Put `nodes`, which may be nodes of the graph itself, in place of all nodes."""
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def reached(start: Iterable[T], onward: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything that steps onward lead to, `start` too, the nearest first."""
    found = list(dict.fromkeys(start))
    seen = set(found)
    for one in found:  # which grows
        for other in onward(one):
            if other not in seen:
                seen.add(other)
                found.append(other)
    return found


def bodies(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """(attribute, graph) of an If, Loop or Scan, or of any operator that holds graphs."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from ((attribute.name, graph) for graph in attribute.graphs)


def all_graphs(graph: GraphProto | FunctionProto) -> Iterator[GraphProto]:
    """The graph and every body in it."""
    waiting: list[Any] = [graph]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(body for node in one.node for _, body in bodies(node))


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    for one in all_graphs(graph):
        yield from one.node


def names_read(node: NodeProto) -> Iterator[str]:
    """Every tensor that a node reads or one of its bodies mentions, but for its own outputs; as often as it is read."""
    yield from filter(None, node.input)
    for _, body in bodies(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from names_read(inner)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def called(node: NodeProto) -> str:
    """A node as messages name it."""
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} → {next(filter(None, node.output), '')!r}"


def rename_tensors(nodes: Iterable[NodeProto], new: Mapping[str, str]) -> None:
    """Give tensors other names wherever these nodes and their bodies mention them, in place."""
    for node in nodes:
        for field in (node.input, node.output):
            for index, name in enumerate(field):
                if name in new:
                    field[index] = new[name]
        for _, body in bodies(node):
            for value in (*body.input, *body.output, *body.value_info, *body.initializer):
                value.name = new.get(value.name, value.name)
            rename_tensors(body.node, new)


def drop_unused(graph: GraphProto) -> None:
    """Remove nodes of the top graph whose results nobody needs, and initializers that nobody reads, in place."""
    used = {value.name for value in graph.output}
    live = []
    for node in reversed(graph.node):
        if used.intersection(node.output):
            live.append(node)
            used.update(names_read(node))
    if len(live) != len(graph.node):
        replace_nodes(graph, reversed(live))
    for index in reversed([i for i, tensor in enumerate(graph.initializer) if tensor.name not in used]):
        del graph.initializer[index]
    made = {name for node in graph.node for name in node.output}
    for index in reversed([i for i, value in enumerate(graph.value_info) if value.name not in made]):
        del graph.value_info[index]


def opset_of(proto: ModelProto) -> int:
    """Of the default domain; 0 where the model imports none."""
    return next((int(o.version) for o in proto.opset_import if o.domain in DEFAULT_DOMAINS), 0)


class Names:
    """Hands out names of tensors and nodes that neither the graph nor a body within it uses."""

    def __init__(self, graph: GraphProto) -> None:
        self._used = set(_names(graph))

    def fresh(self, wish: str) -> str:
        name, number = wish, 1
        while name in self._used:
            number += 1
            name = f"{wish}_{number}"
        self._used.add(name)
        return name


def _names(graph: GraphProto) -> Iterator[str]:
    yield from (tensor.name for tensor in graph.initializer)
    yield from (value.name for value in (*graph.input, *graph.output, *graph.value_info))
    for node in graph.node:
        yield node.name
        yield from (*node.input, *node.output)
        for _, body in bodies(node):
            yield from _names(body)
