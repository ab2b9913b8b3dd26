"""Callbacks of a stream in a thread of the program: `acl.rt` part (pyacl.md §1.3, "Callbacks")."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workbench.cann_emulator.acl import codes, contexts, handles, host_clock, reason, streams, strict
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.streams import Stream

_SUBSCRIPTION_COMES_S = 0.1
"""A thread asks for reports before the program that started it has subscribed it; it is given this long, as if it had
been scheduled later. Published programs end their thread at 107012."""
_LOOK_AGAIN_S = 0.01


@dataclass(slots=True, kw_only=True)
class _Due:
    function: Callable[[Any], object]
    data: Any
    took_ns: int = 0
    done: threading.Event = field(default_factory=threading.Event)


_INBOXES: dict[int, deque[_Due]] = {}
"""Thread → its callbacks, for threads that were named in `subscribe_report`."""
_NEWS = threading.Condition()
"""Told whenever a thread that waits for reports may have something to do."""


@call("Kk", "r")
def subscribe_report(thread_id: int, stream: int) -> None:
    found = _stream(stream)
    if found.subscriber:
        raise Failed(codes.RT_STREAM_SUBSCRIBE)
    found.subscriber = thread_id
    _INBOXES.setdefault(thread_id, deque())
    _tell()


@call("Kk", "r")
def unsubscribe_report(thread_id: int, stream: int) -> None:
    found = _stream(stream)
    if found.subscriber != thread_id:
        raise Failed(codes.RT_STREAM_NO_CB_REG)
    found.subscriber = 0
    if not any(s.subscriber == thread_id for s in handles.alive(Stream)):
        _INBOXES.pop(thread_id, None)


@call("OOik", "r")
def launch_callback(function: Callable[[Any], object], data: Any, block: int, stream: int) -> None:
    """Queue a call of `function(data)` in the subscribed thread; with block 1 the stream waits until it returned."""
    if not callable(function):
        raise TypeError("parameter must be callable")
    if block not in (0, 1):
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=block, param="blockType", reason="it is 0 or 1")
    found = _stream(stream)
    inbox = _INBOXES.get(found.subscriber)
    if inbox is None:
        raise Failed(codes.RT_STREAM_NO_CB_REG)
    due = _Due(function=function, data=data)

    def deliver() -> None:
        inbox.append(due)
        _tell()
        if block and found.subscriber != threading.get_ident():
            due.done.wait()
        elif block:
            _run_due(inbox)
        if block:
            found.done_ns += due.took_ns  # what the program does there holds the stream up

    streams.queue(found, streams.Task(work=deliver, callback=True, what="callback"))
    _tell()


@call("i", "r")
def process_report(timeout: int) -> int:
    """Run what is due in this thread, waiting for at most `timeout` ms (-1: for ever); 507012 when nothing came."""
    if timeout < -1 or timeout == 0:
        why = "it is -1 or greater than 0"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=timeout, param="timeout", reason=why)
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
            return codes.RT_REPORT_TIMEOUT if served else codes.RT_THREAD_SUBSCRIBE
        with _NEWS:
            if not inbox:
                _NEWS.wait(min(_LOOK_AGAIN_S, max(left, 0.001)))


def _coming(thread_id: int) -> bool:
    """Whether a callback is queued: the device would be there by now, only the emulation takes its time."""
    mine = [stream for stream in handles.alive(Stream) if stream.subscriber == thread_id]
    return any(task.callback for stream in mine for task in list(stream.tasks))


def _tell() -> None:
    with _NEWS:
        _NEWS.notify_all()


def _run_due(inbox: deque[_Due]) -> None:
    while inbox:
        due = inbox.popleft()
        pause = host_clock.Pause()
        try:
            due.function(due.data)
        finally:
            due.took_ns = pause.own_ns(time.perf_counter_ns() - pause.began_ns)
            due.done.set()


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
    context = contexts.current()
    if handle == 0 and context is not None:
        return streams.default_stream(context)
    found = handles.look(handle, Stream)
    if found is None:
        raise strict.undefined(f"{handle:#x} is no live stream", codes.RT_INVALID_HANDLE)
    return found
