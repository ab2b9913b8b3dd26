"""What the tests of the deploy form share: AMCT's golden models, a record for any model, and floats in plain ORT."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

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


# --- models and data of the golden cases G1 to G7, given by formula (amct.md §11) ------------------------------------


Floats = npt.NDArray[np.float32]


def weights(shape: tuple[int, ...], a: int, b: int, m: int, d: int) -> Floats:
    """((a·k + b) mod m - m // 2) / d over the flat index k."""
    k = np.arange(np.prod(shape))
    return (((a * k + b) % m - m // 2) / d).astype(np.float32).reshape(shape)


def data(shape: tuple[int, ...], batch: int) -> Floats:
    size = int(np.prod(shape))
    k = 1 + batch * size + np.arange(size)
    u = ((7919 * k) % 2003 - 1001) / 1001
    return (3 * u**3 + 0.2).astype(np.float32).reshape(shape)


def mlp() -> onnx.ModelProto:
    """x[16, 8] → fc1 → ReLU → fc2 → y[16, 3]."""
    constants = {
        "fc1.weight": weights((6, 8), 37, 5, 101, 160),
        "fc1.bias": weights((6,), 13, 3, 17, 40),
        "fc2.weight": weights((3, 6), 29, 7, 61, 90),
        "fc2.bias": weights((3,), 5, 1, 7, 20),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], name="fc1", alpha=1.0, beta=1.0, transB=1),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["y"], name="fc2", alpha=1.0, beta=1.0, transB=1),
    ]
    return _model(nodes, constants, [16, 8], [16, 3])


def cnn() -> onnx.ModelProto:
    """x[2, 3, 6, 6] → conv1 → ReLU → conv2 (two groups) → y[2, 4, 6, 6]."""
    constants = {
        "conv1.weight": weights((4, 3, 3, 3), 41, 9, 127, 300),
        "conv1.bias": weights((4,), 3, 1, 11, 30),
        "conv2.weight": weights((4, 2, 3, 3), 53, 4, 149, 400),
        "conv2.bias": weights((4,), 7, 2, 13, 30),
    }
    common = {"dilations": [1, 1], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["h"], name="conv1", group=1, **common),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Conv", ["r", "conv2.weight", "conv2.bias"], ["y"], name="conv2", group=2, **common),
    ]
    return _model(nodes, constants, [2, 3, 6, 6], [2, 4, 6, 6])


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, Floats], given: list[int], result: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
