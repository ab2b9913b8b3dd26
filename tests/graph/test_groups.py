"""Layers find their group by what flows where; names play no part."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import NodeProto, helper

from tests.small_graphs import graph_of, saved, weight
from workbench.graph.groups import layer_groups
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.testing.encoder import tiny_encoder

WIDTH = 8


def groups_of(nodes: list[NodeProto], weights: dict[str, np.ndarray], folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Groups of nodes from `x` [batch, length, 8] to `y`, loaded as every model is."""
    proto = load_graph(read_model(saved(graph_of(nodes, weights, ["batch", "length", WIDTH]), folder)))
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
    proto = load_graph(read_model(saved(tiny_encoder(), tmp_path)))
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


def test_blocks_of_other_forms_fall_into_the_same_parts_in_graph_order(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {"sizes": np.array([WIDTH] * 3)}
    make = helper.make_node
    without_attention = [matmul("first", "x", weights), make("Relu", ["first"], ["r"]), matmul("y", "r", weights)]
    gated = [
        *attention("x", weights),
        matmul("gate", "added", weights, (WIDTH, 24)),
        matmul("up", "added", weights, (WIDTH, 24)),
        make("Sigmoid", ["gate"], ["sigmoid"]),
        make("Mul", ["gate", "sigmoid"], ["swish"]),
        make("Mul", ["swish", "up"], ["gated"]),
        matmul("down", "gated", weights, (24, WIDTH)),
        make("Add", ["down", "added"], ["y"]),
    ]
    one_layer = [
        matmul("qkv", "x", weights, (WIDTH, 3 * WIDTH)),
        make("Split", ["qkv", "sizes"], ["q", "k", "v"], axis=-1),
        *attention("x", weights)[3:],
        matmul("y", "added", weights),
    ]
    one_operator = [
        *(matmul(name, "x", weights) for name in ("q", "k", "v")),
        make("MultiHeadAttention", ["q", "k", "v"], ["c"], domain="com.microsoft", num_heads=2),
        matmul("out", "c", weights),
        make("Add", ["x", "out"], ["y"]),
    ]
    two_blocks = [*attention("x", weights, "a_"), *attention("a_added", weights, "b_"), matmul("y", "b_added", weights)]
    taken_name = [
        *attention("x", weights),
        matmul("classifier", "added", weights),
        make("Tanh", ["classifier"], ["t"]),
        matmul("y", "t", weights),
    ]
    for nodes, expected in (
        (without_attention, {"first": ("first",), "y": ("y",)}),
        (gated, {"block 0 / FFN in": ("gate", "up"), "block 0 / FFN out": ("down",)}),
        (one_layer, {"block 0 / qkv": ("qkv",), "block 0 / attention output": ("out",)}),
        (one_operator, {"block 0 / qkv": ("q", "k", "v"), "block 0 / attention output": ("out",)}),
        (two_blocks, {"block 0 / qkv": ("a_q", "a_k", "a_v"), "block 1 / qkv": ("b_q", "b_k", "b_v")}),
        (two_blocks, {"classifier": ("y",)}),
        (taken_name, {"classifier": ("y",), "classifier / alone": ("classifier",)}),
    ):
        groups = groups_of(nodes, weights, tmp_path)
        assert expected.items() <= groups.items(), groups
        assert nodes not in (without_attention, one_operator) or groups == expected
