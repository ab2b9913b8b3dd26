"""What the Ascend 910B3 target says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.targets.ascend.deployment import deployment
from workbench.targets.ascend.dimensions import DIMENSIONS
from workbench.targets.ascend.interface import INTERFACE
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.description import Binding, Card, SpaceStart, TargetDescription

if TYPE_CHECKING:
    from onnx import ModelProto

    from workbench.targets.base import OperatorIssue, Target
    from workbench.targets.calibrator import Calibrator
    from workbench.targets.inside import LooksInside
    from workbench.targets.profiler import Profiler
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate
    from workbench.values.device_use import Reader
    from workbench.values.finding import Finding


def _make() -> Target:
    from workbench.targets.ascend.target import AscendTarget

    return AscendTarget()


def _findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    from workbench.targets.ascend.findings import ascend_findings

    return ascend_findings(environment)


def _cards() -> tuple[Card, ...]:
    """A single one is left as it is, since msprof cannot work where the variable is set (atc.md, profiling)."""
    from workbench.targets.ascend.npu_smi import VARIABLE
    from workbench.targets.ascend.toolchain import device_ids

    ids = device_ids()
    return tuple(Card(name=str(n), environment={VARIABLE: str(n)} if len(ids) > 1 else {}) for n in ids)


def _read_device(device: int, environment: Mapping[str, str]) -> Reader:
    from workbench.targets.ascend.card_reading import reader_of

    return reader_of(device, environment)


def _calibrator(environment: Mapping[str, str]) -> Calibrator:
    from workbench.targets.ascend.amct.calibrator import AmctCalibrator
    from workbench.targets.ascend.amct.process import find_amct

    return AmctCalibrator(installation=find_amct(environment))


def _profiler() -> Profiler:
    from workbench.targets.ascend.profiling import AscendProfiler

    return AscendProfiler()


def _inside() -> LooksInside:
    from workbench.targets.ascend.dump.inside import AscendInside

    return AscendInside()


def _tune(lowered: Path | None, candidate: Candidate, bank: Path, report: Callable[[str], None]) -> Candidate:
    from workbench.targets.ascend.aoe import tuned, with_bank

    return with_bank(candidate, bank) if lowered is None else tuned(lowered, candidate, bank, report)


def _inspect(proto: ModelProto) -> tuple[OperatorIssue, ...]:
    """Of the form that ATC is given, so that what lowering mends is no issue."""
    from workbench.targets.ascend.check import known_and_asked
    from workbench.targets.ascend.lowering import atc_form
    from workbench.targets.ascend.operators import axis_issues, check_operators
    from workbench.values.errors import LoweringError

    try:
        lowered = atc_form(proto)
    except LoweringError:  # the table names every operator that lowering stumbled over, not only the first
        return (*axis_issues(proto), *check_operators(proto))
    return tuple(sorted((*axis_issues(proto), *known_and_asked(lowered)), key=lambda issue: issue.severity))


def _recognizes(proto: ModelProto) -> bool:
    return any(node.op_type in ("AscendQuant", "AscendDequant") for node in proto.graph.node)


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


def _space_start(model: Path) -> SpaceStart:
    from workbench.targets.ascend.space_start import space_start

    return space_start(model)


TARGET = TargetDescription(
    name=ASCEND,
    title="Ascend 910B3",
    settings=AscendCompile,
    dimensions=DIMENSIONS,
    named=False,
    make=_make,
    on_host=False,
    findings=_findings,
    space_start=_space_start,
    cards=_cards,
    read_device=_read_device,
    cluster_resource="NPU",  # Ray's own name for them
    devices_hint="ASCEND_RT_VISIBLE_DEVICES and npu-smi",
    deployment=deployment,
    binding=Binding(
        runtimes=("cann",),
        not_older=("cann",),
        generations=("driver",),
        compiling_only=("amct_onnx", "atc", "operator bank"),
        to_device=True,
    ),
    required_files=(INTERFACE,),
    loading=_loading,
    calibrator=_calibrator,
    profiler=_profiler,
    compiled_as="om",
    inside=_inside,
    tune=_tune,
    inspect=_inspect,
    engine="deploy",
    recognizes=_recognizes,
    float32_mode="must_keep_origin_dtype",  # every operator in the model's own type (atc.md, precision modes)
    # the weights of MatMul and Gemm always have one scale (AMCT's configuration refuses another; amct.md, facts 4, 5)
    per_channel_types=("Conv", "ConvTranspose"),
)
