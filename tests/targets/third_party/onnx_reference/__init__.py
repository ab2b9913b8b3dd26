"""A target over onnx's reference evaluator: every operator in NumPy, as the standard defines it. Exact, and slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.targets.description import TargetDescription
from workbench.values.candidate import Candidate
from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import Dimension
from workbench.values.errors import ConfigError

if TYPE_CHECKING:
    from workbench.targets.base import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings(CompileSettings):
    inferred_shapes: bool = False

    def check(self, candidate: Candidate) -> None:
        if candidate.quantization.scheme == "dynamic":
            raise ConfigError("is not for this target.", key="quantization.scheme", hint="Use static or none.")


def _make() -> Target:
    from onnx_reference.target import ReferenceTarget  # not above: whoever reads a description needs no onnx

    return ReferenceTarget()


TARGET = TargetDescription(
    name="onnxreference",
    title="ONNX reference",
    settings=ReferenceSettings,
    dimensions={
        "compile.inferred_shapes": Dimension(
            about="write the shapes of all tensors that can be inferred into the compiled file",
            values=(False, True),
            kind=bool,
            source="onnx.shape_inference.infer_shapes",
        )
    },
    make=_make,
)
