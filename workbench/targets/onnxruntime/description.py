"""What the ONNX Runtime target says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from workbench.targets.description import Binding, SpaceStart, TargetDescription, late
from workbench.targets.onnxruntime.settings import ONNXRUNTIME_FUSIONS, GraphOptimization, OnnxRuntimeCompile
from workbench.values.dimension import ANY_LENGTH, BETWEEN_LAYERS, FUSION_PREFIX, HOST_THREADS, Dimension


def _space_start(model: Path) -> SpaceStart:
    """Compiles the model twice, to see which fusions change it. Of the levels the last two differ in the layout of
    convolutions alone, and below them an INT8 file runs in float."""
    from workbench.graph.read import load_graph, operator_counts, read_model
    from workbench.targets.onnxruntime.compiler import fusions_that_fire

    convolved = {"Conv", "ConvTranspose"} & operator_counts(load_graph(read_model(model))).keys()
    return SpaceStart(
        schemes=("dynamic", "static"),
        parameters={"compile.graph_optimization": ("all", "extended")} if convolved else {},
        fusions=fusions_that_fire(model),
    )


DIMENSIONS: Mapping[str, Dimension] = {
    **HOST_THREADS,
    **ANY_LENGTH,
    "quantization.elementwise": BETWEEN_LAYERS,
    "compile.graph_optimization": Dimension(
        about="ONNX Runtime's optimization level; INT8 needs extended or all",
        values=get_args(GraphOptimization),
    ),
    **{
        FUSION_PREFIX + name: Dimension(about=f"ONNX Runtime's {name}", values=("on", "off"))
        for name in ONNXRUNTIME_FUSIONS
    },
}

TARGET = TargetDescription(
    name="onnxruntime",
    title="ONNX Runtime",
    settings=OnnxRuntimeCompile,
    dimensions=DIMENSIONS,
    named=False,
    make=late("workbench.targets.onnxruntime.target:OnnxRuntimeTarget"),
    findings=late("workbench.targets.onnxruntime.target:onnxruntime_findings"),
    space_start=_space_start,
    binding=Binding(runtimes=("onnxruntime",)),
)
