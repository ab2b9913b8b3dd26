"""AIPP, preprocessing of images inside the model: its configuration file (--insert_op_conf), and what it becomes.

Fields and their meaning are those of the ATC manual's chapter on AIPP. What cuts, pads, resizes or changes colour
spaces is read and not emulated. The input becomes an image of bytes, and ONNX nodes make of it what the model takes:
swapped channels, then (pixel - mean - min) · reciprocal of the variance. Channels are picked by Gather, which every
opset has in one form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.text_format import ParseError, Tokenizer  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.shapes import Shape, ShapePlan

_CHANNELS: Mapping[str, int] = {"RGB888_U8": 3, "YUV400_U8": 1}
"""Of each input format that is emulated."""
_TEXTS = ("aipp_mode", "input_format", "related_input_name")
_NOT_EMULATED = ("resize", "crop", "padding", "csc_switch", "ax_swap_switch")
_SWITCHES = (*_NOT_EMULATED, "rbuv_swap_switch", "single_line_mode")
_INNER = "/aipp"
PREFIX = "aipp_"
"""Names of AIPP's nodes begin with it and the input's name."""

Fields = Mapping[str, Any]
"""Of one `aipp_op`: texts, switches and numbers by name."""


def read_aipp(path: str) -> tuple[Fields, ...]:
    """Every static AIPP of a file; of fields that are numbers the first of a name counts.

    Raises:
        AtcFailure: E10052 (another form, a wrong value), E13001 (it cannot be read), E10055 (what the emulator does not
            do: dynamic AIPP, cutting, padding, resizing, colours, other formats).
    """
    try:
        tokens = Tokenizer(Path(path).read_text(encoding="utf-8", errors="replace").split("\n"))
        found = []
        while not tokens.AtEnd():
            if (name := tokens.ConsumeIdentifier()) != "aipp_op":
                raise _bad(f"{name} is no aipp_op")
            tokens.TryConsume(":")
            found.append(_fields(tokens))
        return tuple(found)
    except OSError as error:
        raise failure("E13001", file=path, errmsg=str(error.strerror)) from error
    except (ParseError, ValueError) as error:
        raise _bad(f"{path}:{error}") from error


def _fields(tokens: Any) -> Fields:
    fields: dict[str, Any] = {}
    end = ">" if tokens.TryConsume("<") else tokens.Consume("{") or "}"
    while not tokens.TryConsume(end):
        name = tokens.ConsumeIdentifier()
        tokens.Consume(":")
        if name in _TEXTS:
            fields[name] = tokens.ConsumeString() if tokens.token[:1] in ('"', "'") else tokens.ConsumeIdentifier()
        elif name in _SWITCHES:
            fields[name] = tokens.ConsumeBool()
        elif not math.isfinite(number := tokens.ConsumeFloat()):
            raise _bad(f"{number} of {name} is no number")
        else:
            fields.setdefault(name, number)
        if not tokens.TryConsume(","):
            tokens.TryConsume(";")
    asked = [switch for switch in _NOT_EMULATED if fields.get(switch)]
    if fields.get("aipp_mode") not in ("static", "dynamic"):
        raise _bad("aipp_mode is neither static nor dynamic")
    if fields["aipp_mode"] == "static" and not fields.get("input_format"):
        raise _bad("input_format is missing, which static AIPP needs")
    if fields["aipp_mode"] == "dynamic" or fields["input_format"] not in _CHANNELS or asked:
        what = asked[0] if asked else f"{fields['aipp_mode']} AIPP of {fields.get('input_format', 'any format')}"
        raise failure("E10055", reason=f"this atc is emulated and does not do AIPP with {what}")
    return fields


def _bad(reason: str) -> AtcFailure:
    return failure("E10052", reason=reason)


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
    for fields in read_aipp(path):
        rank = int(fields.get("related_input_rank", 0))
        if not fields.get("related_input_name") and rank >= len(names):
            raise _bad(f"the model has no input {rank}")
        name = fields.get("related_input_name") or names[rank]
        if name not in names or name in images:
            raise _bad(f"{name} is no input of the model, or named twice")
        if name in halves:
            raise failure("E10034", opname=name)
        shape = plan.gears[-1][1][name]
        if len(shape) != 4:
            raise _bad(f"the input {name} has {len(shape)} axes, an image has 4")
        size = (int(fields.get("src_image_size_h", 0)), int(fields.get("src_image_size_w", 0)))
        is_open = -1 in plan.boundary[name][2:]
        # of an open size the file says nothing (manual, AIPP with --dynamic_image_size); the code is [inferred]
        if any(size) and (is_open or size != shape[2:]):
            raise _bad(f"an image of {size[0]}x{size[1]} does not fill the input {name}")
        images[name] = _CHANNELS[fields["input_format"]]
        if images[name] != shape[1]:
            raise _bad(f"the model takes {shape[1]} channels, {fields['input_format']} gives {images[name]}")
        nodes += _nodes(proto, name, fields)
    for node in proto.graph.node:
        node.input[:] = [f"{name}{_INNER}" if name in images else name for name in node.input]
    kept = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([*nodes, *kept])
    for value in proto.graph.input:
        if value.name in images:
            value.type.tensor_type.elem_type = TensorProto.UINT8

    def changed(shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
        return {n: (s[0], s[2], s[3], images[n]) if n in images else s for n, s in shapes.items()}

    inputs = tuple(value for value in proto.graph.input if value.name in names)
    gears = tuple((dims, changed(shapes)) for dims, shapes in plan.gears)
    return replace(parsed, proto=proto, inputs=inputs), replace(plan, boundary=changed(plan.boundary), gears=gears)


def _nodes(proto: ModelProto, name: str, fields: Fields) -> list[NodeProto]:
    """From bytes [batch, height, width, channels] to what the model takes; constants go into the graph."""
    nodes: list[NodeProto] = []
    channels = _CHANNELS[fields["input_format"]]

    def add(op_type: str, *constants: npt.NDArray[Any], **attributes: Any) -> None:
        inputs = [nodes[-1].output[0] if nodes else name]
        for values in constants:
            inputs.append(f"{PREFIX}{name}/constant_{len(proto.graph.initializer)}")
            proto.graph.initializer.append(numpy_helper.from_array(values, inputs[-1]))
        node = f"{PREFIX}{name}/{op_type}_{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [f"{node}_y"], name=node, **attributes))

    def of_channels(*kinds: str, default: float = 0) -> npt.NDArray[np.float32]:
        values = [sum(fields.get(f"{kind}_chn_{i}", default) for kind in kinds) for i in range(channels)]
        return np.asarray(values, np.float32).reshape(1, -1, 1, 1)

    add("Cast", to=TensorProto.FLOAT)
    if fields.get("rbuv_swap_switch") and channels == 3:
        add("Gather", np.array([2, 1, 0]), axis=3)
    add("Transpose", perm=[0, 3, 1, 2])
    add("Sub", of_channels("mean", "min"))
    add("Mul", of_channels("var_reci", default=1))
    nodes[-1].output[0] = f"{name}{_INNER}"
    return nodes
