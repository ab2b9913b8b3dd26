"""Streams, events and callbacks of `acl.rt` (pyacl.md §1.3, §2.5 "Stream and event")."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.cann_emulator.acl import clock, errors, handles, memory, rt_device, streams
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.streams import Event, Stream

_NOT_READY, _COMPLETE = 0, 1
_BY_DEFAULT = streams.SYNC | streams.TIME_LINE


@call("i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one ends contexts with their streams, events and models, and frees the memory of
    this process on the device that is left."""
    device = rt_device.device_of(device_id)
    if device.sets == 0:
        raise Failed(errors.RT_CONTEXT_RELEASE_ERROR)
    code = streams.synchronize_device(device)
    with rt_device.SETTING:
        device.sets -= 1
        if device.sets:
            return code
        for context in list(device.contexts.values()):
            handles.reclaim(context)
            rt_device.end(context)
        device.default = None
        if device.arena is not None:
            for block in list(device.arena.blocks.values()):
                handles.reclaimed.append((block.KIND, block.site))
                memory.release(device.arena, block)
        rt_device.update_use()
    return code


@call("", "r")
def synchronize_device() -> int:
    return streams.synchronize_device(rt_device.required().device)


@call("", "kr")
def create_stream() -> int:
    return streams.create(rt_device.required(), site()).handle


@call("ii", "kr")
def create_stream_with_config(priority: int, flag: int) -> int:
    """Flags change only how quick launch and wait are; an A2 has one priority."""
    return streams.create(rt_device.required(), site()).handle


@call("k", "r")
def destroy_stream(stream: int) -> int:
    """Waits for what is queued. The default stream belongs to its context and is refused."""
    errors.present(stream=stream)
    found = streams.resolve(stream)
    if found.own:
        raise errors.undefined("destroy_stream of a default stream", errors.RT_PARAM_INVALID)
    code = streams.synchronize(found)
    streams.forget(found)
    return code


@call("k", "r")
def synchronize_stream(stream: int) -> int:
    return streams.synchronize(streams.resolve(stream))


@call("ki", "r")
def synchronize_stream_with_timeout(stream: int, timeout: int) -> int:
    """Milliseconds of the virtual clock, -1 waits for ever."""
    if timeout < -1:
        raise Failed(errors.RT_PARAM_INVALID)
    found = streams.resolve(stream)
    if timeout >= 0 and found.tasks and found.due_ns - clock.now_ns() > timeout * 1_000_000:
        clock.spend(timeout * 1_000_000)
        raise errors.refused(errors.RT_STREAM_SYNC_TIMEOUT, "EE1002", reason=f"Time-out: {timeout} ms.")
    return streams.synchronize(found)


@call("", "kr")
def create_event() -> int:
    return _create_event(_BY_DEFAULT, by_default=True)


@call("I", "kr")
def create_event_with_flag(flag: int) -> int:
    return _create_event(flag)


@call("k", "r")
def destroy_event(event: int) -> None:
    found = _event(event)
    found.context.owned.pop(event, None)
    handles.drop(event)


@call("kk", "r")
def record_event(event: int, stream: int) -> None:
    mark, queue = _event(event), streams.resolve(stream)

    def reached() -> None:
        if mark.pending is task:
            mark.time_ns, mark.pending = queue.done_ns, None

    task = streams.Task(work=reached, kind="EVENT_RECORD")
    mark.time_ns, mark.pending, mark.stream, mark.polled = None, task, queue, False
    streams.queue(queue, task)
    mark.due_ns = queue.due_ns


@call("kk", "r")
def reset_event(event: int, stream: int) -> None:
    """Only events made with flag 1 can be waited for and reset; those of `create_event` are for waiting alone."""
    found = _event(event)
    streams.resolve(stream)
    if not found.flag & streams.SYNC:
        raise Failed(errors.RT_FEATURE_NOT_SUPPORT)
    if found.by_default:
        errors.undefined("reset_event of an event that create_event made")
    found.time_ns, found.pending, found.stream = None, None, None


@call("k", "r")
def synchronize_event(event: int) -> int:
    return _synchronize(_event(event))


@call("k", "Ir")
def query_event_status(event: int) -> int:
    """0 not ready, 1 complete. Before its time the first question finds it not ready; the next finds it done.

    An event that was never recorded counts as complete.
    """
    return _COMPLETE if _reached(_event(event)) else _NOT_READY


@call("kk", "fr")
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


@call("kk", "r")
def stream_wait_event(stream: int, event: int) -> None:
    """Later work of the stream waits for the event. One for time stamps alone (flag 8) cannot be waited for; one that
    was never recorded holds nothing up."""
    found, queue = _event(event), streams.resolve(stream)
    if not found.flag & streams.SYNC:
        raise Failed(errors.RT_FEATURE_NOT_SUPPORT)
    source, recorded, reached_ns = found.stream, found.pending, found.time_ns
    if source is None:
        return

    def caught_up() -> int:
        code = streams.drain(source, recorded) if recorded is not None and recorded in source.tasks else 0
        queue.done_ns = max(queue.done_ns, recorded.done_ns if recorded is not None else reached_ns or 0)
        return code

    streams.queue(queue, streams.Task(work=caught_up, kind="EVENT_WAIT"))
    queue.due_ns = max(queue.due_ns, found.due_ns)


