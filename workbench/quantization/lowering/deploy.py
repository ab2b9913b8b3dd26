"""The deploy ONNX that ATC compiles: AMCT's AscendQuant and AscendDequant around layers with int8 constants.

    x ─► AscendQuant ─► MatMul ─► Add(bias) ─► AscendDequant ─► ...      amct.md §6
                        int8 w    int32        uint64 factors

The bias is plain round(bias / (scale_d · scale_w)): ATC itself takes the offset's part out of it (amct.md §6.5). Where
the vendor's layout is not documented, the code says [inferred].
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names, attributes_of, names_read, opset_of, replace_nodes
from workbench.quantization.lowering.folding import Wiring
from workbench.quantization.lowering.prepare import bias_place, integer_bias, prepare
from workbench.quantization.lowering.qdq import check_tensor, fitting_integers
from workbench.quantization.lowering.surgery import (
    check_layers,
    editable_copy,
    float_constant,
    prune_constants,
    rewired,
    weight_is_transposed,
)
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord, WeightScale
from workbench.values.errors import LoweringError

QUANT, DEQUANT, ANTI_QUANT = "AscendQuant", "AscendDequant", "AscendAntiQuant"

FP16_FACTOR_MASK = 0xFFFFE000
"""Keeps sign, exponent and 10 bits of mantissa of a float32 (amct.md §4.7)."""

OLDEST_OPSET, NEWEST_OPSET = 8, 22
"""ATC's plugins for the Ascend operators are registered for these versions of ai.onnx (amct.md §6.1)."""

_OLDEST_IR = 6  # AMCT writes 6 with opset 11; older ones would need every initializer among the inputs
_LOWERED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "AveragePool")

_Floats = npt.NDArray[np.float32]


def lower_deploy(proto: ModelProto, record: QuantizationRecord, *, merge_bias: bool = False) -> ModelProto:
    """AMCT's deploy model of `prepare(proto, record)`: every recorded layer in INT8, all else untouched.

    Pure and deterministic. One operator set, the default one, as ATC demands; `ir_version` is the lowest that fits it.
    Names of layers, inputs and outputs stay; new ones are AMCT's (amct.md §6.1). Layers that share an input and its
    scale share one AscendQuant. Factors per channel of a MatMul or Gemm are written as for a Conv; AMCT itself never
    does so, and whether ATC takes them is open (amct.md §13).

    Raises:
        LoweringError: a recorded layer is absent or differs from the model, cannot be quantized on Ascend, has
            constants that are NaN or a bias beyond int32; or the model uses another operator domain, or an opset
            beyond `NEWEST_OPSET`.
    """
    model = editable_copy(prepare(proto, record), opset=OLDEST_OPSET)
    _keep_default_domain(model)
    layers = {layer.layer: layer for layer in record.layers}
    check_layers(model, layers)
    if refused := [layer for layer in record.layers if layer.op_type not in _LOWERED]:
        name, op_type = refused[0].layer, refused[0].op_type
        raise LoweringError(f"{name}: {op_type} has no INT8 form for ATC. Remove it from the record.")
    # preparation puts every bias on the right: only the model itself tells where AMCT would have found it
    right = {} if merge_bias else {n.name: n.input[1] for n in proto.graph.node if n.op_type == "Add"}
    rewriter = _Rewriter(model, force_fp16=record.force_fp16, right_of_add=right)
    rewriter.rewrite(layers)
    replace_nodes(model.graph, rewriter.nodes)
    rewriter.replace_constants()
    prune_constants(model.graph)
    return model


def _keep_default_domain(model: ModelProto) -> None:
    version = opset_of(model)
    if version > NEWEST_OPSET:
        raise LoweringError(
            f"The model has opset {version}; ATC knows the INT8 operators in opsets {OLDEST_OPSET} to {NEWEST_OPSET}. "
            f"Export it with opset {NEWEST_OPSET} or lower."
        )
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise LoweringError(
                f"{node.name}: {node.domain}.{node.op_type} is no operator of ONNX itself, and ATC takes files with "
                "one operator domain only (E16005). Start from the model as it was exported."
            )
        node.domain = ""
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", version))
    model.ir_version = max(_OLDEST_IR, helper.find_min_ir_version_for(list(model.opset_import), True))


