"""What a space may say about OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from workbench.targets.openvino.settings import InferencePrecision, PerformanceHint
from workbench.values.dimension import ANY_LENGTH, HOST_THREADS, Dimension

DIMENSIONS: Mapping[str, Dimension] = {
    **HOST_THREADS,
    **ANY_LENGTH,
    "compile.performance_hint": Dimension(
        about="OpenVINO's preset for what is not set explicitly",
        values=get_args(PerformanceHint),
    ),
    "compile.inference_precision": Dimension(
        about="OpenVINO's number format of what is not INT8", values=get_args(InferencePrecision)
    ),
    "serving.streams": Dimension(about="OpenVINO's infer requests that share the threads", kind=int, may_be_off=True),
}
