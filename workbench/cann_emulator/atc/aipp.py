"""AIPP written into the graph: the input becomes an image of bytes, and ONNX nodes make of it what the model takes.

Whole pictures alone: swapped channels, then (pixel - mean - min) · reciprocal of the variance. Channels are picked by
Gather, which every opset has in one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.aipp_config import CHANNELS, Aipp, read_aipp
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.gears import ShapePlan
from workbench.cann_emulator.atc.onnx_parser import Parsed

PREFIX = "aipp_"
"""Names of AIPP's nodes begin with it and the input's name."""

_INNER = "/aipp"


def insert_aipp(parsed: Parsed, plan: ShapePlan, options: Mapping[str, str]) -> tuple[Parsed, ShapePlan]:
    """The model that takes bytes, and its shapes; both as they are without --insert_op_conf.

    Raises:
        AtcFailure: E10052 (it does not fit the model), E10034 (an input of --input_fp16_nodes), those of `read_aipp`.
    """
    path = options.get("insert_op_conf", "")
    if not path:
        return parsed, plan
    proto = ModelProto()
    proto.CopyFrom(parsed.proto)
    images: dict[str, int] = {}
    nodes: list[NodeProto] = []
    names = [value.name for value in parsed.inputs]
    halves = {part.strip() for part in options.get("input_fp16_nodes", "").split(";")}
    for aipp in read_aipp(path):
        if not aipp.related_input_name and aipp.related_input_rank >= len(names):
            raise failure("E10052", reason=f"the model has no input {aipp.related_input_rank}")
        name = aipp.related_input_name or names[aipp.related_input_rank]
        if name not in names or name in images:
            raise failure("E10052", reason=f"{name} is no input of the model, or named twice")
        if name in halves:
            raise failure("E10034", opname=name)
        shape = plan.gears[-1][1][name]
        if len(shape) != 4:
            raise failure("E10052", reason=f"the input {name} has {len(shape)} axes, an image has 4")
        size = (aipp.whole("src_image_size_h"), aipp.whole("src_image_size_w"))
        is_open = -1 in plan.boundary[name][2:]
        # of an open size the file says nothing (manual, AIPP with --dynamic_image_size); the code is [inferred]
        if any(size) and (is_open or size != shape[2:]):
            raise failure("E10052", reason=f"an image of {size[0]}x{size[1]} does not fill the input {name}")
        images[name] = CHANNELS[aipp.input_format]
        if images[name] != shape[1]:
            given = f"{aipp.input_format} gives {images[name]}"
            raise failure("E10052", reason=f"the model takes {shape[1]} channels, {given}")
        writer = _Writer(proto, name, aipp)
        writer.write(channels=shape[1])
        nodes.extend(writer.nodes)
    for node in proto.graph.node:
        node.input[:] = [f"{name}{_INNER}" if name in images else name for name in node.input]
    kept = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([*nodes, *kept])
    for value in proto.graph.input:
        if value.name in images:
            value.type.tensor_type.elem_type = TensorProto.UINT8
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = tuple(value for value in proto.graph.input if value.name not in initializers)
    return replace(parsed, proto=proto, inputs=inputs), _with_images(plan, images)


def _with_images(plan: ShapePlan, images: Mapping[str, int]) -> ShapePlan:
    def changed(shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
        return {name: _image(shape, images[name]) if name in images else shape for name, shape in shapes.items()}

    gears = tuple((dims, changed(shapes)) for dims, shapes in plan.gears)
    return replace(plan, boundary=changed(plan.boundary), gears=gears)


def _image(shape: Shape, channels: int) -> Shape:
    return shape[0], shape[2], shape[3], channels


class _Writer:
    """Nodes of one AIPP, from bytes [batch, height, width, channels] to what the model takes."""

    def __init__(self, proto: ModelProto, name: str, aipp: Aipp) -> None:
        self.nodes: list[NodeProto] = []
        self._proto, self._name, self._aipp = proto, name, aipp
        self._tensor = name

    def write(self, *, channels: int) -> None:
        aipp = self._aipp
        self._add("Cast", to=TensorProto.FLOAT)
        if "rbuv_swap_switch" in aipp.switches and channels == 3:
            self._add("Gather", self._tensor, self._constant(np.arange(3)[::-1].astype(np.int64)), axis=3)
        self._add("Transpose", perm=[0, 3, 1, 2])
        self._operate("Sub", [aipp.number(f"mean_chn_{i}") + aipp.number(f"min_chn_{i}") for i in range(channels)])
        self._operate("Mul", [aipp.number(f"var_reci_chn_{i}", 1) for i in range(channels)])
        self.nodes[-1].output[0] = f"{self._name}{_INNER}"

    def _operate(self, op_type: str, values: list[float]) -> None:
        self._add(op_type, self._tensor, self._constant(np.asarray(values, np.float32).reshape(1, -1, 1, 1)))

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{PREFIX}{self._name}/{op_type}_{len(self.nodes)}"
        output = f"{name}_y"
        self.nodes.append(helper.make_node(op_type, inputs or [self._tensor], [output], name=name, **attributes))
        self._tensor = output
        return output

    def _constant(self, values: npt.NDArray[np.generic] | np.float32) -> str:
        name = f"{PREFIX}{self._name}/constant_{len(self._proto.graph.initializer)}"
        self._proto.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name
