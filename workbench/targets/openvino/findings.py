"""Whether OpenVINO, the optional second engine of CPUs, is here and computes in INT8. Nothing fails without it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator

from workbench.targets.int8_layer import run_int8_layer
from workbench.targets.openvino.library import capabilities, library
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CandidateError, ToolchainError
from workbench.values.finding import Finding, module_at
from workbench.values.versions import install_command

PINNED = "2026.4.1"
"""As pyproject.toml pins it: what runs in INT8 changes between releases."""

INT8 = Candidate(
    target="openvino",
    quantization=Quantization(
        scheme="static",
        algorithm="minmax",
        activation_symmetric=False,
        weight_granularity="tensor",
        attention_matmul=False,
        keep_float=0,
    ),
    compile=OpenVinoCompile(),
)

_GROUP = "target openvino"
_INSTALL = install_command("openvino")


def openvino_findings(*, place_of: Callable[[str], str | None] = module_at) -> Iterator[Finding]:
    """One finding when OpenVINO is absent or cannot be loaded; else version, formats, telemetry and a layer in INT8.

    Args:
        place_of: where Python finds a module.
    """
    if place_of("openvino") is None:
        yield _warning("usable", "not installed; it is optional", f"For a second engine on this CPU: {_INSTALL}")
        return
    try:
        library()
        formats = capabilities()
        kernels, seconds = run_int8_layer(INT8)
    except (ToolchainError, CandidateError) as error:
        yield _warning("usable", f"no: {error}", f"Install it again: {_INSTALL}")
        return
    if kernels:
        yield _ok("usable", f"yes: a test layer was quantized, compiled and run in {seconds:.1f} s")
    else:
        yield _warning("usable", "a quantized test layer was left in float", f"Install the pinned version: {_INSTALL}")
    yield version_finding(importlib.metadata.version("openvino"))
    yield _ok("CPU plugin", f"computes in {', '.join(formats)}")
    yield _ok("telemetry", "blocked: the package that sends OpenVINO's usage events is kept from loading")


def version_finding(version: str) -> Finding:
    if version == PINNED:
        return _ok("version", version)
    return _warning(
        "version",
        f"{version}; the workbench pins {PINNED}",
        f"Which layers run in INT8 changes between releases. Install the pinned version: {_INSTALL}",
    )


def _ok(name: str, value: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="ok", value=value)


def _warning(name: str, value: str, remedy: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="warn", value=value, remedy=remedy)
