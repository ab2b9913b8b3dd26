"""What the tests of the deploy form share: AMCT's golden models, a record for any model, and floats in plain ORT."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from tests.quantization.golden import cnn, data, mlp
from workbench.graph.layers import quantizable_layers
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import QuantizationRecord
from workbench.testing.encoder import model_of, record_of, run, value

Array = npt.NDArray[np.generic]


def golden_float_model(folder: Path) -> onnx.ModelProto:
    """The float model of a golden case, its nodes under AMCT's names: torch's modules ('fc1', not '/fc1/Gemm')."""
    if not (folder / "float.onnx").is_file():
        return cnn() if folder.name == "G7" else mlp()
    proto = onnx.load(folder / "float.onnx")
    keys = set(re.findall(r'key: "(.*)"', (folder / "record.txt").read_text()))
    for node in proto.graph.node:
        module = node.name.strip("/").split("/")[0]
        if module in keys and node.op_type != "Add":
            node.name = module
    return proto


def golden_batches(folder: Path) -> list[npt.NDArray[np.float32]]:
    if (folder / "calib.npz").is_file():
        with np.load(folder / "calib.npz") as arrays:
            return [arrays[f"arr_{index}"] for index in range(3)]
    return [data((2, 3, 6, 6) if folder.name == "G7" else (16, 8), batch) for batch in range(3)]


def golden_record(folder: Path, proto: onnx.ModelProto) -> QuantizationRecord:
    layers = quantizable_layers(normalized(proto))
    return parse_record((folder / "record.txt").read_text(), layers=layers, model_sha256="0" * 64)


def plain_run(
    proto: onnx.ModelProto | Path, feeds: dict[str, Array], outputs: list[str] | None = None
) -> dict[str, Array]:
    """Every operator as it stands in ONNX Runtime; outputs of a layer in between become outputs of the model."""
    model = onnx.load(proto) if isinstance(proto, Path) else onnx.ModelProto.FromString(proto.SerializeToString())
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs or () if name not in known)
    return dict(zip([value.name for value in model.graph.output], run(model, feeds), strict=True))


def min_max_record(
    proto: onnx.ModelProto, feeds: dict[str, Array], *, symmetric: bool = False, per_channel: bool = False
) -> QuantizationRecord:
    """A record of every layer of a model from one batch; products of two activations are always symmetric."""
    prepared = normalized(proto)
    return record_of(
        prepared,
        feeds,
        quantizable_layers(prepared),
        ("Conv", "ConvTranspose") if per_channel else (),
        lambda layer: symmetric or layer.second is not None,
    )


def words(*factors: float, high: int = 0) -> np.ndarray:
    """AscendDequant's parameter, with `high` from bit 32 up."""
    return np.float32(factors).view(np.uint32).astype(np.uint64) | np.uint64(high << 32)


def quantized_matmul(
    weight: np.ndarray,
    param: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    quant: dict[str, Any] | None = None,
    dequant: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """x [n, k] → AscendQuant (scale 1) → MatMul → (Add) → AscendDequant → y."""
    quant = {"scale": 1.0, "offset": 0.0, "dst_type": "INT8"} | (quant or {})
    nodes = [
        helper.make_node("AscendQuant", ["x"], ["q"], name="layer.quant", **quant),
        helper.make_node("MatMul", ["q", "w"], ["p"], name="layer"),
        helper.make_node(
            "AscendDequant", ["p", "param"], ["y"], name="layer.dequant", **({"dtype": 0} | (dequant or {}))
        ),
    ]
    weights = {"w": weight, "param": param}
    if bias is not None:
        weights["b"] = bias
        nodes.insert(2, helper.make_node("Add", ["p", "b"], ["s"], name="bias"))
        nodes[3].input[0] = "s"
    return model_of(nodes, weights, [value("x", ["n", weight.shape[0]])], [value("y", ["n", weight.shape[1]])])
