"""What exporters leave around an encoder, in fewer nodes: shapes and masks of compiled graphs.

    Reshape to a computed shape                        ⇒   Reshape to a constant such as [0, 0, heads, size]
    mask for the scores, from some 30 nodes            ⇒   6 nodes, once for the model

Together with an embedding of always the same index, which is left as it is now, that saved 88 of the 290 nodes of a
MiniLM with 6 layers and INT8 products, exported by TorchScript, and 6 % of its time for one text of 16 or 32 tokens,
4 % for 64, 1 to 2 % at batch 8 of 64. With float products, where fusing attention has removed most of them already, 18
nodes and 2 % for 16 or 32 tokens were left (onnxruntime 1.31.1, interleaved medians of one thread's CPU time on a busy
machine).

Both are found by running the model (`draws`), shapes up to 1100 tokens where it takes as many. Results stay as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names, attributes_of, copied, names_read, opset_of, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants
from workbench.targets.onnxruntime.draws import Draw, distant_draws, draws, mask_of, needed_nodes

_AXES_AS_INPUT = 13  # the opset from which Unsqueeze takes its axes as an input
_LONGEST = 1100  # shows windows of up to 512 positions, of which it is no multiple


def simplified(model: ModelProto) -> ModelProto:
    """The model with what this module knows to simplify; its outputs, inputs and layers stay.

    Pure; the very same model comes back where there is nothing to do.

    Raises:
        Whatever the runtime raises where the model cannot be run with ids of 0 and 1.
    """
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    reshapes = [
        node
        for node in model.graph.node
        if node.op_type == "Reshape"
        and node.input[0] in makers
        and node.input[1] in makers
        and not attributes_of(node).get("allowzero", 0)
    ]
    biases = _added_to_scores(model, makers, known)
    if not (reshapes or biases):
        return model
    reshaped = {name for node in reshapes for name in (node.input[0], node.output[0])}
    found = draws(model, reshaped | set(biases))
    if not found:
        return model
    measured = [*found, *distant_draws(model, reshaped, longest=_LONGEST)]
    shapes = {node.output[0]: _constant_shape(node, measured) for node in reshapes}
    masks: dict[str, tuple[str, float]] = {}
    if biases and opset_of(model) >= _AXES_AS_INPUT:
        everything = [*found, *distant_draws(model, biases)]
        masks = {name: mask for name in biases if (mask := mask_of(name, everything)) is not None}
    return _rewritten(model, {name: shape for name, shape in shapes.items() if shape is not None}, masks)


# --- finding -------------------------------------------------------------------------------------------------------


def _constant_shape(node: NodeProto, found: Sequence[Draw]) -> tuple[int, ...] | None:
    """The shape, with 0 for the input's own dimension and -1 for a product of several; None where that fails."""
    wanted = [values[node.output[0]].shape for _, values in found]
    given = [values[node.input[0]].shape for _, values in found]
    shape: list[int] = []
    for axis, sizes in enumerate(zip(*wanted, strict=True)):
        if all(axis < len(own) and own[axis] == size for own, size in zip(given, sizes, strict=True)):
            shape.append(0)
        else:
            shape.append(sizes[0] if len(set(sizes)) == 1 else -1)
    return tuple(shape) if shape.count(-1) <= 1 else None


def _added_to_scores(
    model: ModelProto, makers: Mapping[str, NodeProto], known: Mapping[str, TensorProto]
) -> dict[str, None]:
    """Tensors that are added right before a Softmax and follow from the inputs without any layer's weight."""
    found: dict[str, None] = {}
    inputs = {value.name for value in model.graph.input} - set(known)
    for node in model.graph.node:
        add = makers.get(node.input[0]) if node.op_type == "Softmax" else None
        if add is None or add.op_type != "Add":
            continue
        for name in add.input:
            before = needed_nodes(model.graph.node, [name])
            read = {source for step in before for source in names_read(step)}
            # six nodes are what it would become; scores come from a product
            if len(before) > 6 and read & inputs and not any("MatMul" in step.op_type for step in before):
                found[name] = None
    return found


# --- writing -------------------------------------------------------------------------------------------------------


def _rewritten(
    model: ModelProto, shapes: Mapping[str, tuple[int, ...]], masks: Mapping[str, tuple[str, float]]
) -> ModelProto:
    copy = copied(model)
    names = Names(copy.graph)
    stored: dict[tuple[int, ...], str] = {}
    for node in copy.graph.node:
        if node.op_type == "Reshape" and node.output[0] in shapes:
            shape = shapes[node.output[0]]
            if shape not in stored:
                stored[shape] = names.fresh("shape_" + "_".join(map(str, shape)))
                copy.graph.initializer.append(tensor_of(np.array(shape, np.int64), stored[shape]))
            node.input[1] = stored[shape]
    made: dict[tuple[str, float], str] = {}
    nodes: list[NodeProto] = []
    for tensor, mask in masks.items():
        if mask not in made:
            made[mask] = names.fresh(f"{mask[0]}_for_scores")
            nodes.extend(_mask_nodes(copy, names, mask, made[mask]))
        for node in copy.graph.node:
            for position, name in enumerate(node.input):
                node.input[position] = made[mask] if name == tensor else name
    nodes.extend(copy.graph.node)
    replace_nodes(copy.graph, needed_nodes(nodes, {output.name for output in copy.graph.output}))
    prune_constants(copy.graph)
    return copy


def _mask_nodes(model: ModelProto, names: Names, mask: tuple[str, float], to: str) -> list[NodeProto]:
    """[batch, 1, length, length]: 0 where the mask keeps a position, the number elsewhere.

    The length is there twice because an Add that repeats rows within a matrix takes half as long again.
    """
    name, number = mask

    def constant(part: str, values: npt.NDArray[np.generic]) -> str:
        stored = names.fresh(f"{to}_{part}")
        model.graph.initializer.append(tensor_of(values, stored))
        return stored

    def node(op_type: str, part: str, inputs: list[str], **attributes: Any) -> NodeProto:
        output = to if part == "" else names.fresh(f"{to}_{part}")
        return helper.make_node(op_type, inputs, [output], name=names.fresh(f"{to}_{op_type}"), **attributes)

    over_keys = node("Unsqueeze", "keys", [name, constant("first_axes", np.array([1, 2]))])
    keeps = node("Cast", "keeps", [over_keys.output[0]], to=TensorProto.BOOL)
    over_queries = node("Unsqueeze", "queries", [name, constant("outer_axes", np.array([1, 3]))])
    floats = node("Cast", "floats", [over_queries.output[0]], to=TensorProto.FLOAT)
    zeros = node("Mul", "zeros", [floats.output[0], constant("zero", np.zeros((), np.float32))])
    lowest = constant("lowest", np.array(number, np.float32))
    chosen = node("Where", "", [keeps.output[0], zeros.output[0], lowest])
    return [over_keys, keeps, over_queries, floats, zeros, chosen]
