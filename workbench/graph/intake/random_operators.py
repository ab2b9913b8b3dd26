"""Operators that draw random numbers: found, and replaced by noise from a fixed table so that every call sees the same.

    RandomNormalLike(x)  ⇒  table[(i·k₁ + j·k₂ + …) mod size] at position (sample, i, j, …) of x's shape

The position counts, not the size: a sample's noise depends neither on the other samples of its call nor on how far it
is padded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.nodes import (
    DEFAULT_DOMAINS,
    Names,
    all_nodes,
    attributes_of,
    called,
    constant_tensor,
    copied,
    opset_of,
    replace_nodes,
)
from workbench.graph.read import infer_shapes
from workbench.values.errors import ConfigError

LIKE = ("RandomNormalLike", "RandomUniformLike")
SHAPED = ("RandomNormal", "RandomUniform")
RANDOM = (*LIKE, *SHAPED, "Multinomial", "Bernoulli")

_TABLE = 1 << 20
_NEXT_TO_NONE = 1e-30
"""ONNX Runtime ends the process where a normal distribution has no width at all."""
TABLE_NAME = "noise_table"
"""End of the names of the tables."""
_STRIDES = (4099, 64_301, 1, 257, 31)
"""Between neighbours of the axes behind the first; the last axis, counted from behind, has stride 1."""
_SEED = 20_240_229


def random_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """At any depth; a Dropout counts where it says that it is training."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in all_nodes(graph):
        if node.domain not in DEFAULT_DOMAINS:
            continue
        if (tensor := constant_tensor(node)) is not None:
            constants[node.output[0]] = tensor
        if node.op_type in RANDOM:
            yield node
        elif node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            mode = constants.get(node.input[2])
            if mode is None or bool(numpy_helper.to_array(mode).reshape(-1)[0]):
                yield node


def reproducible(proto: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """(a copy without random operators in the top graph, names of those replaced); needs opset 13."""
    model = copied(proto)
    infer_shapes(model)
    found = {node.output[0] for node in random_nodes(model.graph)}
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*model.graph.input, *model.graph.value_info)
        if value.type.tensor_type.HasField("shape")
    }
    names, replaced, nodes = Names(model.graph), [], []
    for node in model.graph.node:
        inside = [] if node.output[0] in found else list(random_nodes(GraphProto(node=[node])))
        if node.output[0] not in found and not inside:
            nodes.append(node)
            continue
        if node.op_type not in (*LIKE, *SHAPED) or opset_of(model) < 13:
            first = next(iter(inside), node)
            raise ConfigError(_refusal(first), hint=_REMEDIES.get(first.op_type, _REMEDY))
        made = _table_noise(node, ranks, names, model.graph)
        if made is None:
            raise ConfigError(_refusal(node, "the rank of its input is not known"), hint=_REMEDY)
        nodes.extend(made)
        replaced.append(called(node))
    replace_nodes(model.graph, nodes)
    del model.graph.value_info[:]
    return model, tuple(replaced)


_REMEDY = "Export the model without it, or with its noise as an input; where an input scales the noise, set that to 0."
_REMEDIES = {
    "Dropout": "Export the model for inference (model.eval()).",
    "Multinomial": "Export the model with its scores as output, and draw outside of it.",
    "Bernoulli": "Export the model with its probabilities as output, and draw outside of it.",
}


def _refusal(node: NodeProto, why: str = "") -> str:
    reason = f" ({why})" if why else ""
    return f"{called(node)} draws random numbers, so that no two runs agree, and cannot be made reproducible{reason}."


def stilled(proto: ModelProto) -> ModelProto:
    """A copy whose random operators give their mean, or their least value, at any depth: it can be compared."""
    model = copied(proto)
    for node in random_nodes(model.graph):
        if node.op_type == "Dropout":
            node.CopyFrom(helper.make_node("Identity", [node.input[0]], list(node.output[:1]), name=node.name))
        elif node.op_type in (*LIKE, *SHAPED):
            values = attributes_of(node)
            normal = node.op_type.startswith("RandomNormal")
            spread, none = ("scale", _NEXT_TO_NONE) if normal else ("high", float(values.get("low", 0.0)))
            kept = [a for a in node.attribute if a.name != spread]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(spread, none)])
    return model


def _table_noise(node: NodeProto, ranks: dict[str, int], names: Names, graph: GraphProto) -> list[NodeProto] | None:
    values = attributes_of(node)
    normal = node.op_type.startswith("RandomNormal")
    like = node.op_type in LIKE
    rank = ranks.get(node.input[0]) if like else len(values["shape"])
    if rank is None:
        return None
    nodes: list[NodeProto] = []

    def add(operator: str, inputs: list[str], wish: str, **attributes: Any) -> str:
        output = names.fresh(f"{node.output[0]}_{wish}")
        nodes.append(
            helper.make_node(operator, inputs, [output], name=names.fresh(f"{node.name}_{wish}"), **attributes)
        )
        return output

    def constant(value: npt.NDArray[Any], wish: str) -> str:
        name = names.fresh(f"{node.output[0]}_{wish}")
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    shape = add("Shape", [node.input[0]], "shape") if like else constant(np.asarray(values["shape"], np.int64), "shape")
    zero, one = constant(np.asarray(0, np.int64), "zero"), constant(np.asarray(1, np.int64), "one")
    place = constant(np.zeros([1] * max(rank, 1), np.int64), "start")
    for axis in range(1, rank):
        size = add("Gather", [shape, constant(np.asarray(axis, np.int64), f"axis{axis}")], f"size{axis}")
        steps = add("Range", [zero, size, one], f"steps{axis}")
        stride = 1 if axis == rank - 1 else _STRIDES[(axis - 1) % len(_STRIDES)]
        steps = add("Mul", [steps, constant(np.asarray(stride, np.int64), f"stride{axis}")], f"strided{axis}")
        others = [i for i in range(rank) if i != axis]
        steps = add("Unsqueeze", [steps, constant(np.asarray(others, np.int64), f"others{axis}")], f"along{axis}")
        place = add("Add", [place, steps], f"place{axis}")
    place = add("Mod", [place, constant(np.asarray(_TABLE, np.int64), "table_size")], "index")
    rng = np.random.default_rng(_SEED)
    table = (rng.standard_normal(_TABLE) if normal else rng.random(_TABLE)).astype(np.float32)
    noise = add("Gather", [constant(table, TABLE_NAME), place], "drawn")
    noise = add("Squeeze", [noise], "scalar") if rank == 0 else add("Expand", [noise, shape], "spread")
    low, high = float(values.get("low", 0.0)), float(values.get("high", 1.0))
    factor, shift = (values.get("scale", 1.0), values.get("mean", 0.0)) if normal else (high - low, low)
    if float(factor) != 1.0:
        noise = add("Mul", [noise, constant(np.asarray(factor, np.float32), "scale")], "scaled")
    if float(shift) != 0.0:
        noise = add("Add", [noise, constant(np.asarray(shift, np.float32), "mean")], "shifted")
    if like and "dtype" not in values:
        nodes.append(helper.make_node("Identity", [noise], list(node.output), name=node.name))
    else:
        to = int(values.get("dtype", TensorProto.FLOAT))
        nodes.append(helper.make_node("Cast", [noise], list(node.output), name=node.name, to=to))
    return nodes
