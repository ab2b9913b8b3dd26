"""Normalization: one form for the same computation, however an exporter wrote it, before layers are looked for.

    weight (float16) ─► Cast ─► Transpose ─► MatMul      ⇒   weight (float32) ─► MatMul
    Conv ─► BatchNormalization, Mul, Add by channel      ⇒   Conv with other weights and bias
    Add(bias, MatMul)                                    ⇒   Add(MatMul, bias)

Layers keep their node names, and every tensor that is left keeps its name and its values (a fused Conv up to the
rounding of its weights). So a tensor of the normalized model can be observed in the model as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from workbench.graph.apart import array_of, refers_apart, tensor_of
from workbench.graph.nodes import DEFAULT_DOMAINS, Names, attributes_of, copied, names_read, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.surgery import prune_constants, rewired
from workbench.values.errors import LoweringError

Array = npt.NDArray[Any]

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_LAYERS = ("MatMul", "Gemm", *_CONVOLUTIONS)
_CHAIN = ("Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators between a stored weight and the layer that reads it."""


def normalized(proto: ModelProto, *, scalars: bool = True) -> ModelProto:
    """The model in the form that the quantization modules expect; the very same object when it has that form.

    1. Weights and biases of MatMul, Gemm, Conv and ConvTranspose, and the parameters of BatchNormalization, that come
       as `Constant` or through Cast, Identity, Reshape, Squeeze, Transpose or Unsqueeze become float32 initializers.
       Layers that read one stored weight the same way share one initializer.
    2. A BatchNormalization that alone reads a Conv or ConvTranspose moves into its weight and bias (amct.md §5), and so
       does a Mul, Div, Add or Sub with one constant, or one for each channel. The Conv gives the tensor that they gave;
       its new constants get new names.
    3. The bias of a MatMul becomes the second input of its Add (amct.md §6.4).

    Pure and deterministic; `proto` is never changed. Works with or without node names and inferred shapes.

    Args:
        scalars: False leaves Mul, Div, Add and Sub as they are, as AMCT does.

    Raises:
        LoweringError: the values of a constant lie in external data that was not loaded.
    """
    draft = _Draft(
        nodes=list(proto.graph.node),
        opsets=list(proto.opset_import),
        known=constants(proto),
        stored={tensor.name for tensor in proto.graph.initializer},
        outputs={output.name for output in proto.graph.output},
        names=Names(proto.graph),
    )
    _fold_constants(draft, scalars=scalars)
    _fuse_affine(draft, scalars=scalars)
    _put_biases_second(draft)
    return draft.applied(proto) if draft.changed else proto


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The graph while it changes. The nodes of the model itself are replaced, never edited; weights are not copied.

    Attributes:
        known: constants by tensor name, old and new.
        stored: names of the initializers, old and new.
        added: new initializers.
    """

    nodes: list[NodeProto]
    opsets: list[OperatorSetIdProto]
    known: dict[str, TensorProto]
    stored: set[str]
    outputs: set[str]
    names: Names
    added: dict[str, TensorProto] = field(default_factory=dict)
    changed: bool = False

    def store(self, name: str, values: Array) -> None:
        self.added[name] = self.known[name] = tensor_of(np.ascontiguousarray(values), name)
        self.stored.add(name)
        self.changed = True

    def rewire(self, index: int, inputs: Iterable[str], outputs: Iterable[str] | None = None) -> None:
        """Put a copy of a node with other inputs (and outputs) in its place."""
        self.nodes[index] = rewired(self.nodes[index], inputs, outputs)
        self.changed = True

    def applied(self, proto: ModelProto) -> ModelProto:
        """A copy of `proto` with these nodes and initializers, without what nothing reads any more."""
        model = copied(proto)
        replace_nodes(model.graph, _live(self.nodes, self.outputs))
        model.graph.initializer.extend(self.added.values())
        prune_constants(model.graph)
        made = {name for node in model.graph.node for name in node.output}
        for index in reversed([i for i, value in enumerate(model.graph.value_info) if value.name not in made]):
            del model.graph.value_info[index]
        return model


def _live(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes without those of `_CHAIN` and constants whose output nothing reads."""
    used = set(outputs)
    kept = []
    for node in reversed(list(nodes)):
        if node.op_type not in (*_CHAIN, "Constant") or used.intersection(node.output):
            kept.append(node)
            used.update(names_read(node))
    return kept[::-1]


# --- constants -----------------------------------------------------------------------------------------------------


