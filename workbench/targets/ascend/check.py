"""What is known to go wrong with a model or a candidate on Ascend 910B3, before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import ModelProto

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.ascend.interface import has_axis, interface_of
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.operators import axis_issues, check_operators
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.base import OperatorIssue
from workbench.targets.int8_issues import nothing_to_quantize, unreadable
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, LoweringError
from workbench.values.model import Model


def model_issues(proto: ModelProto) -> tuple[OperatorIssue, ...]:
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


def _operator_issues(proto: ModelProto) -> tuple[OperatorIssue, ...]:
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
