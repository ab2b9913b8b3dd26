"""Which compiled shape serves a call, and how its rows and length are filled up and cut back.

A compiled file has one batch size and one length (or one of its gears has). A call with fewer rows or a shorter text
is filled up: rows with copies of the first one, since a row of zeros would be an entirely masked text, whose softmax
may overflow and show up in an overflow check; length with zeros, which the model's mask must hide. A call with more
rows than any file goes through in several turns; a text longer than every file is refused.

With AIPP the input takes a picture's bytes, and the session makes them of what the model takes. AIPP computes (byte -
mean - min) · var_reci for each channel of a picture [height, width, channels] (ATC manual, chapter on AIPP). Data that
were prepared by just that arithmetic are turned back into their bytes exactly; whatever else AIPP can do (crop, resize,
pad, change colour spaces) cannot be undone, and such a file is refused before it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.quantization.amct.protobuf_text import Field, Literal, Message, boolean, message, parse, real
from workbench.targets.ascend.interface import Interface, Picture, Port
from workbench.targets.base import Array, Feeds
from workbench.values.errors import ConfigError, MeasureError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rows and length that a file, or a gear of it, was compiled for; None where the model has no such axis."""

    batch: int | None
    length: int | None

    @property
    def elements(self) -> int:
        return (self.batch or 1) * (self.length or 1)

    def __str__(self) -> str:
        known = [f"{name} {size}" for name, size in (("batch", self.batch), ("length", self.length)) if size]
        return ", ".join(known) or "its one shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One execution: rows `start` to `stop` of a call, in a compiled shape."""

    shape: Shape
    start: int
    stop: int


def extent(feeds: Feeds, interface: Interface) -> Shape:
    """Rows and length of a call whose arrays have been checked against the interface.

    Raises:
        MeasureError: two inputs differ in rows or length, or one is empty.
    """
    found: dict[str, tuple[int, str]] = {}
    for port in interface.inputs:
        for axis, size in zip(port.shape, feeds[port.name].shape, strict=True):
            if isinstance(axis, int):
                continue
            known, first = found.setdefault(axis, (size, port.name))
            if known != size:
                raise MeasureError(
                    f"Input {port.name!r} is fed {axis} {size}, input {first!r} {known}. Feed arrays of one call."
                )
            if size == 0:
                raise MeasureError(f"Input {port.name!r} is fed shape {feeds[port.name].shape}: nothing to compute.")
    batch, length = found.get("batch"), found.get("sequence")
    return Shape(batch=batch[0] if batch else None, length=length[0] if length else None)


def turns(shapes: Sequence[Shape], wanted: Shape) -> tuple[Turn, ...]:
    """How a call is served: by the compiled shape with the fewest elements that holds it, else in several turns.

    Raises:
        MeasureError: no shape is long enough; the message says what was compiled.
    """
    long_enough = [shape for shape in shapes if (shape.length or 0) >= (wanted.length or 0)]
    if not long_enough:
        known = "; ".join(map(str, sorted(shapes, key=_by_elements)))
        raise MeasureError(
            f"A text of length {wanted.length} is longer than every compiled shape ({known}). Compile a longer "
            "sequence bin, or cut the text."
        )
    if wanted.batch is None:
        return (Turn(shape=min(long_enough, key=_by_elements), start=0, stop=1),)
    found: list[Turn] = []
    start = 0
    while start < wanted.batch:
        rest = wanted.batch - start
        fitting = [shape for shape in long_enough if (shape.batch or 0) >= rest]
        if fitting:
            shape = min(fitting, key=_by_elements)
        else:
            largest = max(shape.batch or 1 for shape in long_enough)
            shape = min((shape for shape in long_enough if shape.batch == largest), key=_by_elements)
        rows = min(rest, shape.batch or rest)
        found.append(Turn(shape=shape, start=start, stop=start + rows))
        start += rows
    return tuple(found)


def place(array: Array, into: Array, port: Port) -> None:
    """Write a call's values into a compiled input, and fill up what they leave free; both as `port` orders the axes."""
    if array.shape == into.shape:
        np.copyto(into, array)
        return
    if any(
        axis == "sequence" and size != room
        for axis, size, room in zip(port.shape, array.shape, into.shape, strict=True)
    ):
        into.fill(0)
    into[tuple(slice(size) for size in array.shape)] = array
    for axis, name in enumerate(port.shape):
        if name == "batch":
            behind = (slice(None),) * axis
            into[(*behind, slice(array.shape[axis], None))] = into[(*behind, slice(0, 1))]


def rows_of(array: Array, port: Port, turn: Turn) -> Array:
    """The rows of an input that a turn takes; all of an input without a batch axis."""
    return array[tuple(slice(turn.start, turn.stop) if axis == "batch" else slice(None) for axis in port.shape)]


def cut(array: Array, port: Port, turn: Turn, length: int | None) -> Array:
    """The part of a compiled output that belongs to the call."""
    sizes: Mapping[str, int | None] = {"batch": turn.stop - turn.start, "sequence": length}
    return array[tuple(slice(None) if isinstance(axis, int) else slice(sizes[axis]) for axis in port.shape)]


def _by_elements(shape: Shape) -> tuple[int, int]:
    return shape.elements, shape.batch or 0


# --- AIPP: the input takes a picture's bytes --------------------------------------------------------------------------


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
