"""The last operator before an output that changes values rather than where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

_MOVES = frozenset(
    ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand", "Pad")
)
"""Operators that only move or copy values."""
_WITHIN = frozenset(("ReduceMean", "ReduceMax", "ReduceMin", "MaxPool", "AveragePool", "GlobalAveragePool", "Split"))
"""Operators whose results lie within the range of what they are given: shares stay shares."""
_SHARES = frozenset(("Sigmoid", "HardSigmoid", "Softmax"))
_DEEPEST = 200
"""Steps back: a graph has no circles, but a file may be made by anybody."""


def last_operator(proto: onnx.ModelProto, output: str) -> str:
    """Its type; that inside the first branch where it is an `If`, 'nothing' where an input is handed through.

    A mean or a largest value of a Sigmoid's or a Softmax's results is told as these are: it lies in 0..1 as well.
    """
    graphs, name, kept = [proto.graph], output, ""
    for _ in range(_DEEPEST):
        position, node = _producer(graphs, name)
        if node is None:
            return kept or "nothing"
        if node.op_type == "If":
            branch = next((a.g for a in node.attribute if a.name == "then_branch"), None)
            if branch is None or position >= len(branch.output):
                return kept or node.op_type
            graphs, name = [*graphs, branch], branch.output[position].name
        elif node.op_type in _MOVES and node.input:
            name = node.input[0]
        elif node.op_type in _WITHIN and node.input:
            kept, name = kept or node.op_type, node.input[0]
        else:
            return kept if kept and node.op_type not in _SHARES else node.op_type
    return kept or "many operators"


def _producer(graphs: Sequence[onnx.GraphProto], name: str) -> tuple[int, onnx.NodeProto | None]:
    """In the innermost graph, else in those around it, whose values it sees."""
    for graph in reversed(graphs):
        for node in reversed(graph.node):
            for position, made in enumerate(node.output):
                if made == name:
                    return position, node
    return 0, None
