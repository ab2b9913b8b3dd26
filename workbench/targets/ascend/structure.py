"""What of a graph cannot become one compiled file of fixed shapes: branches, loops, sizes from data, free axes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from workbench.graph.structure import structure_of
from workbench.targets.base import OperatorIssue

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
