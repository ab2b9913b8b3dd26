"""AIPP, preprocessing of images inside the model: its configuration file (--insert_op_conf), and what it becomes.

Fields and their meaning are those of the ATC manual's chapter on AIPP. What cuts, pads, resizes or changes colour
spaces is read and not emulated. The input becomes an image of bytes, and ONNX nodes make of it what the model takes:
swapped channels, then (pixel - mean - min) · reciprocal of the variance. Channels are picked by Gather, which every
opset has in one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.gears import ShapePlan
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.quantization.amct.protobuf_text import Literal, Message, boolean, parse
from workbench.values.errors import ConfigError

CHANNELS: Mapping[str, int] = {"RGB888_U8": 3, "YUV400_U8": 1}
"""Of each input format that is emulated."""

_TEXT = frozenset({"aipp_mode", "input_format", "related_input_name"})
_SWITCHES = frozenset(
    {"csc_switch", "rbuv_swap_switch", "ax_swap_switch", "crop", "padding", "resize", "single_line_mode"}
)
_NOT_EMULATED = ("resize", "crop", "padding", "csc_switch", "ax_swap_switch")
_NUMBERS = frozenset(
    {
        *("related_input_rank", "src_image_size_w", "src_image_size_h", "load_start_pos_w", "load_start_pos_h"),
        *("crop_size_w", "crop_size_h", "resize_output_w", "resize_output_h", "padding_value"),
        *(f"{side}_padding_size" for side in ("left", "right", "top", "bottom")),
        *(f"{kind}_chn_{i}" for kind in ("mean", "min", "var_reci") for i in range(4)),
        *(f"matrix_r{row}c{column}" for row in range(3) for column in range(3)),
        *(f"{kind}_bias_{i}" for kind in ("input", "output") for i in range(3)),
        *("input_edge_idx", "max_src_image_size", "support_rotation", "cpadding_value"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aipp:
    """One `aipp_op`, for the input of that position or name."""

    input_format: str
    related_input_rank: int = 0
    related_input_name: str = ""
    switches: frozenset[str] = frozenset()
    numbers: Mapping[str, float] = field(default_factory=dict)

    def number(self, name: str, default: float = 0) -> float:
        return self.numbers.get(name, default)

    def whole(self, name: str, default: int = 0) -> int:
        return int(self.numbers.get(name, default))


def read_aipp(path: str) -> tuple[Aipp, ...]:
    """Every static AIPP of a file.

    Raises:
        AtcFailure: E10052 (another form, a wrong value), E13001 (it cannot be read), E10055 (what the emulator does not
            do: dynamic AIPP, cutting, padding, resizing, colours, other formats).
    """
    try:
        message = parse(Path(path).read_text(encoding="utf-8", errors="replace"), file=path)
        return tuple(_aipp(entry.value) for entry in message.fields if _is_op(entry.name, entry.value))
    except OSError as error:
        raise failure("E13001", file=path, errmsg=str(error.strerror)) from error
    except ConfigError as error:
        raise _bad(str(error)) from error


def _is_op(name: str, value: Literal | Message) -> bool:
    if name != "aipp_op" or not isinstance(value, Message):
        raise _bad(f"{name} is no aipp_op")
    return True


def _aipp(message: Literal | Message) -> Aipp:
    text: dict[str, str] = {}
    switches: set[str] = set()
    numbers: dict[str, float] = {}
    for entry in message.fields if isinstance(message, Message) else ():
        if not isinstance(entry.value, Literal):
            raise _bad(f"{entry.name} is no value")
        if entry.name in _TEXT:
            text[entry.name] = entry.value.text
        elif entry.name in _SWITCHES:
            if boolean(entry):
                switches.add(entry.name)
        elif entry.name in _NUMBERS:
            numbers.setdefault(entry.name, _number(entry.name, entry.value.text))
        else:
            raise _bad(f"the field {entry.name} is unknown")
    if text.get("aipp_mode") == "dynamic":
        raise _not_emulated("dynamic AIPP")
    if text.get("aipp_mode") != "static":
        raise _bad("aipp_mode is neither static nor dynamic")
    form = text.get("input_format", "")
    if not form:
        raise _bad("input_format is missing, which static AIPP needs")
    if form not in CHANNELS:
        raise _not_emulated(f"AIPP of {form}")
    for switch in _NOT_EMULATED:
        if switch in switches:
            raise _not_emulated(f"AIPP with {switch}")
    return Aipp(
        input_format=form,
        related_input_rank=int(numbers.get("related_input_rank", 0)),
        related_input_name=text.get("related_input_name", ""),
        switches=frozenset(switches),
        numbers=numbers,
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _bad(f"{text} of {name} is no number") from None


def _bad(reason: str) -> AtcFailure:
    return failure("E10052", reason=reason)


def _not_emulated(what: str) -> AtcFailure:
    return failure("E10055", reason=f"this atc is emulated and does not do {what}")


# --- the nodes that it becomes ---

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
