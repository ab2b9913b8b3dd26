"""What inspection does with a model before it asks any target: prepare it, look at its structure, try to open it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx

from workbench.graph.door import open_foreign
from workbench.graph.intake.assume import assumed, constants_of
from workbench.graph.intake.prepared import prepared
from workbench.graph.layers import quantizable_layers
from workbench.graph.structure import structure_of
from workbench.inputs.dataset.interface_reader import read_interface
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.base import OperatorIssue
from workbench.targets.description import TargetDescription
from workbench.targets.int8_issues import QUANTIZED
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.interface import NOTHING_DECLARED
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

_SOURCE = "the model itself"
_UNFOLD = {
    "If": "Where an input or a size decides it, declare that: inputs: {NAME: {constant: VALUE}} or "
    "inputs: {NAME: {axes: [batch, SIZE]}}; the branch that is taken then takes its place."
}
_ONE_STEP = "Export the model for one step, and carry its state over the steps (state: in the dataset manifest)."


def looked_at(
    path: Path, *, manifest: Path | None, constants: Sequence[str]
) -> tuple[Model, tuple[OperatorIssue, ...]]:
    """(the prepared model, or the file itself where that cannot be, what there is to say about preparing it).

    Raises:
        ConfigError: the file is no sound model, or what the manifest or the constants say does not fit it.
    """
    source = open_foreign(path)
    declared = NOTHING_DECLARED if manifest is None else read_interface(manifest)
    given = constants_of(constants, source)
    named = {use.name for use in given}
    declared = replace(declared, inputs=(*(use for use in declared.inputs if use.name not in named), *given))
    interface, reasons = assumed(source, declared)
    said = tuple(
        _issue(
            "warning",
            name,
            "input",
            f"{words}: no manifest says what it is",
            f"Say it: --constant {name}=VALUE, or inputs: {{{name}: {{constant: VALUE}}}} in the dataset manifest.",
        )
        for name, words in reasons
    )
    try:
        return prepared(source, interface, declared_in=manifest), said
    except ConfigError as error:
        if declared.inputs and error.key is not None:  # the user's own words are the user's to mend
            raise
        node = (error.key or "model").removeprefix("inputs.")
        return source, (_issue("error", node, "input" if error.key else "", error.rule, error.hint or ""), *said)


def structure_issues(proto: onnx.ModelProto) -> Iterator[OperatorIssue]:
    """What about the graph's structure keeps layers in float, or sizes from being known."""
    found = structure_of(proto)
    for body in (body for body in found.bodies if body.layers):
        rule = f"{body.layers} layers inside stay in float: no target quantizes inside of it"
        yield _issue("warning", body.node, body.operator, rule, _UNFOLD.get(body.operator, _ONE_STEP))
    empty = [body for body in found.bodies if not body.layers]
    if empty:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        held = sum(sum(body.operators.values()) for body in empty)
        rule = f"control flow, with {held} nodes inside, none of them a layer"
        yield _issue(
            "warning", empty[0].node + more, empty[0].operator, rule, _UNFOLD.get(empty[0].operator, _ONE_STEP)
        )
    if found.random:
        names = ", ".join(found.random[:4]) + (f" and {len(found.random) - 4} more" if len(found.random) > 4 else "")
        yield _issue(
            "warning",
            found.random[0].partition(" ")[2].strip("'→ "),
            found.random[0].partition(" ")[0],
            f"random numbers are drawn, but reach no output with these inputs: {names}",
            "Nothing to do, as long as the same constants are used in production.",
        )
    for cause in dict.fromkeys(found.sized_by_data.values()):
        names = ", ".join(name for name, each in found.sized_by_data.items() if each == cause)
        yield _issue(
            "warning",
            cause,
            "output",
            f"the size of {names} depends on the values that are fed, from this node on",
            "Samples are run one by one, and INT8 may give another length than float: compare by a metric of your own, "
            "or export the part before it.",
        )
    for domain, operators in found.foreign.items():
        yield _issue(
            "warning",
            domain,
            ", ".join(operators),
            "operators outside of ONNX's own domain: only runtimes that know them execute this file",
            "Export the model in the default domain only.",
        )
    integer = [node for node in proto.graph.node if node.op_type in QUANTIZED]
    if integer:
        left = len(quantizable_layers(normalized(proto)))
        yield _issue(
            "error",
            integer[0].name,
            integer[0].op_type,
            f"the model is quantized already ({len(integer)} nodes quantize or compute in integers; {left} float "
            "layers are left), so that its float baseline is not float",
            "Start from the float model that this one was made from.",
        )


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
        remedy = "Export the model without what it names, or sweep the other targets."
        return (
            _issue(
                "error", "model", "", f"it does not {_DOES.get(error.stage, 'load')}: {error}", remedy, "measured here"
            ),
        )
    return ()


_DOES: Mapping[str, str] = {"lower": "lower", "compile": "compile", "measure": "load"}


def _issue(
    severity: Literal["error", "warning"], node: str, operator: str, problem: str, remedy: str, source: str = _SOURCE
) -> OperatorIssue:
    return OperatorIssue(severity=severity, node=node, operator=operator, problem=problem, remedy=remedy, source=source)
