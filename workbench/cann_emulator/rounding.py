"""What float16 and bfloat16 kernels do to values, written into the ONNX graph.

A float16 kernel of the device reads halves, adds in float32 and writes halves. So the graph is kept in float32, in
which every half is exact, and what a kernel writes (and what it reads from a wider tensor) is rounded by a pair of
Casts; inside a kernel nothing is:

    x ─► MatMul ─► Add ─► Cast(FLOAT16) ─► Cast(FLOAT) ─► y          one kernel: MatMul with its bias

Values beyond the range of a half become infinite, as on the device in its default mode [inferred; a device can also
be set to saturate: `aclrtSetDeviceSatMode`].
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from workbench.cann_emulator.om import Dtype, Kernel, OfflineModel
from workbench.graph.nodes import names_read, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.deploy import DEQUANT, QUANT

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Nodes in order; `constants` holds every tensor that no node and no input gives."""

    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, Array]
    inputs: tuple[ValueInfoProto, ...]
    outputs: tuple[ValueInfoProto, ...]
    opsets: tuple[OperatorSetIdProto, ...]
    ir_version: int

    def proto(self, inline_bytes: float = math.inf) -> tuple[ModelProto, dict[str, Array]]:
        """As one model in which larger constants are named as external, and those constants."""
        read = {name for node in self.nodes for name in names_read(node)} | {value.name for value in self.outputs}
        inside, outside = [], {}
        for name, values in self.constants.items():
            if name not in read:
                continue
            if values.nbytes <= inline_bytes:
                inside.append(numpy_helper.from_array(values, name))
                continue
            outside[name] = values
            tensor = TensorProto(name=name, dims=values.shape, data_type=helper.np_dtype_to_tensor_dtype(values.dtype))
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="memory")
            inside.append(tensor)
        graph = helper.make_graph(list(self.nodes), "program", list(self.inputs), list(self.outputs), inside)
        return helper.make_model(graph, opset_imports=list(self.opsets), ir_version=self.ir_version), outside


_NARROW: Mapping[str, npt.DTypeLike] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
_CAST: Mapping[str, int] = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
BACK = "/Back"
"""Ends the name of what makes a float32 of a rounded value."""
_NARROW_TYPES: Mapping[int, str] = {number: name for name, number in _CAST.items()}
_LARGEST = {"float16": np.float32(65504.0), "bfloat16": np.float32(3.3895314e38)}

_KEEPS_HALVES: Mapping[str, slice] = {
    **dict.fromkeys(("Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Flatten", "Tile"), slice(0, 1)),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Expand", "Identity", "Dropout", "Relu"), slice(0, 1)),
    **{"Neg": slice(0, 1), "Abs": slice(0, 1), "MaxPool": slice(0, 1), "Where": slice(1, 3)},
    **dict.fromkeys(("Concat", "Max", "Min"), slice(0, None)),
}
"""Operators that give no value that is not among their inputs (or its negative), and the inputs this is about."""


def round_to(values: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Values of float32 rounded to `dtype` (nearest, ties to even), in float32; beyond its range infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float32).astype(_NARROW.get(dtype, np.float32)).astype(np.float32)


def stored(values: Array, dtype: Dtype) -> Array:
    """As it lies in memory, beyond a half's range infinite as on the device; bfloat16 as words."""
    if dtype == "bfloat16" and values.dtype == np.uint16:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        held = np.require(np.asarray(values).astype(_NARROW.get(dtype, dtype), copy=False), requirements="C")
        return held.view(np.uint16) if dtype == "bfloat16" else held


def widened(values: Array, dtype: Dtype) -> Array:
    """What lies in memory, narrow floats as float32."""
    if dtype == "bfloat16":
        values = values.view(np.uint16).view(ml_dtypes.bfloat16)
    return values.astype(np.float32) if dtype in _NARROW else values


class Source:
    """A model's graph in float32, parsed once for all its gears, and its constants as kernels of each type read them.

    Float16 and bfloat16 tensors of the graph are float32 here; inputs and outputs keep their names.
    """

    def __init__(self, model: OfflineModel) -> None:
        self.plain = _in_float32(model.graph)
        self.known: Mapping[str, Array] = {n: numpy_helper.to_array(t) for n, t in constants(self.plain).items()}
        del self.plain.graph.initializer[:]
        self._clip = model.options.get("is_weight_clip", "1") != "0"
        self._converted: dict[tuple[str, str], Array] = {}

    def constant(self, name: str, dtype: str) -> Array:
        """As the compiler stores it: beyond a half's range its largest number, unless --is_weight_clip is 0."""
        if (name, dtype) not in self._converted:
            narrow = round_to(self.known[name], dtype)
            if self._clip and np.isinf(narrow).any():
                narrow = round_to(np.clip(self.known[name], -_LARGEST[dtype], _LARGEST[dtype]), dtype)
            self._converted[name, dtype] = narrow
        return self._converted[name, dtype]


