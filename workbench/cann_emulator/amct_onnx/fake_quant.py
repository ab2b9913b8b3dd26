"""The fake-quant model: the deploy model's integers computed in float32 by standard operators.

    x ─► Mul(1/scale_d) ─► Round ─► Add(offset) ─► Clip(-128, 127) ─► Sub(offset) ─► MatMul ─► Mul(dqscale) ─► …

This is the form that the open amct_pytorch writes (amct.md §6.6), node for node; it runs in plain ONNX Runtime. What
amct_onnx 8.5 writes uses its own operators instead, which need its compiled library [inferred].
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.nodes import replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.ascend_quant import ANTI_QUANT, DEQUANT, QUANT
from workbench.quantization.lowering.surgery import prune_constants
from workbench.quantization.scales import as_half


def fake_quant_model(deploy: ModelProto, *, force_fp16: bool = False) -> ModelProto:
    """The simulation of a deploy model; inputs, outputs and layers keep their names. Pure and deterministic.

    Sums of products are exact as long as they stay below 2**24; beyond, float32 rounds where the device does not.

    Args:
        force_fp16: the arithmetic of FORCE_FP16_QUANT: half precision at both ends (amct.md §6.6).
    """
    model = ModelProto()
    model.CopyFrom(deploy)
    writer = _Writer(model, force_fp16=force_fp16)
    nodes = [new for node in deploy.graph.node for new in writer.nodes(node)]
    replace_nodes(model.graph, [*reversed(writer.constants), *nodes])
    for tensor in model.graph.initializer:
        if tensor.name in writer.integer_constants:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    prune_constants(model.graph)
    return model


class _Writer:
    """Attributes: integer_constants: initializers that integer nodes read; they become float32."""

    def __init__(self, model: ModelProto, *, force_fp16: bool) -> None:
        self._force_fp16 = force_fp16
        self._known = constants(model)
        self._integer_rank: dict[str, int] = {}
        self.constants: list[NodeProto] = []
        self.integer_constants: set[str] = set()

    def nodes(self, node: NodeProto) -> Iterator[NodeProto]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == QUANT:
            yield from self._quant(node, attributes)
        elif node.op_type == DEQUANT:
            yield from self._dequant(node)
        elif node.op_type == ANTI_QUANT:
            scale = self._constant(f"{node.name}.fakeantiquant.scale", np.float32(attributes["scale"]))
            yield self._node("Mul", f"{node.name}.fakeantiquant.mul", [node.input[0], scale], node.output[0])
        else:
            ranks = [self._integer_rank[name] for name in node.input if name in self._integer_rank]
            if ranks:
                self.integer_constants.update(name for name in node.input if name in self._known)
                self._integer_rank[node.output[0]] = self._rank(node) or ranks[0]
            yield node

    def _quant(self, node: NodeProto, attributes: Mapping[str, float]) -> Iterator[NodeProto]:
        stem = f"{node.name}.fakequant"
        least = self._constant(f"{stem}.min_val", np.float32(-128))
        most = self._constant(f"{stem}.max_val", np.float32(127))
        offset = self._constant(f"{stem}.offset", np.float32(attributes["offset"]))
        inverse = as_half(float(attributes["scale"])) if self._force_fp16 else attributes["scale"]
        scale = self._constant(f"{stem}.scale", np.float32(inverse))
        self._integer_rank[node.output[0]] = 2
        x = node.input[0]
        if self._force_fp16:
            x = yield from self._half(x, f"{stem}.input")
            product = yield from self._step("Mul", f"{stem}.mul", [x, scale])
            product = yield from self._half(product, f"{stem}.product")
            shifted = yield from self._step("Add", f"{stem}.add", [product, offset])
            shifted = yield from self._half(shifted, f"{stem}.sum")
            rounded = yield from self._step("Round", f"{stem}.round", [shifted])
        else:
            product = yield from self._step("Mul", f"{stem}.mul", [x, scale])
            whole = yield from self._step("Round", f"{stem}.round", [product])
            rounded = yield from self._step("Add", f"{stem}.add", [whole, offset])
        clipped = yield from self._step("Clip", f"{stem}.clip", [rounded, least, most])
        yield self._node("Sub", f"{stem}.sub", [clipped, offset], node.output[0])

    def _dequant(self, node: NodeProto) -> Iterator[NodeProto]:
        # "fc1.dequant" becomes "fc1.fakedequant"
        stem = f"{node.name.removesuffix('.dequant')}.fakedequant"
        words = numpy_helper.to_array(self._known[node.input[1]])
        factors = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
        rank = self._integer_rank[node.input[0]]
        shape = [1] * rank
        shape[1 if rank > 2 else -1] = -1
        scale = self._constant(f"{stem}.dqscale", factors.reshape(shape))
        if not self._force_fp16:
            yield self._node("Mul", f"{stem}.mul", [node.input[0], scale], node.output[0])
            return
        product = yield from self._step("Mul", f"{stem}.mul", [node.input[0], scale])
        yield self._node("Cast", f"{stem}.half", [product], f"{stem}.half.output0", to=TensorProto.FLOAT16)
        yield self._node("Cast", f"{stem}.single", [f"{stem}.half.output0"], node.output[0], to=TensorProto.FLOAT)

    def _rank(self, node: NodeProto) -> int | None:
        """Rank of the factors' shape: channels are axis 1 of a convolution's output, the last one of a product's."""
        if node.op_type in ("Conv", "ConvTranspose"):
            return len(self._known[node.input[1]].dims)
        return 4 if node.op_type == "AveragePool" else None

    def _half(self, x: str, stem: str) -> Generator[NodeProto, None, str]:
        half = yield from self._step("Cast", f"{stem}_half", [x], to=TensorProto.FLOAT16)
        single = yield from self._step("Cast", f"{stem}_single", [half], to=TensorProto.FLOAT)
        return single

    def _step(self, op_type: str, name: str, inputs: list[str], **attributes: int) -> Generator[NodeProto, None, str]:
        yield self._node(op_type, name, inputs, f"{name}.output0", **attributes)
        return f"{name}.output0"

    def _node(self, op_type: str, name: str, inputs: list[str], output: str, **attributes: int) -> NodeProto:
        node = helper.make_node(op_type, inputs, [output], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        return node

    def _constant(self, name: str, values: npt.NDArray[np.float32] | np.float32) -> str:
        tensor = numpy_helper.from_array(np.asarray(values, np.float32), f"{name}.value")
        self.constants.append(helper.make_node("Constant", [], [f"{name}.output0"], name=name, value=tensor))
        return f"{name}.output0"
