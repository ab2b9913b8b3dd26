"""AIPP in a compiled file: the input takes a picture's bytes, and the session makes them of what the model takes.

AIPP computes (byte - mean - min) · var_reci for each channel of a picture [height, width, channels] (ATC manual,
chapter on AIPP). Data that were prepared by just that arithmetic are turned back into their bytes exactly; whatever
else AIPP can do (crop, resize, pad, change colour spaces) cannot be undone, and such a file is refused before it is
compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.quantization.amct.protobuf_text import Field, Literal, Message, boolean, message, parse, real
from workbench.targets.ascend.interface import Interface, Picture, Port
from workbench.targets.base import Array, Feeds
from workbench.values.errors import ConfigError, MeasureError

_CHANNELS: Mapping[str, int] = {"RGB888_U8": 3, "YUV400_U8": 1}
"""Input formats whose channels are those of the model."""
_UNDONE = ("csc_switch", "crop", "padding", "resize", "ax_swap_switch", "single_line_mode", "support_rotation")
_KEY = "compile.insert_op_conf"
_NEAR = 0.02
"""How far a value may lie from a byte's, in steps of a byte: what float32 and a saved file round away."""
_LARGEST = 255


def pictures_of(text: str, interface: Interface) -> tuple[Picture, ...]:
    """The inputs that an AIPP file makes pictures of.

    Raises:
        ConfigError: it is no such file, names an input that is no image of the model's, or does what a session cannot
            undo.
    """
    found = []
    for field in parse(text, file=_KEY).fields:
        if field.name != "aipp_op":
            raise _refused(f"{field.name!r} is no aipp_op")
        found.append(_picture(message(field, file=_KEY), interface))
    if len({picture.name for picture in found}) != len(found) or not found:
        raise _refused("each input needs one aipp_op, and there is one at least")
    return tuple(found)


def as_compiled(interface: Interface) -> Interface:
    """The ports as the files have them: pictures in bytes, channels last."""
    named = {picture.name for picture in interface.pictures}
    ports = tuple(_in_bytes(port) if port.name in named else port for port in interface.inputs)
    return replace(interface, inputs=ports)


def _in_bytes(port: Port) -> Port:
    batch, channels, *sides = port.shape
    return replace(port, dtype="uint8", shape=(batch, *sides, channels))


def with_bytes(feeds: Feeds, pictures: Sequence[Picture]) -> Feeds:
    """The same feeds, those of pictures as bytes [rows, height, width, channels].

    Raises:
        MeasureError: a value is not what AIPP makes of any byte.
    """
    if not pictures:
        return feeds
    return {**feeds, **{picture.name: _bytes(feeds[picture.name], picture) for picture in pictures}}


def _bytes(array: Array, picture: Picture) -> Array:
    means, scales = (np.array(values, np.float64).reshape(1, -1, 1, 1) for values in (picture.means, picture.scales))
    pixels = array.astype(np.float64) / scales + means
    whole = np.round(pixels)
    off = np.abs(pixels - whole)
    if not (off <= _NEAR).all() or whole.min(initial=0) < 0 or whole.max(initial=0) > _LARGEST:
        worst = float(pixels.flat[int(np.argmax(np.where(np.isfinite(off), off, np.inf)))])
        raise MeasureError(
            f"{picture.name!r} holds a value that AIPP makes of no byte (it would be {worst:.4g}, and bytes are whole "
            f"numbers of 0 to {_LARGEST}). Prepare the data as the AIPP file says: (byte - mean - min) * var_reci."
        )
    pictured = np.ascontiguousarray(whole.transpose(0, 2, 3, 1).astype(np.uint8))
    return pictured[..., ::-1].copy() if picture.swapped else pictured


def _picture(op: Message, interface: Interface) -> Picture:
    said = {field.name: field for field in op.fields}
    for name in _UNDONE:
        if name in said and boolean(said[name], file=_KEY):
            raise _refused(f"{name} cannot be undone: the model's input does not hold the whole picture")
    mode = _word(said["aipp_mode"]) if "aipp_mode" in said else ""
    if mode != "static":
        raise _refused("only aipp_mode: static has its numbers in the file")
    form = _word(said["input_format"]) if "input_format" in said else ""
    if form not in _CHANNELS:
        raise _refused(f"input_format {form!r} is none of {', '.join(_CHANNELS)}, whose channels are the model's")

    def number(name: str, default: float) -> float:
        return real(said[name], file=_KEY) if name in said else default

    port = _port(
        _word(said["related_input_name"]) if "related_input_name" in said else "",
        int(number("related_input_rank", 0)),
        interface,
    )
    channels = _CHANNELS[form]
    if len(port.shape) != 4 or port.shape[1] != channels:
        raise _refused(
            f"input {port.name!r} is {list(port.shape)}, and a picture has [batch, {channels}, height, width]"
        )
    sides = {"src_image_size_h": port.shape[2], "src_image_size_w": port.shape[3]}
    for name, size in sides.items():
        if name in said and int(number(name, 0)) not in (0, size):
            raise _refused(f"{name} is {number(name, 0):g}, the model takes {size}: cutting it cannot be undone")
    scales = tuple(number(f"var_reci_chn_{i}", 1.0) for i in range(channels))
    if not all(scales):
        raise _refused("a var_reci_chn of 0 makes every byte the same")
    return Picture(
        name=port.name,
        means=tuple(number(f"mean_chn_{i}", 0.0) + number(f"min_chn_{i}", 0.0) for i in range(channels)),
        scales=scales,
        swapped="rbuv_swap_switch" in said and boolean(said["rbuv_swap_switch"], file=_KEY) and channels > 1,
    )


def _word(field: Field) -> str:
    """With quotes or without, as the vendor's own files have it."""
    if not isinstance(field.value, Literal):
        raise _refused(f"{field.name} is no value")
    return field.value.text


def _port(name: str, rank: int, interface: Interface) -> Port:
    if name:
        found = [port for port in interface.inputs if port.name == name]
    else:
        found = list(interface.inputs[rank : rank + 1]) if rank >= 0 else []
    if not found:
        raise _refused(f"the model has no input {name or rank!r}")
    return found[0]


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"{why}.",
        key=_KEY,
        hint="Name a static AIPP of the whole picture: mean, min, var_reci and rbuv_swap_switch.",
    )
