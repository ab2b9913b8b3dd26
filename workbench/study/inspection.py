"""Inspecting a model before any work: what it takes and gives, what INT8 can serve, and what will hurt where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from workbench.graph.apart import array_of
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph, operator_counts
from workbench.graph.structure import structure_of
from workbench.quantization.lowering.normalize import normalized
from workbench.study.looking import looked_at, opening_issues, structure_issues
from workbench.targets import described, graph_targets, target_names
from workbench.targets.base import OperatorIssue
from workbench.targets.description import TargetDescription
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Quantization
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.model import Model, TensorSpec

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
    model, said = looked_at(path, manifest=manifest, constants=constants)
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
            found[one.name] = (_not_asked(one.name, error),)
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
    issues: tuple[OperatorIssue, ...] = ()
    schemes = 0
    for quantization in (EVERYTHING_INT8, _DYNAMIC_INT8, Quantization()):
        if quantization.scheme == "none" and schemes:
            break
        try:
            candidate = Candidate(target=target.name, quantization=quantization)
        except ConfigError:
            continue
        found = opened.check(model, candidate)
        schemes += 1
        if quantization.scheme == "dynamic":
            found = tuple(replace(issue, severity="warning") for issue in found if issue not in issues)
        issues += found
    return tuple(sorted(issues, key=lambda issue: issue.severity))


def _not_asked(target: str, error: ToolchainError) -> OperatorIssue:
    return OperatorIssue(
        severity="warning",
        node=target,
        operator="target",
        problem=f"it was not asked about this model: {error}",
        remedy="Optional: without it this target cannot be swept; the others are not concerned.",
        source="this machine",
    )


def _model_issues(model: Model, proto: onnx.ModelProto) -> tuple[OperatorIssue, ...]:
    """What hurts wherever the model runs."""
    issues = []
    for name, tensor in constants(proto).items():
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            values = array_of(tensor)
            if np.isnan(values).any() or (values.size > 1 and np.isinf(values).any()):
                issues.append(
                    OperatorIssue(
                        severity="error",
                        node=name,
                        operator="constant",
                        problem=f"{int((~np.isfinite(values)).sum())} of {values.size} values are not finite",
                        remedy="Export again from a sound checkpoint; no scale can be derived from this.",
                        source="the model itself",
                    )
                )
    for spec in model.inputs:
        unnamed = [str(i) for i, d in enumerate(spec.shape) if d is None]
        if unnamed:
            issues.append(
                OperatorIssue(
                    severity="warning",
                    node=spec.name,
                    operator="input",
                    problem=f"axes {', '.join(unnamed)} are dynamic and have no name, so nothing ties them together",
                    remedy="Export with named dynamic axes, the same name where two inputs share a length.",
                    source="the model itself",
                )
            )
        if spec.shape and isinstance(spec.shape[0], int):
            issues.append(
                OperatorIssue(
                    severity="warning",
                    node=spec.name,
                    operator="input",
                    problem=f"its batch is fixed at {spec.shape[0]}, so no other can be measured or served",
                    remedy=f"Export with a dynamic first axis, or set serving.batch to {spec.shape[0]} alone.",
                    source="the model itself",
                )
            )
    return tuple(sorted(issues, key=lambda issue: issue.severity))


def inspection_json(found: Inspection) -> dict[str, Any]:
    """Plain data for programs; `version` changes when a key changes its meaning."""
    return {"version": 1, **encode(found)}


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
            tensors.add_row(role, Text(spec.name), spec.dtype, Text(shape_text(spec)))
    counts = sorted(found.operators.items(), key=lambda item: (-item[1], item[0]))
    operators = Text("operators: " + ", ".join(f"{name} {count}" for name, count in counts))
    for node, inner in found.inside.items():
        counts = sorted(inner.items(), key=lambda item: (-item[1], item[0]))
        operators.append(f"\ninside {node}: " + ", ".join(f"{name} {count}" for name, count in counts))
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
        parts += [Text(), Text(f"{target}: {_count(issues)}", style="bold")]
        for issue in issues:
            style = "bold red" if issue.severity == "error" else "yellow"
            title = Text.assemble((issue.severity, style), f"  {issue.node}", (f"  {issue.operator}", "dim"))
            detail = Text.assemble(f"{issue.problem}\n→ {issue.remedy}\n", (f"source: {issue.source}", "dim"))
            parts += [Padding(title, (0, 0, 0, 2)), Padding(detail, (0, 0, 0, 11))]
    return Group(*parts)


def shape_text(spec: TensorSpec) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in spec.shape) + "]"


def _macs(layer: Layer) -> str:
    if layer.macs is None:
        return "grows with length" if layer.second is not None else "?"
    size = f"{layer.macs / 1e6:.2f} M" if layer.macs >= 10_000 else f"{layer.macs:,}"
    return f"{size} / {layer.macs_per}"


def _count(issues: tuple[OperatorIssue, ...]) -> str:
    if not issues:
        return "nothing known to hurt"
    errors = sum(issue.severity == "error" for issue in issues)
    return f"{errors} errors, {len(issues) - errors} warnings"
