"""Walking and renaming graphs with bodies: nodes at any depth, names they use, names that are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from workbench.graph.nodes import replace_nodes

DEFAULT_DOMAINS = ("", "ai.onnx")


def bodies(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """(attribute, graph) of an If, Loop or Scan, or of any operator that holds graphs."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from ((attribute.name, graph) for graph in attribute.graphs)


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and every body in it."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(body for node in one.node for _, body in bodies(node))


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for one in all_graphs(graph):
        yield from one.node


def names_read(node: NodeProto) -> set[str]:
    """What a node reads, and what its bodies take from outside or define: all that it mentions, but for its outputs."""
    found = set(filter(None, node.input))
    for _, body in bodies(node):
        for graph in all_graphs(body):
            found.update(value.name for value in graph.output)
            found.update(name for inner in graph.node for name in inner.input if name)
    return found


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


def drop_unused(graph: GraphProto, kept: Iterable[str] = ()) -> None:
    """Remove nodes of the top graph whose results nobody needs, and initializers that nobody reads, in place.

    Args:
        kept: initializers that stay all the same.
    """
    used = {value.name for value in graph.output} | set(kept)
    live = []
    for node in reversed(graph.node):
        if used.intersection(node.output):
            live.append(node)
            used |= names_read(node)
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
