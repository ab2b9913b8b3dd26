"""What this machine can do, and what is missing for what it cannot: for people, and by its exit code for scripts.

    findings = examine(Path())
    exit_code(findings)         # 1 when the workbench cannot work here

`finding` shows them and looks at packages, `machine` at the rest; each target looks at what it needs itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.commands.doctor.finding import exit_code, findings_json, findings_table, package_findings, python_finding
from workbench.values.finding import Finding
from workbench.values.versions import install_command

__all__ = ["Finding", "examine", "exit_code", "findings_json", "findings_table"]


def examine(workspace: Path) -> tuple[Finding, ...]:
    """Look at packages, machine, targets and the folder that holds `.workbench/` and `mlruns/`, or is to hold them.

    Takes a few seconds, most of them for the INT8 layers, and writes nothing that stays. Where a required package is
    missing or cannot be loaded, only the findings about Python and its packages are given.
    """
    software = (python_finding(sys.version_info[:3]), *package_findings())
    return (*software, *(_beyond_packages(workspace) if exit_code(software) == 0 else ()))


def _beyond_packages(workspace: Path) -> Iterator[Finding]:
    try:
        # Not at the top: these load numpy, onnx and psutil, whose absence is a finding and not an exception
        from workbench.commands.doctor.machine import (
            machine_findings,
            target_findings,
            tracking_findings,
            workspace_findings,
        )
        from workbench.quantization import observe as _reference_engine  # noqa: F401  every sweep runs the float model
    except ImportError as error:
        yield Finding(
            group="packages",
            name="loading",
            status="fail",
            value=str(error),
            remedy=f"The package is there but damaged: {install_command()} --force-reinstall",
        )
        return
    yield from machine_findings()
    yield from target_findings(os.environ)
    yield from workspace_findings(workspace)
    yield from tracking_findings(workspace)
