"""What the ONNX Runtime target says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.targets.binding import Binding
from workbench.targets.description import TargetDescription
from workbench.targets.onnxruntime.dimensions import DIMENSIONS
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile

if TYPE_CHECKING:
    from workbench.targets.base import Target
    from workbench.values.finding import Finding


def _make() -> Target:
    from workbench.targets.onnxruntime.target import OnnxRuntimeTarget

    return OnnxRuntimeTarget()


def _findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    from workbench.targets.onnxruntime.findings import onnxruntime_findings

    return onnxruntime_findings()


TARGET = TargetDescription(
    name="onnxruntime",
    title="ONNX Runtime",
    settings=OnnxRuntimeCompile,
    dimensions=DIMENSIONS,
    named=False,
    make=_make,
    findings=_findings,
    binding=Binding(runtimes=("onnxruntime",)),
)