def _fold_constants(draft: _Draft, *, scalars: bool) -> None:
    producers = {name: node for node in draft.nodes for name in node.output}
    shared: dict[tuple[Any, ...], str] = {}
    removed: set[str] = set()
    for index, node in enumerate(draft.nodes):
        inputs = list(node.input)
        for at in _constant_operands(node, producers, scalars):
            inputs[at] = _folded(draft, inputs[at], producers, shared, removed)
        if inputs != list(node.input):
            draft.rewire(index, inputs)
    draft.nodes = [node for node in draft.nodes if not removed.intersection(node.output)]


def _constant_operands(node: NodeProto, producers: Mapping[str, NodeProto], scalars: bool) -> tuple[int, ...]:
    """Positions of the inputs that have to be constants for the node to be a layer, or to belong to one."""
    if node.domain not in DEFAULT_DOMAINS:
        return ()
    if node.op_type in ("Add", "Mul", "Div", "Sub"):  # the bias of a MatMul, or of a Conv, whichever side it is on
        before = _CONVOLUTIONS if scalars else ()
        before = ("MatMul", *before) if node.op_type == "Add" else before
        makers = [producers[name].op_type if name in producers else "" for name in node.input]
        return tuple(1 - at for at, maker in enumerate(makers) if maker in before)
    wanted = {"MatMul": (1,), "BatchNormalization": (1, 2, 3, 4)}.get(node.op_type, (1, 2))
    if node.op_type not in (*_LAYERS, "BatchNormalization"):
        return ()
    return tuple(at for at in wanted if at < len(node.input) and node.input[at])


def _folded(
    draft: _Draft, name: str, producers: Mapping[str, NodeProto], shared: dict[tuple[Any, ...], str], removed: set[str]
) -> str:
    """The initializer that holds the values of a tensor; the tensor itself where it is none, or computed."""
    chain: list[NodeProto] = []
    root = name
    while root not in draft.stored and root in producers and producers[root].op_type in _CHAIN:
        node = producers[root]
        if node.domain not in DEFAULT_DOMAINS or any(other not in draft.known for other in node.input[1:] if other):
            return name
        chain.insert(0, node)
        root = node.input[0]
    if root not in draft.known or (root in draft.stored and root == name):
        return name
    steps = [
        (node.op_type, *(each.SerializeToString() for each in node.attribute), *_settings(draft, node).values())
        for node in chain
        if node.op_type != "Identity"
    ]
    key = (root, repr(steps))
    if key not in shared:
        if not steps and root in draft.stored:
            shared[key] = root
            return root
        values = _values(draft.known[root])
        values = _computed(draft, chain, values) if steps else values
        if values.dtype != np.float32:
            return name
        place = name if steps else root
        draft.store(place, values)
        removed.add(place)  # the node that gave this tensor
        shared[key] = place
    return shared[key]


def _settings(draft: _Draft, node: NodeProto) -> dict[str, Array]:
    """Shape or axes, where they are an input."""
    return {name: _values(draft.known[name]) for name in node.input[1:] if name}


def _computed(draft: _Draft, chain: Sequence[NodeProto], values: Array) -> Array:
    feeds = {chain[0].input[0]: values}
    for node in chain:
        feeds |= _settings(draft, node)
    inputs = [ValueInfoProto(name=name) for name in feeds]
    graph = helper.make_graph(chain, "chain", inputs, [ValueInfoProto(name=chain[-1].output[0])])
    model = helper.make_model(graph, opset_imports=draft.opsets)
    with np.errstate(over="ignore"):  # beyond float32 is infinite at run time too; calibration reports it
        results: Any = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(results[0])


def _values(tensor: TensorProto) -> Array:
    if tensor.data_location == TensorProto.EXTERNAL and not refers_apart(tensor):
        raise LoweringError(f"{tensor.name}: its external data was not loaded. Load the model with its data.")
    return array_of(tensor)


# --- what scales and shifts a convolution's channels ---------------------------------------------------------------

_Doubles = npt.NDArray[np.float64]


def _fuse_affine(draft: _Draft, *, scalars: bool) -> None:
    reads = Counter(name for node in draft.nodes for name in names_read(node))
    reads.update(draft.outputs)
    places = {name: index for index, node in enumerate(draft.nodes) for name in node.output}
    fused: set[int] = set()
    for index, node in enumerate(draft.nodes):
        name = _scaled_tensor(draft, node, scalars)
        place = places.get(name) if name is not None and reads[name] == 1 else None
        if place is None:
            continue
        conv = draft.nodes[place]
        parameters = _fusable(draft, conv, node)
        if parameters is None:
            continue
        weight, bias = parameters
        constants_read = [draft.names.fresh(f"{conv.input[1]}_fused"), draft.names.fresh(f"{conv.input[1]}_fused_bias")]
        draft.store(constants_read[0], weight)
        draft.store(constants_read[1], bias)
        draft.rewire(place, [conv.input[0], *constants_read], node.output[:1])
        places[node.output[0]] = place
        fused.add(index)
    draft.nodes = [node for index, node in enumerate(draft.nodes) if index not in fused]


