"""OpenVINO, imported without the usage event it sends over the network, and what it says about this CPU."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from workbench.targets.openvino.compiler import reason
from workbench.values.errors import MeasureError, ToolchainError
from workbench.values.versions import install_command

_SENDER = "openvino_telemetry"


@functools.cache
def library() -> ModuleType:
    """The openvino package.

    While it is imported, the package it sends usage events with cannot be: then OpenVINO sends none, neither now
    (2026.4.1 sends one at import, without asking) nor when this process calls `openvino.convert_model` later.

    Raises:
        ToolchainError: it is not installed, or a library it needs is missing.
    """
    absent = object()
    before: Any = sys.modules.get(_SENDER, absent)
    sys.modules[_SENDER] = None  # type: ignore[assignment]  # how Python marks a module that must not load
    try:
        import openvino
    except ImportError as error:
        raise ToolchainError(f"OpenVINO cannot be imported: {error}. Run: {install_command('openvino')}") from error
    finally:
        if before is absent:
            del sys.modules[_SENDER]
        else:
            sys.modules[_SENDER] = before
    module: ModuleType = openvino
    return module


@functools.cache
def capabilities() -> tuple[str, ...]:
    """Number formats the CPU plugin computes in here, such as 'BF16' and 'INT8', sorted."""
    return tuple(sorted(library().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")))


def load(model: Any, properties: dict[str, Any], name: str) -> Any:
    """Compile a file (by its path as text) or a model for the CPU.

    Raises:
        MeasureError: OpenVINO refuses it.
    """
    try:
        return library().Core().compile_model(model, "CPU", {"ENABLE_CPU_PINNING": False, **properties})
    except RuntimeError as error:
        raise MeasureError(f"{name}: OpenVINO cannot load it: {reason(str(error))}") from error
