"""One OM file on the device: its buffers and datasets, made once, and a plan for each shape it was compiled for."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.acl.calls import INVALID_PARAM, UndoStack, do, read, take
from workbench.targets.ascend.acl.dtypes import acl_type, check_convertible, storage
from workbench.targets.ascend.fitting import Shape
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.base import Array
from workbench.values.errors import MeasureError

GEAR_INPUT = "ascend_mbatch_shape_data"
"""The input that ATC appends to a model with gears; the runtime writes it, nobody else."""

Gear = tuple[int, ...]
"""One shape of a model with gears, as set_input_dynamic_dims takes it: all axes of all inputs, one behind the other."""
Dims = Mapping[str, Sequence[int]]
"""Input or output → sizes of its axes."""

_HUGE_FIRST = 0
"""Policy of acl.rt.malloc: 2 MB pages where the block is large enough."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffer:
    """One tensor's memory.

    Attributes:
        device, host: addresses; `host` is 0 for memory that only the runtime writes.
        data_buffer: pyACL's handle, in the model's dataset.
        content: uint8 [size_bytes] view of the host memory; gone when the buffer is released.
    """

    size_bytes: int
    device: int
    host: int
    data_buffer: int
    content: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bound:
    """An input or output of one compiled shape, with its memory.

    Attributes:
        kind: its type in the compiled model.
        view: its values in page-locked host memory, [the compiled shape].
        size_bytes: how much of the buffer this shape uses.
    """

    port: Port
    kind: str
    buffer: Buffer
    view: Array
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """One compiled shape of a model, ready to be filled.

    Attributes:
        gear: to be chosen before it is executed; None in a static model.
    """

    model: LoadedModel
    gear: Gear | None
    inputs: tuple[Bound, ...]
    outputs: tuple[Bound, ...]


class LoadedModel:
    """A model as the device holds it; made by `load`, in the context that is current then.

    Attributes:
        model_id, inputs, outputs: what acl.mdl.execute_async takes: id, input dataset, output dataset.
        device_bytes: weights and work memory as acl.mdl.query_size tells them, and buffers.
    """

    def __init__(self, *, model_id: int, inputs: int, outputs: int, gear_index: int | None, device_bytes: int) -> None:
        self.model_id, self.inputs, self.outputs = model_id, inputs, outputs
        self.device_bytes = device_bytes
        self.plans: dict[Shape, Plan] = {}
        self._gear_index = gear_index
        self._gear: Gear | None = None

    def choose(self, gear: Gear | None) -> None:
        """Make the next execution use this gear. What was set stays set, in the dataset and in the model."""
        if gear is None or gear == self._gear:
            return
        self._gear = None  # a failed set leaves the refused value behind (pyacl.md §7)
        dims = {"name": "", "dimCount": len(gear), "dims": list(gear)}
        do("mdl.set_input_dynamic_dims", self.model_id, self.inputs, self._gear_index, dims)
        self._gear = gear


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    """What pyACL says of one input or output, and its memory."""

    name: str
    index: int
    kind: int
    dims: tuple[int, ...]
    buffer: Buffer


