"""What ATC of CANN 8.5.0 does with an ONNX model for Ascend 910B3: a table of known troubles, each with its source.

The open operator library (ops-nn) and graph engine (ge) of tag v8.5.0 were read; a closed operator package exists
that nobody outside can read, so "not registered" means: not in the open one. The last word has ATC itself, whose first
step when it compiles names every operator that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto

from workbench.graph.apart import array_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import all_nodes
from workbench.graph.read import constants, load_graph, read_model
from workbench.graph.structure import structure_of
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.ascend.interface import has_axis, interface_of
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.base import OperatorIssue
from workbench.targets.description import ServiceStart, SpaceStart
from workbench.targets.int8_issues import QUANTIZED, nothing_to_quantize, unreadable
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, LoweringError
from workbench.values.model import Model

NOT_IN_OPS_NN = "ops-nn v8.5.0: no ONNX plugin registers it (atc.md §8); the closed operator package was not visible"

LARGEST_FP16 = 65504.0
SMALLEST_FP16 = 2.0**-25
"""Magnitudes at or below this round to zero in half precision (its smallest value is 2**-24)."""


AICPU_START_US = 60.0
"""To start one operator on an AI CPU, as the emulator models it; nobody measured it."""
_AICPU = f"{AICPU_START_US:g} us to start one is modelled; it and which operators an AI CPU runs are [inferred]"
_INTEGER_WORK = ("Add", "CumSum", "Div", "Max", "Min", "Mod", "Mul", "Pow", "ReduceMax", "ReduceSum", "Sub")


_QDQ = (*QUANTIZED, "DequantizeLinear")
_MASK = "Multiply by a mask, or do it on the host behind the model."
_CONSTANT = "Make it a constant of the model, or an input."
_SEQUENCE = "Export with Split and Concat in place of sequences."
ON_AN_AICPU: Mapping[str, str] = {
    "NonMaxSuppression": "Export the model up to it, and choose the boxes on the host.",
    "ReverseSequence": "Turn the axis by a Gather with a constant index, where all rows have one length.",
    "Det": "Write the determinant out for its fixed size, or do it on the host.",
    **dict.fromkeys(("EyeLike", "Multinomial"), _CONSTANT),
    **dict.fromkeys(("Compress", "NonZero", "Unique"), _MASK),
    **dict.fromkeys(("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"), _SEQUENCE),
    **dict.fromkeys(("SequenceLength", "ConcatFromSequence", "SplitToSequence"), _SEQUENCE),
}
"""Operators that run on an AI CPU while the cores wait → what may stand in their place."""


def model_issues(proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """Everything known of a model whatever the candidate, errors first."""
    return _errors_first((*axis_issues(proto), *_operator_issues(proto)))


def candidate_issues(model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
    """Everything known, errors first; what lowering mends is not named."""
    settings = AscendCompile.of(candidate)
    try:
        proto = load_graph(model)
    except ConfigError as error:
        return (unreadable(model, error),)
    issues = list(_shape_issues(model, settings))
    # bins and batches give every input its shape
    issues += [found for found in _operator_issues(proto) if "are dynamic" not in found.problem]
    if candidate.quantization.scheme != "none":
        layers = quantizable_layers(normalized(proto))
        products = [layer.name for layer in layers if layer.second is not None]
        if not layers:
            issues.append(nothing_to_quantize())
        elif products and candidate.quantization.attention_matmul:
            what = f"products of two activations ({len(products)})"
            problem = f"{what} become INT8 by a layout that no page shows [inferred]"
            remedy = "If ATC refuses it, set quantization.attention_matmul to false."
            issues.append(OperatorIssue("warning", products[0], problem, remedy, "amct.md §13, question 4", "MatMul"))
    return _errors_first(issues)


def _errors_first(issues: Iterable[OperatorIssue]) -> tuple[OperatorIssue, ...]:
    return tuple(sorted(issues, key=lambda found: found.severity))


def _operator_issues(proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """Of the form that ATC is given, so that what lowering mends is no issue."""
    try:
        return check_operators(atc_form(proto))
    except LoweringError as error:  # the table names every operator that lowering stumbled over, not only the first
        told = OperatorIssue(
            "error", "model", str(error), "Export the model again.", "what ATC 8.5.0 covers (atc.md §8)"
        )
        return (told, *check_operators(proto))


def _shape_issues(model: Model, settings: AscendCompile) -> Iterator[OperatorIssue]:
    try:
        interface = interface_of(model)
    except ConfigError as error:
        yield OperatorIssue(
            "error", "inputs", error.rule, error.hint or "", "one OM for each batch and bin (atc.md, fact 4)"
        )
        return
    bins, own = settings.sequence_bins, "the model's inputs"
    sequence = has_axis(interface, "sequence")
    if sequence and not bins:
        problem = "the inputs have a length and no bin is named: ATC needs a shape for every input (E10001)"
        remedy = "Name the padded lengths to compile, the longest at least the dataset's max_length."
        yield OperatorIssue("error", "compile.sequence_bins", problem, remedy, "atc.md §8 (E10001, value NULL)")
    if not sequence and bins:
        problem = f"the model has no free length, so bins {list(bins)} mean nothing"
        yield OperatorIssue("error", "compile.sequence_bins", problem, "Leave it out.", own)
    fixed = model.fixed_batch
    if fixed is not None and settings.batches != (fixed,):
        problem = f"the model's own batch is {fixed}, not {list(settings.batches)}"
        remedy = "Compile that one, or export the model with a free first axis."
        yield OperatorIssue("error", "compile.batches", problem, remedy, own)


def check_operators(proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """Everything known to go wrong with a model under ATC.

    Args:
        proto: from `workbench.graph.read.load_graph`, so that every node has a name.
    """
    return (
        *_operators(proto),
        *structure_issues(proto),
        *_inputs(proto),
        *_int64(proto),
        *_half_precision(proto),
    )


def _of_nodes(
    nodes: Sequence[onnx.NodeProto],
    severity: Literal["error", "warning"],
    problem: str,
    remedy: str,
    source: str,
    *,
    slow: bool = False,
) -> OperatorIssue:
    """One issue for all nodes that share it, named by the first."""
    first = nodes[0]
    name = first.name + (f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else "")
    operator = first.op_type if first.domain in ("", "ai.onnx") else f"{first.domain}.{first.op_type}"
    return OperatorIssue(severity, name, problem, remedy, source, operator=operator, slow=slow)


def _operators(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    found: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    for node in all_nodes(proto.graph):
        found.setdefault(("" if node.domain == "ai.onnx" else node.domain, node.op_type), []).append(node)
    for (domain, operator), nodes in found.items():
        if domain == "com.microsoft":
            remedy = "Use the file as it was before ONNX Runtime's optimizer or quantizer touched it."
            yield _of_nodes(nodes, "error", "an operator of ONNX Runtime, unknown to ATC", remedy, NOT_IN_OPS_NN)
        elif not domain and operator in _QDQ:
            problem = "ONNX's own quantization operators are not what ATC quantizes with"
            remedy = "Start from the float model; INT8 reaches ATC as a deploy model with AscendQuant operators."
            source = f"{NOT_IN_OPS_NN}; the advice there: do not feed QDQ models to ATC"
            yield _of_nodes(nodes, "error", problem, remedy, source)
        elif not domain and operator in ON_AN_AICPU:
            problem = "runs on an AI CPU, and the cores wait for it"
            cost = f": at least {len(nodes) * AICPU_START_US:g} us a call (modelled)"
            yield _of_nodes(nodes, "warning", f"{problem}{cost}", ON_AN_AICPU[operator], _AICPU, slow=True)


def _fed_inputs(proto: onnx.ModelProto) -> Iterator[tuple[onnx.ValueInfoProto, tuple[int, ...]]]:
    """Inputs that no constant stands for, and which of their axes are free."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in stored:
            axes = enumerate(value.type.tensor_type.shape.dim)
            yield value, tuple(i for i, d in axes if not d.HasField("dim_value") or d.dim_value < 1)


