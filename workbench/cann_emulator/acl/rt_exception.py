"""The callback for tasks that fail on the device, and what it may ask: `acl.rt` part.

Not in the reference's tables; samples set it before they execute. Shapes from the open source of the binding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.cann_emulator.acl import handles
from workbench.cann_emulator.acl.call import call

_NONE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    task: int
    stream: int
    thread: int
    device: int
    code: int


_CALLBACK: dict[str, Callable[[int], object]] = {}


@call("|O", "r", device=False)
def set_exception_info_callback(function: Callable[[int], object] | None = None) -> int:
    """`function(info)` is called when a task fails; None ends that."""
    if function is not None and not callable(function):
        raise TypeError("acl.rt.set_exception_info_callback args parse failed")
    _CALLBACK.clear()
    if function is not None:
        _CALLBACK["function"] = function
    return 0


@call("k", "I", device=False)
def get_task_id_from_exception_info(info: int) -> int:
    found = handles.look(info, _Failure)
    return found.task if found is not None else _NONE


@call("k", "I", device=False)
def get_stream_id_from_exception_info(info: int) -> int:
    found = handles.look(info, _Failure)
    return found.stream if found is not None else _NONE


@call("k", "I", device=False)
def get_thread_id_from_exception_info(info: int) -> int:
    found = handles.look(info, _Failure)
    return found.thread if found is not None else _NONE


@call("k", "I", device=False)
def get_device_id_from_exception_info(info: int) -> int:
    found = handles.look(info, _Failure)
    return found.device if found is not None else _NONE


@call("k", "I", device=False)
def get_error_code_from_exception_info(info: int) -> int:
    found = handles.look(info, _Failure)
    return found.code if found is not None else _NONE


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
