"""Inspecting a model before any work: what it takes and gives, what INT8 can serve, and what will hurt where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx
from onnx import TensorProto

from workbench.graph.apart import array_of
from workbench.graph.intake.prepared import prepared
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph, operator_counts
from workbench.graph.structure import structure_of
from workbench.quantization.lowering.normalize import normalized
from workbench.study.model_data import declared_of
from workbench.targets import described, graph_targets, target_names
from workbench.targets.base import OperatorIssue
from workbench.targets.description import TargetDescription
from workbench.targets.int8_issues import QUANTIZED
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Quantization
from workbench.values.errors import CandidateError, ConfigError, ToolchainError, nearest
from workbench.values.model import Model, axes_text
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:  # a bundle or a test that inspects does not need a terminal
    from rich.console import Group

_DYNAMIC_INT8 = Quantization(scheme="dynamic", weight_granularity="channel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a model is made of and what is known to go wrong with it.

    Attributes:
        opsets: domain → version; ONNX's own domain is 'ai.onnx'.
        operators: operator → nodes of the top graph, by name.
        inside: node → operators in its bodies (If, Loop, Scan), at any depth.
        layers: what INT8 can serve, in graph order.
        parameters: elements of all float constants.
        issues: target → troubles, errors first; 'every target' for those of the model itself.
    """

    model: Model
    opsets: Mapping[str, int]
    operators: Mapping[str, int]
    inside: Mapping[str, Mapping[str, int]]
    layers: tuple[Layer, ...]
    parameters: int
    issues: Mapping[str, tuple[OperatorIssue, ...]]


def inspect_model(
    path: Path, target: str | None = None, *, manifest: Path | None = None, constants: Sequence[str] = ()
) -> Inspection:
    """Prepare a model as a sweep would and look for everything known to hurt.

    Where it cannot be prepared, that is the first issue, and the file itself is looked at.

    Args:
        target: a target's name; None for all that are installed, and then one whose library is missing is told as
            an issue.
        manifest: a dataset manifest that says what the inputs are.
        constants: inputs that are built in, as NAME=VALUE.

    Raises:
        ConfigError: no such target, the file is missing, damaged or lacks its external data, or what is said of the
            inputs does not fit it.
        ToolchainError: the named target's own check needs a library that is missing.
    """
    if target is not None and target not in target_names():
        raise ConfigError(f"{target!r} is not a target.", key="--target", hint=nearest(target, target_names()))
    asked = graph_targets() if target is None else (described(target),)
    if target is not None and asked[0].language:
        raise ConfigError(f"{target!r} takes folders of language models, no ONNX files.", key="--target")
    source, declared = declared_of(path, manifest, constants)
    said: tuple[OperatorIssue, ...] = ()
    try:
        model = prepared(source, declared, declared_in=manifest)
    except ConfigError as error:
        if declared.inputs and error.key is not None:  # the user's own words are the user's to mend
            raise
        node = (error.key or "model").removeprefix("inputs.")
        model, said = source, (_issue("error", node, "input" if error.key else "", error.rule, error.hint or ""),)
    proto = load_graph(model)
    general = (*said, *structure_issues(proto), *_model_issues(model, proto))
    found = {"every target": tuple(sorted(general, key=lambda issue: issue.severity))}
    for one in asked:
        if one.inspect is not None:
            found[one.name] = one.inspect(proto)
            continue
        try:
            issues = _issues_of(one, model)
            refused = any(issue.severity == "error" and issue.operator == "" for issue in issues)
            found[one.name] = issues if refused else (*opening_issues(one, model, len(proto.graph.node)), *issues)
        except ToolchainError as error:
            if target is not None:
                raise
            problem = f"it was not asked about this model: {error}"
            remedy = "Optional: without it this target cannot be swept; the others are not concerned."
            found[one.name] = (_issue("warning", one.name, "target", problem, remedy, "this machine"),)
    return Inspection(
        model=model,
        opsets={o.domain or "ai.onnx": int(o.version) for o in proto.opset_import},
        operators=operator_counts(proto),
        inside={body.node: dict(sorted(body.operators.items())) for body in structure_of(proto).bodies},
        layers=quantizable_layers(normalized(proto)),
        parameters=sum(
            int(np.prod(tensor.dims))
            for tensor in proto.graph.initializer
            if tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
        ),
        issues=found,
    )


