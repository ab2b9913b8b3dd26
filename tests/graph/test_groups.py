"""Layers find their group by what flows where; names play no part."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from tests.targets.encoder import model_of, tiny_encoder
from workbench.graph.groups import layer_groups
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.normalize import normalized

FLOAT = TensorProto.FLOAT
WIDTH = 8


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def groups_of(nodes: list[NodeProto], weights: dict[str, np.ndarray], folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Groups of nodes from `x` [batch, length, 8] to `y`, loaded as every model is."""
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", "length", WIDTH])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    onnx.save(model_of(nodes, weights, [x], [y]), folder / "model.onnx")
    proto = load_graph(read_model(folder / "model.onnx"))
    return layer_groups(proto, quantizable_layers(proto))


def matmul(name: str, x: str, weights: dict[str, np.ndarray], size: tuple[int, int] = (WIDTH, WIDTH)) -> NodeProto:
    """`name`(x) by a weight of its own."""
    weights[f"{name}_w"] = weight(*size)
    return helper.make_node("MatMul", [x, f"{name}_w"], [name], name=name)


def attention(x: str, weights: dict[str, np.ndarray], mark: str = "") -> list[NodeProto]:
    """One head; gives `{mark}added`, the sum with `x`."""
    q, k, v, out = (f"{mark}{part}" for part in ("q", "k", "v", "out"))
    return [
        *(matmul(name, x, weights) for name in (q, k, v)),
        helper.make_node("Transpose", [k], [f"{k}_t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", [q, f"{k}_t"], [f"{mark}s"], name=f"{mark}scores"),
        helper.make_node("Softmax", [f"{mark}s"], [f"{mark}p"], axis=-1),
        helper.make_node("MatMul", [f"{mark}p", v], [f"{mark}c"], name=f"{mark}context"),
        matmul(out, f"{mark}c", weights),
        helper.make_node("Add", [x, out], [f"{mark}added"]),
    ]


def test_an_encoder_falls_into_the_parts_of_its_block_whatever_its_nodes_are_called(tmp_path: Path) -> None:
    onnx.save(tiny_encoder(), tmp_path / "model.onnx")
    proto = load_graph(read_model(tmp_path / "model.onnx"))
    layers = quantizable_layers(proto)

    groups = layer_groups(proto, layers)

    assert groups == {
        "block 0 / qkv": ("query", "key", "value"),
        "block 0 / scores": ("scores",),
        "block 0 / context": ("context",),
        "block 0 / attention output": ("out",),
        "block 0 / FFN in": ("up",),
        "block 0 / FFN out": ("down",),
        "classifier": ("classifier",),
    }
    assert layer_groups(normalized(proto), quantizable_layers(proto)) == groups
    asked = [layer for layer in layers if layer.name in ("key", "down")]
    assert layer_groups(proto, asked) == {"block 0 / qkv": ("key",), "block 0 / FFN out": ("down",)}
    renamed = {node.name: f"n{index}" for index, node in enumerate(proto.graph.node)}
    for node in proto.graph.node:
        node.name = renamed[node.name]
    assert layer_groups(proto, quantizable_layers(proto)) == {
        group: tuple(renamed[name] for name in names) for group, names in groups.items()
    }


def test_without_attention_every_layer_is_its_own_group(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [matmul("first", "x", weights), helper.make_node("Relu", ["first"], ["r"]), matmul("y", "r", weights)]

    assert groups_of(nodes, weights, tmp_path) == {"first": ("first",), "y": ("y",)}


def test_a_gated_feed_forward_network_has_two_layers_going_in(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [
        *attention("x", weights),
        matmul("gate", "added", weights, (WIDTH, 24)),
        matmul("up", "added", weights, (WIDTH, 24)),
        helper.make_node("Sigmoid", ["gate"], ["sigmoid"]),
        helper.make_node("Mul", ["gate", "sigmoid"], ["swish"]),
        helper.make_node("Mul", ["swish", "up"], ["gated"]),
        matmul("down", "gated", weights, (24, WIDTH)),
        helper.make_node("Add", ["down", "added"], ["y"]),
    ]

    groups = groups_of(nodes, weights, tmp_path)

    assert groups["block 0 / FFN in"] == ("gate", "up")
    assert groups["block 0 / FFN out"] == ("down",)


def test_one_layer_may_give_query_key_and_value(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {"sizes": np.array([WIDTH] * 3)}
    nodes = [
        matmul("qkv", "x", weights, (WIDTH, 3 * WIDTH)),
        helper.make_node("Split", ["qkv", "sizes"], ["q", "k", "v"], axis=-1),
        *attention("x", weights)[3:],
        matmul("y", "added", weights),
    ]

    groups = groups_of(nodes, weights, tmp_path)

    assert groups["block 0 / qkv"] == ("qkv",)
    assert groups["block 0 / attention output"] == ("out",)


def test_one_operator_may_be_the_whole_attention(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [
        *(matmul(name, "x", weights) for name in ("q", "k", "v")),
        helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["c"], domain="com.microsoft", num_heads=2),
        matmul("out", "c", weights),
        helper.make_node("Add", ["x", "out"], ["y"]),
    ]

    assert groups_of(nodes, weights, tmp_path) == {
        "block 0 / qkv": ("q", "k", "v"),
        "block 0 / attention output": ("out",),
    }


def test_blocks_are_numbered_in_graph_order(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [*attention("x", weights, "a_"), *attention("a_added", weights, "b_"), matmul("y", "b_added", weights)]

    groups = groups_of(nodes, weights, tmp_path)

    assert (groups["block 0 / qkv"], groups["block 1 / qkv"]) == (("a_q", "a_k", "a_v"), ("b_q", "b_k", "b_v"))
    assert groups["classifier"] == ("y",)


def test_a_layer_alone_does_not_slip_into_a_group_of_its_name(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [
        *attention("x", weights),
        matmul("classifier", "added", weights),
        helper.make_node("Tanh", ["classifier"], ["t"]),
        matmul("y", "t", weights),
    ]

    groups = groups_of(nodes, weights, tmp_path)

    assert (groups["classifier"], groups["classifier / alone"]) == (("y",), ("classifier",))
