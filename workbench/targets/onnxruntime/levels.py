"""A child process that says which levels of ONNX Runtime's graph optimizer come to the same graph.

    python -P levels.py MODEL LEVEL [LEVEL ...]        # prints the levels that differ, one of each kind, as JSON

A process of its own, since a crash in the optimizer must not end the program that asks. Imports nothing of the
workbench; `-P` keeps this folder, which holds an `onnxruntime.py`, off the import path.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime as ort

LEVELS = {
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def main(model: str, *levels: str) -> int:
    seen: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for level in levels:
            optimized = str(Path(folder) / f"{level}.onnx")
            options = ort.SessionOptions()
            options.graph_optimization_level = LEVELS[level]
            options.optimized_model_filepath = optimized
            options.log_severity_level = 4
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            seen.setdefault(json.dumps(sorted(_operators(onnx.load(optimized).graph))), level)
    print(json.dumps(list(seen.values())))
    return 0


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    """What is computed, whatever the nodes and tensors are called."""
    for node in graph.node:
        subgraphs = [inner for a in node.attribute for inner in (a.g, *a.graphs) if inner.node]
        attributes = sorted(a.SerializeToString().hex() for a in node.attribute if not (a.g.node or a.graphs))
        yield f"{node.domain} {node.op_type} {len(node.input)} {' '.join(attributes)}"
        for inner in subgraphs:
            yield from _operators(inner)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
