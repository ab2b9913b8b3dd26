"""Events and callbacks of `acl.rt` (pyacl.md §1.3, §2.5 "Stream and event")."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workbench.cann_emulator.acl import clock, errors, handles, rt_device
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.acl.rt_device import Context
from workbench.cann_emulator.acl.streams import Stream, Task, default_stream, drain, forget, queue, resolve

_SYNC, _TIME_LINE = 1, 8
_NOT_READY, _COMPLETE = 0, 1


@dataclass(slots=True, kw_only=True, eq=False)
class Event(Made):
    """A mark in a stream."""

    KIND: ClassVar[str] = "events"
    context: Context
    flag: int
    by_default: bool = False  # made by `create_event`, without flags
    time_ns: int | None = None  # when the stream reached the last record; None before any, or while it is on its way
    due_ns: int = 0  # when the stream will come to it, as far as that is known
    pending: Task | None = None  # the recording task while the stream has not come to it
    stream: Stream | None = None
    polled: bool = False


def _create_event(flag: int, *, by_default: bool = False) -> int:
    context = rt_device.required()
    event = Event(context=context, flag=flag, by_default=by_default)
    context.owned[handles.give(event)] = event
    return event.handle


call("rt", "", "kr", name="create_event")(lambda: _create_event(_SYNC | _TIME_LINE, by_default=True))
call("rt", "I", "kr", name="create_event_with_flag")(_create_event)


def _event(handle: int) -> Event:
    return handles.need(handle, Event, "event", "event", errors.RT_INVALID_HANDLE)


@call("rt", "k", "r")
def destroy_event(event: int) -> None:
    found = _event(event)
    forget(found, found.context)


@call("rt", "kk", "r")
def record_event(event: int, stream: int) -> None:
    mark, on = _event(event), resolve(stream)

    def reached() -> None:
        if mark.pending is task:
            mark.time_ns, mark.pending = on.done_ns, None

    task = Task(work=reached, kind="EVENT_RECORD")
    mark.time_ns, mark.pending, mark.stream, mark.polled = None, task, on, False
    queue(on, task)
    mark.due_ns = on.due_ns


@call("rt", "kk", "r")
def reset_event(event: int, stream: int) -> None:
    """Only events made with flag 1 can be waited for and reset; those of `create_event` are for waiting alone."""
    found = _event(event)
    resolve(stream)
    if not found.flag & _SYNC:
        raise Failed(errors.RT_FEATURE_NOT_SUPPORT)
    if found.by_default:
        errors.undefined("reset_event of an event that create_event made")
    found.time_ns, found.pending, found.stream = None, None, None


def _reach(event: Event) -> int:
    if event.pending is None or event.stream is None:
        return 0
    code = drain(event.stream, event.pending)
    clock.reach(event.time_ns or 0)
    return code


call("rt", "k", "r", name="synchronize_event")(lambda event: _reach(_event(event)))


@call("rt", "k", "Ir")
def query_event_status(event: int) -> int:
    """0 not ready, 1 complete. Before its time the first question finds it not ready; the next finds it done.

    An event that was never recorded counts as complete.
    """
    found = _event(event)
    if found.pending is not None and not found.polled and found.due_ns > clock.now_ns():
        found.polled = True
        return _NOT_READY
    if found.stream is not None and (code := _reach(found)):
        found.stream.failure = code  # a failure is told by the next wait for the stream
    return _COMPLETE


@call("rt", "kk", "fr")
def event_elapsed_time(start: int, end: int) -> float:
    """Milliseconds, negative when the two are swapped; single precision, as the vendor's float."""
    errors.present(start=start, end=end)
    first, second = handles.look(start, Event), handles.look(end, Event)
    if first is None or second is None:
        raise errors.undefined("event_elapsed_time of an event that is gone", errors.RT_INVALID_HANDLE)
    if any(event.time_ns is None and event.pending is None for event in (first, second)):
        raise Failed(errors.RT_INTERNAL_ERROR)
    if first.time_ns is None or second.time_ns is None:
        raise Failed(errors.RT_EVENT_TIMESTAMP_INVALID)
    return float(np.float32((second.time_ns - first.time_ns) / 1e6))


