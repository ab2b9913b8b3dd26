"""What the Ascend 910B3 target says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.targets.ascend.deployment import deployment
from workbench.targets.ascend.interface import INTERFACE
from workbench.targets.binding import Binding
from workbench.targets.description import TargetDescription
from workbench.values.ascend_settings import ASCEND, AscendCompile

if TYPE_CHECKING:
    from workbench.targets.base import Target
    from workbench.values.candidate import Candidate
    from workbench.values.finding import Finding
    from workbench.values.results import Artifact


def _make() -> Target:
    from workbench.targets.ascend.target import AscendTarget

    return AscendTarget()


def _findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    from workbench.targets.ascend.findings import ascend_findings

    return ascend_findings(environment)


def _loading(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    """Which OM holds which shape, and what whoever calls it must do."""
    return (
        *(
            f"`model/{file.file}`: batch {file.batch}"
            + (f", padded length {file.sequence_bin}" if file.sequence_bin is not None else "")
            for file in artifact.files
            if file.batch is not None
        ),
        "take the smallest that holds the request, pad rows and length with zeros (0 in the mask), cut the output",
        f"compiled for {artifact.toolchain.device}; an OM runs on the CANN it was made with or a newer one",
        "created readable by its owner only (0600): chmod for another service user",
    )


TARGET = TargetDescription(
    name=ASCEND,
    title="Ascend 910B3",
    settings=AscendCompile,
    make=_make,
    on_host=False,
    findings=_findings,
    devices_hint="ASCEND_RT_VISIBLE_DEVICES and npu-smi",
    deployment=deployment,
    binding=Binding(
        runtimes=("cann",),
        not_older=("cann",),
        generations=("driver",),
        compiling_only=("amct_onnx", "atc"),
        to_device=True,
    ),
    required_files=(INTERFACE,),
    loading=_loading,
)
