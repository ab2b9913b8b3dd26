"""Whether ONNX Runtime, which every sweep needs, really computes in INT8 here: one layer is taken all the way."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.targets import open_target
from workbench.targets.int8_layer import run_int8_layer
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CandidateError, ToolchainError
from workbench.values.finding import Finding
from workbench.values.versions import install_command

INT8 = Candidate(target="onnxruntime", quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))

_GROUP = "target onnxruntime"
_INSTALL = f"Install the version the workbench pins: {install_command()}"


def onnxruntime_findings() -> Iterator[Finding]:
    """Required, and not only as a target: ONNX Runtime also runs the float model that everything is compared with."""
    target = open_target("onnxruntime")
    try:
        version = target.toolchain().components["onnxruntime"]
        kernels, seconds = run_int8_layer(INT8)
    except (ToolchainError, CandidateError) as error:
        yield Finding(group=_GROUP, name="usable", status="fail", value=f"no: {error}", remedy=_INSTALL)
        return
    yield Finding(
        group=_GROUP,
        name="usable",
        status="ok" if kernels else "fail",
        value=f"yes: {version}; a test layer was quantized, compiled and run in {seconds:.1f} s"
        if kernels
        else f"no: {version} left a quantized test layer in float",
        remedy="" if kernels else _INSTALL,
    )
