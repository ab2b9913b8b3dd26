"""What ATC of CANN 8.5.0 does with an ONNX model for Ascend 910B3: a table of known troubles, each with its source.

The open operator library (ops-nn) and graph engine (ge) of tag v8.5.0 were read; a closed operator package exists
that nobody outside can read, so "not registered" means: not in the open one. The last word has ATC itself
(`atc --mode=3`), which names every operator it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto

from workbench.graph.apart import array_of
from workbench.graph.nodes import all_nodes
from workbench.graph.read import constants
from workbench.graph.structure import structure_of
from workbench.targets.base import OperatorIssue

NOT_IN_OPS_NN = "ops-nn v8.5.0: no ONNX plugin registers it (atc.md §8); the closed operator package was not visible"
_PARSER = "ge v8.5.0 parser/parser/onnx/onnx_parser.cc:418-455,571-600 (atc.md §8)"

OLDEST_OPSET, NEWEST_OPSET = 8, 18
"""ops-nn v8.5.0 registers its plugins for these opsets; many operators only from 11 on. Manual: 11 to 18."""
WELL_COVERED_OPSET = 11

LARGEST_FP16 = 65504.0
SMALLEST_FP16 = 2.0**-25
"""Magnitudes at or below this round to zero in half precision (its smallest value is 2**-24)."""


AICPU_START_US = 60.0
"""To start one operator on an AI CPU, as the emulator models it; nobody measured it."""
_AICPU = f"{AICPU_START_US:g} us to start one is modelled; it and which operators an AI CPU runs are [inferred]"
_INTEGER_WORK = ("Add", "CumSum", "Div", "Max", "Min", "Mod", "Mul", "Pow", "ReduceMax", "ReduceSum", "Sub")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRule:
    """Operators that are known to give trouble.

    Attributes:
        domain: of the operators; '' is ONNX's own.
        operators: empty for every operator of the domain.
        aicpu: they run, on an AI CPU, while the cores wait.
    """

    domain: str
    operators: tuple[str, ...]
    severity: Literal["error", "warning"]
    problem: str
    remedy: str
    source: str
    aicpu: bool = False


def _on_an_aicpu(remedy: str, *operators: str) -> OperatorRule:
    return OperatorRule(
        domain="",
        operators=operators,
        severity="warning",
        problem="runs on an AI CPU, and the cores wait for it",
        remedy=remedy,
        source=_AICPU,
        aicpu=True,
    )


OPERATOR_RULES = (
    OperatorRule(
        domain="",
        operators=("LayerNormalization",),
        severity="warning",
        problem="not registered in the open operator library; ATC may stop with E13010",
        remedy="Export with opset 16: LayerNorm is then written in small operators, which ATC's fusion rebuilds.",
        source=f"{NOT_IN_OPS_NN}; LayerNormalization 17 and 18 appear in ops-nn after 8.5",
    ),
    OperatorRule(
        domain="",
        operators=("Gelu",),
        severity="warning",
        problem="not registered in the open operator library; ATC may stop with E13010",
        remedy="Export with opset 17 or lower: Gelu is then written with Erf, which ATC's fusion rebuilds.",
        source=NOT_IN_OPS_NN,
    ),
    OperatorRule(
        domain="",
        operators=(
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "MatMulInteger",
            "ConvInteger",
            "QLinearMatMul",
            "QLinearConv",
        ),
        severity="error",
        problem="ONNX's own quantization operators are not what ATC quantizes with",
        remedy="Start from the float model; INT8 reaches ATC as a deploy model with AscendQuant operators.",
        source=f"{NOT_IN_OPS_NN}; the advice there: do not feed QDQ models to ATC",
    ),
    OperatorRule(
        domain="com.microsoft",
        operators=(),
        severity="error",
        problem="an operator of ONNX Runtime, unknown to ATC",
        remedy="Use the file as it was before ONNX Runtime's optimizer or quantizer touched it.",
        source=NOT_IN_OPS_NN,
    ),
    _on_an_aicpu("Export the model up to it, and choose the boxes on the host.", "NonMaxSuppression"),
    _on_an_aicpu("Turn the axis by a Gather with a constant index, where all rows have one length.", "ReverseSequence"),
    _on_an_aicpu("Make it a constant of the model, or an input.", "EyeLike", "Multinomial"),
    _on_an_aicpu("Multiply by a mask, or do it on the host behind the model.", "Compress", "NonZero", "Unique"),
    _on_an_aicpu("Write the determinant out for its fixed size, or do it on the host.", "Det"),
    _on_an_aicpu(
        "Export with Split and Concat in place of sequences.",
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
        *("ConcatFromSequence", "SplitToSequence"),
    ),
)


def check_operators(proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """Everything known to go wrong with a model under ATC, errors first.

    Args:
        proto: from `workbench.graph.read.load_graph`, so that every node has a name.
    """
    issues = [
        *_opset(proto),
        *_domains(proto),
        *_operators(proto),
        *structure_issues(proto),
        *_inputs(proto),
        *_int64(proto),
        *_half_precision(proto),
    ]
    return tuple(sorted(issues, key=lambda issue: issue.severity))


def _opset(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    version = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version < WELL_COVERED_OPSET or version > NEWEST_OPSET:
        outside = version < OLDEST_OPSET or version > NEWEST_OPSET
        yield OperatorIssue(
            severity="error" if outside else "warning",
            node=f"opset {version}",
            operator="",
            problem=f"operators are looked up by the file's opset: {WELL_COVERED_OPSET} to {NEWEST_OPSET} are covered",
            remedy="Export the model with an opset from 11 to 17.",
            source="ops-nn v8.5.0 plugins register opsets 8 to 18; the manual of 9.2 names 11 to 18 (atc.md §8)",
        )


def _domains(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """E16005 is raised by the first node with an empty domain; a node of a domain not imported gives E19999."""
    imported = {o.domain for o in proto.opset_import}
    silent = next((node for node in proto.graph.node if not node.domain), None)
    if len(proto.opset_import) > 1 and silent is not None:
        yield OperatorIssue(
            severity="error",
            node=silent.name,
            operator=silent.op_type,
            problem=f"the file imports {len(proto.opset_import)} operator sets "
            f"({', '.join(o.domain or 'ai.onnx' for o in proto.opset_import)}); ATC stops with E16005",
            remedy="Keep one opset_import, the default one; delete the others if no node uses them.",
            source=_PARSER,
        )
    stray = [node for node in proto.graph.node if node.domain and node.domain not in imported]
    if stray:
        yield _issue(
            stray,
            "error",
            f"domain {stray[0].domain!r} is not imported; ATC stops with E19999",
            "Export the model in the default domain only.",
            _PARSER,
        )


def _operators(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    for rule in OPERATOR_RULES:
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in all_nodes(proto.graph):
            domain = "" if node.domain == "ai.onnx" else node.domain
            if domain == rule.domain and (not rule.operators or node.op_type in rule.operators):
                found.setdefault(node.op_type, []).append(node)
        for nodes in found.values():
            issue = _issue(nodes, rule.severity, rule.problem, rule.remedy, rule.source)
            cost = f": at least {len(nodes) * AICPU_START_US:g} us a call"
            yield _slow(issue, cost) if rule.aicpu else issue


def _slow(issue: OperatorIssue, cost: str) -> OperatorIssue:
    return replace(issue, problem=f"{issue.problem}{cost} (modelled)", slow=True)


def _inputs(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    defaults = {tensor.name for tensor in proto.graph.initializer}
    dynamic: dict[tuple[int, ...], list[str]] = {}
    separators: list[str] = []
    int64: list[str] = []
    for value in proto.graph.input:
        if value.name in defaults:
            continue
        kind = value.type.tensor_type
        free = tuple(i for i, d in enumerate(kind.shape.dim) if not d.HasField("dim_value") or d.dim_value < 1)
        if free:
            dynamic.setdefault(free, []).append(value.name)
        if set(value.name) & set(":;"):
            separators.append(value.name)
        if kind.elem_type == TensorProto.INT64:
            int64.append(value.name)
    for free, names in dynamic.items():
        yield _input_issue(
            names,
            f"axes {', '.join(map(str, free))} are dynamic: ATC needs a shape for every input (else E10001), and an "
            "INT8 model takes no dynamic-shape flag",
            "Decide on batch sizes and sequence bins: each pair becomes one compiled file.",
            "atc.md §8 (E10001, value NULL); doc850 atctool_0040, General Restrictions (atc.md fact 4)",
        )
    if separators:
        yield _input_issue(
            separators,
            "the name has a ':' or ';', which separate names and shapes in --input_shape",
            "Rename the input when exporting.",
            "atc.md §8 (E10016)",
        )
    if int64:
        yield _input_issue(
            int64,
            "int64: ATC takes it, and the compiled model keeps it, 8 bytes a value",
            "Nothing to change in the model; feed int64, not int32.",
            "atc.md §8: int64 inputs are fine",
        )


def _input_issue(names: Sequence[str], problem: str, remedy: str, source: str) -> OperatorIssue:
    return OperatorIssue(
        severity="warning", node=", ".join(names), operator="input", problem=problem, remedy=remedy, source=source
    )


def _int64(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Patterns that older chips and releases had no int64 kernels for."""
    known = constants(proto)
    types = {v.name: v.type.tensor_type.elem_type for v in (*proto.graph.value_info, *proto.graph.input)}
    types.update({name: tensor.data_type for name, tensor in known.items()})
    negative = [
        node
        for node in proto.graph.node
        if node.op_type == "Gather" and node.input[1] in known and bool((array_of(known[node.input[1]]) < 0).any())
    ]
    if negative:
        yield _issue(
            negative,
            "warning",
            "a constant index is negative, which older chips and releases refuse",
            "Count from the front: replace -1 by the last index, or run a simplifier at fixed shape.",
            "ModelZoo-PyTorch notes (atc.md §8); not confirmed for 910B3 with 8.5",
        )
    for operator in ("ScatterND", "Slice"):
        nodes = [n for n in proto.graph.node if n.op_type == operator and types.get(n.input[0]) == TensorProto.INT64]
        if nodes:
            yield _issue(
                nodes,
                "warning",
                "works on int64 data, for which older chips and releases have no kernel",
                "Cast to int32 before it, or fold the shape computation with a simplifier at fixed shape.",
                "ModelZoo-PyTorch notes (atc.md §8); not confirmed for 910B3 with 8.5",
            )
    work = [n for n in _fed(proto) if n.op_type in _INTEGER_WORK and types.get(n.input[0]) == TensorProto.INT64]
    if work:
        problem = "computes on 64-bit integers, which the cores handle slowly and may leave to an AI CPU"
        remedy = "Cast to int32 (float32 for products beyond 2^31) before it, when exporting; feeds may stay int64."
        issue = _issue(work, "warning", problem, remedy, f"{_AICPU}; atc.md §8 (int64)")
        yield _slow(issue, f"; where one does, {len(work) * AICPU_START_US:g} us a call")


