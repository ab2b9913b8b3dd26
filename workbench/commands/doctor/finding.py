"""Findings about Python and its packages, none of which is imported here; and how all findings are shown."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.values.documents.canonical import encode
from workbench.values.finding import Finding, Status
from workbench.values.versions import install_command

if TYPE_CHECKING:
    from rich.table import Table


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
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        table.add_row(
            Text(finding.status, colours[finding.status]),
            Text(finding.name),
            Text(finding.value + remedy, overflow="fold"),
        )
    return table


BASE_PACKAGES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "optuna",
    "mlflow",
    "ruamel.yaml",
    "tokenizers",
    "typer",
    "rich",
    "plotly",
    "matplotlib",
    "psutil",
    "scipy",
    "numba",
    "scikit-learn",
    "uvicorn",
    "prometheus-client",
    "uvloop",
    "httptools",
    "fsspec",
    "cryptography",
    "jinja2",
)
EXPORT_PACKAGES = ("torch", "transformers", "safetensors")
"""As pyproject.toml requires them, by the names that pip knows."""

_MODULES = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}
"""Where a package's module has another name."""

_PYTHON_WANTED = (3, 11)
_GROUP = "packages"


def judged(group: str, name: str, value: str, remedy: str = "", *, wrong: bool, worse: Status = "warn") -> Finding:
    """A finding that has a remedy only where something is wrong."""
    return Finding(group=group, name=name, status=worse if wrong else "ok", value=value, remedy=remedy if wrong else "")


def python_finding(version: Sequence[int]) -> Finding:
    value = f"{'.'.join(map(str, version))} on {platform.system()} {platform.machine()}"
    wanted = ".".join(map(str, _PYTHON_WANTED))
    remedy = f"Install Python {wanted} or newer, then the workbench in a new virtual environment."
    return judged(_GROUP, "Python", value, remedy, wrong=tuple(version) < _PYTHON_WANTED, worse="fail")


def package_findings(base: Sequence[str] = BASE_PACKAGES, export: Sequence[str] = EXPORT_PACKAGES) -> Iterator[Finding]:
    yield Finding(group=_GROUP, name="workbench", status="ok", value=__version__)
    sets: tuple[tuple[str, Sequence[str], str, Status], ...] = (
        ("required", base, f"Install the workbench again: {install_command()}", "fail"),
        ("export", export, f"Needed by convert and example only: {install_command('export')}", "warn"),
    )
    for name, packages, remedy, worse in sets:
        missing = [package for package in packages if not _is_there(package)]
        value = f"missing: {', '.join(missing)}" if missing else _versions(packages)
        yield judged(_GROUP, name, value, remedy, wrong=bool(missing), worse=worse)


def _is_there(package: str) -> bool:
    # The module, not the package's metadata: onnxruntime also comes as onnxruntime-gpu
    try:
        return importlib.util.find_spec(_MODULES.get(package, package)) is not None
    except ModuleNotFoundError:  # of `ruamel.yaml` even `ruamel` is missing
        return False


def _versions(packages: Sequence[str]) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(package)  # a build of one's own, without metadata
    return ", ".join(found)
