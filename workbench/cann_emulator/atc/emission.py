"""What an offline model carries: its kernels, and the ONNX graph that folding left, under the kernels' names.

Tensors keep the file's element types: what a kernel rounds is said by the dtypes of its inputs and outputs. Only the
constants are converted, as the vendor's compiler does: one that is read in half precision alone is stored so. Whoever
runs the graph in float32 widens them first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.ascend_graph import AscendGraph
from workbench.cann_emulator.atc.folding import Array, Folded, element_type
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.shapes import Shape
from workbench.cann_emulator.om import Dtype, Gear, Kernel, Tensor
from workbench.graph.nodes import names_read
from workbench.values.modelled_times.kernels import size_bytes

_ALIGNMENT = 512


def weight_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...]) -> int:
    """Of all constants that kernels read, each dtype of one counted once."""
    constants = {(t.name, t.dtype): size_bytes(t) for k in kernels for t in k.inputs if graph.is_constant(t.name)}
    return sum(_aligned(size) for size in constants.values())


def work_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...], *, reuse: bool) -> int:
    """Of activations: the most that lives at a time, or all of them where memory is not used again."""
    last_use = {t.name: index for index, kernel in enumerate(kernels) for t in (*kernel.inputs, *kernel.outputs)}
    last_use.update(dict.fromkeys(graph.outputs, len(kernels)))
    live = peak = total = 0
    ends: Counter[int] = Counter()
    for index, kernel in enumerate(kernels):
        for tensor in kernel.outputs if kernel.core != "none" else ():
            size = _aligned(size_bytes(tensor))
            ends[last_use[tensor.name]] += size
            live += size
            total += size
        peak = max(peak, live)
        live -= ends[index]
    return peak if reuse else total


def kernels_of(graph: AscendGraph, positions: Mapping[str, int]) -> tuple[Kernel, ...]:
    """The kernels in execution order.

    Args:
        positions: ONNX node → place in the model's graph; nodes it lacks were folded there and are left out.
    """

    def tensor(name: str, dtype: Dtype) -> Tensor:
        return Tensor(name=name, dtype=dtype, shape=graph.shapes[name])

    return tuple(
        Kernel(
            name=op.name,
            op_type=op.type,
            core=op.core,
            nodes=tuple(sorted((name for name in op.nodes if name in positions), key=positions.__getitem__)),
            dtype=op.dtype,
            inputs=tuple(tensor(name, graph.stored_dtype(op, name)) for name in dict.fromkeys(op.inputs)),
            outputs=tuple(tensor(name, graph.dtypes[name]) for name in op.outputs),
            macs=sum(prod(product) for product in op.cube),
            cube=op.cube,
            passes=op.passes,
            implementation=op.implementation,
        )
        for op in graph.ops()
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


# --- the graph ---

_NOTHING = "aclEmpty"
_NEWEST_IR = 10
"""What follows adds types that operators up to opset 22 do not have; ONNX Runtime refuses versions it does not know."""
_WHOLE = (TensorProto.INT64, TensorProto.INT32)
_LARGEST_HALF = np.float32(65504.0)


def emit(
    parsed: Parsed, folded: Folded, boundary: Mapping[str, Shape], gears: Sequence[Gear], name: str, *, clip: bool
) -> bytes:
    """The model's bytes: every node named, constants it reads, inputs with an open axis as a symbol.

    Args:
        gears: their kernels say which constants are halves.
        clip: what exceeds a half becomes its largest number, not infinity (--is_weight_clip).
    """
    graph = GraphProto(name=name)
    graph.node.extend(folded.nodes)
    opsets = _made_valid(graph, folded, parsed.opsets)
    for value in parsed.inputs:
        dims = [d if d >= 0 else f"{value.name}_{axis}" for axis, d in enumerate(boundary[value.name])]
        graph.input.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    for output in folded.outputs:
        number, shape = _described(folded, output)
        dims = [d if d >= 0 else f"{output}_{axis}" for axis, d in enumerate(shape)]
        graph.output.append(helper.make_tensor_value_info(output, number, dims))
    halves = _halves(folded, gears)
    read = dict.fromkeys([*(name for node in folded.nodes for name in names_read(node)), *folded.outputs])
    for constant in read:
        if constant in folded.constants:
            graph.initializer.append(_initializer(folded.constants[constant], constant, constant in halves, clip))
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    ir_version = min(max(parsed.proto.ir_version, 4), _NEWEST_IR)
    model = ModelProto(ir_version=ir_version, producer_name="atc", opset_import=imports, graph=graph)
    return bytes(model.SerializeToString())


def _made_valid(graph: GraphProto, folded: Folded, opsets: Mapping[str, int]) -> dict[str, int]:
    """What ATC takes and ONNX Runtime does not, as the runtime takes it; returns the opsets that this asks for.

    At opset 11 and 12 the roi and scales of Resize may not be left out; Min and Max take whole numbers from 12 on.
    """
    version = opsets.get("ai.onnx", 0)
    if version not in (11, 12):
        return dict(opsets)
    for node in graph.node:
        if node.op_type == "Resize" and "" in node.input[1:]:
            node.input[:] = [name or _NOTHING for name in node.input]
            if not graph.initializer:
                graph.initializer.append(TensorProto(name=_NOTHING, dims=[0], data_type=TensorProto.FLOAT))
    whole = any(
        node.op_type in ("Min", "Max") and _described(folded, node.output[0])[0] in _WHOLE for node in folded.nodes
    )
    if version == 11 and whole:
        for node in graph.node:
            if node.op_type == "Dropout":
                del node.attribute[:]  # its ratio became an input at 12
        return {**opsets, "ai.onnx": 12}
    return dict(opsets)


def _halves(folded: Folded, gears: Sequence[Gear]) -> set[str]:
    """Float constants that every node which reads them reads as a half."""
    reads = [(kernel, tensor) for gear in gears for kernel in gear.kernels for tensor in kernel.inputs]
    by_half = {(node, t.name) for kernel, t in reads if t.dtype == "float16" for node in kernel.nodes}
    otherwise = {t.name for _, t in reads if t.dtype != "float16"}
    otherwise |= {name for node in folded.nodes for name in names_read(node) if (node.name, name) not in by_half}
    floats = {name for name, values in folded.constants.items() if element_type(values) == TensorProto.FLOAT}
    return {t.name for _, t in reads} & floats - otherwise


def _initializer(array: Array, name: str, half: bool, clip: bool) -> TensorProto:
    if half:
        if clip and max(array.max(initial=0), -array.min(initial=0)) > _LARGEST_HALF:
            array = np.clip(array, -_LARGEST_HALF, _LARGEST_HALF)
        with np.errstate(over="ignore"):
            array = array.astype(np.float16)
    return numpy_helper.from_array(array, name)


def _described(folded: Folded, name: str) -> tuple[int, Shape]:
    if name in folded.constants:
        return element_type(folded.constants[name]), folded.constants[name].shape
    return folded.types[name], folded.shapes[name]
