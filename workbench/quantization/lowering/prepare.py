"""Preparation: the float model that a record's scales belong to: normalized, balanced, biases corrected.

    proto ─► normalized ─► balanced (record: balance) ─► corrected (record: bias_correction) ─► lowerings

Balancing by itself changes nothing the float model computes: weights are multiplied by the factors s of their input
channels and the activation divided by them. The division is

    fold=False   a Mul before every balanced layer, named as in AMCT's deploy model (amct.md §4.5)
    fold=True    in the constants of the operators before where they alone make the tensor (folding.py), else one Mul
                 that all layers share which read the tensor with equal factors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names, attributes_of, copied, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.folding import Edit, Wiring, along_channels, edits_that_divide
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.surgery import float_constant, prune_constants
from workbench.quantization.record import LayerRecord, QuantizationRecord
from workbench.values.errors import LoweringError, nearest

_Floats = npt.NDArray[np.float32]

_CONVOLUTIONS = ("Conv", "ConvTranspose")


def prepare(proto: ModelProto, record: QuantizationRecord) -> ModelProto:
    """The float model that both lowerings start from.

    Pure and deterministic. Layers keep their names; the record's activation tensors are those of this model.

    Raises:
        LoweringError: a balanced or corrected layer is not in the model, or its numbers do not fit it.
    """
    corrections = {layer.layer: layer.bias_correction for layer in record.layers if layer.bias_correction is not None}
    return corrected(balanced_as(proto, record), corrections)


def balanced_as(proto: ModelProto, record: QuantizationRecord) -> ModelProto:
    """The normalized model as a record balances it."""
    factors = {layer.layer: layer.balance for layer in record.layers if layer.balance is not None}
    return balanced(normalized(proto, scalars=not record.follows_amct), factors, fold=record.fold_balance)


def balanced(proto: ModelProto, factors: Mapping[str, Sequence[float]], *, fold: bool) -> ModelProto:
    """The same function with balanced layers: weights times s along the input channels, activations divided by s.

    Args:
        factors: layer → s per input channel, positive.
        fold: see the module's text. Without it a layer reads `<layer>.mul.output0`, the product of its input and the
            Constant `<layer>.tensor_balance_factor` = 1/s of shape [1, C], or [1, C, 1, ...] for a convolution.

    Raises:
        LoweringError: see `prepare`.
    """
    if not factors:
        return proto
    nodes = {node.name: node for node in proto.graph.node}
    vectors = {layer: np.asarray(values, np.float32) for layer, values in factors.items()}
    wiring, edits = Wiring(proto), list[Edit]()
    for layer, vector in vectors.items():
        if layer not in nodes:
            raise LoweringError(f"Layer {layer!r} of the record is not in the model. {nearest(layer, nodes)}")
        if not (np.isfinite(vector).all() and (vector > 0).all()):
            raise LoweringError(f"{layer}: balance factors must be positive float32 numbers. Calibrate again.")
        node = nodes[layer]
        shape = wiring.shape(node.input[1]) if node.op_type in ("MatMul", "Gemm", *_CONVOLUTIONS) else None
        if shape is None:
            raise LoweringError(f"{layer}: only a layer with a constant weight can be balanced. Calibrate again.")
        multiplier = along_channels(node, shape, vector, inputs=True)
        if multiplier is None:
            raise LoweringError(f"{layer}: {vector.size} balance factors do not fit a weight of shape {shape}.")
        edits.append(Edit(node=layer, index=1, multiplier=multiplier))
    groups: dict[tuple[str, int, bytes, str], list[str]] = {}
    for node in proto.graph.node:
        if node.name in vectors:
            axis = 1 if node.op_type in _CONVOLUTIONS else -1
            key = (node.input[0], axis, vectors[node.name].tobytes(), "" if fold else node.name)
            groups.setdefault(key, []).append(node.name)
    divided: dict[str, _Floats] = {}
    for (tensor, axis, _, _), layers in groups.items():
        vector = vectors[layers[0]]
        behind = None
        if fold and wiring.only_read_by(tensor, layers):
            behind = edits_that_divide(wiring, tensor, vector, channel_axis=axis)
        if behind is None:
            divided |= dict.fromkeys(layers, vector)
        else:
            edits.extend(behind)
    model = copied(proto)
    _apply(model, edits)
    _insert_divisions(model, [layers for layers in groups.values() if layers[0] in divided], divided)
    prune_constants(model.graph)
    return model


def corrected(proto: ModelProto, corrections: Mapping[str, Sequence[float]]) -> ModelProto:
    """The model with `corrections` added to the layers' biases, per output channel.

    A constant bias takes them up: of a Gemm or convolution itself, or of the Add that is the only reader of a
    MatMul. Otherwise a MatMul gets an Add `<layer>.bias_correction`; its output tensor keeps its name.

    Raises:
        LoweringError: see `prepare`.
    """
    if not corrections:
        return proto
    nodes = {node.name: node for node in proto.graph.node}
    missing = sorted(corrections.keys() - nodes.keys())
    if missing:
        raise LoweringError(f"Layer {missing[0]!r} of the record is not in the model. {nearest(missing[0], nodes)}")
    wiring = Wiring(proto)
    model = copied(proto)
    names = Names(model.graph)
    rewritten: list[NodeProto] = []
    by_name = {node.name: node for node in model.graph.node}
    for node in model.graph.node:
        rewritten.append(node)
        if node.name not in corrections:
            continue
        values = np.asarray(corrections[node.name], np.float32)
        if _output_channels(wiring, node) != values.size:
            raise LoweringError(f"{node.name}: {values.size} bias corrections do not fit its weight. Calibrate again.")
        place = bias_place(wiring, node)
        if place is not None:
            holder, index = by_name[place[0]], place[1]
            bias = float_constant(holder.input[index], wiring.constants[holder.input[index]], node.name)
            holder.input[index] = _constant(model.graph, names, f"{node.name}.bias", bias + values.reshape(bias.shape))
        elif node.op_type != "MatMul":
            if len(node.input) > 2 and node.input[2]:
                raise LoweringError(f"{node.name}: its bias is computed, so that it cannot be corrected.")
            del node.input[2:]
            node.input.append(_constant(model.graph, names, f"{node.name}.bias", values))
        else:
            added = _constant(model.graph, names, f"{node.name}.bias_correction.values", values)
            product = names.fresh(f"{node.name}.product")
            name = names.fresh(f"{node.name}.bias_correction")
            rewritten.append(helper.make_node("Add", [product, added], [node.output[0]], name=name))
            node.output[0] = product
    replace_nodes(model.graph, rewritten)
    prune_constants(model.graph)
    return model


def _apply(model: ModelProto, edits: Sequence[Edit]) -> None:
    """Multiply constants; one that other nodes read as well stays as it is, and the node gets its own."""
    names = Names(model.graph)
    wiring = Wiring(model)
    nodes = {node.name: node for node in model.graph.node}
    products: dict[tuple[str, int], _Floats] = {}
    for edit in edits:
        place = (edit.node, edit.index)
        name = nodes[edit.node].input[edit.index]
        before = products[place] if place in products else float_constant(name, wiring.constants[name], edit.node)
        products[place] = before * edit.multiplier
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for (node, index), values in products.items():
        name = nodes[node].input[index]
        single = wiring.only_read_by(name, [node]) and list(nodes[node].input).count(name) == 1
        if name in initializers and single:
            initializers[name].CopyFrom(tensor_of(values, name))
        else:
            nodes[node].input[index] = _constant(model.graph, names, f"{name}.balanced", values)


def _insert_divisions(model: ModelProto, groups: Sequence[Sequence[str]], factors: Mapping[str, _Floats]) -> None:
    """One Mul by 1/s before the first layer of each group; all layers of the group read its output."""
    names = Names(model.graph)
    known = constants(model)
    nodes = {node.name: node for node in model.graph.node}
    shapes = {value.name: value for value in (*model.graph.value_info, *model.graph.input)}
    fixed: list[NodeProto] = []
    before: dict[str, NodeProto] = {}
    for layers in groups:
        first = nodes[layers[0]]
        inverse = np.float32(1) / factors[first.name]
        tensor = first.input[0]
        rank = len(known[first.input[1]].dims) if first.op_type in _CONVOLUTIONS else 2
        constant = names.fresh(f"{first.name}.tensor_balance_factor")
        value = tensor_of(inverse.reshape(1, -1, *[1] * (rank - 2)), constant)
        fixed.insert(0, helper.make_node("Constant", [], [f"{constant}.output0"], name=constant, value=value))
        product = names.fresh(f"{first.name}.mul")
        before[first.name] = helper.make_node(
            "Mul", [tensor, f"{constant}.output0"], [f"{product}.output0"], name=product
        )
        for layer in layers:
            nodes[layer].input[0] = f"{product}.output0"
        if tensor in shapes:
            described = ValueInfoProto()
            described.CopyFrom(shapes[tensor])
            described.name = f"{product}.output0"
            model.graph.value_info.append(described)
    if groups:
        flow = [new for node in model.graph.node for new in (before.get(node.name), node) if new is not None]
        replace_nodes(model.graph, [*fixed, *flow])


def _output_channels(wiring: Wiring, node: NodeProto) -> int | None:
    shape = wiring.shape(node.input[1])
    if shape is None or node.op_type not in ("MatMul", "Gemm", *_CONVOLUTIONS):
        return None
    attributes = attributes_of(node)
    if node.op_type == "ConvTranspose":
        return shape[1] * int(attributes.get("group", 1))
    first = node.op_type == "Conv" or bool(attributes.get("transB", 0))
    return shape[0] if first else shape[-1]


def bias_place(wiring: Wiring, node: NodeProto) -> tuple[str, int] | None:
    """Node and input of the constant bias of a layer, one value for each channel; None where it has none."""
    channels = _output_channels(wiring, node)
    if node.op_type != "MatMul":
        has = len(node.input) > 2 and wiring.shape(node.input[2]) == (channels,)
        return (node.name, 2) if has else None
    readers = wiring.readers(node.output[0])
    if node.output[0] in wiring.outputs or len(readers) != 1 or readers[0].op_type != "Add":
        return None
    add = readers[0]
    for index in (0, 1):
        if wiring.shape(add.input[index]) == (channels,) and add.input[1 - index] == node.output[0]:
            return (add.name, index)
    return None


def _constant(graph: GraphProto, names: Names, wish: str, values: _Floats) -> str:
    tensor: TensorProto = tensor_of(values.astype(np.float32), names.fresh(wish))
    graph.initializer.append(tensor)
    return tensor.name


# --- biases on the grid of their layer's int32 sums ------------------------------------------------------------------


def integer_bias(
    layer: str, name: str, known: Mapping[str, TensorProto], factors: npt.NDArray[np.float32]
) -> npt.NDArray[np.int32]:
    """Round half to even of bias / (scale_d · scale_w), in float32 as AMCT computes it (amct.md §4.8).

    Raises:
        LoweringError: it is computed, or does not fit into int32.
    """
    if name not in known:
        raise LoweringError(f"{layer}: the bias {name} is computed. Keep this layer in float.")
    quotients = np.rint(float_constant(name, known[name], layer) / factors).astype(np.float64)
    limits = np.iinfo(np.int32)
    if quotients.size and (quotients.min() < limits.min or quotients.max() > limits.max):
        raise LoweringError(
            f"{layer}: Do bias quantize failed (AMCT's words): its bias does not fit into int32 at scale "
            f"{factors.min():g}, it becomes {float(quotients.flat[np.abs(quotients).argmax()]):.6g}. Keep this "
            "layer in float."
        )
    integers: npt.NDArray[np.int32] = quotients.astype(np.int32)
    return integers


def round_biases(model: ModelProto, record: QuantizationRecord, original: ModelProto) -> None:
    """For a lowering that adds in float: replace biases by what the device adds, in place.

    The bias b of a recorded Gemm or MatMul becomes round(b / f) · f with f = scale_d · scale_w.
    float32, half to even (amct.md §4.8). A bias that AMCT leaves in float stays as it is: one that `original` adds
    from the left (amct.md §6.4), and one that is computed. Convolutions have int32 biases in every lowering.

    Args:
        model: what `prepare` gives.
        original: the model before any preparation, which alone tells on which side a bias stood.
    """
    on_the_left = {n.name for n in original.graph.node if n.op_type == "Add" and n.input[0] in constants(original)}
    nodes, names, wiring = {node.name: node for node in model.graph.node}, Names(model.graph), Wiring(model)
    for layer in record.layers:
        node = nodes.get(layer.layer)
        if node is None or layer.weight is None or node.op_type not in ("Gemm", "MatMul"):
            continue
        holder, index = bias_place(wiring, node) or ("", 0)
        if not holder or holder in on_the_left:
            continue
        bias = nodes[holder].input[index]
        values, factors = float_constant(bias, wiring.constants[bias], layer.layer), sum_factors(layer)
        rounded = np.rint(values / factors) * factors if factors.size in (1, values.size) else values
        nodes[holder].input[index] = names.fresh(f"{layer.layer}.bias")
        model.graph.initializer.append(tensor_of(rounded.astype(np.float32), nodes[holder].input[index]))
    prune_constants(model.graph)


def sum_factors(layer: LayerRecord) -> npt.NDArray[np.float32]:
    """What one step of a layer's integer sums is worth, scale_d · scale_w in float32: shape [] or [Cout]."""
    assert layer.weight is not None
    scales = np.asarray(layer.weight.scales, np.float32)
    factors = np.float32(layer.activation.scale) * (scales[0] if layer.weight.axis is None else scales)
    return np.asarray(factors, np.float32)
