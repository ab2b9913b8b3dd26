"""One OM file on the device: its buffers and datasets, made once, and a plan for each shape it was compiled for."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.acl.calls import INVALID_PARAM, UndoStack, do, probe, read, take
from workbench.targets.ascend.acl.dtypes import AclType, acl_type, check_convertible
from workbench.targets.ascend.fitting import Shape
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.base import Array
from workbench.values.errors import MeasureError

GEAR_INPUT = "ascend_mbatch_shape_data"
"""The input that ATC appends to a model with gears; the runtime writes it, nobody else."""

Dims = Mapping[str, Sequence[int]]
"""Input name → sizes of its axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gear:
    """One shape of a model with gears, as the call that sets it wants it.

    Attributes:
        batch: the value of set_dynamic_batch_size; None for a model whose gears are dims.
        dims: the value of set_input_dynamic_dims: all axes of all inputs, one behind the other; empty with `batch`.
        inputs: the shapes of the inputs.
    """

    batch: int | None
    dims: tuple[int, ...]
    inputs: Dims


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bound:
    """An input or output of one compiled shape, with its memory.

    Attributes:
        kind: its type in the compiled model.
        view: its values in page-locked host memory, [the compiled shape].
        size_bytes: how much of the buffer this shape uses.
    """

    port: Port
    kind: AclType
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
        if gear is None or gear is self._gear:
            return
        assert self._gear_index is not None  # only a model with the gear's input has gears
        self._gear = None  # a failed set leaves the refused value behind (pyacl.md §7)
        _set_gear(self.model_id, self.inputs, self._gear_index, gear)
        self._gear = gear


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """What pyACL says of a model's inputs or outputs, by index."""

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]


def load(path: Path, interface: Interface, undo: UndoStack) -> LoadedModel:
    """Load a file and get everything ready that a call needs; `undo` takes it all back.

    Raises:
        MeasureError: pyACL cannot load it, or it is not what the interface describes.
    """
    file = str(path)
    work, weights = take("mdl.query_size", file, about=f"{file}: pyACL cannot load it")
    model_id = take("mdl.load_from_file", file, about=f"{file}: pyACL cannot load it")
    undo.add(partial(do, "mdl.unload", model_id))
    desc = read("mdl.create_desc")
    undo.add(partial(do, "mdl.destroy_desc", desc))
    do("mdl.get_desc", desc, model_id)
    taken, given = _describe("input", desc), _describe("output", desc)
    gear_index = _gear_input(desc)
    input_index = _input_indices(taken.names, interface, gear_index, path.name)
    output_index = _output_indices(given.names, interface, path.name)
    buffers = {
        "input": [
            allocate(size, undo, about=f"{path.name}: input {name!r}", on_host=index != gear_index)
            for index, (name, size) in enumerate(zip(taken.names, taken.sizes, strict=True))
        ],
        "output": [
            allocate(size, undo, about=f"{path.name}: output {name!r}")
            for name, size in zip(given.names, given.sizes, strict=True)
        ],
    }
    model = LoadedModel(
        model_id=model_id,
        inputs=dataset(buffers["input"], undo),
        outputs=dataset(buffers["output"], undo),
        gear_index=gear_index,
        device_bytes=work + weights + sum(device_bytes(b.size_bytes) for side in buffers.values() for b in side),
    )
    dims = {port.name: taken.dims[input_index[port.name]] for port in interface.inputs}
    gears: Sequence[Gear | None] = [None] if gear_index is None else _read_gears(desc, interface, dims, path.name)
    for gear in gears:
        model.choose(gear)
        shapes: Mapping[str, Sequence[int]] = dims if gear is None else gear.inputs
        results = {
            port.name: tuple(take(_RESULT_DIMS[gear is not None], desc, output_index[port.name])["dims"])
            for port in interface.outputs
        }
        model.plans[_shape_of(interface, shapes, path.name)] = Plan(
            model=model,
            gear=gear,
            inputs=_bound(interface.inputs, input_index, shapes, taken, buffers["input"], path.name),
            outputs=_bound(interface.outputs, output_index, results, given, buffers["output"], path.name),
        )
    return model


