"""What ONNX Runtime's graph optimizer may do, and what candidates of it cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.values.compile_settings import CompileSettings, check_literal
from workbench.values.errors import ConfigError, nearest

if TYPE_CHECKING:
    from workbench.values.candidate import Candidate

GraphOptimization = Literal["disabled", "basic", "extended", "all"]

ONNXRUNTIME_FUSIONS = (
    "AttentionFusion",
    "BiasGeluFusion",
    "BiasSkipLayerNormFusion",
    "BiasSoftmaxFusion",
    "CommonSubexpressionElimination",
    "ConstantFolding",
    "EmbedLayerNormFusion",
    "FastGeluFusion",
    "GeluFusionL1",
    "GeluFusionL2",
    "GemmActivationFusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
    "MatMulActivationFusion",
    "MatMulAddFusion",
    "MatMulScaleFusion",
    "MatmulTransposeFusion",
    "QuickGeluFusion",
    "ReshapeFusion",
    "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion",
    "TransposeOptimizer",
)
"""ONNX Runtime 1.31 graph transformers that matter for encoders. The runtime ignores an unknown name in silence,
so names outside this list are refused. Source: names logged at severity 0 by ENABLE_ALL in onnxruntime 1.31.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntimeCompile(CompileSettings):
    """What ONNX Runtime's graph optimizer may do.

    Attributes:
        disabled_fusions: names of `ONNXRUNTIME_FUSIONS`, sorted and unique.
    """

    graph_optimization: GraphOptimization = "all"
    disabled_fusions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_literal(GraphOptimization, "compile.graph_optimization", self.graph_optimization)
        for name in self.disabled_fusions:
            if name not in ONNXRUNTIME_FUSIONS:
                raise ConfigError(
                    f"{name!r} is not a fusion that can be switched.",
                    key="compile.disabled_fusions",
                    hint=nearest(name, ONNXRUNTIME_FUSIONS),
                )
        if list(self.disabled_fusions) != sorted(set(self.disabled_fusions)):
            raise ConfigError("names must be sorted and unique.", key="compile.disabled_fusions")
        if self.disabled_fusions and self.graph_optimization == "disabled":
            raise ConfigError("nothing fuses when graph_optimization is 'disabled'.", key="compile.disabled_fusions")

    def check(self, candidate: Candidate) -> None:
        # ONNX Runtime turns Q/DQ pairs into integer kernels from EXTENDED on; below it the same file runs in
        # float with extra work (measured on 1.31.1).
        if candidate.quantization.scheme != "none" and self.graph_optimization in ("disabled", "basic"):
            raise ConfigError(
                f"{self.graph_optimization!r} leaves INT8 layers in float.",
                key="compile.graph_optimization",
                hint="Use 'extended' or 'all' with a quantized model.",
            )

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        level = () if self.graph_optimization == "all" else (f"graph {self.graph_optimization}",)
        return (*level, *((f"no {', '.join(self.disabled_fusions)}",) if self.disabled_fusions else ()))