def rounded_program(model: OfflineModel, gear: int, source: Source | None = None) -> Program:
    """The model's graph in float32 with the roundings of one gear's kernels in it.

    What AscendQuant does in a float16 kernel is written before it, and NaN becomes 0 there [inferred]: the operator
    itself is left as one that multiplies by its scale in float32.

    Args:
        source: of this model, where several gears are asked for.
    """
    source = source or Source(model)
    nodes = source.plain.graph.node
    writer = _Writer(source=source, stored={tensor.name: tensor.dtype for tensor in model.inputs})
    kernels = model.gears[gear].kernels
    kernel_of = {node: kernel for kernel in kernels for node in kernel.nodes}
    in_graph = {*source.known, *writer.stored, *(name for node in nodes for name in node.output)}
    sources = graph_tensors(kernels, in_graph)
    halves = any(tensor.dtype == "float16" for kernel in kernels for tensor in kernel.outputs)
    for node in nodes:
        if node.output[0] in source.known:
            continue
        kernel = kernel_of.get(node.name)
        writer.write(node, _edges(kernel, sources, halves) if kernel is not None else _Edges("", {}, {}, False))
    for output in model.outputs:
        writer.round_output(output.name, output.dtype)
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*source.plain.graph.input, *source.plain.graph.output)}
    fed = {t.name: [d if d >= 0 else f"{t.name}_{axis}" for axis, d in enumerate(t.shape)] for t in model.inputs}
    return Program(
        nodes=tuple(writer.nodes),
        constants={**source.known, **writer.constants},
        # static shapes where the model has them, so that shape computations fold
        inputs=tuple(helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in fed.items()),
        outputs=tuple(helper.make_tensor_value_info(t.name, kinds[t.name], None) for t in model.outputs),
        opsets=tuple(source.plain.opset_import),
        ir_version=source.plain.ir_version,
    )


class _Edges(NamedTuple):
    """How one kernel reads and writes: tensor → stored type."""

    name: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    halves_inside: bool  # what its cube hands to its vector units is half precision (amct.md §6.6)


