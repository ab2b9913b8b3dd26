"""What the OpenVINO target says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from workbench.targets.description import Binding, SpaceStart, TargetDescription, late
from workbench.targets.openvino.settings import InferencePrecision, OpenVinoCompile, PerformanceHint
from workbench.values.dimension import ANY_LENGTH, BETWEEN_LAYERS, HOST_THREADS, Dimension
from workbench.values.system.cpu import this_cpu

if TYPE_CHECKING:
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate


def _loading(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    settings, serving = OpenVinoCompile.of(candidate), candidate.serving
    names = " and ".join(f"`model/{file.file}`" for file in artifact.files)
    return (
        f"{names} belong together: OpenVINO is given the first and finds the second beside it",
        f"compile settings: `PERFORMANCE_HINT={settings.performance_hint.upper()}`, "
        f"`INFERENCE_PRECISION_HINT={settings.inference_precision}`, "
        f"`INFERENCE_NUM_THREADS={serving.intra_op_threads}`, `NUM_STREAMS={serving.streams or 1}`, "
        "`ENABLE_CPU_PINNING=False`",
        "`import openvino` sends a usage event over the network unless the package openvino-telemetry is missing; "
        "`workbench verify` sends none",
    )


DIMENSIONS: Mapping[str, Dimension] = {
    **HOST_THREADS,
    **ANY_LENGTH,
    "quantization.elementwise": BETWEEN_LAYERS,
    "compile.performance_hint": Dimension(
        about="OpenVINO's preset for what is not set explicitly",
        values=get_args(PerformanceHint),
    ),
    "compile.inference_precision": Dimension(
        about="OpenVINO's number format of what is not INT8", values=get_args(InferencePrecision)
    ),
    "serving.streams": Dimension(about="OpenVINO's infer requests that share the threads", kind=int, may_be_off=True),
}

TARGET = TargetDescription(
    name="openvino",
    title="OpenVINO",
    settings=OpenVinoCompile,
    dimensions=DIMENSIONS,
    make=late("workbench.targets.openvino.target:OpenVinoTarget"),
    findings=late("workbench.targets.openvino.check:openvino_findings"),
    space_start=lambda _: SpaceStart(parameters={"compile.performance_hint": get_args(PerformanceHint)}),
    packages=("openvino",),
    unneeded={"openvino-telemetry": "openvino declares it to report its use over the network; it works without"},
    binding=Binding(runtimes=("openvino",)),
    loading=_loading,
    # not without VNNI: INT8 took 1.32 times as long as float there on one thread and 1.13 on two (a sentence encoder of
    # six layers, 32 tokens, EPYC 7003, busy machine)
    int8_pays=lambda: not this_cpu().saturates,
)
