"""What of a lowered model decides how long its compiled files take: the graph without the numbers of calibration.

What ATC does depends on operators, types, shapes and flags; that it depends on no scale is [inferred]. The form of the
compiled file (`om_form`) is the proof afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from workbench.graph.form import graph_form
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.ascend_quant import ANTI_QUANT, DEQUANT, QUANT
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest

_CHOSEN = frozenset({"scale", "offset"})
"""Attributes that hold what calibration chose."""


def lowered_form(lowered: Path, candidate: Candidate) -> str:
    """64 hex digits; equal for lowered models and settings that compile to the same kernels at every shape.

    Raises:
        ConfigError: the file is no model.
    """
    settings = candidate.compile
    assert isinstance(settings, AscendCompile)  # Candidate checks it
    graph = graph_form(_without_factors(load_graph(read_model(lowered))))
    return digest([graph, candidate.precision, replace(settings, batches=(1,), sequence_bins=())])


def _without_factors(proto: ModelProto) -> ModelProto:
    """The same graph, with factors, offsets and integer biases of quantized layers set to zero."""
    model = ModelProto()
    model.CopyFrom(proto)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in (QUANT, ANTI_QUANT):
            for attribute in node.attribute:
                if attribute.name in _CHOSEN:
                    attribute.f = 0.0
    for name in _factors_and_biases(model.graph):
        if name in held:
            _blank(held[name])
    return model


def _factors_and_biases(graph: GraphProto) -> Iterator[str]:
    made_by = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        if node.op_type == DEQUANT:
            yield from node.input[1:]
            source = made_by.get(node.input[0])
            if source is not None:  # an Add of the bias behind its product, or a product that holds its bias
                yield from source.input if source.op_type == "Add" else source.input[2:]


def _blank(tensor: TensorProto) -> None:
    zeros = numpy_helper.to_array(tensor) * 0
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(zeros), tensor.name))
