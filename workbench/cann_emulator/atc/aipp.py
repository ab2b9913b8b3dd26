"""AIPP written into the graph: the input becomes an image of bytes, and ONNX nodes make of it what the model takes.

Rows and columns are picked by Gather, which every opset has in one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.aipp_config import FORMATS, Aipp, read_aipp
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.gears import ShapePlan
from workbench.cann_emulator.atc.onnx_parser import Parsed

PREFIX = "aipp_"
"""Names of AIPP's nodes begin with it and the input's name."""

_INNER = "/aipp"
_FED: Mapping[str, int] = {"XRGB8888_U8": 4}
"""Channels of the bytes where they are more than are computed with."""


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
    images: dict[str, tuple[int, int, int]] = {}
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
        writer = _Writer(proto, name, aipp)
        if -1 in plan.boundary[name][2:]:
            images[name] = writer.write_open(channels=shape[1])
        else:
            images[name] = writer.write(height=shape[2], width=shape[3], channels=shape[1])
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


def _with_images(plan: ShapePlan, images: Mapping[str, tuple[int, int, int]]) -> ShapePlan:
    def changed(shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
        return {name: _image(shape, images[name]) if name in images else shape for name, shape in shapes.items()}

    gears = tuple((dims, changed(shapes)) for dims, shapes in plan.gears)
    return replace(plan, boundary=changed(plan.boundary), gears=gears)


def _image(shape: Shape, image: tuple[int, int, int]) -> Shape:
    rows, columns, channels = image
    return shape[0], shape[2] if rows < 0 else rows, shape[3] if columns < 0 else columns, channels


class _Writer:
    """Nodes of one AIPP. Images are [batch, height, width, channels] until the end."""

    def __init__(self, proto: ModelProto, name: str, aipp: Aipp) -> None:
        self.nodes: list[NodeProto] = []
        self._proto, self._name, self._aipp = proto, name, aipp
        self._tensor = name

    def write(self, *, height: int, width: int, channels: int) -> tuple[int, int, int]:
        """From the input to what the model takes; returns (rows, columns, channels) of the bytes that are fed."""
        aipp = self._aipp
        cropped = "crop" in aipp.switches
        sides = [aipp.whole(f"{side}_padding_size") for side in ("top", "bottom", "left", "right")]
        if "padding" not in aipp.switches:
            sides = [0, 0, 0, 0]
        rows = aipp.whole("src_image_size_h") or height - sides[0] - sides[1]
        columns = aipp.whole("src_image_size_w") or width - sides[2] - sides[3]
        top, left = aipp.whole("load_start_pos_h"), aipp.whole("load_start_pos_w")
        inner = (height - sides[0] - sides[1], width - sides[2] - sides[3])
        size = (aipp.whole("crop_size_h") or inner[0], aipp.whole("crop_size_w") or inner[1])
        if not cropped:
            top, left, size = 0, 0, (rows, columns)
        if size != inner or top + size[0] > rows or left + size[1] > columns:
            raise failure(
                "E10052",
                reason=f"an image of {rows}x{columns}, cut to {size[0]}x{size[1]}, does not fill {height}x{width}",
            )
        self._add("Cast", to=TensorProto.FLOAT)
        if aipp.input_format == "YUV420SP_U8":
            self._planes(rows, columns)
        self._pick(1, np.arange(top, top + size[0]))
        self._pick(2, np.arange(left, left + size[1]))
        self._values(channels)
        if any(sides):
            self._pad(sides)
        self._end()
        if aipp.input_format == "YUV420SP_U8":
            return rows * 3 // 2, columns, 1
        return rows, columns, _FED.get(aipp.input_format, FORMATS[aipp.input_format])

    def write_open(self, *, channels: int) -> tuple[int, int, int]:
        """As `write` for an image whose size is open: the file says nothing of sizes then, or 0 (manual, AIPP with
        --dynamic_image_size); -1 stands for what stays open."""
        aipp = self._aipp
        if {"crop", "padding"} & aipp.switches or aipp.whole("src_image_size_h") or aipp.whole("src_image_size_w"):
            # refused per the manual; with which code is not established [inferred]
            raise failure("E10052", reason="an image of open size is neither cut nor padded, and has no src_image_size")
        if aipp.input_format == "YUV420SP_U8":
            raise failure("E10055", reason="this atc is emulated and does not do AIPP of YUV420SP_U8 of open size")
        self._add("Cast", to=TensorProto.FLOAT)
        self._values(channels)
        self._end()
        return -1, -1, _FED.get(aipp.input_format, FORMATS[aipp.input_format])

    def _values(self, channels: int) -> None:
        """From pixels [batch, height, width, channels] to what the model takes, [batch, channels, height, width]."""
        aipp = self._aipp
        picked = self._channels(FORMATS[aipp.input_format])
        grey = picked == 3 and channels == 1 and "csc_switch" in aipp.switches  # its first row is the brightness
        if picked != channels and not grey:
            raise failure("E10052", reason=f"the model takes {channels} channels, {aipp.input_format} gives {picked}")
        self._add("Transpose", perm=[0, 3, 1, 2])
        if "csc_switch" in aipp.switches:
            self._colours()
        if grey:
            self._pick(1, np.arange(1))
        self._operate("Sub", [aipp.number(f"mean_chn_{i}") + aipp.number(f"min_chn_{i}") for i in range(channels)])
        self._operate("Mul", [aipp.number(f"var_reci_chn_{i}", 1) for i in range(channels)])

    def _end(self) -> None:
        self.nodes[-1].output[0] = f"{self._name}{_INNER}"

    def _planes(self, rows: int, columns: int) -> None:
        """Luma, and half as many rows of both chromas by turns, to three channels of full size."""
        fed = self._tensor
        parts = [self._pick(1, np.arange(rows), fed)]
        for offset in (0, 1):
            chroma = self._pick(1, rows + np.arange(rows) // 2, fed)
            parts.append(self._pick(2, np.arange(columns) // 2 * 2 + offset, chroma))
        self._add("Concat", *parts, axis=3)

    def _channels(self, picked: int) -> int:
        """Swaps, and the fourth channel left out."""
        aipp = self._aipp
        order = list(range(picked))
        if aipp.input_format == "XRGB8888_U8":
            order = [1, 2, 3] if "ax_swap_switch" in aipp.switches else [0, 1, 2]
        if "rbuv_swap_switch" in aipp.switches and len(order) == 3:
            yuv = aipp.input_format == "YUV420SP_U8"
            order = [order[0], order[2], order[1]] if yuv else order[::-1]
        if order != list(range(picked)):
            self._pick(3, np.asarray(order))
        return len(order)

    def _colours(self) -> None:
        """(matrix · (pixel - input bias)) / 256 + output bias, cut to a byte."""
        aipp = self._aipp
        matrix = np.array([[aipp.number(f"matrix_r{r}c{c}") for c in range(3)] for r in range(3)], np.float32) / 256
        self._operate("Sub", [aipp.number(f"input_bias_{i}") for i in range(3)])
        self._add("Conv", self._tensor, self._constant(matrix.reshape(3, 3, 1, 1)))
        self._operate("Add", [aipp.number(f"output_bias_{i}") for i in range(3)])
        self._operate("Max", [0.0] * 3)
        self._operate("Min", [255.0] * 3)

    def _pad(self, sides: list[int]) -> None:
        top, bottom, left, right = sides
        pads, value = [0, 0, top, left, 0, 0, bottom, right], self._aipp.number("padding_value")
        if max(entry.version for entry in self._proto.opset_import) < 11:
            self._add("Pad", pads=pads, value=value)
        else:
            self._add("Pad", self._tensor, self._constant(np.asarray(pads)), self._constant(np.float32(value)))

    def _pick(self, axis: int, indices: npt.NDArray[np.integer], source: str = "") -> str:
        return self._add("Gather", source or self._tensor, self._constant(indices.astype(np.int64)), axis=axis)

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
