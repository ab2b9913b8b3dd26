"""What a space may say about ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from workbench.targets.onnxruntime.settings import ONNXRUNTIME_FUSIONS, GraphOptimization
from workbench.values.dimension import ANY_LENGTH, FUSION_PREFIX, HOST_THREADS, Dimension

DIMENSIONS: Mapping[str, Dimension] = {
    **HOST_THREADS,
    **ANY_LENGTH,
    "compile.graph_optimization": Dimension(
        about="ONNX Runtime's optimization level; INT8 needs extended or all",
        values=get_args(GraphOptimization),
        fuses_nothing=("disabled",),
    ),
    **{
        FUSION_PREFIX + name: Dimension(about=f"ONNX Runtime's {name}", values=("on", "off"))
        for name in ONNXRUNTIME_FUSIONS
    },
}