def _issues_of(target: TargetDescription, model: Model) -> tuple[OperatorIssue, ...]:
    """What the target says of INT8 in both schemes, errors first.

    Static INT8 of everything that can be quantized stands for the model: what fails there, fails. What dynamic INT8
    alone stumbles over is a warning, for the search can do without it. A scheme that the target does not have says
    nothing; with neither it is asked about float.
    """
    opened = target.make()
    found: dict[str, tuple[OperatorIssue, ...]] = {}
    for quantization in (EVERYTHING_INT8, _DYNAMIC_INT8, Quantization()):
        if quantization.scheme == "none" and found:
            break
        try:
            candidate = Candidate(target=target.name, quantization=quantization)
        except ConfigError:
            continue
        found[quantization.scheme] = opened.check(model, candidate)
    known = found.get("static", ())
    if "dynamic" in found:
        more = (replace(issue, severity="warning") for issue in found["dynamic"] if issue not in known)
        found["dynamic"] = tuple(more)
    return tuple(sorted((issue for each in found.values() for issue in each), key=lambda issue: issue.severity))


def _model_issues(model: Model, proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """What hurts wherever the model runs."""
    issues = []
    for name, tensor in constants(proto).items():
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            values = array_of(tensor)
            if np.isnan(values).any() or (values.size > 1 and np.isinf(values).any()):
                wrong = f"{int((~np.isfinite(values)).sum())} of {values.size} values are not finite"
                remedy = "Export again from a sound checkpoint; no scale can be derived from this."
                issues.append(_issue("error", name, "constant", wrong, remedy))
    for spec in model.inputs:
        unnamed = [str(i) for i, d in enumerate(spec.shape) if d is None]
        if unnamed:
            wrong = f"axes {', '.join(unnamed)} are dynamic and have no name, so nothing ties them together"
            remedy = "Export with named dynamic axes, the same name where two inputs share a length."
            issues.append(_issue("warning", spec.name, "input", wrong, remedy))
        if spec.shape and isinstance(spec.shape[0], int):
            wrong = f"its batch is fixed at {spec.shape[0]}, so no other can be measured or served"
            remedy = f"Export with a dynamic first axis, or set serving.batch to {spec.shape[0]} alone."
            issues.append(_issue("warning", spec.name, "input", wrong, remedy))
    return tuple(sorted(issues, key=lambda issue: issue.severity))


def inspection_table(found: Inspection) -> Group:
    """The inspection for a terminal: the model, its layers, and last, where the eye is, the troubles."""
    from rich.console import Group, RenderableType
    from rich.padding import Padding
    from rich.table import Column, Table
    from rich.text import Text

    model = found.model
    opsets = ", ".join(f"{domain} {version}" for domain, version in found.opsets.items())
    path = model.path if model.origin is None else model.origin.path
    head = Text.assemble(
        (str(path), "bold"),
        f"\n{model.size_bytes / 1e6:.1f} MB, {found.parameters / 1e6:.2f} M parameters, opset {opsets}, "
        f"sha256 {model.sha256[:12]}",
    )
    if model.origin is not None:
        head.append(f"\nprepared from the file with sha256 {model.origin.sha256[:12]}, as sweeps work on it:")
        for step in model.origin.steps:
            figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in step.figures)
            head.append(f"\n  {step.name}: {step.words}" + (f" ({figures})" if figures else ""))
    tensors = Table("", "tensor", "type", "shape", box=None, pad_edge=False)
    for role, specs in (("in", model.inputs), ("out", model.outputs)):
        for spec in specs:
            tensors.add_row(role, Text(spec.name), spec.dtype, Text(axes_text(spec.shape)))
    operators = Text()
    for about, counts in {
        "operators": found.operators,
        **{f"\ninside {n}": c for n, c in found.inside.items()},
    }.items():
        most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        operators.append(f"{about}: " + ", ".join(f"{name} {count}" for name, count in most_first))
    layers = Table(
        Column("layer INT8 can serve", f"{len(found.layers)} layers", overflow="fold"),
        Column("multiplies by"),
        Column("parameters", f"{sum(layer.parameters for layer in found.layers):,}", justify="right"),
        Column("MACs", justify="right"),
        box=None,
        pad_edge=False,
        show_footer=True,
    )
    for layer in found.layers:
        weight = "×".join(map(str, layer.weight_shape)) or ("an activation" if layer.second else "nothing")
        layers.add_row(Text(layer.name), f"{layer.op_type} {weight}", f"{layer.parameters:,}", _macs(layer))
    parts: list[RenderableType] = [head, Text(), tensors, Text(), operators, Text()]
    parts.append(layers if found.layers else Text("no layer that INT8 can serve", style="bold"))
    for target, issues in found.issues.items():
        errors = sum(issue.severity == "error" for issue in issues)
        said = f"{errors} errors, {len(issues) - errors} warnings" if issues else "nothing known to hurt"
        parts += [Text(), Text(f"{target}: {said}", style="bold")]
        for issue in issues:
            style = "bold red" if issue.severity == "error" else "yellow"
            title = Text.assemble((issue.severity, style), f"  {issue.node}", (f"  {issue.operator}", "dim"))
            detail = Text.assemble(f"{issue.problem}\n→ {issue.remedy}\n", (f"source: {issue.source}", "dim"))
            parts += [Padding(title, (0, 0, 0, 2)), Padding(detail, (0, 0, 0, 11))]
    return Group(*parts)


