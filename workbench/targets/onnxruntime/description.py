"""What the ONNX Runtime target says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.targets.description import TargetDescription
from workbench.values.candidate import OnnxRuntimeCompile

if TYPE_CHECKING:
    from workbench.targets.base import Target


def _make() -> Target:
    from workbench.targets.onnxruntime.target import OnnxRuntimeTarget

    return OnnxRuntimeTarget()


TARGET = TargetDescription(name="onnxruntime", title="ONNX Runtime", settings=OnnxRuntimeCompile, make=_make)
