"""What `acl.rt` tells of failures: the last code of a thread, and the callback for tasks that fail on the device.

Not in the reference's tables; samples set the callback before they execute. Shapes from the open source of the
binding; for the last code also from the pages aclpythondevg_01_1022 and 1023 of CANN 8.0, 1077 and 1078 of 9.0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.cann_emulator.acl import codes, handles, reason
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.handles import Made

_NONE = 0xFFFFFFFF


@dataclass(slots=True, kw_only=True, eq=False)
class _Failure(Made):
    task: int
    stream: int
    thread: int
    device: int
    code: int


_CALLBACK: dict[str, Callable[[int], object]] = {}


@call("i", "r", device=False, told=False)
def peek_at_last_error(level: int) -> int:
    """The code with which the runtime last failed in this thread, 0 for none; it stays. `level` is 0, the thread."""
    _check_level(level)
    return reason.last_code()


@call("i", "r", device=False, told=False)
def get_last_error(level: int) -> int:
    """The same, and forget it."""
    _check_level(level)
    return reason.last_code(forget=True)


@call("|O", "r", device=False)
def set_exception_info_callback(function: Callable[[int], object] | None = None) -> None:
    """`function(info)` is called when a task fails; None ends that."""
    if function is not None and not callable(function):
        raise TypeError("acl.rt.set_exception_info_callback args parse failed")
    _CALLBACK.clear()
    if function is not None:
        _CALLBACK["function"] = function


@call("k", "I", device=False, missing=_NONE)
def get_task_id_from_exception_info(info: int) -> int:
    return handles.need(info, _Failure).task


@call("k", "I", device=False, missing=_NONE)
def get_stream_id_from_exception_info(info: int) -> int:
    return handles.need(info, _Failure).stream


@call("k", "I", device=False, missing=_NONE)
def get_thread_id_from_exception_info(info: int) -> int:
    return handles.need(info, _Failure).thread


@call("k", "I", device=False, missing=_NONE)
def get_device_id_from_exception_info(info: int) -> int:
    return handles.need(info, _Failure).device


@call("k", "I", device=False, missing=_NONE)
def get_error_code_from_exception_info(info: int) -> int:
    return handles.need(info, _Failure).code


def _check_level(level: int) -> None:
    if level:
        why = "it is 0, the level of a thread"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=level, param="level", reason=why)


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
