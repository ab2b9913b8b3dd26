"""What a set of compiled files takes and gives, whichever file runs: names, types, and which axis is what.

Written beside the files when they are compiled. ATC fixes every shape, so that only this file still knows that an
axis was the batch, or the length of the text.

A compiled file has one batch size and one length (or one of its gears has). A call with fewer rows or a shorter text
is filled up: rows with copies of the first one, since a row of zeros would be an entirely masked text, whose softmax
may overflow and show up in an overflow check; length with zeros, which the model's mask must hide. A call with more
rows than any file goes through in several turns; a text longer than every file is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from workbench.targets.ascend.settings import INTERFACE
from workbench.targets.base import Array, Feeds
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model, Sizes, TensorSpec, counts_samples
from workbench.values.system.files import temporary_beside

Axis = Literal["batch", "sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output.

    Attributes:
        dtype: NumPy's name, such as int64 or float32: what callers feed and get, whatever the compiled file holds.
        shape: size, or what the axis is.
    """

    name: str
    dtype: str
    shape: tuple[int | Axis, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """Ports of the model, in its own order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def input_shape(self, batch: int, length: int | None) -> str:
        """The value of --input_shape for one compiled file, such as `ids:1,128;mask:1,128`.

        Args:
            length: None only where no input has a sequence axis.
        """
        sizes: dict[int | Axis, int | None] = {"batch": batch, "sequence": length}
        entries = []
        for port in self.inputs:
            dims = [sizes[size] if isinstance(size, str) else size for size in port.shape]
            if None in dims:
                raise ValueError(f"{port.name} has a sequence axis and no length was given")
            entries.append(f"{port.name}:{','.join(map(str, dims))}")
        return ";".join(entries)


def write_interface(interface: Interface, directory: Path) -> Path:
    file = directory / INTERFACE
    with temporary_beside(file, durable=False) as draft:
        draft.write_text(canonical_json(interface), encoding="utf-8")
    return file


def read_interface(directory: Path) -> Interface:
    """The interface written beside the files.

    Raises:
        OSError, ValueError: missing or damaged.
    """
    found = decode(Interface, loads((directory / INTERFACE).read_bytes()))
    if not found.inputs or not found.outputs:
        raise ValueError(f"{INTERFACE} has {len(found.inputs)} inputs and {len(found.outputs)} outputs")
    return found


def interface_of(model: Model) -> Interface:
    """The model's ports with every free axis named.

    The first axis is the batch, also where the model fixes it: then one size of it is compiled. Every other free axis
    of the inputs must be one and the same length; axes without a name count as that length too. An output's first axis
    is the batch where it counts samples, and every other free one the length: exporters give old axes new names.

    Raises:
        ConfigError: two lengths that differ, which one list of bins cannot describe.
    """
    lengths = {d for port in model.inputs for d in port.shape[1:] if isinstance(d, str)}
    batches = {port.shape[0] for port in model.inputs if port.shape and isinstance(port.shape[0], str)}
    if len(lengths - batches) > 1 or lengths & batches:
        names = ", ".join(sorted(lengths | batches))
        raise ConfigError(
            f"the inputs have more free axes than a batch and one length ({names}).",
            file=model.path,
            hint="Give the others sizes in the dataset manifest, inputs: {NAME: {axes: [batch, 3, 48, width]}}, or "
            "export the model with them.",
        )
    taken = [port.shape for port in model.inputs]
    return Interface(
        inputs=tuple(_port(port, taken) for port in model.inputs),
        outputs=tuple(_port(port, taken) for port in model.outputs),
    )


def has_axis(interface: Interface, axis: Axis) -> bool:
    return any(axis in port.shape for port in interface.inputs)


def _port(spec: TensorSpec, inputs: Sequence[Sizes]) -> Port:
    sizes: list[int | Axis] = [size if isinstance(size, int) else "sequence" for size in spec.shape]
    if sizes and counts_samples(spec.shape, inputs):
        sizes[0] = "batch"
    return Port(name=spec.name, dtype=spec.dtype, shape=tuple(sizes))


# --- which compiled shape serves a call, and how its rows and length are filled up and cut back ---------------------


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
    found: list[Turn] = []
    start, end = 0, wanted.batch or 1
    while start < end:
        rest = end - start
        fitting = [shape for shape in long_enough if (shape.batch or rest) >= rest]
        if not fitting:
            most = max(shape.batch or 1 for shape in long_enough)
            fitting = [shape for shape in long_enough if shape.batch == most]
        shape = min(fitting, key=_by_elements)
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
