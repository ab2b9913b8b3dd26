"""One compiled file as a function: an ONNX file by ONNX Runtime, an OpenVINO file by OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def opened(path: Path, threads: int = 1) -> tuple[Run, dict[str, list[int | str | None]]]:
    """The function, and the shape of each of its inputs by name; a free axis is a word or None."""
    return _openvino(path, threads) if path.suffix == ".xml" else _onnxruntime(path, threads)


def _onnxruntime(path: Path, threads: int) -> tuple[Run, dict[str, list[int | str | None]]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    shapes = {given.name: list(given.shape) for given in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(names, session.run(names, {name: feeds[name] for name in shapes}), strict=True))

    return run, shapes


def _openvino(path: Path, threads: int) -> tuple[Run, dict[str, list[int | str | None]]]:
    import openvino

    model = openvino.Core().read_model(path)
    shapes: dict[str, list[int | str | None]] = {
        given.any_name: [axis.get_length() if axis.is_static else None for axis in given.partial_shape]
        for given in model.inputs
    }
    # float32 as the service asks for it; by itself OpenVINO takes bf16 where the processor has it
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(model, "CPU", settings)
    names = [output.get_names() for output in compiled.outputs]

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = compiled({name: feeds[name] for name in shapes})
        return {
            name: np.array(found[i]) for i, given in enumerate(names) for name in given
        }  # one output may have several names

    return run, shapes