_RESULT_DIMS = {False: "mdl.get_output_dims", True: "mdl.get_cur_output_dims"}
"""Whether the model has gears → the call that tells the shape of its results (pyacl.md §7)."""


def _describe(side: str, desc: int) -> _Description:
    # 0 inputs or outputs, and float32, are numbers like others here; only a missing value is a failure
    count = read(f"mdl.get_num_{side}s", desc, null=(None,))
    indices = range(count)
    return _Description(
        names=tuple(read(f"mdl.get_{side}_name_by_index", desc, i, null=("", None)) for i in indices),
        kinds=tuple(read(f"mdl.get_{side}_data_type", desc, i, null=(-1, None)) for i in indices),
        # a size of 0 is an output without an upper bound, which only the synchronous call can serve
        sizes=tuple(read(f"mdl.get_{side}_size_by_index", desc, i, about=f"{side} {i}") for i in indices),
        dims=tuple(tuple(take(f"mdl.get_{side}_dims", desc, i)["dims"]) for i in indices),
    )


def _input_indices(names: Sequence[str], interface: Interface, gear_index: int | None, file: str) -> dict[str, int]:
    """By name and never by position: swapped inputs of one shape give wrong numbers and no error (§4, row 13)."""
    found = {name: index for index, name in enumerate(names) if index != gear_index}
    wanted = {port.name for port in interface.inputs}
    if found.keys() != wanted:
        raise MeasureError(
            f"{file} takes {', '.join(sorted(found))}; its interface says {', '.join(sorted(wanted))}. Compile again."
        )
    return found


def _output_indices(names: Sequence[str], interface: Interface, file: str) -> dict[str, int]:
    """ATC names outputs `node:index:name`; where that does not tell them apart, the order is the ONNX file's."""
    if len(names) != len(interface.outputs):
        raise MeasureError(
            f"{file} gives {len(names)} outputs ({', '.join(names)}); its interface says {len(interface.outputs)}. "
            "Compile again."
        )
    found: dict[str, int] = {}
    for port in interface.outputs:
        matching = [i for i, name in enumerate(names) if name == port.name or name.endswith(f":{port.name}")]
        if len(matching) == 1:
            found[port.name] = matching[0]
    if len(set(found.values())) == len(names):
        return found
    return {port.name: index for index, port in enumerate(interface.outputs)}


def _bound(
    ports: Sequence[Port],
    indices: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    description: _Description,
    buffers: Sequence[Buffer],
    file: str,
) -> tuple[Bound, ...]:
    found = []
    for port in ports:
        index = indices[port.name]
        kind = acl_type(description.kinds[index], port.name)
        check_convertible(port.dtype, kind.name, port.name)
        shape, buffer = tuple(shapes[port.name]), buffers[index]
        needed = kind.storage.itemsize
        for size in shape:
            needed *= size
        if len(shape) != len(port.shape) or not 0 < needed <= buffer.size_bytes:
            other = f"Declare its {len(shape)} axes in the ONNX file, then compile"
            raise MeasureError(
                f"{file}: {port.name!r} is {list(shape)} of {kind.name} in {buffer.size_bytes} bytes; the interface "
                f"says {list(port.shape)}. {'Compile' if len(shape) == len(port.shape) else other} again."
            )
        found.append(
            Bound(port=port, kind=kind, buffer=buffer, view=buffer.view(kind.storage, shape), size_bytes=needed)
        )
    return tuple(found)


# --- gears: one file that holds several shapes, chosen before each execution (pyacl.md §7) ----------------------------


def _gear_input(desc: int) -> int | None:
    """Index of the input that carries the gear; None for a model without gears."""
    index: int | None = probe("mdl.get_input_index_by_name", desc, GEAR_INPUT, absent=INVALID_PARAM)
    return index