def _event(handle: int) -> Event:
    return handles.need(handle, Event, "event", "event", errors.RT_INVALID_HANDLE)


def _create_event(flag: int, *, by_default: bool = False) -> int:
    context = rt_device.required()
    event = Event(context=context, flag=flag, by_default=by_default, site=site())
    context.owned[handles.give(event)] = event
    return event.handle


def _synchronize(event: Event) -> int:
    if event.pending is None or event.stream is None:
        return 0
    code = streams.drain(event.stream, event.pending)
    clock.reach(event.time_ns or 0)
    return code


def _reached(event: Event) -> bool:
    if event.pending is None:
        return True
    if not event.polled and event.due_ns > clock.now_ns():
        event.polled = True
        return False
    if event.stream is not None:
        event.stream.failure = _synchronize(event)  # a failure is told by the next wait for the stream
    return True


# --- callbacks in a thread of the program ---

_SUBSCRIPTION_COMES_S = 0.1
"""A thread asks for reports before the program that started it has subscribed it; it is given this long, as if it had
been scheduled later. Published programs end their thread at 107012."""
_LOOK_AGAIN_S = 0.001


_INBOXES: dict[int, deque[Callable[[], None]]] = {}
"""Thread → its callbacks that are due, for threads that were named in `subscribe_report`."""


@call("Kk", "r")
def subscribe_report(thread_id: int, stream: int) -> None:
    found = _stream(stream)
    if found.subscriber:
        raise Failed(errors.RT_STREAM_SUBSCRIBE)
    found.subscriber = thread_id
    _INBOXES.setdefault(thread_id, deque())


@call("Kk", "r")
def unsubscribe_report(thread_id: int, stream: int) -> None:
    found = _stream(stream)
    if found.subscriber != thread_id:
        raise Failed(errors.RT_STREAM_NO_CB_REG)
    found.subscriber = 0
    if not any(s.subscriber == thread_id for s in handles.alive(Stream)):
        _INBOXES.pop(thread_id, None)


@call("OOik", "r")
def launch_callback(function: Callable[[Any], object], data: Any, block: int, stream: int) -> None:
    """Queue a call of `function(data)` in the subscribed thread; with block 1 the stream waits until it returned."""
    if not callable(function):
        raise TypeError("parameter must be callable")
    if block not in (0, 1):
        raise errors.invalid("blockType", block, "it is 0 or 1")
    found = _stream(stream)
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

    streams.queue(found, streams.Task(work=deliver, callback=True))


@call("i", "r")
def process_report(timeout: int) -> int:
    """Run what is due in this thread, waiting for at most `timeout` ms (-1: for ever); 507012 when nothing came."""
    if timeout < -1 or timeout == 0:
        raise errors.invalid("timeout", timeout, "it is -1 or greater than 0")
    thread, now = threading.get_ident(), time.monotonic()
    deadline = float("inf") if timeout == -1 else now + timeout / 1000.0
    subscribed_by = min(deadline, now + _SUBSCRIPTION_COMES_S)
    served = False
    while True:
        inbox = _INBOXES.get(thread)
        if inbox is not None and not inbox:
            _get_on(thread)
        if inbox:
            _run_due(inbox)
            return 0
        served = served or inbox is not None
        left = (deadline if served else subscribed_by) - time.monotonic()
        if left <= 0 and not _coming(thread):
            return errors.RT_REPORT_TIMEOUT if served else errors.RT_THREAD_SUBSCRIBE
        time.sleep(_LOOK_AGAIN_S)  # several inboxes and deadlines are waited for, and no one event stands for all


def _coming(thread_id: int) -> bool:
    """Whether a callback is queued: the device would be there by now, only the emulation takes its time."""
    mine = [stream for stream in handles.alive(Stream) if stream.subscriber == thread_id]
    return any(task.callback for stream in mine for task in list(stream.tasks))


def _run_due(inbox: deque[Callable[[], None]]) -> None:
    while inbox:
        inbox.popleft()()


def _get_on(thread_id: int) -> None:
    """A device reaches a callback by itself: this thread drives the streams it serves, unless another one does."""
    for stream in handles.alive(Stream):
        waits = any(task.callback for task in list(stream.tasks))
        if stream.subscriber == thread_id and waits and stream.lock.acquire(blocking=False):
            try:
                stream.failure = streams.drain(stream)
            finally:
                stream.lock.release()


def _stream(handle: int) -> Stream:
    """By handle alone: the subscription may be made in another context than the stream's."""
    context = rt_device.current()
    if handle == 0 and context is not None:
        return streams.default_stream(context)
    return handles.need(handle, Stream, what="stream", code=errors.RT_INVALID_HANDLE)
