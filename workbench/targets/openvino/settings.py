"""What OpenVINO's CPU plugin is told when it compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from workbench.values.compile_settings import CompileSettings
from workbench.values.errors import ConfigError

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
            if getattr(self, name) not in get_args(kind):
                allowed = ", ".join(map(repr, get_args(kind)))
                raise ConfigError(f"{getattr(self, name)!r} is none of {allowed}.", key=f"compile.{name}")

    def rounds_further(self) -> bool:
        return self.inference_precision == "bf16"

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        hint = () if self.performance_hint == "latency" else (f"hint {self.performance_hint}",)
        return (*hint, *(() if self.inference_precision == "f32" else (f"the rest in {self.inference_precision}",)))