def _read_gears(desc: int, interface: Interface, dims: Dims, file: str) -> tuple[Gear, ...]:
    """The gears a model was compiled with.

    Args:
        dims: of the inputs without the gear's, dynamic axes -1.

    Raises:
        MeasureError: gears of picture sizes, or such as the interface does not describe.
    """
    batches = take("mdl.get_dynamic_batch", desc)
    if batches["batchCount"]:
        return tuple(
            Gear(batch=batch, dims=(), inputs={name: _filled(sizes, batch) for name, sizes in dims.items()})
            for batch in batches["batch"][: batches["batchCount"]]
        )
    count = take("mdl.get_input_dynamic_gear_count", desc, -1)
    if not count:
        raise MeasureError(
            f"{file} has the input {GEAR_INPUT!r} and neither gears of batches nor of dims; picture sizes "
            "(--dynamic_image_size) are not served here. Compile it with --dynamic_dims."
        )
    gears = take("mdl.get_input_dynamic_dims", desc, -1, count)
    return tuple(_gear_of_dims(tuple(gear["dims"][: gear["dimCount"]]), interface, dims, file) for gear in gears)


def _set_gear(model_id: int, dataset: int, index: int, gear: Gear) -> None:
    """Choose the gear of the next executions with this dataset."""
    if gear.batch is not None:
        do("mdl.set_dynamic_batch_size", model_id, dataset, index, gear.batch)
    else:
        dims = {"name": "", "dimCount": len(gear.dims), "dims": list(gear.dims)}
        do("mdl.set_input_dynamic_dims", model_id, dataset, index, dims)


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


def _gear_of_dims(values: tuple[int, ...], interface: Interface, dims: Dims, file: str) -> Gear:
    """A gear's values name all axes of all inputs in the order of --input_shape, which is the interface's."""
    if len(values) != sum(len(port.shape) for port in interface.inputs):
        raise MeasureError(
            f"{file}: a gear has {len(values)} dims, {list(values)}, and the inputs have others. Compile again."
        )
    inputs, start = {}, 0
    for port in interface.inputs:
        inputs[port.name] = values[start : start + len(port.shape)]
        start += len(port.shape)
        fixed = [(size, given) for size, given in zip(dims[port.name], inputs[port.name], strict=False) if size >= 0]
        if any(size != given for size, given in fixed):
            raise MeasureError(
                f"{file}: a gear gives {port.name!r} {list(inputs[port.name])}, the model {list(dims[port.name])}. The "
                "inputs were compiled in another order; compile again."
            )
    return Gear(batch=None, dims=values, inputs=inputs)


def _filled(sizes: Sequence[int], batch: int) -> tuple[int, ...]:
    return tuple(batch if size < 0 else size for size in sizes)


# --- memory of one input or output -----------------------------------------------------------------------------------


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

    def view(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """The first bytes of the host memory as an array; no copy."""
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self.content[:count].view(dtype).reshape(shape)


def allocate(size_bytes: int, undo: UndoStack, *, about: str, on_host: bool = True) -> Buffer:
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
        content = np.frombuffer(memoryview((ctypes.c_uint8 * size_bytes).from_address(host)).cast("B"), np.uint8)
    data_buffer = read("create_data_buffer", device, size_bytes, about=about)
    undo.add(partial(do, "destroy_data_buffer", data_buffer))
    return Buffer(size_bytes=size_bytes, device=device, host=host, data_buffer=data_buffer, content=content)


def dataset(buffers: Sequence[Buffer], undo: UndoStack) -> int:
    """A dataset of these buffers in this order, which is the order of the model's inputs or outputs."""
    handle: int = read("mdl.create_dataset")
    undo.add(partial(do, "mdl.destroy_dataset", handle))
    for buffer in buffers:
        take("mdl.add_dataset_buffer", handle, buffer.data_buffer)
    return handle


def device_bytes(size_bytes: int) -> int:
    """What acl.rt.malloc really takes for a block (pyacl.md §3.3)."""
    return (size_bytes + 31) // 32 * 32 + 32
