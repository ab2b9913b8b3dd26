"""Small real models of every form that exporters and users bring; each builder writes one ONNX file.

Weights are drawn by seed and kept in the range of trained ones, so that INT8 is accurate where it is right.
"""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from workbench.testing.encoder import tiny_encoder

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
VOCABULARY, FEATURES, CHANNELS = 64, 12, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel:
    """A model that can be written and fed.

    Attributes:
        write: writes the file and what belongs to it; skips the test where a library is missing.
        feeds: inputs for a number of samples, from a seed.
        layers: how many layers `quantizable_layers` finds in the normalized model.
        cosine: smallest similarity of any INT8 output to the float one.
    """

    write: Callable[[Path], None]
    feeds: Callable[[int, int], Feeds]
    layers: int
    cosine: float = 0.99


def tokens(batch: int, seed: int) -> Feeds:
    """Ids and a mask that hides the last two of nine positions in every other row."""
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (batch, 9))
    mask = np.ones_like(ids)
    mask[1::2, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def rows(batch: int, seed: int) -> Feeds:
    return {"x": np.random.default_rng(seed).normal(size=(batch, FEATURES)).astype(np.float32)}


def images(batch: int, seed: int) -> Feeds:
    return {"x": np.random.default_rng(seed).normal(size=(batch, CHANNELS, 8, 8)).astype(np.float32)}


def encoder_ids(batch: int, seed: int) -> Feeds:
    return {"ids": np.random.default_rng(seed).integers(0, 32, (batch, 7))}


# --- exported by torch ---------------------------------------------------------------------------------------------


def write_bert(
    path: Path,
    *,
    exporter: Literal["torchscript", "dynamo"],
    opset: int,
    attention: Literal["eager", "sdpa"] = "eager",
) -> None:
    """A BERT classifier of two layers with dynamic axes: 6 linear layers and 2 products each, pooler, classifier."""
    if exporter == "dynamo" and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("torch's dynamo exporter needs onnxscript, which is not installed")
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
            return logits

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
        attn_implementation=attention,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = Logits(BertForSequenceClassification(config)).eval()
        for parameter in model.parameters():
            if parameter.ndim == 1:  # the exporters would merge biases that are all zero into one
                torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.1)
            else:
                torch.nn.init.normal_(parameter, std=0.15)
    names = ["input_ids", "attention_mask"]
    example = tuple(torch.from_numpy(array) for array in tokens(2, 0).values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecations and of tracing, on every export
        if exporter == "torchscript":
            axes = {name: {0: "batch", 1: "length"} for name in names} | {"logits": {0: "batch"}}
            torch.onnx.export(
                model,
                example,
                str(path),
                dynamo=False,
                opset_version=opset,
                input_names=names,
                output_names=["logits"],
                dynamic_axes=axes,
            )
        else:
            sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
            torch.onnx.export(
                model,
                example,
                str(path),
                dynamo=True,
                opset_version=opset,
                input_names=names,
                output_names=["logits"],
                dynamic_shapes=dict.fromkeys(names, sizes),
                external_data=False,
                verbose=False,
            )


# --- written by hand -----------------------------------------------------------------------------------------------


def save(
    path: Path,
    nodes: list[NodeProto],
    weights: dict[str, Array],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    **settings: Any,
) -> None:
    """Checked and written; further settings are those of `onnx.save`."""
    graph = helper.make_graph(
        nodes,
        "zoo",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path, **settings)


def drawn(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Normal values, as wide as keeps the size of what they multiply."""
    scale = np.sqrt(2 / max(np.prod(shape[1:]), 1))
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def write_cnn(path: Path) -> None:
    """Conv + BN + Relu, depthwise + BN, AveragePool, ConvTranspose + BN (2 groups), Conv with bias, pool, Gemm."""
    weights: dict[str, Array] = {
        "stem_w": drawn(0, 8, CHANNELS, 3, 3),
        "depthwise_w": drawn(1, 8, 1, 3, 3),
        "up_w": drawn(2, 8, 3, 2, 2),  # [in, out / groups]
        "up_b": drawn(3, 6),
        "last_w": drawn(4, 8, 6, 1, 1),
        "last_b": drawn(5, 8),
        "head_w": drawn(6, 5, 8),
        "head_b": drawn(7, 5),
    }
    nodes = []

    def norm(name: str, channels: int) -> NodeProto:
        random = np.random.default_rng(len(weights))
        parameters = {
            "scale": random.uniform(0.5, 1.5, channels),
            "shift": random.normal(0, 0.2, channels),
            "mean": random.normal(0, 0.2, channels),
            "variance": random.uniform(0.5, 2, channels),
        }
        weights.update({f"{name}_{part}": values.astype(np.float32) for part, values in parameters.items()})
        return helper.make_node(
            "BatchNormalization",
            [name, *(f"{name}_{part}" for part in parameters)],
            [f"{name}_bn"],
            name=f"{name}_norm",
        )

    nodes = [
        helper.make_node("Conv", ["x", "stem_w"], ["stem"], name="stem", pads=[1, 1, 1, 1]),
        norm("stem", 8),
        helper.make_node("Relu", ["stem_bn"], ["a"], name="relu"),
        helper.make_node("Conv", ["a", "depthwise_w"], ["depthwise"], name="depthwise", pads=[1, 1, 1, 1], group=8),
        norm("depthwise", 8),
        helper.make_node("AveragePool", ["depthwise_bn"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["p", "up_w", "up_b"], ["up"], name="up", strides=[2, 2], group=2),
        norm("up", 6),
        helper.make_node("Relu", ["up_bn"], ["b"], name="relu2"),
        helper.make_node("Conv", ["b", "last_w", "last_b"], ["last_y"], name="last"),
        helper.make_node("GlobalAveragePool", ["last_y"], ["g"], name="global_pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], name="head", transB=1),
    ]
    save(path, nodes, weights, {"x": ["batch", CHANNELS, 8, 8]}, {"y": ["batch", 5]})


def write_gemms(path: Path) -> None:
    """Gemm (transB) + Relu, Gemm (transB, no bias) + Tanh, Gemm (weight as it multiplies)."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], name="first", transB=1),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Gemm", ["b", "w2"], ["c"], name="second", transB=1),
        helper.make_node("Tanh", ["c"], ["d"], name="tanh"),
        helper.make_node("Gemm", ["d", "w3", "b3"], ["y"], name="third"),
    ]
    weights: dict[str, Array] = {
        "w1": drawn(0, 32, FEATURES),
        "b1": drawn(1, 32),
        "w2": drawn(2, 16, 32),
        "w3": drawn(3, 5, 16).T.copy(),
        "b3": drawn(4, 5),
    }
    save(path, nodes, weights, {"x": ["batch", FEATURES]}, {"y": ["batch", 5]})


