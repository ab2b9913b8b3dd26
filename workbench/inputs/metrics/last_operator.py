"""The last operator before an output that changes values rather than where they stand."""

from __future__ import annotations

import onnx

_MOVES = frozenset(
    ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand", "Pad")
)
"""Operators that only move or copy values."""
_DEEPEST = 200
"""Steps back: a graph has no circles, but a file may be made by anybody."""


def last_operator(proto: onnx.ModelProto, output: str) -> str:
    """Its type; that inside the first branch where it is an `If`, 'nothing' where an input is handed through."""
    graph, name = proto.graph, output
    for _ in range(_DEEPEST):
        position, node = _producer(graph, name)
        if node is None:
            return "nothing"
        if node.op_type == "If":
            branch = next((a.g for a in node.attribute if a.name == "then_branch"), None)
            if branch is None or position >= len(branch.output):
                return node.op_type
            graph, name = branch, branch.output[position].name
        elif node.op_type in _MOVES and node.input:
            name = node.input[0]
        else:
            return node.op_type
    return "many operators"


def _producer(graph: onnx.GraphProto, name: str) -> tuple[int, onnx.NodeProto | None]:
    for node in reversed(graph.node):
        for position, made in enumerate(node.output):
            if made == name:
                return position, node
    return 0, None
