"""Compiling for OpenVINO: its intermediate representation from a child process, and a count of what runs in integers.

The files are the converted graph and its weights, which any machine with the same OpenVINO loads; kernels are chosen
when a session opens. They are chosen once here too, for the count. The library is imported without the usage event
that it sends over the network.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.graph.door import RUNNING, limits_of
from workbench.targets.apart import compile_apart
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, digest
from workbench.values.documents.json_reader import loads
from workbench.values.errors import MeasureError, ToolchainError
from workbench.values.system.files import temporary_beside
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


# --- compiling --------------------------------------------------------------------------------------------------------


XML = "model.xml"
WEIGHTS = "model.bin"
LOG = "compile.log"
EXECUTED = "executed.json"
"""The digest of the compiled graph without the values of its constants. Artifacts are equal without it."""

PRODUCTS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
"""Layer types that multiply matrices, in OpenVINO's runtime model."""

INTEGER = frozenset({"i8", "u8"})

_TOLD = "told.json"

_PLACES = (
    "Exception from src/",
    "' failed at src/",
    "FrontEnd API failed",
    "Model wasn't fully converted",
    "While validati",
)
"""Words of the lines that say where something happened and not what."""


def convert(lowered: Path, candidate: Candidate, to: Path) -> tuple[int, int, Mapping[str, int]]:
    """Write `XML`, `WEIGHTS`, `EXECUTED` and `LOG` below `to`.

    Returns:
        (integer products, float products, layer type → count).

    Raises:
        CompileError: OpenVINO refused the model, crashed or took too long (the last two are transient).
    """
    settings = OpenVinoCompile.of(candidate)
    raw = to / "converting"
    raw.mkdir()
    try:
        arguments = [str(lowered), str(raw / XML), settings.inference_precision, str(raw / _TOLD)]
        most_bytes = limits_of(sum(file.stat().st_size for file in lowered.parent.iterdir()), RUNNING).memory_bytes
        program = Path(__file__).with_name("convert.py")
        compile_apart("OpenVINO", program, arguments, to / LOG, reason, most_bytes=most_bytes)
        told = loads((raw / _TOLD).read_bytes())
        with temporary_beside(to / EXECUTED, durable=False) as draft:
            draft.write_text(canonical_json({"form": digest(told["executed"])}), encoding="utf-8")
        for name in (WEIGHTS, XML):  # the graph last: without it the weights are no model
            (raw / name).replace(to / name)
    finally:
        shutil.rmtree(raw)
    precisions = Counter(precision in INTEGER for kind, precision in told["layers"] if kind in PRODUCTS)
    return precisions[True], precisions[False], told["kernels"]


def executed_form(directory: Path) -> str | None:
    """What `convert` told of the compiled graph; None where the files came without it."""
    file = directory / EXECUTED
    return str(loads(file.read_bytes())["form"]) if file.exists() else None


def reason(text: str) -> str:
    """The line of an OpenVINO message that says what is wrong.

    A message leads from the outermost place in OpenVINO's source to the innermost, the fault in the last line. Failed
    conversions append a summary, which names the fault where nothing before does.
    """
    message, _, summary = text.partition("\nSummary:")
    for part in (message, summary, text):
        lines = [line.strip().removeprefix("-- ") for line in part.splitlines() if line.strip()]
        told = [line for line in lines if not any(words in line for words in _PLACES)]
        if told:
            return told[-1]
    return text.strip() or "no message"
