"""Memory for one input or output of a loaded model: on the device, and page-locked on the host beside it.

Sizes are pyACL's own (get_input_size_by_index and its sister), taken once when the model is loaded and used for every
call. Only page-locked host memory makes memcpy_async asynchronous (pyacl.md §1.4). NumPy sees it through ctypes: the
calls of acl.util that make arrays are tied to the NumPy that CANN was built with, and numpy_to_ptr is on its way out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.acl.calls import UndoStack, do, read, take
from workbench.targets.base import Array

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
