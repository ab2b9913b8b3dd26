"""What `acl.rt` tells of failures: the last code of a thread, and the callback for tasks that fail on the device.

Not in the reference's tables; samples set the callback before they execute. Shapes from the open source of the
binding; for the last code also from the pages aclpythondevg_01_1022 and 1023 of CANN 8.0, 1077 and 1078 of 9.0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.cann_emulator.acl import codes, handles, last_error, reason
from workbench.cann_emulator.acl.call import call

_NONE = 0xFFFFFFFF
_THREAD_LEVEL = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    task: int
    stream: int
    thread: int
    device: int
    code: int


_CALLBACK: dict[str, Callable[[int], object]] = {}


@call("i", "r", device=False, told=False)
def peek_at_last_error(level: int) -> int:
    """The code with which the runtime last failed in this thread, 0 for none; it stays. `level` is 0, the thread."""
    return last_error.peek() if level == _THREAD_LEVEL else _wrong_level(level)


@call("i", "r", device=False, told=False)
def get_last_error(level: int) -> int:
    """The same, and forget it."""
    return last_error.take() if level == _THREAD_LEVEL else _wrong_level(level)


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


def _wrong_level(level: int) -> int:
    reason.report("EH0001", value=level, param="level", reason="it is 0, the level of a thread")
    return codes.INVALID_PARAM


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