def _fed(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes whose result depends on the values that are fed; what depends on shapes alone is folded when compiling."""
    known = constants(proto)
    fed = {value.name for value in proto.graph.input if value.name not in known}
    for node in proto.graph.node:
        if node.op_type not in ("Shape", "Size") and not fed.isdisjoint(node.input):
            fed.update(node.output)
            yield node


def _half_precision(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Float constants that fp16, ATC's default precision, cannot hold: mask values such as -3.4e38, tiny epsilons."""
    huge: dict[float, list[onnx.NodeProto]] = {}
    tiny: dict[float, list[onnx.NodeProto]] = {}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    for name, tensor in constants(proto).items():
        if tensor.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE) or name not in users:
            continue
        values = array_of(tensor)
        if values.size == 0:
            continue
        extreme = float(values.flat[int(np.argmax(np.abs(values)))])
        if abs(extreme) > LARGEST_FP16:
            huge.setdefault(extreme, []).extend(users[name])
        elif values.size == 1 and 0 < abs(extreme) <= SMALLEST_FP16:
            tiny.setdefault(extreme, []).extend(users[name])
    for value, nodes in huge.items():
        yield _issue(
            nodes,
            "warning",
            f"the constant {value:.3g} is infinite in fp16; a softmax over a fully masked row then gives NaN",
            "Export the mask with -10000, or keep ATC's --is_weight_clip=1, its default.",
            "atc.md §8: ModelZoo's fix_onnx scripts; that the clip covers mask constants is inferred from them",
        )
    for value, nodes in tiny.items():
        yield _issue(
            nodes,
            "warning",
            f"the constant {value:.3g} is zero in fp16, so that it no longer guards a division",
            "Use an epsilon of 1e-5 or more, or keep this operator in fp32 (--keep_dtype).",
            "atc.md §8 (1e-9 under fp16); the rounding is IEEE 754's",
        )


