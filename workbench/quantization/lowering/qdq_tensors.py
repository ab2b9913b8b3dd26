"""The tensors of a Q/DQ graph while it grows: which ones are quantized already, and under which names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names
from workbench.graph.read import constants
from workbench.quantization.lowering.surgery import float_constant
from workbench.quantization.record import ActivationScale, WeightScale
from workbench.quantization.weights import integers_of, scales_along
from workbench.values.errors import LoweringError

ActivationType = Literal["uint8", "int8"]
Floats = npt.NDArray[np.float32]

_Key = tuple[str, ActivationType, float, int]
"""Tensor, type, scale and zero point: what makes two quantized forms of a tensor the same."""


class QuantizedTensors:
    """A tensor gets one Q/DQ pair per scale, a weight one constant, however many layers read it.

    Attributes:
        nodes: of the growing graph, in execution order; methods append what is new, and return the tensor's name.

    Args:
        seven_bits: weights are within ±64, for kernels that add pairs of products in 16 bits: twice the scales, and
            nearest rounding, since what was learned was learned for other integers.
    """

    def __init__(self, model: ModelProto, *, seven_bits: bool = False) -> None:
        self._seven_bits = seven_bits
        self.graph = model.graph
        self.nodes: list[NodeProto] = []
        self.names = Names(model.graph)
        self.known = constants(model)
        self._quantized: dict[_Key, str] = {}
        self._dequantized: dict[_Key, str] = {}
        self._weights: dict[tuple[str, WeightScale, bool], str] = {}
        self._stored: dict[tuple[str, bytes], str] = {}

    def quantized(self, parameters: ActivationScale, kind: ActivationType) -> str:
        """An activation's integers. Readers with equal scales share them; one with a scale of its own gets its own."""
        key = _key(parameters, kind)
        if key not in self._quantized:
            name = self.names.fresh(f"{parameters.tensor}_quantized")
            self.add("QuantizeLinear", [parameters.tensor, *self.parameters(parameters, kind)], name)
            self._quantized[key] = name
        return self._quantized[key]

    def dequantized(self, parameters: ActivationScale, kind: ActivationType) -> str:
        """An activation after a Q/DQ pair."""
        key, quantized = _key(parameters, kind), self.quantized(parameters, kind)
        if key not in self._dequantized:
            name = self.names.fresh(f"{parameters.tensor}_dequantized")
            self.add("DequantizeLinear", [quantized, *self.parameters(parameters, kind)], name)
            self._dequantized[key] = name
        return self._dequantized[key]

    def requantized(self, parameters: ActivationScale, floats: str) -> None:
        """The Q/DQ pair that makes a layer's own output of its float result; readers with that scale share it."""
        tensor, key = parameters.tensor, _key(parameters, "uint8")
        scale = self.parameters(parameters, "uint8")
        self._quantized[key] = self.add("QuantizeLinear", [floats, *scale], self.names.fresh(f"{tensor}_quantized"))
        self._dequantized[key] = self.add("DequantizeLinear", [self._quantized[key], *scale], tensor)

    def weight(self, layer: str, name: str, weight: WeightScale, *, transposed: bool = False) -> str:
        """A weight behind its DequantizeLinear, transposed where asked.

        Raises:
            LoweringError: it is no float32 constant, holds NaN, or does not fit the record.
        """
        name, values = self.floats(layer, name)
        key = (name, weight, transposed)
        if key in self._weights:
            return self._weights[key]
        if self._seven_bits:
            weight = replace(weight, scales=tuple(2 * scale for scale in weight.scales), rounding=None)
        integers = fitting_integers(layer, values, weight)
        if self._seven_bits:
            integers = integers.clip(-64, 64)
        scale = scales_along(weight, values.shape).reshape([] if weight.axis is None else [-1])
        axis = None if weight.axis is None else weight.axis % values.ndim
        if transposed:
            integers = np.ascontiguousarray(integers.T)
            axis = None if axis is None else 1 - axis
        inputs = [
            self.constant(f"{name}_int8", integers),
            self.constant(f"{name}_scale", scale),
            self.constant(f"{name}_zero_point", np.zeros(scale.shape, np.int8)),
        ]
        output = self.names.fresh(f"{name}_dequantized")
        self._weights[key] = self.add("DequantizeLinear", inputs, output, **({} if axis is None else {"axis": axis}))
        return output

    def floats(self, layer: str, name: str) -> tuple[str, Floats]:
        """A weight's own name (several may alias one constant) and its values.

        Raises:
            LoweringError: it is no float32 constant, or holds NaN.
        """
        if name not in self.known:
            raise LoweringError(f"{layer}: its second factor {name} is no constant; the record has a weight.")
        tensor = self.known[name]
        name = tensor.name or name
        return name, float_constant(name, tensor, layer)

    def parameters(self, activation: ActivationScale, kind: ActivationType) -> tuple[str, str]:
        """Names of an activation's scale and zero point."""
        zero_point = np.int8(activation.zero_point) if kind == "int8" else np.uint8(activation.zero_point + 128)
        return (
            self.constant(f"{activation.tensor}_scale", np.asarray(activation.scale, np.float32)),
            self.constant(f"{activation.tensor}_zero_point", np.asarray(zero_point)),
        )

    def constant(self, wish: str, values: npt.NDArray[np.generic] | np.generic) -> str:
        """Name of an initializer with these values; asked for again with the same wish, it is the same one."""
        tensor: TensorProto = tensor_of(np.asarray(values))
        key = (wish, tensor.SerializeToString(deterministic=True))
        if key not in self._stored:
            tensor.name = self._stored[key] = self.names.fresh(wish)
            self.graph.initializer.append(tensor)
            self.known[tensor.name] = tensor
        return self._stored[key]

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: float) -> str:
        name = self.names.fresh(f"{output}_{op_type}")
        node = helper.make_node(op_type, inputs, [output], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output


def fitting_integers(layer: str, values: Floats, weight: WeightScale, groups: int = 1) -> npt.NDArray[np.int8]:
    """The weight's int8 form in its own layout.

    Raises:
        LoweringError: the record's scales or rounding do not fit the weight.
    """
    try:
        return integers_of(values, weight, groups)
    except ValueError as error:
        raise LoweringError(f"{layer}: {error}. The record belongs to another model; calibrate again.") from error


def check_tensor(node: NodeProto, tensor: str, recorded: ActivationScale) -> None:
    """Raises LoweringError where the record means another tensor."""
    if tensor != recorded.tensor:
        raise LoweringError(
            f"{node.name}: the record has a scale for {recorded.tensor!r}, the model gives it {tensor!r}. "
            "The record belongs to another model; calibrate again."
        )


def _key(parameters: ActivationScale, kind: ActivationType) -> _Key:
    return parameters.tensor, kind, parameters.scale, parameters.zero_point
