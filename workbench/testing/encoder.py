"""A tiny transformer encoder, and scales for it: small enough for every test, with every pattern that matters.

Seven layers with weights (query, key, value, out, up, down, classifier as a Gemm) and two products of activations.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph, read_model
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
)
from workbench.quantization.sessions import session_on

WIDTH, HEADS, VOCABULARY, CLASSES = 16, 2, 32, 5
WEIGHT_LAYERS = ("query", "key", "value", "out", "up", "down", "classifier")
PRODUCTS = ("scores", "context")

Array = npt.NDArray[np.generic]


def value(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A tensor at the edge of a graph."""
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[onnx.NodeProto],
    weights: dict[str, npt.NDArray[np.generic]],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = 17,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def tiny_encoder(*, batch: int | str = "batch", length: int | str = "length") -> onnx.ModelProto:
    """`ids` [batch, length] → `logits` [batch, CLASSES]; each dimension symbolic or fixed."""
    random = np.random.default_rng(7)
    weights: dict[str, npt.NDArray[np.generic]] = {
        "table": random.normal(size=(VOCABULARY, WIDTH)).astype(np.float32),
        "heads": np.array([0, 0, HEADS, WIDTH // HEADS]),
        "merged": np.array([0, 0, WIDTH]),
        "root": np.array(np.sqrt(WIDTH / HEADS), np.float32),
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "sqrt2": np.array(np.sqrt(2), np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
        "gain": random.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        "shift": random.normal(size=WIDTH).astype(np.float32),
        "classifier_w": random.normal(size=(CLASSES, WIDTH)).astype(np.float32),
        "classifier_b": random.normal(size=CLASSES).astype(np.float32),
    }
    nodes: list[onnx.NodeProto] = []

    def add(op_type: str, name: str, inputs: list[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [f"{name}_y"], name=name, **attributes))
        return f"{name}_y"

    def linear(name: str, x: str, size: tuple[int, int]) -> str:
        weights[f"{name}_w"] = (random.normal(size=size) / np.sqrt(size[0])).astype(np.float32)
        weights[f"{name}_b"] = random.normal(size=size[1]).astype(np.float32)
        return add("Add", f"{name}_bias", [f"{name}_b", add("MatMul", name, [x, f"{name}_w"])])

    x = add("Gather", "embed", ["table", "ids"])
    split = []
    for name in ("query", "key", "value"):
        heads = add("Reshape", f"{name}_heads", [linear(name, x, (WIDTH, WIDTH)), "heads"])
        split.append(add("Transpose", f"{name}_t", [heads], perm=[0, 2, 3, 1] if name == "key" else [0, 2, 1, 3]))
    scores = add("Div", "scale", [add("MatMul", "scores", [split[0], split[1]]), "root"])
    context = add("MatMul", "context", [add("Softmax", "softmax", [scores], axis=-1), split[2]])
    merged = add("Reshape", "merge", [add("Transpose", "context_t", [context], perm=[0, 2, 1, 3]), "merged"])
    x = add("Add", "residual", [linear("out", merged, (WIDTH, WIDTH)), x])
    centred = add("Sub", "centre", [x, add("ReduceMean", "mean", [x], axes=[-1], keepdims=1)])
    square = add("Pow", "square", [centred, "two"])
    variance = add("ReduceMean", "variance", [square], axes=[-1], keepdims=1)
    deviation = add("Sqrt", "deviation", [add("Add", "stable", [variance, "epsilon"])])
    normal = add("Mul", "gained", [add("Div", "normal", [centred, deviation]), "gain"])
    x = add("Add", "norm", [normal, "shift"])
    up = linear("up", x, (WIDTH, 2 * WIDTH))
    erf = add("Add", "erf_one", [add("Erf", "erf", [add("Div", "erf_in", [up, "sqrt2"])]), "one"])
    gelu = add("Mul", "gelu", [add("Mul", "gelu_full", [up, erf]), "half"])
    x = add("Add", "residual2", [linear("down", gelu, (2 * WIDTH, WIDTH)), x])
    pooled = add("ReduceMean", "pool", [x], axes=[1], keepdims=0)
    nodes.append(
        helper.make_node("Gemm", [pooled, "classifier_w", "classifier_b"], ["logits"], name="classifier", transB=1)
    )
    ids = value("ids", [batch, length], TensorProto.INT64)
    return model_of(nodes, weights, [ids], [value("logits", [batch, CLASSES])])


def ids(batch: int, length: int, seed: int = 0) -> dict[str, Array]:
    return {"ids": np.random.default_rng(seed).integers(0, VOCABULARY, (batch, length))}


def save(proto: onnx.ModelProto, path: Path) -> Path:
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)
    return path


def run(proto: onnx.ModelProto, feeds: dict[str, Array], outputs: list[str] | None = None) -> list[Array]:
    """Every operator as it stands, without optimization and with exact sums of 8-bit products."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    values: list[Array] = session_on(proto, options).run(outputs, feeds)
    return values


def record_for(
    path: Path,
    feeds: dict[str, Array],
    *,
    per_channel: bool = False,
    symmetric: bool = False,
    products: bool = False,
    conv_outputs: bool = True,
) -> QuantizationRecord:
    """A min-max record of every quantizable layer, computed from one batch without the workbench's own engine."""
    model = read_model(path)
    proto = load_graph(model)
    layers = [layer for layer in quantizable_layers(proto) if products or layer.weight]
    types = {layer.op_type for layer in layers} if per_channel else ()
    record = record_of(proto, feeds, layers, types, lambda layer: symmetric, conv_outputs=conv_outputs)
    return replace(record, model_sha256=model.sha256)


def record_of(
    proto: onnx.ModelProto,
    feeds: dict[str, Array],
    layers: Sequence[Layer],
    per_channel: Collection[str],
    symmetric: Callable[[Layer], bool],
    *,
    conv_outputs: bool = False,
) -> QuantizationRecord:
    """The same of some layers of a graph.

    Args:
        per_channel: operator types whose weights have a scale for each output channel.
        symmetric: whether what a layer reads is.
    """
    outputs = {node.name: node.output[0] for node in proto.graph.node}
    tensors = {t for layer in layers for t in (layer.activation, layer.second, outputs[layer.name]) if t}
    wanted = sorted(tensors - {value.name for value in proto.graph.input})
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    known = {output.name for output in probe.graph.output}
    probe.graph.output.extend(value(name, None) for name in wanted if name not in known)
    values = {**feeds, **dict(zip(wanted, run(probe, feeds, wanted), strict=True))}
    stored = constants(proto)

    def activation(tensor: str, symmetric: bool) -> ActivationScale:
        low, high = min(0.0, float(values[tensor].min())), max(0.0, float(values[tensor].max()))
        if symmetric:
            high = max(-low, high)
            return ActivationScale(tensor=tensor, scale=high / 127, zero_point=0, low=-high, high=high)
        scale = (high - low) / 255
        return ActivationScale(tensor=tensor, scale=scale, zero_point=round(-128 - low / scale), low=low, high=high)

    def weight(layer: Layer) -> WeightScale | None:
        if layer.weight is None:
            return None
        values = np.abs(numpy_helper.to_array(stored[layer.weight]))
        if layer.op_type not in per_channel:
            return WeightScale(scales=(float(values.max()) / 127,), axis=None)
        if layer.op_type == "ConvTranspose":  # a group after the other, each with its own output channels
            split = values.reshape(layer.groups, -1, *values.shape[1:])
            largest = split.max(axis=(1, *range(3, split.ndim))).reshape(-1)
        else:
            largest = values.max(axis=tuple(i for i in range(values.ndim) if i != layer.output_axis))
        return WeightScale(scales=tuple(float(s) / 127 for s in largest), axis=layer.output_axis)

    return record_with(
        *(
            LayerRecord(
                layer=layer.name,
                op_type=layer.op_type,
                activation=activation(layer.activation, symmetric(layer)),
                weight=weight(layer),
                second=activation(layer.second, True) if layer.second else None,
                output=activation(outputs[layer.name], symmetric(layer))
                if layer.op_type == "Conv" and conv_outputs
                else None,
            )
            for layer in layers
        )
    )


def record_with(*layers: LayerRecord, model_sha256: str = "0" * 64, engine: str = "native") -> QuantizationRecord:
    made_by = Provenance(engine=engine, recipe={}, statistics=None, code_revision="test")
    return QuantizationRecord(model_sha256=model_sha256, layers=layers, float_layers=(), provenance=made_by)
