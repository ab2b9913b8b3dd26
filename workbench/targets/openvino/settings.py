"""What OpenVINO's CPU plugin is told when it compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.values.compile_settings import CompileSettings, check_literal

if TYPE_CHECKING:
    from workbench.values.candidate import Candidate

PerformanceHint = Literal["latency", "throughput"]
InferencePrecision = Literal["f32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoCompile(CompileSettings):
    """What OpenVINO's CPU plugin is told when it compiles.

    Attributes:
        performance_hint: its preset for what is not set explicitly.
        inference_precision: 'f32', or 'bf16' on a CPU that has it; of what is not INT8.
    """

    performance_hint: PerformanceHint = "latency"
    inference_precision: InferencePrecision = "f32"

    def __post_init__(self) -> None:
        for name, kind in (("performance_hint", PerformanceHint), ("inference_precision", InferencePrecision)):
            check_literal(kind, f"compile.{name}", getattr(self, name))

    def rounds_further(self) -> bool:
        return self.inference_precision == "bf16"

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        hint = () if self.performance_hint == "latency" else (f"hint {self.performance_hint}",)
        return (*hint, *(() if self.inference_precision == "f32" else (f"the rest in {self.inference_precision}",)))