def _scaled_tensor(draft: _Draft, node: NodeProto, scalars: bool) -> str | None:
    """What a BatchNormalization by stored statistics reads, or a Mul, Div, Add or Sub beside a constant."""
    if node.domain not in DEFAULT_DOMAINS:
        return None
    if node.op_type == "BatchNormalization":
        values = attributes_of(node)
        stored = not any(node.output[1:]) and not values.get("training_mode", 0) and bool(values.get("spatial", 1))
        return node.input[0] if stored else None
    if not scalars or node.op_type not in ("Mul", "Div", "Add", "Sub"):
        return None
    first, second = node.input
    if second in draft.known:
        return None if first in draft.known else first
    return second if first in draft.known and node.op_type in ("Mul", "Add") else None


def _affine(draft: _Draft, node: NodeProto, rank: int, channels: int) -> tuple[_Doubles, _Doubles] | None:
    """(factor, shift) by channel: y = x · factor + shift; None where a constant is of another kind."""
    if node.op_type == "BatchNormalization":
        scale, shift, mean, variance = (_floats(draft, name) for name in node.input[1:5])
        if scale is None or shift is None or mean is None or variance is None:
            return None
        if any(values.shape != (channels,) for values in (scale, shift, mean, variance)):
            return None
        spread = variance + float(attributes_of(node).get("epsilon", 1e-5))
        if not (spread > 0).all():
            return None
        factor = scale / np.sqrt(spread)
        return factor, shift - mean * factor
    values = _floats(draft, node.input[1] if node.input[1] in draft.known else node.input[0])
    if values is None or values.ndim > rank or values.size not in (1, channels):
        return None
    if values.size > 1 and (values.ndim < rank - 1 or values.shape[1 - rank] != channels):
        return None
    values = np.broadcast_to(values.reshape(-1), (channels,))
    if not np.isfinite(values).all() or (node.op_type == "Div" and not values.all()):
        return None
    match node.op_type:
        case "Mul":
            return values, np.zeros(channels)
        case "Div":
            return 1 / values, np.zeros(channels)
        case "Add":
            return np.ones(channels), values
    return np.ones(channels), -values


def _fusable(draft: _Draft, conv: NodeProto, node: NodeProto) -> tuple[Array, Array] | None:
    """Weight and bias of a Conv with what follows it in them, rounded once from float64; None where that cannot be."""
    if conv.op_type not in _CONVOLUTIONS or conv.domain not in DEFAULT_DOMAINS:
        return None
    weight, *biases = (_floats(draft, name) for name in conv.input[1:] if name)
    if weight is None:
        return None
    groups = int(attributes_of(conv).get("group", 1))
    channels = weight.shape[0] if conv.op_type == "Conv" else weight.shape[1] * groups
    bias = biases[0] if biases else np.zeros(channels)
    affine = _affine(draft, node, weight.ndim, channels)
    if bias is None or bias.shape != (channels,) or affine is None:
        return None
    factor, shift = affine
    if conv.op_type == "Conv":
        scaled = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    else:  # [in, out / groups, ...]: the input channels of a group meet the output channels of that group
        grouped = weight.reshape(groups, -1, *weight.shape[1:])
        scaled = (grouped * factor.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
    return scaled.astype(np.float32), (bias * factor + shift).astype(np.float32)


def _floats(draft: _Draft, name: str) -> npt.NDArray[np.float64] | None:
    tensor = draft.known.get(name)
    if tensor is None or tensor.data_type != TensorProto.FLOAT:
        return None
    return _values(tensor).astype(np.float64)


# --- biases --------------------------------------------------------------------------------------------------------


def _put_biases_second(draft: _Draft) -> None:
    widths = {
        node.output[0]: draft.known[node.input[1]].dims[1]
        for node in draft.nodes
        if node.op_type == "MatMul"
        and node.domain in DEFAULT_DOMAINS
        and node.input[1] in draft.known
        and len(draft.known[node.input[1]].dims) == 2
    }
    for index, node in enumerate(draft.nodes):
        if node.op_type != "Add" or node.domain not in DEFAULT_DOMAINS:
            continue
        bias, product = node.input
        if product in widths and bias in draft.known and list(draft.known[bias].dims) == [widths[product]]:
            draft.rewire(index, [product, bias])
