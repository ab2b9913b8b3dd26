"""Runs under another interpreter, which has the tool: quantize one model, leave found.npz or quantized.onnx.

    PYTHON peer_child.py nncf-onnx | nncf-openvino | inc  MODEL FOLDER [SKIPPED LAYER ...]

FOLDER holds calibration.npz and validation.npz: one row per sentence, padded, and `widths`, the lengths of their bins.
Each tool runs with the settings its own documentation names for transformers.
"""

import sys
import time
from pathlib import Path

import numpy as np


def sentences(file: Path) -> list[dict[str, np.ndarray]]:
    with np.load(file) as data:
        arrays = {name: data[name] for name in data.files if name != "widths"}
        widths = data["widths"]
    return [{n: a[i : i + 1, :width] for n, a in arrays.items()} for i, width in enumerate(widths)]


def nncf_onnx(model: Path, folder: Path, skipped: list[str]) -> None:
    import onnx

    began = time.perf_counter()
    onnx.save(_nncf(onnx.load(model), folder, skipped), folder / "quantized.onnx")
    np.savez(folder / "found.npz", seconds=time.perf_counter() - began)


def nncf_openvino(model: Path, folder: Path, skipped: list[str]) -> None:
    import openvino

    began = time.perf_counter()
    core = openvino.Core()
    quantized = _nncf(core.read_model(model), folder, skipped)
    seconds = time.perf_counter() - began
    compiled = core.compile_model(quantized, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2})
    output = compiled.output("logits")
    logits = np.concatenate([compiled(feeds)[output] for feeds in sentences(folder / "validation.npz")])
    products = [
        node.get_rt_info()["runtimePrecision"].astype(str)
        for node in compiled.get_runtime_model().get_ops()
        if node.get_rt_info()["layerType"].astype(str) in ("FullyConnected", "MatMul")
    ]
    int8 = sum(precision in ("i8", "u8") for precision in products)
    np.savez(folder / "found.npz", seconds=seconds, logits=logits, int8=int8, in_float=len(products) - int8)


def _nncf(model, folder: Path, skipped: list[str]):  # noqa: ANN
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it would report home and wait for an answer
    import nncf

    data = sentences(folder / "calibration.npz")
    scope = nncf.IgnoredScope(names=skipped, validate=False) if skipped else None
    return nncf.quantize(
        model,
        nncf.Dataset(data),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(data),
        ignored_scope=scope,
    )


def inc(model: Path, folder: Path, skipped: list[str]) -> None:
    from onnx_neural_compressor import data_reader
    from onnx_neural_compressor.quantization import QuantFormat, config, quantize

    class Reader(data_reader.CalibrationDataReader):
        def __init__(self) -> None:
            self.rewind()

        def get_next(self):  # noqa: ANN
            return next(self.left, None)

        def rewind(self) -> None:
            self.left = iter(sentences(folder / "calibration.npz"))

    settings = config.StaticQuantConfig(
        calibration_data_reader=Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul", "Gemm"],
        nodes_to_exclude=skipped,
        per_channel=True,
    )
    began = time.perf_counter()
    quantize(str(model), str(folder / "quantized.onnx"), settings)
    np.savez(folder / "found.npz", seconds=time.perf_counter() - began)


if __name__ == "__main__":
    tool, model, folder, *skipped = sys.argv[1:]
    {"nncf-onnx": nncf_onnx, "nncf-openvino": nncf_openvino, "inc": inc}[tool](Path(model), Path(folder), skipped)
