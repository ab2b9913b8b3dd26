"""What ATC itself says about an ONNX file: `--mode=3`, the last word on operators it knows, without compiling."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.targets.ascend.atc.atc import Run, compile_environment, compile_timeout_s, find_atc, run_atc
from workbench.targets.ascend.atc.codes import explain
from workbench.targets.ascend.atc.command import ONNX, argument_vector
from workbench.targets.ascend.atc.config_files import VARIABLE
from workbench.targets.ascend.atc.failure import failure_of
from workbench.targets.ascend.paths import place_model, work_directory
from workbench.targets.base import OperatorIssue
from workbench.values.documents.json_reader import loads
from workbench.values.errors import CheckError, ToolchainError

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