@call("rt", "kk", "r")
def stream_wait_event(stream: int, event: int) -> None:
    """Later work of the stream waits for the event. One for time stamps alone (flag 8) cannot be waited for; one that
    was never recorded holds nothing up."""
    found, on = _event(event), resolve(stream)
    if not found.flag & _SYNC:
        raise Failed(errors.RT_FEATURE_NOT_SUPPORT)
    source, recorded, reached_ns = found.stream, found.pending, found.time_ns
    if source is None:
        return

    def caught_up() -> int:
        code = drain(source, recorded) if recorded is not None and recorded in source.tasks else 0
        on.done_ns = max(on.done_ns, recorded.done_ns if recorded is not None else reached_ns or 0)
        return code

    queue(on, Task(work=caught_up, kind="EVENT_WAIT"))
    on.due_ns = max(on.due_ns, found.due_ns)


# --- callbacks in a thread of the program ---

_SUBSCRIPTION_COMES_S = 0.1
"""A thread asks for reports before the program that started it has subscribed it; it is given this long, as if it had
been scheduled later. Published programs end their thread at 107012."""
_LOOK_AGAIN_S = 0.001
_INBOXES: dict[int, deque[Callable[[], None]]] = {}
"""Thread → its callbacks that are due, for threads that were named in `subscribe_report`."""


def _subscribable(handle: int) -> Stream:
    """By handle alone: the subscription may be made in another context than the stream's."""
    context = rt_device.current()
    if handle == 0 and context is not None:
        return default_stream(context)
    return handles.need(handle, Stream, what="stream", code=errors.RT_INVALID_HANDLE)


@call("rt", "Kk", "r")
def subscribe_report(thread_id: int, stream: int) -> None:
    found = _subscribable(stream)
    if found.subscriber:
        raise Failed(errors.RT_STREAM_SUBSCRIBE)
    found.subscriber = thread_id
    _INBOXES.setdefault(thread_id, deque())


@call("rt", "Kk", "r")
def unsubscribe_report(thread_id: int, stream: int) -> None:
    found = _subscribable(stream)
    if found.subscriber != thread_id:
        raise Failed(errors.RT_STREAM_NO_CB_REG)
    found.subscriber = 0
    if all(stream.subscriber != thread_id for stream in handles.alive(Stream)):
        _INBOXES.pop(thread_id, None)


@call("rt", "OOik", "r")
def launch_callback(function: Callable[[Any], object], data: Any, block: int, stream: int) -> None:
    """Queue a call of `function(data)` in the subscribed thread; with block 1 the stream waits until it returned."""
    if not callable(function):
        raise TypeError("parameter must be callable")
    if block not in (0, 1):
        raise errors.invalid("blockType", block, "it is 0 or 1")
    found = _subscribable(stream)
    inbox = _INBOXES.get(found.subscriber)
    if inbox is None:
        raise Failed(errors.RT_STREAM_NO_CB_REG)
    done = threading.Event()

    def due() -> None:
        try:
            function(data)
        finally:
            done.set()

    def deliver() -> None:
        inbox.append(due)
        if block and found.subscriber != threading.get_ident():
            done.wait()
        elif block:
            _run_due(inbox)

    queue(found, Task(work=deliver, callback=True))


@call("rt", "i", "r")
def process_report(timeout: int) -> int:
    """Run what is due in this thread, waiting for at most `timeout` ms (-1: for ever); 507012 when nothing came. What
    is queued comes: the device would be there by now, only the emulation takes its time."""
    if timeout < -1 or timeout == 0:
        raise errors.invalid("timeout", timeout, "it is -1 or greater than 0")
    thread, now = threading.get_ident(), time.monotonic()
    deadline = float("inf") if timeout == -1 else now + timeout / 1000.0
    subscribed_by = min(deadline, now + _SUBSCRIPTION_COMES_S)
    served = False
    while True:
        inbox = _INBOXES.get(thread)
        served = served or inbox is not None
        mine = [stream for stream in handles.alive(Stream) if stream.subscriber == thread]
        waiting = [stream for stream in mine if any(task.callback for task in list(stream.tasks))]
        for stream in waiting if inbox is not None and not inbox else ():
            # a device reaches a callback by itself: the thread drives the streams it serves, unless another one does
            if stream.lock.acquire(blocking=False):
                try:
                    stream.failure = drain(stream)
                finally:
                    stream.lock.release()
        if inbox:
            _run_due(inbox)
            return 0
        if time.monotonic() >= (deadline if served else subscribed_by) and not waiting:
            return errors.RT_REPORT_TIMEOUT if served else errors.RT_THREAD_SUBSCRIBE
        time.sleep(_LOOK_AGAIN_S)  # several inboxes and deadlines are waited for, and no one event stands for all


def _run_due(inbox: deque[Callable[[], None]]) -> None:
    while inbox:
        inbox.popleft()()
