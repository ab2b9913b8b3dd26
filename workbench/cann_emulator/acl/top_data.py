"""Data buffers, tensor descriptions and conversions at the top of `acl` (pyacl.md §1.6)."""

from __future__ import annotations

from math import prod

from workbench.cann_emulator.acl import codes, dtypes, handles, reason, strict
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.datasets import DataBuffer, TensorDesc

_MOST_DIMS = 128
_UNDEFINED = -1


@call("kk", "k", device=False)
def create_data_buffer(address: int, size: int) -> int:
    """Stores pointer and size, and checks nothing."""
    buffer = DataBuffer(address=address, size=size, site=site())
    buffer.handle = handles.give(buffer)
    return buffer.handle


@call("k", "r", device=False)
def destroy_data_buffer(buffer: int) -> int:
    """Leaves the memory alone."""
    if _buffer(buffer) is None:
        return codes.INVALID_PARAM
    handles.drop(buffer)
    return 0


@call("kkk", "r", device=False)
def update_data_buffer(buffer: int, address: int, size: int) -> int:
    found = _buffer(buffer)
    if found is None:
        return codes.INVALID_PARAM
    found.address, found.size = address, size
    return 0


@call("k", "k", device=False)
def get_data_buffer_addr(buffer: int) -> int:
    found = handles.look(buffer, DataBuffer)
    return found.address if found is not None else 0


@call("k", "k", device=False)
def get_data_buffer_size(buffer: int) -> int:
    """The old form of 32 bits."""
    found = handles.look(buffer, DataBuffer)
    return found.size & 0xFFFFFFFF if found is not None else 0


@call("k", "k", device=False)
def get_data_buffer_size_v2(buffer: int) -> int:
    found = handles.look(buffer, DataBuffer)
    return found.size if found is not None else 0


@call("i", "k", device=False)
def data_type_size(data_type: int) -> int:
    """Bytes per element; 0 for undefined and string."""
    return dtypes.SIZES.get(data_type, 0)


@call("iOi", "k", device=False)
def create_tensor_desc(data_type: int, dims: list[int], format: int) -> int:
    desc = TensorDesc(dtype=data_type, dims=_whole_numbers(dims), format=format, site=site())
    if len(desc.dims) > _MOST_DIMS:
        return 0
    desc.handle = handles.give(desc)
    return desc.handle


@call("k", "n", device=False)
def destroy_tensor_desc(desc: int) -> None:
    found = handles.look(desc, TensorDesc)
    if found is None:
        strict.undefined(f"destroy_tensor_desc of {desc:#x}, which is no live description", 0)
    elif not found.dataset:
        handles.drop(desc)


@call("k", "i", device=False)
def get_tensor_desc_type(desc: int) -> int:
    found = handles.look(desc, TensorDesc)
    return found.dtype if found is not None else _UNDEFINED


@call("k", "i", device=False)
def get_tensor_desc_format(desc: int) -> int:
    found = handles.look(desc, TensorDesc)
    return found.format if found is not None else _UNDEFINED


@call("k", "k", device=False)
def get_tensor_desc_size(desc: int) -> int:
    """Bytes; 0 where an axis is not known."""
    found = handles.look(desc, TensorDesc)
    if found is None or any(d < 0 for d in found.dims):
        return 0
    return prod(found.dims) * dtypes.SIZES.get(found.dtype, 0)


@call("k", "k", device=False)
def get_tensor_desc_element_count(desc: int) -> int:
    found = handles.look(desc, TensorDesc)
    return 0 if found is None or any(d < 0 for d in found.dims) else prod(found.dims)


@call("k", "k", device=False)
def get_tensor_desc_num_dims(desc: int) -> int:
    found = handles.look(desc, TensorDesc)
    return len(found.dims) if found is not None else 0


@call("kk", "i", device=False)
def get_tensor_desc_dim(desc: int, index: int) -> int:
    found = handles.look(desc, TensorDesc)
    return found.dims[index] if found is not None and index < len(found.dims) else -1


@call("kk", "Kr", device=False)
def get_tensor_desc_dim_v2(desc: int, index: int) -> tuple[int, int]:
    found = handles.look(desc, TensorDesc)
    return (found.dims[index], 0) if found is not None and index < len(found.dims) else (0, codes.INVALID_PARAM)


def _buffer(handle: int) -> DataBuffer | None:
    found = handles.look(handle, DataBuffer)
    if found is None:
        if handle:
            strict.undefined(f"{handle:#x} is no live data buffer", codes.INVALID_PARAM)
        reason.report("EH0002", param="dataBuffer")
    return found


def _whole_numbers(values: object) -> list[int]:
    if not isinstance(values, list):
        raise TypeError("argument 2 is not list")
    if not all(isinstance(v, int) for v in values):
        raise TypeError("the list is not a list of int")
    return list(values)
