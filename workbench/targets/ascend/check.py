"""What is known to go wrong with a model or a candidate on Ascend 910B3, before any work."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from onnx import ModelProto

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.graph.write import write_model
from workbench.quantization.amct.config import unsupported
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import wants
from workbench.targets.ascend.amct.process import amct_is_named
from workbench.targets.ascend.atc.atc import (
    Run,
    compile_environment,
    compile_timeout_s,
    find_atc,
    place_model,
    run_atc,
    work_directory,
)
from workbench.targets.ascend.atc.codes import explain
from workbench.targets.ascend.atc.command import ONNX, argument_vector
from workbench.targets.ascend.atc.failure import failure_of
from workbench.targets.ascend.flags import VARIABLE, operators_environment
from workbench.targets.ascend.interface import has_axis, interface_of
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.operators import NOT_IN_OPS_NN, check_operators
from workbench.targets.ascend.settings import SOC_VERSION, AscendCompile
from workbench.targets.base import OperatorIssue
from workbench.targets.int8_issues import nothing_to_quantize
from workbench.values.candidate import Candidate
from workbench.values.documents.json_reader import loads
from workbench.values.errors import CheckError, CompileError, ConfigError, LoweringError, ToolchainError
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

_log = logging.getLogger(__name__)


def candidate_issues(model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
    """Everything known, errors first; what lowering mends is not named."""
    settings = candidate.compile
    assert isinstance(settings, AscendCompile)  # Candidate checks it
    try:
        proto = load_graph(model)
        lowered = atc_form(proto)
        operators = operators_environment(dict(settings.options))
    except (ConfigError, LoweringError) as error:
        return (_issue("error", str(model.path), str(error), "Export the model again.", "the model itself"),)
    except CompileError as error:
        return (_issue("error", "compile.custom_opp_path", str(error), "", "the space"),)
    issues = list(_shape_issues(model, settings))
    # bins and batches give every input its shape
    issues += [issue for issue in known_and_asked(lowered, operators) if "are dynamic" not in issue.problem]
    if candidate.quantization.scheme != "none":
        issues += _int8_issues(proto, candidate)
    return tuple(sorted(issues, key=lambda issue: issue.severity))


def known_and_asked(lowered: ModelProto, operators: Mapping[str, str] | None = None) -> tuple[OperatorIssue, ...]:
    """What the table of operators knows about a lowered model, and what ATC says of it where there is an ATC.

    Args:
        operators: of `operators_environment`; without it those that this process's environment names.

    ATC has the last word: an operator that it takes is no trouble, although the open library lacks it.
    """
    known = check_operators(lowered)
    said = _said_by_atc(lowered, {**os.environ, **(operators or {})})
    if said is None:
        return known
    if not said:
        known = tuple(issue for issue in known if not issue.source.startswith(NOT_IN_OPS_NN))
    return (*known, *said)


_SAID: dict[tuple[str, str, str], tuple[OperatorIssue, ...] | None] = {}
"""(CANN's folder, custom operators, digest of a model) → what ATC said: candidates of a sweep ask about one file."""


def _said_by_atc(lowered: ModelProto, environment: Mapping[str, str]) -> tuple[OperatorIssue, ...] | None:
    """What `atc --mode=3` refuses; None without an ATC that could be asked, or when it gives no verdict."""
    digest = hashlib.sha256(lowered.SerializeToString(deterministic=True)).hexdigest()  # weights apart by their place
    key = (environment.get("ASCEND_HOME_PATH", ""), environment.get(VARIABLE, ""), digest)
    if key not in _SAID:
        with scratch_folder("check") as folder:
            file = folder / "model.onnx"
            write_model(lowered, file)
            try:
                _SAID[key] = check_model(file, soc_version=SOC_VERSION, environment=environment)
            except ToolchainError:
                _SAID[key] = None
            except CheckError as error:  # it died or said nothing: compiling has the last word, and keeps its log
                _log.warning("ATC's pre-check gave no verdict, so that only compiling will tell. %s", error)
                _SAID[key] = None
    return _SAID[key]


def _shape_issues(model: Model, settings: AscendCompile) -> Iterator[OperatorIssue]:
    try:
        interface = interface_of(model)
    except ConfigError as error:
        yield _issue("error", "inputs", error.rule, error.hint or "", "one OM for each batch and bin (atc.md, fact 4)")
        return
    sequence = has_axis(interface, "sequence")
    if sequence and not settings.sequence_bins:
        yield _issue(
            "error",
            "compile.sequence_bins",
            "the inputs have a length and no bin is named: ATC needs a shape for every input (E10001)",
            "Name the padded lengths to compile, the longest at least the dataset's max_length.",
            "atc.md §8 (E10001, value NULL)",
        )
    if not sequence and settings.sequence_bins:
        yield _issue(
            "error",
            "compile.sequence_bins",
            f"the model has no free length, so bins {list(settings.sequence_bins)} mean nothing",
            "Leave it out.",
            "the model's inputs",
        )
    fixed = model.fixed_batch
    if fixed is not None and settings.batches != (fixed,):
        yield _issue(
            "error",
            "compile.batches",
            f"the model's own batch is {fixed}, not {list(settings.batches)}",
            "Compile that one, or export the model with a free first axis.",
            "the model's inputs",
        )


def _int8_issues(proto: ModelProto, candidate: Candidate) -> Iterator[OperatorIssue]:
    layers = quantizable_layers(normalized(proto))
    if not layers:
        yield nothing_to_quantize()
    if candidate.quantization.scheme == "static" and _asks_amct(candidate):
        yield from _left_by_amct([layer for layer in layers if wants(candidate.quantization, layer)], layers)
    products = [layer for layer in layers if layer.second is not None]
    if products and candidate.quantization.attention_matmul:
        yield replace(
            _issue(
                "warning",
                products[0].name,
                f"products of two activations ({len(products)}) become INT8 by a layout that no page shows [inferred]",
                "If ATC refuses it, set quantization.attention_matmul to false.",
                "amct.md §13, question 4",
            ),
            operator="MatMul",
        )


def _asks_amct(candidate: Candidate) -> bool:
    asked = candidate.quantization.calibrator
    return asked == "amct" or (asked is None and amct_is_named(os.environ))


def _left_by_amct(wanted: Sequence[Layer], layers: Sequence[Layer]) -> Iterator[OperatorIssue]:
    """Layers that a candidate would have in INT8 and AMCT leaves in float; an error where those are all."""
    reasons = unsupported(layers)
    left = [layer for layer in wanted if layer.name in reasons]
    if not left:
        return
    first = left[0]
    every = len(left) == len(wanted)
    yield replace(
        _issue(
            "error" if every else "warning",
            first.name,
            f"AMCT quantizes {'none' if every else len(wanted) - len(left)} of the {len(wanted)} layers that would be "
            f"INT8; of {first.name!r}: {reasons[first.name]}",
            "A sweep for a target on the processor quantizes them: `workbench init` writes one."
            if every
            else "What it leaves stays in float here.",
            "amct.md §5",
        ),
        operator=first.op_type,
    )


def _issue(severity: Literal["error", "warning"], node: str, problem: str, remedy: str, source: str) -> OperatorIssue:
    return OperatorIssue(severity=severity, node=node, operator="", problem=problem, remedy=remedy, source=source)


# --- what ATC itself says about an ONNX file: --mode=3 ----------------------------------------------------------------


PRECHECK_TIMEOUT_S = 300.0

_REPORT = "check_result.json"
_SOURCE = "atc --mode=3 on this machine"
_EXPORT = "Export the model with an opset from 11 to 17, so that such operators are written in small ones."

_CAUSES: Mapping[int, tuple[str, str]] = {
    1: ("ATC has no parser for this operator at this opset", _EXPORT),
    2: ("an attribute or input of this operator is not what ATC reads", _EXPORT),
    8: ("ATC knows several operators of this type", "Remove custom operator packages from ASCEND_CUSTOM_OPP_PATH."),
    9: ("another node has the same name", "Give every node of the model a name of its own."),
}
"""Cause code → problem and remedy (ge v8.5.0 parser/parser/common/pre_checker.h:41-60)."""


def check_model(
    model: Path,
    *,
    soc_version: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[OperatorIssue, ...]:
    """Everything that ATC's pre-check refuses in a model; empty when it passes. Needs no shapes.

    Raises:
        CheckError: ATC died or took too long; transient.
        ToolchainError: there is no ATC, or its installation is not complete.
    """
    base = dict(os.environ if environment is None else environment)
    atc = find_atc(base)
    with work_directory(Path(tempfile.gettempdir()), "precheck") as directory:
        report = directory / _REPORT
        flags = {
            "mode": "3",
            "framework": ONNX,
            "model": str(place_model(model, directory)),
            "soc_version": soc_version,
            "check_report": str(report),
        }
        run = run_atc(
            [str(atc), *argument_vector(flags)],
            directory=directory,
            log=directory / "precheck.log",
            # nothing that is kept comes of it, so the user's own custom operators count
            environment=compile_environment(base, directory, workers=1) | {VARIABLE: base.get(VARIABLE, "")},
            timeout_s=min(PRECHECK_TIMEOUT_S, compile_timeout_s(base)),
        )
        return _issues(run, report)


def _issues(run: Run, report: Path) -> tuple[OperatorIssue, ...]:
    if run.ended.code == 0:
        return ()
    if report.is_file():
        try:
            found = tuple(read_report(report))
        except ValueError as error:
            raise CheckError(
                f"ATC's pre-check report cannot be read: {error}. Run it again.", transient=True
            ) from error
        if found:
            return found
    # no report: the file itself was refused before any operator was looked at
    explanation = explain(run.output)
    failed = failure_of(run, "the model in its pre-check")
    if isinstance(failed, ToolchainError):
        raise failed
    if explanation is None or failed.transient:
        raise CheckError(str(failed), transient=failed.transient)
    return (
        OperatorIssue(
            severity="error",
            node=explanation.operator or "model",
            operator=explanation.type,
            problem=f"{explanation.problem} ({explanation.code}): {explanation.quoted}",
            remedy=explanation.remedy,
            source=_SOURCE,
        ),
    )


def read_report(file: Path) -> Iterator[OperatorIssue]:
    """The issues in a check_result.json, in the model's order; operators that passed are left out.

    Raises:
        ValueError: it is not of that form.
    """
    data: Any = loads(file.read_text(encoding="utf-8", errors="replace"), once=False)
    if not isinstance(data, dict) or not isinstance(data.get("op"), list):
        raise ValueError(f"{file.name} has no list `op`")
    for op in data["op"]:
        if not isinstance(op, dict):
            raise ValueError(f"{file.name}: an entry of `op` is no object")
        if op.get("result") == "success":
            continue
        kind = str(op.get("type", ""))
        causes = [cause for cause in op.get("cause", ()) if isinstance(cause, dict)] or [{}]
        for cause in causes:
            written = str(cause.get("code", 0))
            code = int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0
            problem, remedy = _CAUSES.get(code, ("ATC's pre-check refuses it", "Look at ATC's own words."))
            words = str(cause.get("message", "")).strip()
            yield OperatorIssue(
                severity="error",
                node=str(op.get("name", "")),
                operator=kind.rpartition("::")[2],
                problem=f"{problem} ({kind}, cause {code})" + (f": {words}" if words else ""),
                remedy=remedy,
                source=_SOURCE,
            )