class _Rewriter:
    """The growing graph: quantized tensors, tensors under a new name, and constants that change."""

    def __init__(self, model: ModelProto, *, force_fp16: bool, right_of_add: Mapping[str, str]) -> None:
        self._graph = model.graph
        self.nodes: list[NodeProto] = []
        self._names, self._wiring = Names(model.graph), Wiring(model)
        self._constants, self._outputs = self._wiring.constants, self._wiring.outputs
        self._force_fp16 = force_fp16
        self._right_of_add = right_of_add
        self._initializers = {tensor.name for tensor in model.graph.initializer}
        self._reads = Counter(name for node in model.graph.node for name in names_read(node))
        self._reads.update(self._outputs)
        self._nested = {name for node in model.graph.node for name in set(names_read(node)) - set(node.input)}
        self._quantized: dict[tuple[str, float, int], str] = {}
        self._renamed: dict[str, str] = {}
        self._new: dict[str, TensorProto] = {}

    def rewrite(self, layers: Mapping[str, LayerRecord]) -> None:
        """All nodes of the deploy model, in execution order."""
        absorbed: set[str] = set()
        for node in self._graph.node:
            if node.name in absorbed:
                continue
            if node.name not in layers:
                self.nodes.append(rewired(node, [self._renamed.get(name, name) for name in node.input]))
                continue
            add = self._bias_add(node, layers[node.name])
            if add is not None:
                absorbed.add(add.name)
            self._lower(node, layers[node.name], add)

    def replace_constants(self) -> None:
        """Put the integer constants where the float ones were; ones under new names follow."""
        changed = set()
        for tensor in self._graph.initializer:
            if tensor.name in self._new:
                tensor.CopyFrom(self._new.pop(tensor.name))
            if tensor.data_type in (TensorProto.INT8, TensorProto.INT32):
                changed.add(tensor.name)
        self._graph.initializer.extend(self._new.values())
        # a constant that is also listed as an input would be declared float there
        for index in reversed([i for i, value in enumerate(self._graph.input) if value.name in changed]):
            del self._graph.input[index]

    def _lower(self, node: NodeProto, layer: LayerRecord, add: NodeProto | None) -> None:
        inputs = [self._quant(node, node.input[0], layer.activation, f"{node.name}.quant")]
        scale = np.float32(layer.activation.scale)
        if layer.second is not None:
            offsets = (layer.activation.zero_point, layer.second.zero_point)
            if node.op_type != "MatMul":
                rule = f"a {node.op_type} of two activations cannot be lowered. Keep it in float."
                raise LoweringError(f"{node.name}: {rule}")
            if any(offsets):
                raise LoweringError(
                    f"{node.name}: a MatMul of two activations is symmetric on Ascend (amct.md §5); its offsets are "
                    f"{offsets[0]} and {offsets[1]}. Calibrate it with symmetric activations, or keep it in float."
                )
            inputs.append(self._quant(node, node.input[1], layer.second, f"{node.name}.quant1"))
            factors = np.asarray([scale * np.float32(layer.second.scale)])  # [inferred], amct.md §13
        elif layer.weight is None:
            factors = np.asarray([scale])  # AveragePool: amct.md §6.3
        else:
            weight, scales = self._weight(node, layer.weight)
            inputs.append(weight)
            factors = scale * scales  # in float32, as amct.md §6.3 has it
            if node.op_type != "MatMul" and len(node.input) > 2 and node.input[2]:
                inputs.append(self._bias(node, node.input[2], factors))
        last = node if add is None else add
        integer = output = last.output[0]
        if output in self._outputs or output in self._nested:
            integer = self._names.fresh(f"{last.name}_output0")
        else:  # readers of the dequantized tensor are told of it
            self._renamed[integer] = output = self._names.fresh(f"{node.name}.dequant.output0")
        lowered = rewired(node, inputs, [integer] if add is None else None)
        for attribute in lowered.attribute:
            if node.op_type == "Gemm" and attribute.name == "transB":
                attribute.i = 0
        self.nodes.append(lowered)
        if add is not None:
            self.nodes.append(rewired(add, [node.output[0], self._bias(node, add.input[1], factors)], [integer]))
        param = self._names.fresh(f"{node.name}.dequant.param")
        # bits 31:0 hold the float32 factor, the rest is 0 (amct.md §6.3)
        mask = np.uint32(FP16_FACTOR_MASK if self._force_fp16 else 0xFFFFFFFF)
        words = (np.ascontiguousarray(factors, np.float32).view(np.uint32) & mask).astype(np.uint64)
        self._new[param] = helper.make_tensor(param, TensorProto.UINT64, [words.size], words)
        # dtype 0 is float32 in GE's numbering (amct.md §6.2)
        name = self._names.fresh(f"{node.name}.dequant")
        self.nodes.append(helper.make_node(DEQUANT, [integer, param], [output], name=name, dtype=0))

    def _quant(self, node: NodeProto, tensor: str, recorded: ActivationScale, name: str) -> str:
        """The AscendQuant of a tensor where it is still missing; returns the int8 tensor's name."""
        check_tensor(node, tensor, recorded)
        scale = np.float32(recorded.scale)
        key = (tensor, float(scale), recorded.zero_point)
        if key not in self._quantized:
            inverse = float(np.float32(1) / scale)
            if not math.isfinite(inverse):
                raise LoweringError(
                    f"{node.name}: 1 / {scale:g}, the scale of {tensor}, is no float32. Calibrate again."
                )
            self._quantized[key] = self._names.fresh(f"{name}.output0")
            # ATC reads `scale` and `offset` only where both are FLOAT (amct.md §6.2)
            form: dict[str, Any] = {"scale": inverse, "offset": float(recorded.zero_point), "dst_type": "INT8"}
            source, result = self._renamed.get(tensor, tensor), self._quantized[key]
            self.nodes.append(helper.make_node(QUANT, [source], [result], name=self._names.fresh(name), **form))
        return self._quantized[key]

    def _weight(self, node: NodeProto, weight: WeightScale) -> tuple[str, _Floats]:
        """Name of the int8 weight in deploy layout, and its float32 scales: shape [1] or [Cout]."""
        name = node.input[1]
        if name not in self._constants:
            raise LoweringError(f"{node.name}: its second factor {name} is no constant; the record has a weight.")
        attributes = attributes_of(node)
        transposed = weight_is_transposed(node)
        values = float_constant(name, self._constants[name], node.name)
        groups = int(attributes.get("group", 1)) if node.op_type == "ConvTranspose" else 1
        axis = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if transposed else 1}.get(node.op_type, values.ndim - 1)
        if weight.axis is not None and weight.axis % values.ndim != axis:
            raise LoweringError(
                f"{node.name}: scales along axis {weight.axis}, the output channels are axis {axis}. "
                "The record belongs to another model; calibrate again."
            )
        integers = fitting_integers(node.name, values, weight, groups)
        scales = np.asarray(weight.scales, np.float32)
        if weight.axis is not None and len(scales) == values.shape[axis]:
            scales = np.tile(scales, groups)
        if transposed:
            integers = np.ascontiguousarray(integers.T)
        tensor = self._constant_name(name, f"{node.name}.weight")
        self._new[tensor] = tensor_of(integers, tensor)
        return tensor, scales

    def _bias(self, node: NodeProto, name: str, factors: _Floats) -> str:
        """Name of the int32 bias: round half to even of bias / factor, in float32 (amct.md §4.8)."""
        integers = integer_bias(node.name, name, self._constants, factors)
        tensor = self._constant_name(name, f"{node.name}.bias")
        self._new[tensor] = helper.make_tensor(tensor, TensorProto.INT32, integers.shape, integers)
        return tensor

    def _constant_name(self, name: str, wish: str) -> str:
        """The name a changed constant may take: its own, where nothing else reads the float values."""
        if self._reads[name] == 1 and name in self._initializers:
            return name
        return self._names.fresh(wish)

    def _bias_add(self, node: NodeProto, layer: LayerRecord) -> NodeProto | None:
        """The Add behind a MatMul whose second input is its bias: a constant of one value per column (amct.md §6.4)."""
        if node.op_type != "MatMul" or layer.weight is None or self._reads[node.output[0]] != 1:
            return None
        place = bias_place(self._wiring, node)
        if place is None or place[1] != 1 or self._right_of_add.get(place[0]) == node.output[0]:
            return None
        return self._wiring.readers(node.output[0])[0]
