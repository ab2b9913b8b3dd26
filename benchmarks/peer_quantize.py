"""A peer in an interpreter of its own: INT8 quantization of an ONNX model, as its documentation advises.

    PYTHON peer_quantize.py nncf|quark transformer|convolutions MODEL FEEDS.npz OUT

FEEDS holds `<input>/<number>` arrays, one sample each. OUT is an .xml of OpenVINO or an .onnx; the versions go to
stdout as JSON. Imports nothing of the workbench.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from importlib.metadata import version

import numpy as np


def nncf(kind: str, model: str, samples: list[dict[str, np.ndarray]], out: str) -> list[str]:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # no usage events from a benchmark
    import nncf as tool
    import openvino

    quantized = tool.quantize(
        openvino.Core().read_model(model),
        tool.Dataset(samples),
        model_type=tool.ModelType.TRANSFORMER if kind == "transformer" else None,
        subset_size=len(samples),
    )
    openvino.save_model(quantized, out, compress_to_fp16=False)
    return ["nncf", "openvino"]


def quark(kind: str, model: str, samples: list[dict[str, np.ndarray]], out: str) -> list[str]:
    from onnxruntime.quantization import CalibrationDataReader
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(samples)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    settings = get_default_config("U8S8_AAWS")  # its setting for CPUs: asymmetric activations, symmetric weights
    ModelQuantizer(Config(global_quant_config=settings)).quantize_model(model, out, Reader())
    return ["amd-quark", "onnxruntime"]


if __name__ == "__main__":
    tool, kind, model, feeds, out = sys.argv[1:]
    stored: dict[int, dict[str, np.ndarray]] = defaultdict(dict)
    with np.load(feeds) as arrays:
        for key in arrays.files:
            name, _, number = key.rpartition("/")
            stored[int(number)][name] = arrays[key]
    names = {"nncf": nncf, "quark": quark}[tool](kind, model, [stored[number] for number in sorted(stored)], out)
    print(json.dumps({name: version(name) for name in names}))
