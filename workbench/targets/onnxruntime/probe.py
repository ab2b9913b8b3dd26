"""Looking inside a lowered model: the same model with intermediate tensors as outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from workbench.graph.read import load_graph, read_model
from workbench.values.errors import ConfigError, MeasureError


def with_outputs(lowered: Path, tensors: Sequence[str]) -> tuple[ModelProto, int]:
    """(the model of the file with these tensors as further outputs, how many those are).

    Each comes once; tensors that no node makes are left out. The new outputs state no type: the runtime infers it.

    Raises:
        MeasureError: the file is no ONNX model.
    """
    try:
        model = load_graph(read_model(lowered))
    except ConfigError as error:
        raise MeasureError(f"{lowered}: ONNX Runtime cannot load it: {error}") from error
    made = {name for node in model.graph.node for name in node.output}
    known = {output.name for output in model.graph.output}
    added = [name for name in dict.fromkeys(tensors) if name in made and name not in known]
    model.graph.output.extend(ValueInfoProto(name=name) for name in added)
    return model, len(added)
