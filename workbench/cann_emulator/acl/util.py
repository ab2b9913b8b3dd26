"""The module `acl.util`: pointers of Python objects and threads (pyacl.md §1.6, §1.3 "Callbacks")."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl import memory
from workbench.cann_emulator.acl.call import call

_BYTES_OFFSET = bytes.__basicsize__ - 1  # where CPython keeps the storage of a bytes object
_JOIN_FAILED = 3  # ESRCH
_TYPES = "?bBhHiIlLqQfdgFDGOSUVMme"
"""numpy's type characters by its type number (pyacl.md §1.6); 23 is float16."""


class HostAccessToDevice(RuntimeError):
    """The host would read memory of the device; on a server that kills the process."""


@call("util", "O", "k", device=False)
def bytes_to_ptr(data: bytes) -> int:
    """Address of the storage of `data`, which the caller keeps alive; no copy."""
    if not isinstance(data, bytes):
        raise ValueError("needs an byte as argument")
    return id(data) + _BYTES_OFFSET


@call("util", "kk", "s", device=False)
def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """New bytes, copied from host memory."""
    _refuse_device(ptr, "ptr_to_bytes")
    return ctypes.string_at(ptr, size)


@call("util", "O", "k", device=False)
def numpy_to_ptr(array: npt.NDArray[Any]) -> int:
    """Address of the array's data; warns when it is not contiguous, as the address then means other elements."""
    if not isinstance(array, np.ndarray):
        raise ValueError("needs an ndarray as argument")
    if not array.flags.c_contiguous:
        text = "The input ndarray is discontiguous. Please use acl.util.bytes_to_ptr instead."
        warnings.warn(text, Warning, stacklevel=3)
    return int(array.ctypes.data)


@call("util", "O", "kl", device=False)
def numpy_contiguous_to_ptr(array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    """Address and array, which is a copy when the given one is not contiguous; no return code."""
    if not isinstance(array, np.ndarray):
        raise ValueError("needs an ndarray as argument")
    whole = np.require(array, requirements="C")
    return int(whole.ctypes.data), whole


@call("util", "kOi", "l", device=False)
def ptr_to_numpy(ptr: int, shape: tuple[int, ...], npy_type: int) -> npt.NDArray[Any]:
    """An array on host memory; `npy_type` is numpy's number of the type, not ACL's."""
    if not isinstance(shape, tuple):
        raise ValueError("shape is empty")
    if not all(isinstance(size, int) for size in shape):
        raise TypeError("the second argument is not list of int")
    if not 0 <= npy_type < len(_TYPES):
        raise ValueError(f"{npy_type} is no type number of numpy")
    _refuse_device(ptr, "ptr_to_numpy")
    dtype = np.dtype(_TYPES[npy_type])
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    storage = memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(ptr)).cast("B")
    found: npt.NDArray[Any] = np.frombuffer(storage, dtype, count).reshape(shape)
    return found


@call("util", "OO", "Kr", device=False)
def start_thread(function: Callable[..., object], argument: Any) -> int:
    """A thread that calls `function(argument)`, the whole list being one argument; None means no argument."""
    if not callable(function):
        raise TypeError("parameter must be callable")
    failures: list[str] = []

    def run() -> None:
        try:
            function(*(() if argument is None else (argument,)))
        except Exception as error:  # the border to a thread of the program: told at stop_thread, as the vendor does
            traceback.print_exc(file=sys.stderr)
            failures.append(f"exception={type(error).__name__},msg=thread call failed;")

    thread = threading.Thread(target=run, daemon=True, name="acl.util.start_thread")
    thread.start()
    assert thread.ident is not None, "a started thread has an identity"
    _STARTED[thread.ident] = thread, failures
    return thread.ident


@call("util", "K", "r", device=False)
def stop_thread(thread_id: int) -> int:
    """Wait for the thread's end; RuntimeError when its function raised."""
    if thread_id not in _STARTED:
        return _JOIN_FAILED
    thread, failures = _STARTED.pop(thread_id)
    thread.join()
    if failures:
        raise RuntimeError(failures[0])
    return 0


_STARTED: dict[int, tuple[threading.Thread, list[str]]] = {}


def _refuse_device(ptr: int, what: str) -> None:
    if memory.arena_of(ptr) is not None:
        raise HostAccessToDevice(
            f"acl.util.{what} of device address {ptr:#x}: host code cannot read device memory, and the process would "
            "be killed here on a server. Copy to the host with acl.rt.memcpy first"
        )
