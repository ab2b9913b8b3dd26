"""What this machine can do, and what is missing for what it cannot: for people, and by its exit code for scripts.

    findings = examine(Path())
    exit_code(findings)         # 1 when the workbench cannot work here

Packages are looked at here without importing one; `machine` looks at the rest, and each target at what it needs itself.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.values.documents.canonical import encode
from workbench.values.finding import Finding, Status
from workbench.values.versions import install_command

if TYPE_CHECKING:
    from rich.table import Table

_GROUP = "packages"


def examine(workspace: Path) -> tuple[Finding, ...]:
    """Look at packages, machine, targets and the folder that holds `.workbench/` and `mlruns/`, or is to hold them.

    Takes a few seconds, most of them for the INT8 layers, and writes nothing that stays. Where a required package is
    missing or cannot be loaded, only the findings about Python and its packages are given.
    """
    software = tuple(package_findings())
    return (*software, *(_beyond_packages(workspace) if exit_code(software) == 0 else ()))


def _beyond_packages(workspace: Path) -> Iterator[Finding]:
    try:
        # Not at the top: these load numpy, onnx and psutil, whose absence is a finding and not an exception
        from workbench.commands.doctor import machine
        from workbench.quantization import observe as _reference_engine  # noqa: F401  every sweep runs the float model
    except ImportError as error:
        remedy = f"The package is there but damaged: {install_command()} --force-reinstall"
        yield judged(_GROUP, "loading", str(error), remedy, wrong=True, worse="fail")
        return
    yield from machine.machine_findings()
    yield from machine.target_findings(os.environ)
    yield from machine.workspace_findings(workspace)
    yield from machine.tracking_findings(workspace)


def judged(group: str, name: str, value: str, remedy: str = "", *, wrong: bool, worse: Status = "warn") -> Finding:
    """A finding that has a remedy only where something is wrong."""
    return Finding(group=group, name=name, status=worse if wrong else "ok", value=value, remedy=remedy if wrong else "")


def package_findings() -> Iterator[Finding]:
    """Python, and the packages that this workbench's metadata require: all of them, and those of the extra `export`."""
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding(group=_GROUP, name="Python", status="ok", value=version)
    yield Finding(group=_GROUP, name="workbench", status="ok", value=__version__)
    sets: dict[str, list[str]] = {"required": [], "export": []}
    for line in importlib.metadata.requires("int8-workbench") or ():
        package, extra = re.split(r"[^\w.-]", line)[0], re.search(r"extra == .(\w+)", line)
        sets.setdefault(extra[1] if extra else "required", []).append(package)
    again = f"Install the workbench again: {install_command()}"
    optional = f"Needed by convert and example only: {install_command('export')}"
    for name, remedy, worse in (("required", again, "fail"), ("export", optional, "warn")):
        found, missing = [], []
        for package in sets[name]:
            try:
                found.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                missing.append(package)
        value = f"missing: {', '.join(missing)}" if missing else ", ".join(found)
        yield judged(_GROUP, name, value, remedy, wrong=bool(missing), worse=worse)  # type: ignore[arg-type]  # both are


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when the workbench can work here, 1 when something it requires fails."""
    return int(any(finding.status == "fail" for finding in findings))


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"version": 1, "usable": true, "findings": [{"group", "name", "status", "value", "remedy"}, …]}`."""
    return {"version": 1, "usable": exit_code(findings) == 0, "findings": [encode(finding) for finding in findings]}


def findings_table(findings: Iterable[Finding]) -> Table:
    """A table for the terminal: groups as headings, a remedy below what was found."""
    from rich.table import Table  # not at the top: a required package, so a missing one is to be a finding
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    group = None
    for finding in findings:
        # Text, not str: a path or pip's `[export]` would be taken for markup
        if finding.group != group:
            if group is not None:
                table.add_row()
            group = finding.group
            table.add_row("", "", Text(group, "bold", overflow="fold"))
        status, name = Text(finding.status, colours[finding.status]), Text(finding.name)
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        table.add_row(status, name, Text(finding.value + remedy, overflow="fold"))
    return table
