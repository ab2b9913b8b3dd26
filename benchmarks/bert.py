"""BERT as PyTorch's exporter writes it, with random weights: what the time model is tried on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from workbench.graph.layers import quantizable_layers
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.testing.encoder import model_of, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of an encoder; the defaults are BERT-Small's (4 layers, 512 wide, 8 heads, FFN 2048)."""

    layers: int = 4
    width: int = 512
    heads: int = 8
    inner: int = 2048
    vocabulary: int = 30522
    positions: int = 512
    classes: int = 2


BERT_SMALL = Shape()


def bert(shape: Shape = BERT_SMALL, *, batch: int | str = "batch", length: int, seed: int = 0) -> onnx.ModelProto:
    """`input_ids`, `attention_mask` int64 [batch, length] → `logits` [batch, classes].

    LayerNorm and Gelu are decomposed, as exporters up to opset 16 write them; a linear layer is MatMul and Add with
    the bias first. Every node is named.
    """
    random = np.random.default_rng(seed)
    weights: dict[str, npt.NDArray[np.generic]] = {}
    nodes: list[onnx.NodeProto] = []

    def normal(name: str, *size: int, spread: float = 0.05) -> str:
        weights[name] = (random.standard_normal(size, np.float32) * np.float32(spread)).astype(np.float32)
        return name

    def add(op_type: str, name: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def linear(name: str, x: str, inputs: int, outputs: int) -> str:
        product = add("MatMul", f"{name}/MatMul", [x, normal(f"{name}.weight", inputs, outputs)])
        return add("Add", f"{name}/Add", [normal(f"{name}.bias", outputs), product])

    def layer_norm(name: str, x: str) -> str:
        centred = add("Sub", f"{name}/Sub", [x, add("ReduceMean", f"{name}/ReduceMean", [x], axes=[-1])])
        square = add("Pow", f"{name}/Pow", [centred, "two"])
        variance = add("ReduceMean", f"{name}/ReduceMean_1", [square], axes=[-1])
        deviation = add("Sqrt", f"{name}/Sqrt", [add("Add", f"{name}/Add", [variance, "epsilon"])])
        weights[f"{name}.weight"] = random.uniform(0.8, 1.2, shape.width).astype(np.float32)
        scaled = add("Mul", f"{name}/Mul", [add("Div", f"{name}/Div", [centred, deviation]), f"{name}.weight"])
        return add("Add", f"{name}/Add_1", [scaled, normal(f"{name}.bias", shape.width)])

    def gelu(name: str, x: str) -> str:
        erf = add("Erf", f"{name}/Erf", [add("Div", f"{name}/Div", [x, "root_two"])])
        full = add("Mul", f"{name}/Mul", [x, add("Add", f"{name}/Add", [erf, "one"])])
        return add("Mul", f"{name}/Mul_1", [full, "half"])

    scalars = {"two": 2, "epsilon": 1e-12, "root_two": np.sqrt(2), "one": 1, "half": 0.5}
    scalars |= {"root": np.sqrt(shape.width / shape.heads), "lowest": float(np.finfo(np.float32).min)}
    weights.update((name, np.array(value, np.float32)) for name, value in scalars.items())
    weights["split"] = np.array([0, 0, shape.heads, shape.width // shape.heads])
    weights["joined"] = np.array([0, 0, shape.width])
    weights["mask_axes"] = np.array([1, 2])
    weights["position_ids"] = np.arange(length)[None]
    weights["first"] = np.array(0)

    mask = add("Cast", "mask/Cast", [add("Unsqueeze", "mask/Unsqueeze", ["attention_mask", "mask_axes"])], to=1)
    mask = add("Mul", "mask/Mul", [add("Sub", "mask/Sub", ["one", mask]), "lowest"])
    words = add("Gather", "embeddings/word/Gather", [normal("word.table", shape.vocabulary, shape.width), "input_ids"])
    table = normal("place.table", shape.positions, shape.width)
    places = add("Gather", "embeddings/position/Gather", [table, "position_ids"])
    x = layer_norm("embeddings/LayerNorm", add("Add", "embeddings/Add", [words, places]))
    for index in range(shape.layers):
        at = f"layer.{index}"
        split = []
        for part in ("query", "key", "value"):
            product = linear(f"{at}/{part}", x, shape.width, shape.width)
            heads = add("Reshape", f"{at}/{part}/Reshape", [product, "split"])
            order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
            split.append(add("Transpose", f"{at}/{part}/Transpose", [heads], perm=order))
        scores = add("Div", f"{at}/scores/Div", [add("MatMul", f"{at}/scores/MatMul", split[:2]), "root"])
        weighed = add("Softmax", f"{at}/Softmax", [add("Add", f"{at}/mask/Add", [scores, mask])], axis=-1)
        context = add("MatMul", f"{at}/context/MatMul", [weighed, split[2]])
        context = add("Transpose", f"{at}/context/Transpose", [context], perm=[0, 2, 1, 3])
        joined = add("Reshape", f"{at}/context/Reshape", [context, "joined"])
        attended = linear(f"{at}/output", joined, shape.width, shape.width)
        x = layer_norm(f"{at}/output/LayerNorm", add("Add", f"{at}/output/Residual", [attended, x]))
        inner = gelu(f"{at}/gelu", linear(f"{at}/up", x, shape.width, shape.inner))
        down = linear(f"{at}/down", inner, shape.inner, shape.width)
        x = layer_norm(f"{at}/down/LayerNorm", add("Add", f"{at}/down/Residual", [down, x]))
    cls = add("Gather", "pooler/Gather", [x, "first"], axis=1)
    pooler = normal("pooler.weight", shape.width, shape.width), normal("pooler.bias", shape.width)
    pooled = add("Tanh", "pooler/Tanh", [add("Gemm", "pooler/Gemm", [cls, *pooler], transB=1)])
    classifier = normal("classifier.weight", shape.classes, shape.width), normal("classifier.bias", shape.classes)
    add("Gemm", "classifier/Gemm", [pooled, *classifier], transB=1)
    nodes[-1].output[0] = "logits"
    kind, names = TensorProto.INT64, ("input_ids", "attention_mask")
    fed = [helper.make_tensor_value_info(name, kind, [batch, length]) for name in names]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, shape.classes])
    return model_of(nodes, weights, fed, [logits], 16)


def in_int8(
    proto: onnx.ModelProto, sample: onnx.ModelProto, feeds: dict[str, npt.NDArray[np.generic]]
) -> onnx.ModelProto:
    """The deploy form, every layer by its minimum and maximum over a batch of `sample`, the same model at some size:
    scales do not touch times."""
    plain = normalized(sample)
    layers = quantizable_layers(plain)
    return lower_deploy(proto, record_of(plain, feeds, layers, (), lambda layer: layer.second is not None))


def tokens(shape: Shape, batch: int, length: int, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Feeds with the last quarter of every sentence masked."""
    random = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    mask[:, length - length // 4 :] = 0
    return {"input_ids": random.integers(0, shape.vocabulary, (batch, length)), "attention_mask": mask}