def _edges(kernel: Kernel, sources: Mapping[str, str], halves: bool) -> _Edges:
    reads, writes = ({sources.get(t.name, t.name): t.dtype for t in side} for side in (kernel.inputs, kernel.outputs))
    floats = {*reads.values(), *writes.values()} & {"float32", "float16", "bfloat16"}
    return _Edges(kernel.name, reads, writes, "float16" in floats if floats else halves)


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Nodes written so far."""

    source: Source
    stored: dict[str, str]  # tensor → the type its values fit, where it is narrow
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    # (kernel, tensor) → name of the value before it was rounded
    wide: dict[tuple[str, str], str] = field(default_factory=dict)

    def write(self, node: NodeProto, edges: _Edges) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(self._read(name, edges) for name in node.input)
        if node.op_type == QUANT:
            copy.input[0] = self._before_quant(copy, edges)
        fits = self._fits(copy)
        pending = []
        for position, name in enumerate(node.output):
            target = edges.writes.get(name, "")
            if node.op_type == DEQUANT and not target and edges.halves_inside:
                target = "float16"  # whatever is fused behind it (amct.md §6.6)
            if fits and (not target or target == fits or target not in _NARROW):
                self.stored[name] = fits
            elif target in _NARROW:
                copy.output[position] = f"{name}__wide"
                pending.append((name, target))
        self.nodes.append(copy)
        for name, target in pending:
            self._round(f"{name}__wide", name, target)
            if node.op_type != DEQUANT:
                self.wide[edges.name, name] = f"{name}__wide"

    def round_output(self, name: str, dtype: str) -> None:
        """The model's own output type, where no kernel has seen to it. An input that is an output is left as it is fed;
        whoever returns it converts it."""
        inputs = {value.name for value in self.source.plain.graph.input}
        if dtype not in _NARROW or self.stored.get(name) == dtype or name in self.source.known or name in inputs:
            return
        for node in self.nodes:
            for position, output in enumerate(node.output):
                if output == name:
                    node.output[position] = f"{name}__full"
            for position, source in enumerate(node.input):
                if source == name:
                    node.input[position] = f"{name}__full"
        self._round(f"{name}__full", name, dtype)

    def _read(self, name: str, edges: _Edges) -> str:
        if (edges.name, name) in self.wide:
            return self.wide[edges.name, name]
        dtype = edges.reads.get(name, "")
        if dtype not in _NARROW or self.stored.get(name) == dtype:
            return name
        if name in self.source.known and self.source.known[name].dtype != np.float32:
            return name
        narrow = f"{name}__{dtype}"
        if narrow not in self.stored:
            if name in self.source.known:
                self.constants[narrow] = self.source.constant(name, dtype)
                self.stored[narrow] = dtype
            else:
                self._round(name, narrow, dtype)
        return narrow

    def _round(self, source: str, target: str, dtype: str) -> None:
        half = f"{target}__as_{dtype}"
        self.nodes.append(helper.make_node("Cast", [source], [half], name=f"{half}/Cast", to=_CAST[dtype]))
        self.nodes.append(helper.make_node("Cast", [half], [target], name=f"{half}{BACK}", to=TensorProto.FLOAT))
        self.stored[target] = dtype

    def _fits(self, node: NodeProto) -> str:
        """The narrow type that every output of the node fits because its inputs do."""
        if node.op_type == "Cast":
            target = helper.get_node_attr_value(node, "to")
            return self.stored.get(node.input[0], "") if target == TensorProto.FLOAT else _NARROW_TYPES.get(target, "")
        if node.op_type not in _KEEPS_HALVES:
            return ""
        kinds = {self.stored.get(name, "") for name in node.input[_KEEPS_HALVES[node.op_type]]}
        return kinds.pop() if len(kinds) == 1 else ""

    def _before_quant(self, node: NodeProto, edges: _Edges) -> str:
        """The input of an AscendQuant: without NaN, and in a float16 kernel with each step in half precision, the
        offset before the rounding (amct.md §6.6). Changes the node's scale to 1 then."""
        attributes = {a.name: a for a in node.attribute}
        x, stem = node.input[0], f"{node.output[0]}__in"
        if self.stored.get(x) == "float16" or (node.input[0] not in edges.reads and edges.halves_inside):
            scale = np.float32(attributes["scale"].f if "scale" in attributes else 0.0)
            offset = attributes["offset"].f if "offset" in attributes else 0.0
            if self.stored.get(x) != "float16":
                self._round(x, f"{stem}_half", "float16")
                x = f"{stem}_half"
            self._operate("Mul", x, float(half_scale(scale)), f"{stem}_product")
            self._round(f"{stem}_product", f"{stem}_scaled", "float16")
            x = f"{stem}_scaled"
            if offset:
                self._operate("Add", x, offset, f"{stem}_sum")
                self._round(f"{stem}_sum", f"{stem}_shifted", "float16")
                self.nodes.append(helper.make_node("Round", [f"{stem}_shifted"], [f"{stem}_whole"]))
                self._operate("Sub", f"{stem}_whole", offset, f"{stem}_centred")
                x = f"{stem}_centred"
            if "scale" in attributes:
                attributes["scale"].f = 1.0
        self.nodes.append(helper.make_node("IsNaN", [x], [f"{stem}_nan"]))
        self.constants["__zero"] = np.asarray(0.0, np.float32)
        self.nodes.append(helper.make_node("Where", [f"{stem}_nan", "__zero", x], [f"{stem}_number"]))
        return f"{stem}_number"

    def _operate(self, op_type: str, x: str, value: float, target: str) -> None:
        self.constants[f"{target}_by"] = np.asarray(value, np.float32)
        self.nodes.append(helper.make_node(op_type, [x, f"{target}_by"], [target]))


def half_scale(scale: np.float32) -> np.float32:
    """AscendQuant's scale in half precision; outside its normal numbers the square of the rounded root, which the
    device reaches by sqrt_mode (amct.md §4.7)."""
    if np.float32(2.0**-14) <= scale <= _LARGEST["float16"]:
        return np.float32(np.float16(scale))
    return np.float32(np.float16(np.sqrt(scale))) ** 2


def graph_tensors(kernels: Iterable[Kernel], in_graph: Collection[str]) -> dict[str, str]:
    """Tensor of a kernel → the graph's tensor that it is, where type changes of the compiler have given it a name of
    its own. Such a kernel has no node; it stands before a reader or, at an output, behind the producer."""
    sources: dict[str, str] = {}
    for kernel in kernels:
        if not kernel.nodes and kernel.inputs and kernel.outputs:
            origin, made = kernel.inputs[0].name, kernel.outputs[0].name
            if made in in_graph and origin not in in_graph:
                sources[origin] = made
            else:
                sources[made] = sources.get(origin, origin)
    return sources


def _in_float32(content: bytes) -> ModelProto:
    """The graph with float32 in place of the narrow types; a Cast to one of them is left as a rounding."""
    model = ModelProto()
    model.ParseFromString(content)
    graph = model.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        if tensor.elem_type in _NARROW_TYPES:
            tensor.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen(tensor)
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen(attribute.t)
        narrow = next((a for a in node.attribute if a.name == "to" and a.i in _NARROW_TYPES), None)
        if node.op_type == "Cast" and narrow is not None:
            half = f"{node.output[0]}__narrow"
            # the node keeps its name, which its kernel lists, and gives the value that the Cast gave
            nodes.append(helper.make_node("Cast", [node.input[0]], [half], name=f"{half}/cast", to=narrow.i))
            nodes.append(helper.make_node("Cast", [half], [node.output[0]], name=node.name, to=TensorProto.FLOAT))
        else:
            nodes.append(node)
    replace_nodes(graph, nodes)
    return model


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW_TYPES:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
