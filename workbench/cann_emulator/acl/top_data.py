"""Data buffers, tensor descriptions and conversions at the top of `acl` (pyacl.md §1.5, §1.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from workbench.cann_emulator.acl import codes, dtypes, handles, strict
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.handles import Made

_MOST_DIMS = 128
_UNDEFINED = -1


@dataclass(slots=True, kw_only=True, eq=False)
class DataBuffer(Made):
    """A pointer and a size; the memory is the program's."""

    KIND: ClassVar[str] = "data buffers"
    address: int
    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class TensorDesc(Made):
    """Attributes: dataset: owned by a dataset, which destroys it."""

    KIND: ClassVar[str] = "tensor descriptions"
    dtype: int
    dims: list[int]
    format: int
    dataset: bool = False

    @property
    def reported(self) -> bool:
        return not self.dataset


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


@call("kk", "k", device=False)
def create_data_buffer(address: int, size: int) -> int:
    """Stores pointer and size, and checks nothing."""
    return handles.give(DataBuffer(address=address, size=size, site=site()))


@call("k", "r", device=False)
def destroy_data_buffer(buffer: int) -> None:
    """Leaves the memory alone."""
    _buffer(buffer)
    handles.drop(buffer)


@call("kkk", "r", device=False)
def update_data_buffer(buffer: int, address: int, size: int) -> None:
    found = _buffer(buffer)
    found.address, found.size = address, size


@call("k", "k", device=False)
def get_data_buffer_addr(buffer: int) -> int:
    return handles.need(buffer, DataBuffer).address


@call("k", "k", device=False)
def get_data_buffer_size(buffer: int) -> int:
    """The old form of 32 bits."""
    return handles.need(buffer, DataBuffer).size & 0xFFFFFFFF


@call("k", "k", device=False)
def get_data_buffer_size_v2(buffer: int) -> int:
    return handles.need(buffer, DataBuffer).size


@call("i", "k", device=False)
def data_type_size(data_type: int) -> int:
    """Bytes per element; 0 for undefined and string."""
    return dtypes.SIZES.get(data_type, 0)


@call("iOi", "k", device=False)
def create_tensor_desc(data_type: int, dims: list[int], format: int) -> int:
    if not isinstance(dims, list):
        raise TypeError("argument 2 is not list")
    if not all(isinstance(size, int) for size in dims):
        raise TypeError("the list is not a list of int")
    if len(dims) > _MOST_DIMS:
        raise Failed(codes.INVALID_PARAM)
    return handles.give(TensorDesc(dtype=data_type, dims=list(dims), format=format, site=site()))


@call("k", "n", device=False)
def destroy_tensor_desc(desc: int) -> None:
    found = handles.look(desc, TensorDesc)
    if found is None:
        strict.undefined(f"destroy_tensor_desc of {desc:#x}, which is no live description")
    elif not found.dataset:
        handles.drop(desc)


@call("k", "i", device=False, missing=_UNDEFINED)
def get_tensor_desc_type(desc: int) -> int:
    return handles.need(desc, TensorDesc).dtype


@call("k", "i", device=False, missing=_UNDEFINED)
def get_tensor_desc_format(desc: int) -> int:
    return handles.need(desc, TensorDesc).format


@call("k", "k", device=False)
def get_tensor_desc_size(desc: int) -> int:
    """Bytes; 0 where an axis is not known."""
    found = handles.need(desc, TensorDesc)
    return _elements(found) * dtypes.SIZES.get(found.dtype, 0)


@call("k", "k", device=False)
def get_tensor_desc_element_count(desc: int) -> int:
    return _elements(handles.need(desc, TensorDesc))


@call("k", "k", device=False)
def get_tensor_desc_num_dims(desc: int) -> int:
    return len(handles.need(desc, TensorDesc).dims)


@call("kk", "i", device=False, missing=-1)
def get_tensor_desc_dim(desc: int, index: int) -> int:
    return _dim(desc, index)


@call("kk", "Kr", device=False)
def get_tensor_desc_dim_v2(desc: int, index: int) -> int:
    return _dim(desc, index)


def _buffer(handle: int) -> DataBuffer:
    return handles.need(handle, DataBuffer, "dataBuffer", "data buffer")


def _elements(desc: TensorDesc) -> int:
    return 0 if any(size < 0 for size in desc.dims) else prod(desc.dims)


def _dim(desc: int, index: int) -> int:
    dims = handles.need(desc, TensorDesc).dims
    if index >= len(dims):
        raise Failed(codes.INVALID_PARAM)
    return dims[index]
