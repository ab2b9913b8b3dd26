"""Editing a graph's list of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, NodeProto


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Put `nodes`, which may be nodes of the graph itself, in place of all nodes."""
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)
