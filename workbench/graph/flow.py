"""Which tensors of a graph are worth comparing, and who reads whom between them."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from workbench.graph.nodes import reached
from workbench.graph.read import constants

_VALUE_KEEPING = frozenset(
    {
        *("AscendDequant", "AscendQuant", "Cast", "Concat", "DequantizeLinear", "Dropout", "Expand", "Flatten"),
        *("Gather", "Identity", "QuantizeLinear", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
    }
)
"""Operators that compute no new numbers: their output tells nothing that their input did not."""

_STEPS = frozenset(
    {
        *("Abs", "Add", "And", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish"),
        *("LeakyRelu", "Log", "Max", "Min", "Mul", "Neg", "Not", "PRelu", "Pow", "Reciprocal", "ReduceMax"),
        *("ReduceMean", "ReduceSum", "Relu", "Selu", "Sigmoid", "Sqrt", "Sub", "Tanh", "Where"),
    }
)
"""Operators that are one step of something larger (an activation, a normalization, a mask): only their end tells."""

_LAYERS = frozenset({"AveragePool", "Conv", "ConvTranspose", "Gemm", "MatMul"})


class Flow:
    """One graph as a comparison sees it.

    Args:
        proto: in topological order; where a tensor's type is known, only float ones are looked at.

    Attributes:
        outputs: outputs of the model that hold numbers of any type, in its order.
        weighted: outputs of layers with a constant weight, with the bias added.
        into_softmax: tensors that a Softmax reads.
        masks: those, and what they are computed from by small steps, up to the next layer: masks are made there.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        graph = proto.graph
        self._nodes = list(graph.node)
        self._fixed = set(constants(proto))
        self._types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output)}
        self._makers = {name: node for node in self._nodes for name in node.output}
        self._read_by: dict[str, list[onnx.NodeProto]] = {}
        for node in self._nodes:
            for name in dict.fromkeys(node.input):
                self._read_by.setdefault(name, []).append(node)
        self.outputs = tuple(v.name for v in graph.output if self._types[v.name].elem_type != TensorProto.STRING)
        self._biased = self._with_bias()
        self.weighted = {
            self._biased.get(node.output[0], node.output[0])
            for node in self._nodes
            if node.op_type in _LAYERS and len(node.input) > 1 and self._is_weight(node.input[1])
        }
        self.into_softmax = {
            name for node in self._nodes if node.op_type == "Softmax" for name in self.sources(node.input[0])
        }
        self.masks = self._before(self.into_softmax)
        self._all = self._computed()

    def computed(self) -> list[str]:
        """Float tensors with newly computed numbers, in graph order."""
        return list(self._all)

    def milestones(self) -> list[str]:
        """Those of `computed` that end something: outputs of the model and of layers (bias included), what layers
        read, and what any operator makes that is no single step of an activation, a normalization or a mask."""
        read = {
            source
            for node in self._nodes
            if node.op_type in _LAYERS
            for name in node.input
            for source in self.sources(name)
        }
        kept = {*self.outputs, *read, *self._biased.values()}
        return [n for n, kind in self._all.items() if (n in kept or kind not in _STEPS) and n not in self._biased]

    def readers(self, tensor: str) -> list[str]:
        """What is computed from a tensor directly: the layers' outputs have their bias."""

        def onward(name: str) -> list[str]:
            if name != tensor and name in self._all:
                return []
            outputs = (output for node in self._read_by.get(name, ()) for output in node.output)
            return [self._biased.get(output, output) for output in outputs]

        return [name for name in reached([tensor], onward)[1:] if name in self._all]

    def _computed(self) -> dict[str, str]:
        """Tensor → type of the operator that makes it."""
        return {
            name: node.op_type
            for node in self._nodes
            for name in node.output
            if name
            and name not in self._fixed
            and (name in self.outputs or (self._is_float(name) and node.op_type not in _VALUE_KEEPING))
        }

    def _is_float(self, name: str) -> bool:
        """Whether it may hold several floats."""
        if (known := self._types.get(name)) is None:
            return True
        scalar = known.HasField("shape") and not known.shape.dim
        return known.elem_type in (TensorProto.FLOAT, TensorProto.UNDEFINED) and not scalar

    def _is_weight(self, name: str) -> bool:
        """A constant, or one behind DequantizeLinear."""
        maker = self._makers.get(name)
        dequantized = maker is not None and maker.op_type == "DequantizeLinear" and maker.input[0] in self._fixed
        return name in self._fixed or dequantized

    def sources(self, name: str) -> list[str]:
        """The tensors whose numbers this one holds."""
        maker = self._makers.get(name)
        if maker is None or maker.op_type not in _VALUE_KEEPING:
            return [name]
        return [source for given in maker.input if given for source in self.sources(given)]

    def _before(self, names: set[str]) -> set[str]:
        def onward(name: str) -> list[str]:
            maker = self._makers.get(name)
            if maker is None or maker.op_type not in _STEPS | _VALUE_KEEPING:
                return []
            return [given for given in maker.input if given and given not in self._fixed]

        return set(reached(names, onward))

    def _with_bias(self) -> dict[str, str]:
        """Output of a layer without its bias → with it, where nothing else reads the former."""
        found = {}
        for node in self._nodes:
            readers = self._read_by.get(node.output[0], []) if node.op_type in _LAYERS else []
            if node.output[0] in self.outputs or [reader.op_type for reader in readers] != ["Add"]:
                continue
            if any(name in self._fixed for name in readers[0].input):
                found[node.output[0]] = readers[0].output[0]
        return found
