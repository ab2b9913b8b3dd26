"""A model as ATC takes it: one operator domain, an opset it covers, and no operator that its library lacks.

    float model ──► [lower_deploy with a record] ──► atc_form ──► lowered.onnx
                        INT8 deploy form                            LayerNormalization, Gelu in small operators

What ATC 8.5.0 does not know is written in operators that its own fusion passes rebuild, so nothing is lost: LayerNorm
as opset 16 exporters write it, Gelu with Erf (atc.md §8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from workbench.graph.apart import tensor_of
from workbench.graph.form import graph_form
from workbench.graph.nodes import Names, copied, opset_of, replace_nodes
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, QUANT
from workbench.quantization.lowering.surgery import editable_copy, prune_constants
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import LoweringError

_ASCEND_OPERATORS = (QUANT, DEQUANT, ANTI_QUANT)
OLDEST_OPSET, NEWEST_OPSET = 8, 18
"""ops-nn v8.5.0 registers its plugins for these opsets; many operators only from 11 on. Manual: 11 to 18."""
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
    version, names = opset_of(model), Names(model.graph)
    constants: dict[float | str, str] = {}

    def constant(key: float | str) -> str:
        if key not in constants:
            constants[key] = names.fresh("constant")
            stored = np.array([-1], np.int64) if isinstance(key, str) else np.array(key, np.float32)
            model.graph.initializer.append(tensor_of(stored, constants[key]))
        return constants[key]

    def written_out(node: NodeProto, steps: Sequence[_Step]) -> Iterator[NodeProto]:
        """A node for each step; the last has the node's own result."""
        made = [*(names.fresh(f"{node.output[0]}/{part}") for part, _, _ in steps[:-1]), node.output[0]]
        for (part, op_type, given), output in zip(steps, made, strict=True):
            inputs = [made[i] if isinstance(i, int) else i if isinstance(i, str) else constant(i) for i in given]
            attributes: dict[str, Any] = {}
            if op_type == "ReduceMean":
                attributes["keepdims"] = 1
                if version >= _REDUCE_AXES_AS_INPUT:
                    inputs.append(constant("last axis"))
                else:
                    attributes["axes"] = [-1]
            yield helper.make_node(op_type, inputs, [output], name=names.fresh(f"{node.name}/{part}"), **attributes)

    nodes: list[NodeProto] = []
    for node in model.graph.node:
        write = {"Gelu": _gelu, "LayerNormalization": _layer_norm}.get(node.op_type)
        nodes += [node] if write is None else written_out(node, write(node))
    replace_nodes(model.graph, nodes)
    prune_constants(model.graph)
    for node in model.graph.node:
        node.domain = ""
        for attribute in [a for a in node.attribute if (node.op_type, a.name) == ("Cast", "saturate")]:
            node.attribute.remove(attribute)
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


_Step = tuple[str, str, tuple[str | int | float, ...]]
"""(part, operator, inputs): a tensor by its name, the result of an earlier step by its place, or a constant."""


def _layer_norm(node: NodeProto) -> list[_Step]:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("axis", -1) != -1:
        raise LoweringError(
            f"{node.name}: LayerNormalization over more than the last axis has no form that ATC rebuilds. Export "
            "the model with opset 16 or lower."
        )
    if len(node.output) > 1 and any(node.output[1:]):
        raise LoweringError(f"{node.name}: the mean or deviation of LayerNormalization is used, which ATC lacks.")
    steps: list[_Step] = [
        ("Mean", "ReduceMean", (node.input[0],)),
        ("Sub", "Sub", (node.input[0], 0)),
        ("Pow", "Pow", (1, 2.0)),
        ("Var", "ReduceMean", (2,)),
        ("Eps", "Add", (3, float(attributes.get("epsilon", 1e-5)))),
        ("Sqrt", "Sqrt", (4,)),
        ("Div", "Div", (1, 5)),
        ("Mul", "Mul", (6, node.input[1])),
    ]
    if len(node.input) > 2 and node.input[2]:
        steps.append(("Shift", "Add", (7, node.input[2])))
    return steps


def _gelu(node: NodeProto) -> list[_Step]:
    x, steps = node.input[0], list[_Step]()
    if any(a.name == "approximate" and a.s == b"tanh" for a in node.attribute):
        steps += [
            ("Pow", "Pow", (x, 3.0)),
            ("Mul", "Mul", (0, 0.044715)),
            ("Add", "Add", (x, 1)),
            ("Scale", "Mul", (2, float(np.sqrt(2 / np.pi)))),
            ("Tanh", "Tanh", (3,)),
        ]
    else:
        steps += [("Div", "Div", (x, float(np.sqrt(2)))), ("Erf", "Erf", (0,))]
    last = len(steps)
    one: _Step = ("One", "Add", (last - 1, 1.0))
    return [*steps, one, ("Product", "Mul", (x, last)), ("Half", "Mul", (last + 1, 0.5))]


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
    settings = AscendCompile.of(candidate)
    graph = graph_form(_without_factors(load_graph(read_model(lowered))))
    return digest([graph, candidate.precision, replace(settings, batches=(1,), sequence_bins=())])


def _without_factors(proto: ModelProto) -> ModelProto:
    """The same graph, with factors, offsets and integer biases of quantized layers set to zero."""
    model = copied(proto)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    made_by, chosen = {output: node for node in model.graph.node for output in node.output}, list[str]()
    for node in model.graph.node:
        if node.op_type in (QUANT, ANTI_QUANT):
            for attribute in node.attribute:
                if attribute.name in _CHOSEN:
                    attribute.f = 0.0
        if node.op_type == DEQUANT:
            chosen += node.input[1:]
            source = made_by.get(node.input[0])
            if source is not None:  # an Add of the bias behind its product, or a product that holds its bias
                chosen += source.input if source.op_type == "Add" else source.input[2:]
    for name in chosen:
        if name in held:
            zeros = numpy_helper.to_array(held[name]) * 0
            held[name].CopyFrom(numpy_helper.from_array(np.asarray(zeros), name))
    return model