def _issue(
    nodes: Sequence[onnx.NodeProto], severity: Literal["error", "warning"], problem: str, remedy: str, source: str
) -> OperatorIssue:
    """One issue for all nodes that share it, named by the first."""
    first = nodes[0]
    return OperatorIssue(
        severity=severity,
        node=first.name + (f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""),
        operator=first.op_type if first.domain in ("", "ai.onnx") else f"{first.domain}.{first.op_type}",
        problem=problem,
        remedy=remedy,
        source=source,
    )


_FIXED = "one OM for each batch and bin, of fixed shapes (atc.md, fact 4)"
_INFERRED = f"{_FIXED}; no page shows this operator in a quantized model [inferred]"


def structure_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """By node, with what makes the model one that ATC takes."""
    found = structure_of(proto)
    for body in found.bodies:
        operator, _, name = body.node.partition(" ")
        inside = ", ".join(f"{kind} {count}" for kind, count in sorted(body.operators.items())[:6])
        decided = "inputs: {NAME: {constant: VALUE}} or inputs: {NAME: {axes: [batch, SIZE]}} in the dataset manifest"
        yield OperatorIssue(
            severity="error",
            node=name.strip("'→ "),
            operator=operator,
            problem=f"control flow, with {sum(body.operators.values())} nodes inside ({inside})",
            remedy=f"Declare what decides it, so that the branch taken takes its place: {decided}."
            if operator == "If"
            else "Export one step without it, and carry the state over the steps (state: in the dataset manifest).",
            source=_INFERRED,
        )
    for cause in dict.fromkeys(found.sized_by_data.values()):
        names = ", ".join(output for output, each in found.sized_by_data.items() if each == cause)
        operator, _, name = cause.partition(" ")
        yield OperatorIssue(
            severity="error",
            node=name.strip("'→ "),
            operator=operator,
            problem=f"from here on the size of {names} depends on the values that are fed, which no fixed shape holds",
            remedy="Export the part before it as the model for this target, and run the rest on the host.",
            source=f"{_FIXED} [inferred]",
        )


def axis_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Free axes beyond a batch and one length, which bins cannot give a size."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    lengths: dict[str, str] = {}
    for value in proto.graph.input:
        if value.name in stored:
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            free = not dim.HasField("dim_value") or dim.dim_value < 1
            if axis and free:
                lengths.setdefault(dim.dim_param or f"axis {axis} of {value.name}", value.name)
    if len(lengths) > 1:
        names = ", ".join(lengths)
        one = next(iter(lengths.values()))
        value = next(value for value in proto.graph.input if value.name == one)
        sizes = [str(d.dim_value) if d.dim_value else "SIZE" for d in value.type.tensor_type.shape.dim][1:]
        yield OperatorIssue(
            severity="error",
            node=", ".join(dict.fromkeys(lengths.values())),
            operator="input",
            problem=f"{len(lengths)} free axes besides the batch ({names}); bins give a size to one",
            remedy="Give the others sizes in the dataset manifest, "
            f"inputs: {{{one}: {{axes: [batch, {', '.join(sizes)}]}}}}, or export the model with them.",
            source=_FIXED,
        )