def _macs(layer: Layer) -> str:
    if layer.macs is None:
        return "grows with length" if layer.second is not None else "?"
    size = f"{layer.macs / 1e6:.2f} M" if layer.macs >= 10_000 else f"{layer.macs:,}"
    return f"{size} / {layer.macs_per}"


_SOURCE = "the model itself"
_UNFOLD = {
    "If": "Where an input or a size decides it, declare that: inputs: {NAME: {constant: VALUE}} or "
    "inputs: {NAME: {axes: [batch, SIZE]}}; the branch that is taken then takes its place."
}
_ONE_STEP = "Export the model for one step, and carry its state over the steps (state: in the dataset manifest)."


def structure_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """What about the graph's structure keeps layers in float, or sizes from being known."""
    found = structure_of(proto)
    for body in (body for body in found.bodies if body.layers):
        rule = f"{body.layers} layers inside stay in float: no target quantizes inside of it"
        yield _issue("warning", body.node, body.operator, rule, _UNFOLD.get(body.operator, _ONE_STEP))
    if empty := [body for body in found.bodies if not body.layers]:
        first, more = empty[0], f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        held = sum(sum(body.operators.values()) for body in empty)
        rule = f"control flow, with {held} nodes inside, none of them a layer"
        yield _issue("warning", first.node + more, first.operator, rule, _UNFOLD.get(first.operator, _ONE_STEP))
    if found.random:
        names = ", ".join(found.random[:4]) + (f" and {len(found.random) - 4} more" if len(found.random) > 4 else "")
        operator, _, node = found.random[0].partition(" ")
        rule = f"random numbers are drawn, but reach no output with these inputs: {names}"
        remedy = "Nothing to do, as long as the same constants are used in production."
        yield _issue("warning", node.strip("'→ "), operator, rule, remedy)
    for cause in dict.fromkeys(found.sized_by_data.values()):
        names = ", ".join(name for name, each in found.sized_by_data.items() if each == cause)
        rule = f"the size of {names} depends on the values that are fed, from this node on"
        remedy = (
            "Samples are run one by one, and INT8 may give another length than float: compare by a metric of your own, "
            "or export the part before it."
        )
        yield _issue("warning", cause, "output", rule, remedy)
    for domain, operators in found.foreign.items():
        rule = "operators outside of ONNX's own domain: only runtimes that know them execute this file"
        yield _issue("warning", domain, ", ".join(operators), rule, "Export the model in the default domain only.")
    if integer := [node for node in proto.graph.node if node.op_type in QUANTIZED]:
        rule = (
            f"the model is quantized already ({len(integer)} nodes quantize or compute in integers; "
            f"{len(quantizable_layers(normalized(proto)))} float layers are left), so that its float baseline is not "
            "float"
        )
        remedy = "Start from the float model that this one was made from."
        yield _issue("error", integer[0].name, integer[0].op_type, rule, remedy)


MOST_OPENED = 5000


def opening_issues(target: TargetDescription, model: Model, nodes: int) -> tuple[OperatorIssue, ...]:
    """What the target says when it really compiles the float model and loads it.

    Args:
        nodes: of the graph. A compiler's time may grow with their square (one of ours: 10,000 take 10 s, 60,000
            minutes), so that a graph of very many is left to the sweep, and it says so.
    """
    if nodes > MOST_OPENED:
        problem = f"whether it compiles was not tried: {nodes} nodes are more than {MOST_OPENED}, and may take minutes"
        remedy = "`workbench sweep` compiles it first of all."
        return (_issue("warning", "model", "", problem, remedy, "the number of nodes"),)
    try:
        opened, candidate = target.make(), Candidate(target=target.name)
    except ConfigError:  # no float on this target, or no candidate without settings
        return ()
    try:
        with scratch_folder("inspect") as folder:
            for part in ("lowered", "compiled"):
                (folder / part).mkdir()
            lowered = opened.lower(model, candidate, None, folder / "lowered")
            artifact = opened.compile(lowered, candidate, folder / "compiled")
            opened.open(artifact, folder / "compiled", candidate).close()
    except CandidateError as error:
        problem = f"it does not {error.stage if error.stage in ('lower', 'compile') else 'load'}: {error}"
        remedy = "Export the model without what it names, or sweep the other targets."
        return (_issue("error", "model", "", problem, remedy, "measured here"),)
    return ()


def _issue(
    severity: Literal["error", "warning"], node: str, operator: str, problem: str, remedy: str, source: str = _SOURCE
) -> OperatorIssue:
    return OperatorIssue(severity=severity, node=node, operator=operator, problem=problem, remedy=remedy, source=source)
