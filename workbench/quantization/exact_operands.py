"""Integer kernels of ONNX Runtime with operands whose products no processor adds wrongly.

A processor that saturates adds pairs of unsigned by signed products in 16 bits (`values/system/cpu`); every other pair
of types is exact, in each operator below (onnxruntime 1.31.1; `tests/quantization/test_exact_operands.py`). So a signed
second operand becomes unsigned: 128 more, its zero point too, the same numbers. `session.x64quantprecision` does so in
an optimizer that does not run where a compiled graph is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.shape_inference import infer_shapes

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, all_graphs, names_read, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.surgery import prune_constants

_OPERANDS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "ConvInteger": ((1, 3, 0, 2),),  # multiplies by its weights from the left
    "DynamicQuantizeLSTM": ((0, 0, 1, 9), (0, 0, 2, 11)),
    "DynamicQuantizeMatMul": ((0, 0, 1, 3),),
    "MatMulInteger": ((0, 2, 1, 3),),
    "MatMulIntegerToFloat": ((0, 4, 1, 5),),
    "QAttention": ((0, 6, 1, 7),),
    **dict.fromkeys(("QGemm", "QLinearConv", "QLinearMatMul"), ((0, 2, 3, 5),)),
}
"""Operator → positions of (first operand, its zero point, second operand, its zero point) among its inputs."""


def exact(model: ModelProto) -> ModelProto:
    """The model with an unsigned second operand wherever the first is not signed; itself where there is none. Pure."""
    if not any(node.op_type in _OPERANDS for graph in all_graphs(model.graph) for node in graph.node):
        return model
    result = infer_shapes(model)  # a copy, with the types of what operators give
    names, outer = Names(result.graph), constants(result)
    inner_first = [*all_graphs(result.graph)][::-1]
    if not any([_Rewriter(graph, result.graph, names, outer).rewrite() for graph in inner_first]):
        return model
    del result.graph.value_info[:]
    prune_constants(result.graph)
    return result


class _Rewriter:
    """Of a graph or body; constants go into the outermost graph."""

    def __init__(self, graph: GraphProto, outermost: GraphProto, names: Names, outer: dict[str, TensorProto]) -> None:
        self._graph, self._outermost, self._names = graph, outermost, names
        self._known = outer if graph is outermost else {**outer, **constants(ModelProto(graph=graph))}
        self._makers = {name: node for node in graph.node for name in node.output}
        values = (*outermost.input, *outermost.value_info, *graph.input, *graph.value_info)
        self._types = {value.name: value.type.tensor_type.elem_type for value in values}
        self._types |= {name: tensor.data_type for name, tensor in self._known.items()}
        self._unsigned: dict[str, str] = {}
        self._nodes: list[NodeProto] = []

    def rewrite(self) -> bool:
        """Whether there was anything to do."""
        for node in self._graph.node:
            for first, first_zero, second, second_zero in _OPERANDS.get(node.op_type, ()):
                inputs = [*node.input, *[""] * (second_zero + 1 - len(node.input))]
                if self._signed(inputs, second, second_zero) and not self._signed(inputs, first, first_zero):
                    inputs[second] = self._plus_128(inputs[second])
                    inputs[second_zero] = self._plus_128(inputs[second_zero])
                    node.input[:] = inputs
            self._nodes.append(node)
        read = {name for node in self._nodes for name in names_read(node)}.union(o.name for o in self._graph.output)
        gone = self._unsigned.keys() - read
        replace_nodes(self._graph, [node for node in self._nodes if node.output[0] not in gone])
        return bool(self._unsigned)

    def _signed(self, inputs: Sequence[str], operand: int, zero_point: int) -> bool:
        """By the zero point or, where there is none, by the operand itself."""
        return TensorProto.INT8 in [self._types.get(inputs[i]) for i in (operand, zero_point) if i < len(inputs)]

    def _plus_128(self, name: str) -> str:
        """The unsigned form of a tensor; without a name, of a zero point that is left out."""
        if name not in self._unsigned:
            maker = self._makers.get(name, NodeProto())
            zero = self._known.get(([*maker.input, "", "", ""])[2])
            if name in self._known or not name:
                values = array_of(self._known[name]) if name else np.asarray(0, np.int8)
                self._unsigned[name] = self._constant(name, values.view(np.uint8) ^ np.uint8(128))
            elif maker.op_type == "QuantizeLinear" and zero is not None and not zero.dims:
                self._unsigned[name] = self._add(
                    maker.op_type, [*maker.input[:2], self._plus_128(maker.input[2])], name
                )
            else:
                one = self._constant("one", np.asarray(1, np.float32))
                floats = self._add("DequantizeLinear", [name, one], f"{name}_floats")
                self._unsigned[name] = self._add("QuantizeLinear", [floats, one, self._plus_128("")], name)
        return self._unsigned[name]

    def _constant(self, wish: str, values: npt.NDArray[np.generic]) -> str:
        self._outermost.initializer.append(tensor_of(values, self._names.fresh(f"{wish}_unsigned")))
        return str(self._outermost.initializer[-1].name)

    def _add(self, op_type: str, inputs: list[str], wish: str) -> str:
        name = self._names.fresh(f"{wish}_unsigned")
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=name))
        return name
