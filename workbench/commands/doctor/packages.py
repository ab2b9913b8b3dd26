"""Python and the packages, none of which is imported here: mlflow and torch take seconds, and any may be missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator, Sequence

from workbench import __version__
from workbench.values.finding import Finding

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
    "scikit-learn",
    "uvicorn",
    "prometheus-client",
    "uvloop",
    "httptools",
    "fsspec",
    "cryptography",
)
EXPORT_PACKAGES = ("torch", "transformers", "safetensors")
"""As pyproject.toml requires them, by the names that pip knows."""

_MODULES = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}
"""Where a package's module has another name."""

_PYTHON_WANTED = (3, 11)
_GROUP = "packages"


def python_finding(version: Sequence[int]) -> Finding:
    value = f"{'.'.join(map(str, version))} on {platform.system()} {platform.machine()}"
    if tuple(version) < _PYTHON_WANTED:
        wanted = ".".join(map(str, _PYTHON_WANTED))
        remedy = f"Install Python {wanted} or newer, then the workbench in a new virtual environment."
        return Finding(group=_GROUP, name="Python", status="fail", value=value, remedy=remedy)
    return Finding(group=_GROUP, name="Python", status="ok", value=value)


def package_findings(base: Sequence[str] = BASE_PACKAGES, export: Sequence[str] = EXPORT_PACKAGES) -> Iterator[Finding]:
    yield Finding(group=_GROUP, name="workbench", status="ok", value=__version__)
    missing = [name for name in base if not _is_there(name)]
    yield Finding(
        group=_GROUP,
        name="required",
        status="fail" if missing else "ok",
        value=f"missing: {', '.join(missing)}" if missing else _versions(base),
        remedy="Install the workbench again: pip install int8-workbench" if missing else "",
    )
    absent = [name for name in export if not _is_there(name)]
    yield Finding(
        group=_GROUP,
        name="export",
        status="warn" if absent else "ok",
        value=f"missing: {', '.join(absent)}" if absent else _versions(export),
        remedy="Needed by convert and example only: pip install 'int8-workbench[export]'" if absent else "",
    )


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