def write_shared(path: Path) -> None:
    """Two MatMuls by one weight and one bias, and a third by the same weight through Identity."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Add", ["b", "a"], ["c"], name="first_bias"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node("MatMul", ["d", "w"], ["e"], name="second"),
        helper.make_node("Add", ["e", "b"], ["f"], name="second_bias"),
        helper.make_node("Identity", ["w"], ["same"], name="same"),
        helper.make_node("MatMul", ["f", "same"], ["y"], name="third"),
    ]
    weights: dict[str, Array] = {"w": drawn(0, FEATURES, FEATURES), "b": drawn(1, FEATURES)}
    save(path, nodes, weights, {"x": ["batch", FEATURES]}, {"y": ["batch", FEATURES]})


def write_external(path: Path) -> None:
    """The tiny encoder with its weights in a file of their own."""
    onnx.save(tiny_encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=256)


def write_outputs(path: Path) -> None:
    """Three outputs: a layer's own, one in the middle that others read on, and two heads of one trunk."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="trunk"),
        helper.make_node("Add", ["a", "b1"], ["features"], name="trunk_bias"),
        helper.make_node("Relu", ["features"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["classes"], name="classes_head", transB=1),
        helper.make_node("MatMul", ["r", "w3"], ["boxes"], name="boxes_head"),
    ]
    weights: dict[str, Array] = {
        "w1": drawn(0, FEATURES, 24),
        "b1": drawn(1, 24),
        "w2": drawn(2, 5, 24),
        "b2": drawn(3, 5),
        "w3": drawn(4, 24, 4),
    }
    outputs: dict[str, list[int | str]] = {"features": ["batch", 24], "classes": ["batch", 5], "boxes": ["batch", 4]}
    save(path, nodes, weights, {"x": ["batch", FEATURES]}, outputs)


def write_halves(path: Path) -> None:
    """Every weight stored as float16 behind a Cast, one behind a Transpose too."""
    nodes = [
        *(helper.make_node("Cast", [f"{n}16"], [n], name=f"cast_{n}", to=FLOAT) for n in ("w1", "b1", "w2", "b2")),
        helper.make_node("Transpose", ["w1"], ["w1t"], name="turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w1t"], ["a"], name="first"),
        helper.make_node("Add", ["b1", "a"], ["b"], name="first_bias"),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("Gemm", ["c", "w2", "b2"], ["y"], name="second", transB=1),
    ]
    weights = {"w1": drawn(0, 24, FEATURES), "b1": drawn(1, 24), "w2": drawn(2, 5, 24), "b2": drawn(3, 5)}
    halves: dict[str, Array] = {f"{name}16": values.astype(np.float16) for name, values in weights.items()}
    save(path, nodes, halves, {"x": ["batch", FEATURES]}, {"y": ["batch", 5]})


def _bert(exporter: Literal["torchscript", "dynamo"], opset: int, attention: Literal["eager", "sdpa"]) -> ZooModel:
    def write(path: Path) -> None:
        write_bert(path, exporter=exporter, opset=opset, attention=attention)

    return ZooModel(write=write, feeds=tokens, layers=2 * 8 + 2)


BERTS: dict[str, ZooModel] = {
    "bert-torchscript-17": _bert("torchscript", 17, "eager"),
    "bert-torchscript-20": _bert("torchscript", 20, "sdpa"),
    "bert-dynamo-20": _bert("dynamo", 20, "sdpa"),
}
ZOO: dict[str, ZooModel] = {
    **BERTS,
    "cnn": ZooModel(write=write_cnn, feeds=images, layers=6),
    "gemms": ZooModel(write=write_gemms, feeds=rows, layers=3),
    "shared-weight": ZooModel(write=write_shared, feeds=rows, layers=3),
    "external-data": ZooModel(write=write_external, feeds=encoder_ids, layers=9),
    "several-outputs": ZooModel(write=write_outputs, feeds=rows, layers=3),
    "float16-behind-casts": ZooModel(write=write_halves, feeds=rows, layers=2),
}
