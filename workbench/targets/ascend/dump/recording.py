"""Dump, compiled graph and float model together: every operator that ran, in the float model's names.

A result is found in the float model by the node that its output stems from. A node that only lowering has made (the
last part of a LayerNorm, a dequantization) stands for the one that it was made of, and an operator without nodes (a
change of type, a quantization) for what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from workbench.graph.read import load_graph
from workbench.targets.ascend.atc.om_json import OmOperator, read_operators
from workbench.targets.ascend.dump.dump_file import (
    DumpedTensor,
    DumpFile,
    OperatorFile,
    executions,
    read_dump_file,
)
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.inside import DeviceCall, DeviceOperator, DeviceTensor, Recording
from workbench.values.errors import ConfigError, LoweringError
from workbench.values.model import Model

_QUANTIZES = re.compile(r"(?P<layer>.+)\.(?:quant1?|dequant)")
"""Names that lowering gives to what it adds to a quantized layer (AMCT's own rule, amct.md §4.10)."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})
_MOST_CALLS = 10_000


def read_recording(dump: Path, graphs: Path, model: Model) -> Recording:
    """Every execution of a dump, told by the graphs `<model>.json` in a folder, where they are there.

    Raises:
        ConfigError: nothing was dumped, or it was dumped of another model.
        MeasureError: a file is damaged or beyond a bound.
    """
    ran = executions(dump)
    if len(ran) > _MOST_CALLS:
        raise ConfigError(f"{len(ran)} executions are in it.", file=dump, hint=f"Dump {_MOST_CALLS} at most.")
    names = _FloatNames(load_graph(model))
    known: dict[str, dict[str, OmOperator]] = {}
    calls, emulators = [], set[str]()
    for execution in ran:
        if execution.model not in known:
            file = graphs / f"{execution.model}.json"
            known[execution.model] = read_operators(file) if file.is_file() else {}
        parsed = [(file, read_dump_file(file.path)) for file in execution.files]
        emulators.update(dumped.emulator for _, dumped in parsed if dumped.emulator)
        calls.append(_call(parsed, known[execution.model], names))
    _refuse_another_model(dump, calls, model)
    files = ", ".join(dict.fromkeys(execution.model for execution in ran))
    return Recording(about=f"{files} on the device", folder=dump, emulated=bool(emulators), calls=tuple(calls))


class _FloatNames:
    """Nodes of the float model and of its lowered form → tensors of the float model."""

    def __init__(self, proto: ModelProto) -> None:
        nodes = proto.graph.node
        self.order = {node.name: place for place, node in enumerate(nodes)}
        self.types = {node.name: node.op_type for node in nodes}
        self.tensors: dict[str, tuple[str, ...]] = {node.name: tuple(node.output) for node in nodes}
        self.parts: dict[str, str] = {}
        makers = {name: node.name for node in nodes for name in node.output}
        try:
            lowered = atc_form(proto)
        except LoweringError:
            return
        waiting: list[str] = []
        for node in lowered.graph.node:  # the parts of a node stand in a row, and the last has its output
            if node.name in self.order:
                continue
            waiting.append(node.name)
            if (whole := makers.get(node.output[0])) is not None:
                self.parts.update(dict.fromkeys(waiting, whole))
                self.tensors[node.name] = (node.output[0],)
                waiting = []

    def float_node(self, name: str) -> str:
        """The float model's node that a compiled one is, or is part of; '' for what was added."""
        return name if name in self.order else self.parts.get(name, "")


def _call(
    parsed: Sequence[tuple[OperatorFile, DumpFile]], graph: Mapping[str, OmOperator], names: _FloatNames
) -> DeviceCall:
    by_plain_name = {re.sub(r"[./\\ ]", "_", name): name for name in graph}
    fed: dict[str, DeviceTensor] = {}
    operators = []
    for file, dumped in parsed:
        name = dumped.op_name or by_plain_name.get(file.op_name, file.op_name)
        if file.op_type != "Data":
            operators.append(_operator(name, file.op_type, dumped, graph, names))
        elif dumped.outputs or dumped.inputs:
            fed[name] = _tensor((dumped.outputs or dumped.inputs)[0], name)
    return DeviceCall(fed=fed, operators=tuple(operators))


def _operator(
    name: str, op_type: str, dumped: DumpFile, graph: Mapping[str, OmOperator], names: _FloatNames
) -> DeviceOperator:
    origins = tuple(tensor.origin for tensor in dumped.outputs)
    stems = tuple(dict.fromkeys(origin[0] for origin in origins if origin))
    # without the graph the header of the dump tells at least where an output stems from
    told = OmOperator(name=name, op_type=op_type, nodes=stems, inputs=(), origins=origins)
    compiled = graph.get(name, told)
    inputs = []
    for place, tensor in enumerate(dumped.inputs):
        maker, index = compiled.inputs[place] if place < len(compiled.inputs) else ("", 0)
        source = graph.get(maker)
        if source is None or source.is_constant:
            inputs.append(_tensor(tensor))
        else:
            known = _tensor_of(source, index, graph, names)
            inputs.append(_tensor(tensor, known, maker, _quantizing(source, graph)))
    own = compiled if compiled.scale else None
    outputs = [
        _tensor(tensor, _tensor_of(compiled, index, graph, names), name, own)
        for index, tensor in enumerate(dumped.outputs)
    ]
    whole = {found for node in compiled.nodes if (found := names.float_node(node))}
    floats = tuple(sorted(whole, key=names.order.__getitem__))
    marked = [match["layer"] for node in compiled.nodes if (match := _QUANTIZES.fullmatch(node))]
    integers = any(tensor.dtype in ("int8", "uint8") for tensor in inputs)
    products = [node for node in floats if integers and names.types[node] in _PRODUCTS]
    return DeviceOperator(
        name=name,
        op_type=op_type,
        nodes=compiled.nodes,
        float_nodes=floats,
        layers=tuple(dict.fromkeys(layer for layer in (*marked, *products) if layer in names.order)),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _tensor_of(op: OmOperator, index: int, graph: Mapping[str, OmOperator], names: _FloatNames) -> str:
    """The float model's tensor that an output holds; '' where it is none of its."""
    seen: set[str] = set()
    while op.name not in seen:
        seen.add(op.name)
        if op.is_input:
            return op.name
        origin = op.origins[index] if index < len(op.origins) else None
        if origin is not None:
            known = names.tensors.get(origin[0], ())
            if origin[1] < len(known):
                return known[origin[1]]
        if found := [node for node in op.nodes if node in names.tensors]:
            return names.tensors[found[-1]][0]
        if not op.inputs or (source := graph.get(op.inputs[0][0])) is None or source.is_constant:
            return ""
        op, index = source, op.inputs[0][1]
    return ""


def _quantizing(op: OmOperator, graph: Mapping[str, OmOperator]) -> OmOperator | None:
    """The operator whose scale an integer tensor has: its maker, or the one before what only moves values."""
    seen: set[str] = set()
    while op.scale is None and op.name not in seen:
        seen.add(op.name)
        if not op.inputs or (source := graph.get(op.inputs[0][0])) is None:
            return None
        op = source
    return op if op.scale is not None else None


def _tensor(tensor: DumpedTensor, name: str = "", maker: str = "", quantizes: OmOperator | None = None) -> DeviceTensor:
    found = DeviceTensor(dtype=tensor.dtype, shape=tensor.shape, load=tensor.load, tensor=name, maker=maker)
    if tensor.dtype not in ("int8", "uint8") or quantizes is None:
        return found
    return replace(found, scale=quantizes.scale, offset=quantizes.offset)


def _refuse_another_model(dump: Path, calls: Sequence[DeviceCall], model: Model) -> None:
    made = {tensor.tensor for call in calls for op in call.operators for tensor in op.outputs} - {""}
    unknown = sorted({name for call in calls for name in call.fed} - {spec.name for spec in model.inputs})
    if unknown:
        raise ConfigError(
            f"the dump is of another model: its input {unknown[0]!r} is none of {model.path.name}.",
            file=dump,
            hint=f"That takes {', '.join(spec.name for spec in model.inputs)}.",
        )
    if not made:
        raise ConfigError(
            f"no operator in the dump stems from a node of {model.path.name}.",
            file=dump,
            hint="Compare with the float model that was compiled; put ATC's JSON of the OM beside the dump as "
            "MODEL.json (atc --mode=1 --om=MODEL.om --json=MODEL.json).",
        )
