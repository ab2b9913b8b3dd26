"""Which compiled shape serves a call, and how its rows and length are filled up and cut back.

A compiled file has one batch size and one length (or one of its gears has). A call with fewer rows or a shorter text
is filled up: rows with copies of the first one, since a row of zeros would be an entirely masked text, whose softmax
may overflow and show up in an overflow check; length with zeros, which the model's mask must hide. A call with more
rows than any file goes through in several turns; a text longer than every file is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.base import Array, Feeds
from workbench.values.errors import MeasureError


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
