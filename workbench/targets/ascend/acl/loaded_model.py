"""One OM file on the device: its buffers and datasets, made once, and a plan for each shape it was compiled for."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.acl.calls import INVALID_PARAM, do, read, take
from workbench.targets.ascend.interface import Interface, Port, Shape
from workbench.targets.base import Array
from workbench.values.errors import MeasureError

TYPES: Mapping[int, str] = {
    **{0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32"},
    **{9: "int64", 10: "uint64", 11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16"},
}
"""aclDataType → NumPy's name, or bfloat16 (pyacl.md §2.3). Left out are strings, packed int4 and uint1, and the float8
to float4 group: no model of the workbench has them at its boundary."""


def stored_type(code: int, declared: str, tensor: str) -> np.dtype[Any]:
    """The type of a code of get_input_data_type or get_output_data_type, of a tensor that the model declares so.

    Raises:
        MeasureError: a type that no array can hold, or of another kind of number: only like kinds convert.
    """
    known = TYPES.get(code)
    if known is None:
        raise MeasureError(
            f"{tensor!r} has pyACL data type {code} in the compiled model; the workbench feeds "
            f"{', '.join(sorted(TYPES.values()))}. Compile without an option that changes types of inputs or outputs."
        )
    found = np.dtype(ml_dtypes.bfloat16 if known == "bfloat16" else known)
    if _kind(found) != _kind(np.dtype(declared)):
        raise MeasureError(
            f"{tensor!r} is {declared} in the model and {known} in the compiled file, which is not the same kind of "
            "number. Compile it again."
        )
    return found


def _kind(dtype: np.dtype[Any]) -> str:
    return "f" if dtype == ml_dtypes.bfloat16 else dtype.kind.replace("u", "i")


def converted(array: Array, to: np.dtype[Any], tensor: str) -> Array:
    """The values in another type; the array itself where that is its own.

    Raises:
        MeasureError: a value does not fit.
    """
    if array.dtype == to:
        return array
    if np.can_cast(array.dtype, to, "safe"):
        return array.astype(to)
    kinds = _kind(array.dtype), _kind(to)
    if kinds == ("i", "i"):
        limits = np.iinfo(to)
        lowest, highest = int(array.min(initial=0)), int(array.max(initial=0))
        if lowest < limits.min or highest > limits.max:
            raise MeasureError(
                f"{tensor!r} holds {lowest if lowest < limits.min else highest}, which does not fit {to}, the type in "
                "the compiled model. Feed smaller values, or compile without changing this type."
            )
    elif kinds != ("f", "f"):
        raise MeasureError(f"{tensor!r} is {array.dtype} and cannot be had as {to} without loss.")
    with np.errstate(over="ignore"):
        found = array.astype(to)
    if kinds == ("f", "f") and (lost := np.isinf(found) & np.isfinite(array)).any():
        largest = float(ml_dtypes.finfo(to).max)  # type: ignore[no-untyped-call]  # it has no annotations
        raise MeasureError(
            f"{tensor!r} holds {float(array[lost].flat[0]):.6g}, which overflows {to} (largest {largest:.6g}). Scale "
            "it, or compile it to keep its type."
        )
    return found


# --- data types, and conversions between what callers hold and what a compiled model holds ----------------------------


GEAR_INPUT = "ascend_mbatch_shape_data"
"""The input that ATC appends to a model with gears; the runtime writes it, nobody else."""

Gear = tuple[int, ...]
"""One shape of a model with gears, as set_input_dynamic_dims takes it: all axes of all inputs, one behind the other."""
Dims = Mapping[str, Sequence[int]]
"""Input or output → sizes of its axes."""

_HUGE_FIRST = 0
"""Policy of acl.rt.malloc: 2 MB pages where the block is large enough."""


class Slot(NamedTuple):
    """What pyACL says of one input or output, and its memory.

    Attributes:
        device, host: addresses; `host` is 0 for memory that only the runtime writes.
        content: uint8 [size_bytes] view of the host memory; gone when the model is released.
    """

    name: str
    number: int
    kind: int
    dims: tuple[int, ...]
    size_bytes: int
    device: int
    host: int
    content: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bound:
    """An input or output of one compiled shape, with its memory.

    Attributes:
        view: its values in page-locked host memory, [the compiled shape], in the type of the compiled model.
    """

    port: Port
    slot: Slot
    view: Array


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
    """A file on the device, in the context that is current, and everything that a call needs; `undo` takes it back.

    Attributes:
        model_id, inputs, outputs: what acl.mdl.execute_async takes: id, input dataset, output dataset.
        device_bytes: weights and work memory as acl.mdl.query_size tells them, and buffers.

    Raises:
        MeasureError: pyACL cannot load it, or it is not what the interface describes.
    """

    def __init__(self, path: Path, interface: Interface, undo: ExitStack) -> None:
        about, file = f"{path}: pyACL cannot load it", path.name
        work, weights = take("mdl.query_size", str(path), about=about)
        self.model_id: int = take("mdl.load_from_file", str(path), about=about)
        undo.callback(do, "mdl.unload", self.model_id)
        desc = read("mdl.create_desc")
        undo.callback(do, "mdl.destroy_desc", desc)
        do("mdl.get_desc", desc, self.model_id)
        self._gear: Gear | None = None
        self._gear_index: int | None = take("mdl.get_input_index_by_name", desc, GEAR_INPUT, absent=INVALID_PARAM)
        self.inputs, taken = _slots("input", desc, self._gear_index, file, undo)
        self.outputs, given = _slots("output", desc, None, file, undo)
        inputs, outputs = _inputs(taken, interface, self._gear_index, file), _outputs(given, interface, file)
        # what acl.rt.malloc really takes for a block (pyacl.md §3.3)
        self.device_bytes: int = work + weights + sum((s.size_bytes + 31) // 32 * 32 + 32 for s in (*taken, *given))
        gears: Mapping[Gear | None, Dims] = {None: {name: slot.dims for name, slot in inputs.items()}}
        if self._gear_index is not None:
            gears = _gears(desc, interface, inputs, file)
        told = "mdl.get_output_dims" if self._gear_index is None else "mdl.get_cur_output_dims"  # pyacl.md §7
        self.plans: dict[Shape, Plan] = {}
        for gear, shapes in gears.items():
            self.choose(gear)
            results = {name: tuple(take(told, desc, slot.number)["dims"]) for name, slot in outputs.items()}
            self.plans[_shape_of(interface, shapes, file)] = Plan(
                model=self,
                gear=gear,
                inputs=tuple(_bound(port, inputs[port.name], shapes, file) for port in interface.inputs),
                outputs=tuple(_bound(port, outputs[port.name], results, file) for port in interface.outputs),
            )

    def choose(self, gear: Gear | None) -> None:
        """Make the next execution use this gear. What was set stays set, in the dataset and in the model."""
        if gear is None or gear == self._gear:
            return
        self._gear = None  # a failed set leaves the refused value behind (pyacl.md §7)
        dims = {"name": "", "dimCount": len(gear), "dims": list(gear)}
        do("mdl.set_input_dynamic_dims", self.model_id, self.inputs, self._gear_index, dims)
        self._gear = gear


def _slots(side: str, desc: int, gear_index: int | None, file: str, undo: ExitStack) -> tuple[int, tuple[Slot, ...]]:
    """The dataset of the inputs or outputs, and these with their memory in its order."""
    found, handles = [], []
    # 0 inputs or outputs, and float32, are numbers like others here; only a missing value is a failure
    for index in range(read(f"mdl.get_num_{side}s", desc, null=(None,))):
        name = read(f"mdl.get_{side}_name_by_index", desc, index, null=("", None))
        # a size of 0 is an output without an upper bound, which only the synchronous call can serve
        size = read(f"mdl.get_{side}_size_by_index", desc, index, about=f"{side} {index}")
        kind = read(f"mdl.get_{side}_data_type", desc, index, null=(-1, None))
        dims = tuple(take(f"mdl.get_{side}_dims", desc, index)["dims"])
        about = f"{file}: {side} {name!r}"
        device = take("rt.malloc", size, _HUGE_FIRST, about=f"{about}: {size} bytes on the device")
        undo.callback(do, "rt.free", device)
        host, content = 0, np.empty(0, np.uint8)
        if index != gear_index:
            host = take("rt.malloc_host", size, about=f"{about}: {size} page-locked bytes")
            undo.callback(do, "rt.free_host", host)
            block: Any = (ctypes.c_uint8 * size).from_address(host)
            content = np.frombuffer(memoryview(block).cast("B"), np.uint8)
        handles.append(read("create_data_buffer", device, size, about=about))
        undo.callback(do, "destroy_data_buffer", handles[-1])
        found.append(Slot(name, index, kind, dims, size, device, host, content))
    dataset: int = read("mdl.create_dataset")
    undo.callback(do, "mdl.destroy_dataset", dataset)
    for handle in handles:
        take("mdl.add_dataset_buffer", dataset, handle)
    return dataset, tuple(found)


def _inputs(slots: Sequence[Slot], interface: Interface, gear_index: int | None, file: str) -> dict[str, Slot]:
    """By name and never by position: swapped inputs of one shape give wrong numbers and no error (§4, row 13)."""
    found = {slot.name: slot for slot in slots if slot.number != gear_index}
    wanted = {port.name for port in interface.inputs}
    if found.keys() != wanted:
        raise MeasureError(
            f"{file} takes {', '.join(sorted(found))}; its interface says {', '.join(sorted(wanted))}. Compile again."
        )
    return found


def _outputs(slots: Sequence[Slot], interface: Interface, file: str) -> dict[str, Slot]:
    """ATC names outputs `node:index:name`; where that does not tell them apart, the order is the ONNX file's."""
    if len(slots) != len(interface.outputs):
        raise MeasureError(
            f"{file} gives {len(slots)} outputs ({', '.join(slot.name for slot in slots)}); its interface says "
            f"{len(interface.outputs)}. Compile again."
        )
    names = [port.name for port in interface.outputs]
    matching = [[s for s in slots if s.name == name or s.name.endswith(f":{name}")] for name in names]
    if all(len(each) == 1 for each in matching) and len({each[0].number for each in matching}) == len(names):
        return {name: slot for name, (slot,) in zip(names, matching, strict=True)}
    return dict(zip(names, slots, strict=True))


def _bound(port: Port, slot: Slot, shapes: Dims, file: str) -> Bound:
    kind = stored_type(slot.kind, port.dtype, port.name)
    shape = tuple(shapes[port.name])
    needed = kind.itemsize * math.prod(shape)
    if len(shape) != len(port.shape) or not 0 < needed <= slot.size_bytes:
        other = f"Declare its {len(shape)} axes in the ONNX file, then compile"
        raise MeasureError(
            f"{file}: {port.name!r} is {list(shape)} of {kind} in {slot.size_bytes} bytes; the interface "
            f"says {list(port.shape)}. {'Compile' if len(shape) == len(port.shape) else other} again."
        )
    return Bound(port=port, slot=slot, view=slot.content[:needed].view(kind).reshape(shape))


def _gears(desc: int, interface: Interface, inputs: Mapping[str, Slot], file: str) -> dict[Gear | None, Dims]:
    """Each gear that a model was compiled with, and the shapes of its inputs (pyacl.md §7). Its values name all axes of
    all inputs in the order of --input_shape, which is the interface's."""
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
    """The batch and length of one set of input shapes."""
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
