"""Names that a graph does not use yet, for tensors and nodes that are put into it."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto

from workbench.graph.nodes import bodies


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
