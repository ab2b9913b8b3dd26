"""The ONNX graph that an offline model carries: what folding left, under the names that the kernels use.

It stays in the file's own element types: what a kernel rounds is said by the dtypes of its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ModelProto, TensorProto, helper

from workbench.cann_emulator.atc.folding import Constants, Folded, Shape
from workbench.cann_emulator.atc.onnx_parser import Parsed


def emit(parsed: Parsed, folded: Folded, boundary: Mapping[str, Shape], name: str) -> ModelProto:
    """A valid model: every node named, constants it reads, shapes of inputs with an open axis as a symbol."""
    graph = GraphProto(name=name)
    graph.node.extend(folded.nodes)
    for value in parsed.inputs:
        dims = [d if d >= 0 else f"{value.name}_{axis}" for axis, d in enumerate(boundary[value.name])]
        graph.input.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    for output in folded.outputs:
        element_type, shape = _described(folded, output)
        dims = [d if d >= 0 else f"{output}_{axis}" for axis, d in enumerate(shape)]
        graph.output.append(helper.make_tensor_value_info(output, element_type, dims))
    for constant in constants_read(folded):
        graph.initializer.append(_tensor(folded.constants, constant))
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in parsed.opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=max(parsed.proto.ir_version, 4))


def constants_read(folded: Folded) -> list[str]:
    """Constants that nodes or outputs name, in their order."""
    read = [name for node in folded.nodes for name in node.input]
    for node in folded.nodes:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                read.extend(name for inner in body.node for name in inner.input)
    return [name for name in dict.fromkeys([*read, *folded.outputs]) if name in folded.constants]


def _described(folded: Folded, name: str) -> tuple[int, Shape]:
    if name in folded.constants:
        return folded.constants.element_type(name), folded.constants.shape(name)
    return folded.types[name], folded.shapes[name]


def _tensor(constants: Constants, name: str) -> TensorProto:
    stored = constants.stored(name)
    if stored is not None:
        return stored
    array = constants[name]
    return TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        raw_data=array.tobytes(),
    )