def _inputs(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    dynamic: dict[tuple[int, ...], list[str]] = {}
    for value, free in _fed_inputs(proto):
        if free:
            dynamic.setdefault(free, []).append(value.name)
    for free, names in dynamic.items():
        yield OperatorIssue(
            "warning",
            ", ".join(names),
            f"axes {', '.join(map(str, free))} are dynamic: ATC needs a shape for every input (else E10001), and an "
            "INT8 model takes no dynamic-shape flag",
            "Decide on batch sizes and sequence bins: each pair becomes one compiled file.",
            "atc.md §8 (E10001, value NULL); doc850 atctool_0040, General Restrictions (atc.md fact 4)",
            operator="input",
        )
    if separators := [value.name for value, _ in _fed_inputs(proto) if set(value.name) & set(":;")]:
        problem = "the name has a ':' or ';', which separate names and shapes in --input_shape"
        remedy, source = "Rename the input when exporting.", "atc.md §8 (E10016)"
        yield OperatorIssue("warning", ", ".join(separators), problem, remedy, source, operator="input")


def _int64(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Arithmetic on 64-bit integers that depends on what is fed."""
    known = constants(proto)
    types = {v.name: v.type.tensor_type.elem_type for v in (*proto.graph.value_info, *proto.graph.input)}
    types.update({name: tensor.data_type for name, tensor in known.items()})
    # what depends on shapes alone is folded when compiling
    fed, work = {value.name for value in proto.graph.input if value.name not in known}, []
    for node in proto.graph.node:
        if node.op_type not in ("Shape", "Size") and not fed.isdisjoint(node.input):
            fed.update(node.output)
            if node.op_type in _INTEGER_WORK and types.get(node.input[0]) == TensorProto.INT64:
                work.append(node)
    if work:
        problem = "computes on 64-bit integers, which the cores handle slowly and may leave to an AI CPU"
        remedy = "Cast to int32 (float32 for products beyond 2^31) before it, when exporting; feeds may stay int64."
        problem += f"; where one does, {len(work) * AICPU_START_US:g} us a call (modelled)"
        yield _of_nodes(work, "warning", problem, remedy, f"{_AICPU}; atc.md §8 (int64)", slow=True)


def _half_precision(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Float constants that fp16, ATC's default precision, cannot hold: mask values such as -3.4e38, tiny epsilons."""
    known, found = constants(proto), dict[float, list[onnx.NodeProto]]()
    extremes: dict[str, float] = {}
    for node in proto.graph.node:
        for name in node.input:
            if name not in known or known[name].data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE):
                continue
            if name not in extremes:
                values = array_of(known[name])
                extreme = float(values.flat[int(np.argmax(np.abs(values)))]) if values.size else 0.0
                tiny = values.size == 1 and 0 < abs(extreme) <= SMALLEST_FP16
                extremes[name] = extreme if tiny or abs(extreme) > LARGEST_FP16 else 0.0
            if extremes[name]:
                found.setdefault(extremes[name], []).append(node)
    for value, nodes in sorted(found.items(), key=lambda item: abs(item[0]) <= SMALLEST_FP16):
        if abs(value) > LARGEST_FP16:
            problem = f"the constant {value:.3g} is infinite in fp16; a softmax over a fully masked row then gives NaN"
            remedy = "Export the mask with -10000, or keep ATC's --is_weight_clip=1, its default."
            source = "atc.md §8: ModelZoo's fix_onnx scripts; that the clip covers mask constants is inferred from them"
        else:
            problem = f"the constant {value:.3g} is zero in fp16, so that it no longer guards a division"
            remedy = "Use an epsilon of 1e-5 or more, or keep this operator in fp32 (--keep_dtype)."
            source = "atc.md §8 (1e-9 under fp16); the rounding is IEEE 754's"
        yield _of_nodes(nodes, "warning", problem, remedy, source)


_FIXED = "one OM for each batch and bin, of fixed shapes (atc.md, fact 4)"
_INFERRED = f"{_FIXED}; no page shows this operator in a quantized model [inferred]"


def structure_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """By node, with what makes the model one that ATC takes."""
    found = structure_of(proto)
    for body in found.bodies:
        operator, _, name = body.node.partition(" ")
        inside = ", ".join(f"{kind} {count}" for kind, count in sorted(body.operators.items())[:6])
        decided = "inputs: {NAME: {constant: VALUE}} or inputs: {NAME: {axes: [batch, SIZE]}} in the dataset manifest"
        remedy = "Export one step without it, and carry the state over the steps (state: in the dataset manifest)."
        if operator == "If":
            remedy = f"Declare what decides it, so that the branch taken takes its place: {decided}."
        problem = f"control flow, with {sum(body.operators.values())} nodes inside ({inside})"
        yield OperatorIssue("error", name.strip("'→ "), problem, remedy, _INFERRED, operator=operator)
    for cause in dict.fromkeys(found.sized_by_data.values()):
        names = ", ".join(output for output, each in found.sized_by_data.items() if each == cause)
        operator, _, name = cause.partition(" ")
        problem = f"from here on the size of {names} depends on the values that are fed, which no fixed shape holds"
        remedy = "Export the part before it as the model for this target, and run the rest on the host."
        yield OperatorIssue("error", name.strip("'→ "), problem, remedy, f"{_FIXED} [inferred]", operator=operator)


def axis_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """Free axes beyond a batch and one length, which bins cannot give a size."""
    lengths: dict[str, onnx.ValueInfoProto] = {}
    for value, free in _fed_inputs(proto):
        dims = value.type.tensor_type.shape.dim
        for axis in filter(None, free):  # the first is the batch
            lengths.setdefault(dims[axis].dim_param or f"axis {axis} of {value.name}", value)
    if len(lengths) > 1:
        one = next(iter(lengths.values()))
        sizes = ", ".join(str(d.dim_value) if d.dim_value else "SIZE" for d in one.type.tensor_type.shape.dim[1:])
        yield OperatorIssue(
            "error",
            ", ".join(dict.fromkeys(value.name for value in lengths.values())),
            f"{len(lengths)} free axes besides the batch ({', '.join(lengths)}); bins give a size to one",
            "Give the others sizes in the dataset manifest, "
            f"inputs: {{{one.name}: {{axes: [batch, {sizes}]}}}}, or export the model with them.",
            _FIXED,
            operator="input",
        )


# --- what a first search space begins with: fusions that this graph has something for, and a service ------------------


_ELEMENTWISE = frozenset(
    ("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Neg", "Pow")
) | {"PRelu", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh"}
_PRODUCTS = frozenset(("MatMul", "Gemm"))
_HOST = (
    "# The host in front of the card is measured on a machine that has one. Without a card, state what you know:",
    '# host: {cores: 16, request_ms: 0.15, batch_ms: 0.2, worker_batch_ms: 0.1, network_ms: 4.6, origin: "assumed"}',
)
_CONFIGURATION = (
    "AMCT's own configuration can be a candidate too: put cfg behind the schemes below, and",
    "  quantization.cfg:",
    "    when: {quantization.scheme: [cfg]}",
    "    choices: [../calibration/amct.cfg]   # relative to this file; written for `amct_onnx calibration --config`",
)


def space_start(model: Path) -> SpaceStart:
    """What the graph has something for; nothing is compiled."""
    proto = load_graph(read_model(model))
    layers = quantizable_layers(normalized(proto))
    channels = any(layer.op_type in ("Conv", "ConvTranspose") for layer in layers)
    products = any(layer.op_type in _PRODUCTS for layer in layers)
    return SpaceStart(
        algorithms=("ifmr", "mse", "minmax", "hfmg"),
        # one scale per output channel is for convolutions; AMCT refuses it where MatMul and Gemm stand beside them
        granularity=("tensor",) if not channels else ("tensor", "channel") if products else ("channel", "tensor"),
        weight_algorithms=("arq",),
        parameters={"precision.mode": ("force_fp16", "allow_mix_precision"), **_small_channels(proto)},
        fusions=groups_that_can_fire(proto),
        int8_fusions=("dequant_elementwise", "quant_elementwise") if products else (),
        notes=_CONFIGURATION if layers else (),
        service=ServiceStart(
            max_batch_size=(16, 8, 1),
            batch_timeout_ms=(10, 0, 2, 5),
            workers=(2, 1),
            concurrency=100,
            host=_HOST,
            today=(16, 10, 2),
        ),
        calibration_samples=32,
        scored=(250, 400),
        rehearsal='eval "$(workbench emulator env)"',
    )


def groups_that_can_fire(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Fusion groups on by default that find a pattern of theirs in a float graph, by operators and neighbours."""
    operators = {node.op_type for node in proto.graph.node}
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    read = ((name, node.op_type) for node in proto.graph.node for name in node.input)
    pairs = {(makers[name], reader) for name, reader in read if name in makers}
    small_norm = {"ReduceMean", "Sqrt", "Div", "Sub"} <= operators
    found = {
        "layer_norm": small_norm or "LayerNormalization" in operators,
        "gelu": "Erf" in operators or "Gelu" in operators,
        "softmax": {"Exp", "ReduceSum", "Div"} <= operators,
        "matmul_elementwise": any(a in _PRODUCTS and b in _ELEMENTWISE for a, b in pairs),
        "matmul_transpose": any({"Transpose"} & {a, b} and _PRODUCTS & {a, b} for a, b in pairs),
        "layout": bool({("Transpose", "Reshape"), ("Reshape", "Transpose")} & pairs),
        "elementwise": any(a in _ELEMENTWISE and b in _ELEMENTWISE for a, b in pairs),
    }
    return tuple(name for name, fires in found.items() if fires)


def _small_channels(proto: onnx.ModelProto) -> dict[str, tuple[bool, ...]]:
    known = constants(proto)
    few = any(
        node.op_type == "Conv"
        and len(node.input) > 1
        and node.input[1] in known
        and len(known[node.input[1]].dims) == 4
        and known[node.input[1]].dims[1] <= 4
        and not any(a.name == "group" and a.i > 1 for a in node.attribute)
        for node in proto.graph.node
    )
    return {"compile.enable_small_channel": (False, True)} if few else {}
