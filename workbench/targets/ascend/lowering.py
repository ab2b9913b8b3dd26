"""A model as ATC takes it: one operator domain, an opset it covers, and no operator that its library lacks.

    float model ──► [lower_deploy with a record] ──► atc_form ──► lowered.onnx
                        INT8 deploy form                            LayerNormalization, Gelu in small operators

What ATC 8.5.0 does not know is written in operators that its own fusion passes rebuild, so nothing is lost: LayerNorm
as opset 16 exporters write it, Gelu with Erf (atc.md §8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.apart import tensor_of
from workbench.graph.form import graph_form
from workbench.graph.nodes import Names, copied, opset_of, replace_nodes
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.ascend_quant import ANTI_QUANT, DEQUANT, QUANT
from workbench.quantization.lowering.surgery import editable_copy, prune_constants
from workbench.targets.ascend.operators import NEWEST_OPSET, OLDEST_OPSET
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import LoweringError

_ASCEND_OPERATORS = (QUANT, DEQUANT, ANTI_QUANT)
_REDUCE_AXES_AS_INPUT = 18
"""From this opset on ReduceMean takes its axes as an input."""


def atc_form(proto: ModelProto) -> ModelProto:
    """The same model in what ATC 8.5.0 covers. Pure and deterministic; names of inputs, outputs and layers stay.

    Raises:
        LoweringError: it uses another operator domain, or an operator whose meaning is newer than opset 18.
    """
    model = editable_copy(proto, opset=OLDEST_OPSET)
    foreign = [node for node in model.graph.node if node.domain not in ("", "ai.onnx")]
    if foreign:
        raise LoweringError(
            f"{foreign[0].name}: {foreign[0].domain}.{foreign[0].op_type} is no operator of ONNX itself, and ATC takes "
            "files with one operator domain only (E16005). Start from the model as it was exported."
        )
    version = opset_of(model)
    rewriter = _Rewriter(model, version)
    replace_nodes(model.graph, [new for node in model.graph.node for new in rewriter.nodes(node)])
    prune_constants(model.graph)
    for node in model.graph.node:
        node.domain = ""
    version = _covered_opset(model, version)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", version))
    model.ir_version = max(6, helper.find_min_ir_version_for(list(model.opset_import), True))
    return model


def _covered_opset(model: ModelProto, version: int) -> int:
    """The opset to state: its own, or the newest that ATC covers where every operator means the same in both."""
    if version <= NEWEST_OPSET:
        return version
    for node in model.graph.node:
        if node.op_type in _ASCEND_OPERATORS:
            continue
        since = onnx.defs.get_schema(node.op_type, version, "").since_version
        if since > NEWEST_OPSET and node.op_type not in _ONLY_NEW_TYPES:
            raise LoweringError(
                f"{node.name}: {node.op_type} of opset {since} is newer than opset {NEWEST_OPSET}, the last that ATC "
                "covers. Export the model with an opset from 11 to 17."
            )
    return NEWEST_OPSET


_ONLY_NEW_TYPES = frozenset(
    {
        *("Cast", "CastLike", "Constant", "ConstantOfShape", "Flatten", "Identity", "If", "Loop", "Pad", "Reshape"),
        *("Scan", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze", "Equal", "AveragePool", "IsNaN", "IsInf"),
        *("ReduceMax", "ReduceMin", "GatherND"),
    }
)
"""Operators whose versions 19 to 25 only add element types (ONNX changelog); their float and integer meaning stays."""


class _Rewriter:
    """Nodes in place of those ATC lacks, and the constants they need."""

    def __init__(self, model: ModelProto, version: int) -> None:
        self._graph = model.graph
        self._version = version
        self._names = Names(model.graph)
        self._scalars: dict[float, str] = {}
        self._axes: str | None = None

    def nodes(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.op_type == "LayerNormalization":
            yield from self._layer_norm(node)
        elif node.op_type == "Gelu":
            yield from self._gelu(node)
        elif node.op_type == "Cast" and any(a.name == "saturate" for a in node.attribute):
            copy = NodeProto()
            copy.CopyFrom(node)
            del copy.attribute[:]
            copy.attribute.extend(a for a in node.attribute if a.name != "saturate")
            yield copy
        else:
            yield node

    def _layer_norm(self, node: NodeProto) -> Iterator[NodeProto]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("axis", -1) != -1:
            raise LoweringError(
                f"{node.name}: LayerNormalization over more than the last axis has no form that ATC rebuilds. Export "
                "the model with opset 16 or lower."
            )
        if len(node.output) > 1 and any(node.output[1:]):
            raise LoweringError(f"{node.name}: the mean or deviation of LayerNormalization is used, which ATC lacks.")
        x, y = node.input[0], node.output[0]
        centred, square = self._name(node, "Sub"), self._name(node, "Pow")
        variance, guarded, deviation = self._name(node, "Var"), self._name(node, "Eps"), self._name(node, "Sqrt")
        mean = self._name(node, "Mean")
        yield self._mean(node, "Mean", x, mean)
        yield self._node(node, "Sub", [x, mean], centred)
        yield self._node(node, "Pow", [centred, self._scalar("two", 2.0)], square)
        yield self._mean(node, "Var", square, variance)
        epsilon = self._scalar("epsilon", float(attributes.get("epsilon", 1e-5)))
        yield self._node(node, "Add", [variance, epsilon], guarded, "Eps")
        yield self._node(node, "Sqrt", [guarded], deviation)
        shifted = len(node.input) > 2 and bool(node.input[2])
        unit = self._name(node, "Div")
        yield self._node(node, "Div", [centred, deviation], unit)
        scaled = self._name(node, "Mul") if shifted else y
        yield self._node(node, "Mul", [unit, node.input[1]], scaled)
        if shifted:
            yield self._node(node, "Add", [scaled, node.input[2]], y, "Shift")

    def _gelu(self, node: NodeProto) -> Iterator[NodeProto]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        x, y = node.input[0], node.output[0]
        half, one = self._scalar("half", 0.5), self._scalar("one", 1.0)
        if attributes.get("approximate", b"none") == b"tanh":
            cube, third, inner = self._name(node, "Pow"), self._name(node, "Mul"), self._name(node, "Add")
            scaled, tanh = self._name(node, "Scale"), self._name(node, "Tanh")
            yield self._node(node, "Pow", [x, self._scalar("three", 3.0)], cube)
            yield self._node(node, "Mul", [cube, self._scalar("gelu_cubic", 0.044715)], third)
            yield self._node(node, "Add", [x, third], inner)
            root = self._scalar("gelu_root", float(np.sqrt(2 / np.pi)))
            yield self._node(node, "Mul", [inner, root], scaled, "Scale")
            yield self._node(node, "Tanh", [scaled], tanh)
            last = tanh
        else:
            divided, erf = self._name(node, "Div"), self._name(node, "Erf")
            yield self._node(node, "Div", [x, self._scalar("root_two", float(np.sqrt(2)))], divided)
            yield self._node(node, "Erf", [divided], erf)
            last = erf
        shifted, product = self._name(node, "One"), self._name(node, "Product")
        yield self._node(node, "Add", [last, one], shifted, "One")
        yield self._node(node, "Mul", [x, shifted], product, "Product")
        yield self._node(node, "Mul", [product, half], y, "Half")

    def _mean(self, node: NodeProto, part: str, x: str, y: str) -> NodeProto:
        if self._version >= _REDUCE_AXES_AS_INPUT:
            return self._node(node, "ReduceMean", [x, self._last_axis()], y, part, keepdims=1)
        return self._node(node, "ReduceMean", [x], y, part, axes=[-1], keepdims=1)

    def _node(
        self, node: NodeProto, op_type: str, inputs: list[str], output: str, part: str = "", **attributes: Any
    ) -> NodeProto:
        name = self._names.fresh(f"{node.name}/{part or op_type}")
        return helper.make_node(op_type, inputs, [output], name=name, **attributes)

    def _name(self, node: NodeProto, part: str) -> str:
        return self._names.fresh(f"{node.output[0]}/{part}")

    def _scalar(self, wish: str, value: float) -> str:
        if value not in self._scalars:
            self._scalars[value] = self._names.fresh(wish)
            self._graph.initializer.append(tensor_of(np.array(value, np.float32), self._scalars[value]))
        return self._scalars[value]

    def _last_axis(self) -> str:
        if self._axes is None:
            self._axes = self._names.fresh("last_axis")
            self._graph.initializer.append(tensor_of(np.array([-1], np.int64), self._axes))
        return self._axes


# --- what of it decides how long its compiled files take ------------------------------------------------------------


_CHOSEN = frozenset({"scale", "offset"})
"""Attributes that hold what calibration chose."""


def lowered_form(lowered: Path, candidate: Candidate) -> str:
    """64 hex digits; equal for lowered models and settings that compile to the same kernels at every shape.

    What ATC does depends on operators, types, shapes and flags; that it depends on no scale is [inferred]. The form of
    the compiled file (`om_json.form_in`) is the proof afterwards.

    Raises:
        ConfigError: the file is no model.
    """
    settings = candidate.compile
    assert isinstance(settings, AscendCompile)  # Candidate checks it
    graph = graph_form(_without_factors(load_graph(read_model(lowered))))
    return digest([graph, candidate.precision, replace(settings, batches=(1,), sequence_bins=())])


def _without_factors(proto: ModelProto) -> ModelProto:
    """The same graph, with factors, offsets and integer biases of quantized layers set to zero."""
    model = copied(proto)
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