def load(path: Path, interface: Interface, undo: UndoStack) -> LoadedModel:
    """Load a file and get everything ready that a call needs; `undo` takes it all back.

    Raises:
        MeasureError: pyACL cannot load it, or it is not what the interface describes.
    """
    about, file = f"{path}: pyACL cannot load it", path.name
    work, weights = take("mdl.query_size", str(path), about=about)
    model_id = take("mdl.load_from_file", str(path), about=about)
    undo.add(partial(do, "mdl.unload", model_id))
    desc = read("mdl.create_desc")
    undo.add(partial(do, "mdl.destroy_desc", desc))
    do("mdl.get_desc", desc, model_id)
    gear_index: int | None = take("mdl.get_input_index_by_name", desc, GEAR_INPUT, absent=INVALID_PARAM)
    taken, given = _slots("input", desc, gear_index, file, undo), _slots("output", desc, None, file, undo)
    inputs, outputs = _inputs(taken, interface, gear_index, file), _outputs(given, interface, file)
    model = LoadedModel(
        model_id=model_id,
        inputs=_dataset(taken, undo),
        outputs=_dataset(given, undo),
        gear_index=gear_index,
        # what acl.rt.malloc really takes for a block (pyacl.md §3.3)
        device_bytes=work + weights + sum((s.buffer.size_bytes + 31) // 32 * 32 + 32 for s in (*taken, *given)),
    )
    gears: Mapping[Gear | None, Dims] = {None: {name: slot.dims for name, slot in inputs.items()}}
    if gear_index is not None:
        gears = _gears(desc, interface, inputs, file)
    told = "mdl.get_output_dims" if gear_index is None else "mdl.get_cur_output_dims"  # pyacl.md §7
    for gear, shapes in gears.items():
        model.choose(gear)
        results = {name: tuple(take(told, desc, slot.index)["dims"]) for name, slot in outputs.items()}
        model.plans[_shape_of(interface, shapes, file)] = Plan(
            model=model,
            gear=gear,
            inputs=tuple(_bound(port, inputs[port.name], shapes, file) for port in interface.inputs),
            outputs=tuple(_bound(port, outputs[port.name], results, file) for port in interface.outputs),
        )
    return model


def _slots(side: str, desc: int, gear_index: int | None, file: str, undo: UndoStack) -> tuple[_Slot, ...]:
    found = []
    # 0 inputs or outputs, and float32, are numbers like others here; only a missing value is a failure
    for index in range(read(f"mdl.get_num_{side}s", desc, null=(None,))):
        name = read(f"mdl.get_{side}_name_by_index", desc, index, null=("", None))
        # a size of 0 is an output without an upper bound, which only the synchronous call can serve
        size = read(f"mdl.get_{side}_size_by_index", desc, index, about=f"{side} {index}")
        found.append(
            _Slot(
                name=name,
                index=index,
                kind=read(f"mdl.get_{side}_data_type", desc, index, null=(-1, None)),
                dims=tuple(take(f"mdl.get_{side}_dims", desc, index)["dims"]),
                buffer=_allocate(size, undo, about=f"{file}: {side} {name!r}", on_host=index != gear_index),
            )
        )
    return tuple(found)


def _inputs(slots: Sequence[_Slot], interface: Interface, gear_index: int | None, file: str) -> dict[str, _Slot]:
    """By name and never by position: swapped inputs of one shape give wrong numbers and no error (§4, row 13)."""
    found = {slot.name: slot for slot in slots if slot.index != gear_index}
    wanted = {port.name for port in interface.inputs}
    if found.keys() != wanted:
        raise MeasureError(
            f"{file} takes {', '.join(sorted(found))}; its interface says {', '.join(sorted(wanted))}. Compile again."
        )
    return found


def _outputs(slots: Sequence[_Slot], interface: Interface, file: str) -> dict[str, _Slot]:
    """ATC names outputs `node:index:name`; where that does not tell them apart, the order is the ONNX file's."""
    if len(slots) != len(interface.outputs):
        raise MeasureError(
            f"{file} gives {len(slots)} outputs ({', '.join(slot.name for slot in slots)}); its interface says "
            f"{len(interface.outputs)}. Compile again."
        )
    names = [port.name for port in interface.outputs]
    matching = [[s for s in slots if s.name == name or s.name.endswith(f":{name}")] for name in names]
    if all(len(each) == 1 for each in matching) and len({each[0].index for each in matching}) == len(names):
        return {name: slot for name, (slot,) in zip(names, matching, strict=True)}
    return dict(zip(names, slots, strict=True))


def _bound(port: Port, slot: _Slot, shapes: Dims, file: str) -> Bound:
    kind = acl_type(slot.kind, port.name)
    check_convertible(port.dtype, kind, port.name)
    shape, buffer = tuple(shapes[port.name]), slot.buffer
    needed = storage(kind).itemsize * math.prod(shape)
    if len(shape) != len(port.shape) or not 0 < needed <= buffer.size_bytes:
        other = f"Declare its {len(shape)} axes in the ONNX file, then compile"
        raise MeasureError(
            f"{file}: {port.name!r} is {list(shape)} of {kind} in {buffer.size_bytes} bytes; the interface "
            f"says {list(port.shape)}. {'Compile' if len(shape) == len(port.shape) else other} again."
        )
    view = buffer.content[:needed].view(storage(kind)).reshape(shape)
    return Bound(port=port, kind=kind, buffer=buffer, view=view, size_bytes=needed)


def _gears(desc: int, interface: Interface, inputs: Mapping[str, _Slot], file: str) -> dict[Gear | None, Dims]:
    """Each gear that a model was compiled with, and the shapes of its inputs (pyacl.md §7). Its values name all axes of
    all inputs in the order of --input_shape, which is the interface's.

    Raises:
        MeasureError: gears of another kind, or such as the interface does not describe.
    """
    count = take("mdl.get_input_dynamic_gear_count", desc, -1)
    if not count:
        raise MeasureError(
            f"{file} has the input {GEAR_INPUT!r} and no gears of dims; those of batches (--dynamic_batch_size) and of "
            "picture sizes (--dynamic_image_size) are not served here. Compile it with --dynamic_dims."
        )
    found: dict[Gear | None, Dims] = {}
    for told in take("mdl.get_input_dynamic_dims", desc, -1, count):
        gear = tuple(told["dims"][: told["dimCount"]])
        if len(gear) != sum(len(port.shape) for port in interface.inputs):
            raise MeasureError(
                f"{file}: a gear has {len(gear)} dims, {list(gear)}, and the inputs have others. Compile again."
            )
        shapes, start = {}, 0
        for port in interface.inputs:
            shape = shapes[port.name] = gear[start : start + len(port.shape)]
            start += len(shape)
            dims = inputs[port.name].dims
            if any(size not in (-1, given) for size, given in zip(dims, shape, strict=False)):
                raise MeasureError(
                    f"{file}: a gear gives {port.name!r} {list(shape)}, the model {list(dims)}. The inputs were "
                    "compiled in another order; compile again."
                )
        found[gear] = shapes
    return found


def _shape_of(interface: Interface, dims: Dims, file: str) -> Shape:
    """The batch and length of one set of input shapes.

    Raises:
        MeasureError: they are not what the interface describes.
    """
    found: dict[str, int] = {}
    for port in interface.inputs:
        sizes = dims[port.name]
        for axis, size in zip(port.shape, sizes, strict=False):
            expected = axis if isinstance(axis, int) else found.setdefault(axis, size)
            if size != expected or size < 0 or len(sizes) != len(port.shape):
                raise MeasureError(
                    f"{file}: input {port.name!r} was compiled as {list(sizes)}, which is not {list(port.shape)} of "
                    "the model. Compile again."
                )
    return Shape(batch=found.get("batch"), length=found.get("sequence"))


def _allocate(size_bytes: int, undo: UndoStack, *, about: str, on_host: bool) -> Buffer:
    """Memory of a tensor, released by `undo`.

    Raises:
        MeasureError: there is not enough (transient).
    """
    device = take("rt.malloc", size_bytes, _HUGE_FIRST, about=f"{about}: {size_bytes} bytes on the device")
    undo.add(partial(do, "rt.free", device))
    host, content = 0, np.empty(0, np.uint8)
    if on_host:
        host = take("rt.malloc_host", size_bytes, about=f"{about}: {size_bytes} page-locked bytes")
        undo.add(partial(do, "rt.free_host", host))
        block: Any = (ctypes.c_uint8 * size_bytes).from_address(host)
        content = np.frombuffer(memoryview(block).cast("B"), np.uint8)
    data_buffer = read("create_data_buffer", device, size_bytes, about=about)
    undo.add(partial(do, "destroy_data_buffer", data_buffer))
    return Buffer(size_bytes=size_bytes, device=device, host=host, data_buffer=data_buffer, content=content)


def _dataset(slots: Sequence[_Slot], undo: UndoStack) -> int:
    """A dataset of their buffers in the order of the model's inputs or outputs."""
    handle: int = read("mdl.create_dataset")
    undo.add(partial(do, "mdl.destroy_dataset", handle))
    for slot in slots:
        take("mdl.add_dataset_buffer", handle, slot.buffer.data_buffer)
    return handle
