"""Devices and contexts of `acl.rt` (pyacl.md §1.2, §2.5 "Device and context")."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.cann_emulator.acl import contexts, errors, handles, memory, streams
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context, Device
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made

HOST = 1
"""Run mode of a server: code runs on the host."""


@call("", "ir", device=False)
def get_run_mode() -> int:
    return HOST


@call("", "Ir", device=False)
def get_device_count() -> int:
    return len(contexts.devices())


@call("i", "r")
def set_device(device_id: int) -> None:
    contexts.set_device(contexts.device_of(device_id), site())


@call("i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one releases everything of this process on the device."""
    device = contexts.device_of(device_id)
    if device.sets == 0:
        raise Failed(errors.RT_CONTEXT_RELEASE_ERROR)
    code = streams.synchronize_device(device)
    with contexts.SETTING:
        device.sets -= 1
        if device.sets == 0:
            _release(device)
    return code


@call("", "ir", device=False)
def get_device() -> int:
    return contexts.required().device.index


@call("", "r")
def synchronize_device() -> int:
    return streams.synchronize_device(contexts.required().device)


@call("i", "kr")
def create_context(device_id: int) -> int:
    return contexts.create(contexts.device_of(device_id), site()).handle


@call("k", "r")
def destroy_context(context: int) -> None:
    """Only explicit ones; the default context, and one that is gone already, give 107002."""
    errors.present(context=context)
    found = handles.look(context, Context)
    if found is None or not found.explicit:
        raise Failed(errors.RT_CONTEXT_NULL)
    contexts.destroy(found)


@call("k", "r")
def set_context(context: int) -> None:
    errors.present(context=context)
    found = handles.look(context, Context)
    if found is None:
        raise errors.undefined(f"set_context of {context:#x}, which is no live context", errors.RT_CONTEXT_NULL)
    contexts.make_current(found)


@call("", "kr", device=False)
def get_context() -> int:
    context = contexts.current()
    return context.handle if context is not None else 0


def _release(device: Device) -> None:
    """End contexts with their streams, events and models, and free the memory that is left."""
    for context in list(device.contexts.values()):
        handles.reclaim(context)
        contexts.destroy(context)
    device.default = None
    arena = device.arena
    if arena is not None:
        for block in list(arena.blocks.values()):
            handles.reclaimed.append((block.KIND, block.site))
            memory.release(arena, block)
    contexts.update_use(device)


# --- the callback for tasks that fail on the device: in no table of the reference, but samples set it ---

_NONE = 0xFFFFFFFF


@dataclass(slots=True, kw_only=True, eq=False)
class _Failure(Made):
    task: int
    stream: int
    thread: int
    device: int
    code: int


_CALLBACK: dict[str, Callable[[int], object]] = {}


@call("|O", "r", device=False)
def set_exception_info_callback(function: Callable[[int], object] | None = None) -> None:
    """`function(info)` is called when a task fails; None ends that."""
    if function is not None and not callable(function):
        raise TypeError("acl.rt.set_exception_info_callback args parse failed")
    _CALLBACK.clear()
    if function is not None:
        _CALLBACK["function"] = function


def _reader(name: str, attribute: str) -> Callable[[int], int]:
    def read(info: int) -> int:
        return int(getattr(handles.need(info, _Failure), attribute))

    read.__name__ = name
    return call("k", "I", device=False, missing=_NONE)(read)


get_task_id_from_exception_info = _reader("get_task_id_from_exception_info", "task")
get_stream_id_from_exception_info = _reader("get_stream_id_from_exception_info", "stream")
get_thread_id_from_exception_info = _reader("get_thread_id_from_exception_info", "thread")
get_device_id_from_exception_info = _reader("get_device_id_from_exception_info", "device")
get_error_code_from_exception_info = _reader("get_error_code_from_exception_info", "code")


def tell(code: int, *, task: int, stream: int, device: int) -> None:
    """Call the callback, if there is one; its argument is valid while it runs."""
    function = _CALLBACK.get("function")
    if function is None:
        return
    thread = threading.get_native_id()
    info = handles.give(_Failure(task=task, stream=stream, thread=thread, device=device, code=code))
    try:
        function(info)
    finally:
        handles.drop(info)
