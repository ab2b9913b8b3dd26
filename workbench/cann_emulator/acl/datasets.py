"""Data buffers and tensor descriptions of `acl`, and datasets of `acl.mdl` (pyacl.md §1.5, §1.6)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

from workbench.cann_emulator.acl import errors, handles
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made, need
from workbench.cann_emulator.acl.models import DTYPE_BYTES

MOST_DIMS = 128


@dataclass(slots=True, kw_only=True, eq=False)
class DataBuffer(Made):
    """A pointer and a size; the memory is the program's."""

    KIND: ClassVar[str] = "data buffers"
    address: int
    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class TensorDesc(Made):
    KIND: ClassVar[str] = "tensor descriptions"
    dtype: int
    dims: list[int]
    format: int


@dataclass(slots=True, kw_only=True, eq=False)
class Dataset(Made):
    """Inputs or outputs of a model, by index.

    Attributes:
        described: tensor descriptions by index, where given.
        gear: value of `set_dynamic_*` for this dataset; kept even when the model refused it (pyacl.md §7).
    """

    KIND: ClassVar[str] = "datasets"
    buffers: list[DataBuffer] = field(default_factory=list)
    described: dict[int, TensorDesc] = field(default_factory=dict)
    gear: tuple[int, ...] | None = None


@call("", "k", "r", device=False)
def destroy_data_buffer(buffer: int) -> None:
    """Leaves the memory alone."""
    need(buffer, DataBuffer, "dataBuffer", "data buffer")
    handles.drop(buffer)


@call("", "kkk", "r", device=False)
def update_data_buffer(buffer: int, address: int, size: int) -> None:
    found = need(buffer, DataBuffer, "dataBuffer", "data buffer")
    found.address, found.size = address, size


@call("", "iOi", "k", device=False)
def create_tensor_desc(data_type: int, dims: list[int], format: int) -> int:
    if not isinstance(dims, list) or not all(isinstance(size, int) for size in dims):
        raise TypeError("argument 2 is not list of int")
    if len(dims) > MOST_DIMS:
        raise Failed(errors.INVALID_PARAM)
    return handles.give(TensorDesc(dtype=data_type, dims=list(dims), format=format))


@call("", "k", "n", device=False)
def destroy_tensor_desc(desc: int) -> None:
    found = handles.look(desc, TensorDesc)
    if found is None:
        errors.undefined(f"destroy_tensor_desc of {desc:#x}, which is no live description")
    elif not found.own:  # that of a dataset goes with it
        handles.drop(desc)


@call("", "kk", "Kr", device=False)
def get_tensor_desc_dim_v2(desc: int, index: int) -> int:
    dims = need(desc, TensorDesc).dims
    if index >= len(dims):
        raise Failed(errors.INVALID_PARAM)
    return dims[index]


def _tensor_bytes(desc: int) -> int:
    """0 where an axis is not known."""
    found = need(desc, TensorDesc)
    elements = 0 if any(size < 0 for size in found.dims) else prod(found.dims)
    return elements * DTYPE_BYTES.get(found.dtype, 0)


ask(
    "",
    get_data_buffer_addr=lambda buffer: need(buffer, DataBuffer).address,
    get_data_buffer_size=lambda buffer: need(buffer, DataBuffer).size & 0xFFFFFFFF,  # the old form of 32 bits
    get_data_buffer_size_v2=lambda buffer: need(buffer, DataBuffer).size,
    get_tensor_desc_size=_tensor_bytes,
    get_tensor_desc_num_dims=lambda desc: len(need(desc, TensorDesc).dims),
)
ask("", "kk", create_data_buffer=lambda address, size: handles.give(DataBuffer(address=address, size=size)))
ask("", "i", data_type_size=lambda data_type: DTYPE_BYTES.get(data_type, 0))  # 0 for undefined and string


# --- datasets ---


def dataset_of(handle: int) -> Dataset:
    return need(handle, Dataset, "dataset", "dataset")


@call("mdl", "k", "r", device=False)
def destroy_dataset(dataset: int) -> None:
    """Its tensor descriptions go with it; its data buffers and their memory do not."""
    for described in dataset_of(dataset).described.values():
        handles.drop(described.handle)
    handles.drop(dataset)


@call("mdl", "kk", "kr", device=False, echo=True)
def add_dataset_buffer(dataset: int, buffer: int) -> None:
    """The dataset again, and the code."""
    dataset_of(dataset).buffers.append(need(buffer, DataBuffer, "dataBuffer"))


@call("mdl", "kk", "k", device=False)
def get_dataset_buffer(dataset: int, index: int) -> int:
    buffers = need(dataset, Dataset).buffers
    return buffers[index].handle if index < len(buffers) else 0


@call("mdl", "kkk", "kr", device=False, echo=True)
def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    """The actual shape of an input; a copy is kept, and a null description takes it away again."""
    found = dataset_of(dataset)
    if index >= len(found.buffers):
        raise Failed(errors.INVALID_PARAM)
    if (old := found.described.pop(index, None)) is not None:
        handles.drop(old.handle)
    if tensor_desc:
        given = handles.look(tensor_desc, TensorDesc)
        if given is None:
            raise errors.undefined(f"{tensor_desc:#x} is no tensor description", errors.INVALID_PARAM)
        found.described[index] = replace(given, dims=list(given.dims), own=True, handle=0)


def _described(dataset: int, index: int) -> int:
    """The description of an input as given, else 0."""
    described = need(dataset, Dataset).described.get(index)
    return handles.give(described) if described is not None else 0


ask("mdl", "", create_dataset=lambda: handles.give(Dataset()))
ask("mdl", get_dataset_num_buffers=lambda dataset: len(need(dataset, Dataset).buffers))
ask("mdl", "kk", get_dataset_tensor_desc=_described)
