"""Events of `acl.rt` (pyacl.md §1.3, §2.5 "Stream and event")."""

from __future__ import annotations

import numpy as np

from workbench.cann_emulator.acl import codes, contexts, handles, host_clock, reason, streams, strict
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.rt_stream import stream_of
from workbench.cann_emulator.acl.streams import Event

_NOT_READY, _COMPLETE = 0, 1
_ELAPSED_FLAGS = streams.SYNC | streams.TIME_LINE


@call("", "kr")
def create_event() -> tuple[int, int]:
    return _create_event(_ELAPSED_FLAGS, by_default=True)


@call("I", "kr")
def create_event_with_flag(flag: int) -> tuple[int, int]:
    return _create_event(flag)


@call("I", "kr")
def create_event_ex_with_flag(flag: int) -> tuple[int, int]:
    return _create_event(flag)


@call("k", "r")
def destroy_event(event: int) -> int:
    found, code = _event(event)
    if found is None:
        return code
    handles.drop(event)
    return 0


@call("kk", "r")
def record_event(event: int, stream: int) -> int:
    found, code = _event(event)
    if found is None:
        return code
    queue, code = stream_of(stream)
    if queue is None:
        return code
    streams.record(found, queue)
    return 0


@call("kk", "r")
def reset_event(event: int, stream: int) -> int:
    """Only events made with flag 1 can be waited for and reset; those of `create_event` are for waiting alone."""
    found, code = _event(event)
    if found is None:
        return code
    queue, code = stream_of(stream)
    if queue is None:
        return code
    if not found.flag & streams.SYNC:
        return codes.RT_FEATURE_NOT_SUPPORT
    code = strict.undefined("reset_event of an event that create_event made", 0) if found.by_default else 0
    found.time_ns, found.pending, found.stream = None, None, None
    return code


@call("k", "r")
def synchronize_event(event: int) -> int:
    found, code = _event(event)
    return code if found is None else _synchronize(found)


@call("ki", "r")
def synchronize_event_with_timeout(event: int, timeout: int) -> int:
    if timeout < -1:
        return codes.RT_PARAM_INVALID
    found, code = _event(event)
    if found is None:
        return code
    if timeout >= 0 and streams.left_ns(found) > timeout * 1_000_000:
        host_clock.spend(timeout * 1_000_000)
        return codes.RT_EVENT_SYNC_TIMEOUT
    return _synchronize(found)


@call("k", "Ir")
def query_event_status(event: int) -> tuple[int, int]:
    """0 not ready, 1 complete. Before its time the first question finds it not ready; the next finds it done.

    An event that was never recorded counts as complete.
    """
    found, code = _event(event)
    if found is None:
        return _NOT_READY, code
    return (_COMPLETE if _reached(found) else _NOT_READY), 0


@call("k", "Ir")
def query_event(event: int) -> tuple[int, int]:
    """The deprecated form, the other way round: 0 complete, 1 not ready (pyacl.md §1.3)."""
    found, code = _event(event)
    if found is None:
        return 0, code
    return (0 if _reached(found) else 1), 0


@call("kk", "fr")
def event_elapsed_time(start: int, end: int) -> tuple[float, int]:
    """Milliseconds, negative when the two are swapped; single precision, as the vendor's float."""
    if not (start and end):
        reason.report("EH0002", param="start" if not start else "end")
        return 0.0, codes.INVALID_PARAM
    first, second = handles.look(start, Event), handles.look(end, Event)
    if first is None or second is None:
        return 0.0, strict.undefined("event_elapsed_time of an event that is gone", codes.RT_INVALID_HANDLE)
    if any(event.time_ns is None and event.pending is None for event in (first, second)):
        return 0.0, codes.RT_INTERNAL_ERROR
    if first.time_ns is None or second.time_ns is None:
        return 0.0, codes.RT_EVENT_TIMESTAMP_INVALID
    return float(np.float32((second.time_ns - first.time_ns) / 1e6)), 0


@call("kk", "r")
def stream_wait_event(stream: int, event: int) -> int:
    """Later work of the stream waits for the event; an event for time stamps alone (flag 8) cannot be waited for."""
    found, code = _event(event)
    if found is None:
        return code
    queue, code = stream_of(stream)
    if queue is None:
        return code
    if not found.flag & streams.SYNC:
        return codes.RT_FEATURE_NOT_SUPPORT
    streams.wait_for(queue, found)
    return 0


def _event(handle: int) -> tuple[Event | None, int]:
    if not handle:
        reason.report("EH0002", param="event")
        return None, codes.INVALID_PARAM
    found = handles.look(handle, Event)
    if found is None:
        return None, strict.undefined(f"{handle:#x} is no live event", codes.RT_INVALID_HANDLE)
    return found, 0


def _create_event(flag: int, *, by_default: bool = False) -> tuple[int, int]:
    context = contexts.current()
    if context is None:
        return 0, codes.RT_CONTEXT_NULL
    event = Event(context=context, flag=flag, by_default=by_default, site=site())
    event.handle = handles.give(event)
    return event.handle, 0


def _synchronize(event: Event) -> int:
    if event.pending is None or event.stream is None:
        return 0
    code = streams.drain(event.stream, event.pending)
    if not event.stream.tasks:
        event.stream.last = None
    host_clock.reach(event.time_ns or 0)
    return code


def _reached(event: Event) -> bool:
    if event.pending is None:
        return True
    if not event.polled and streams.left_ns(event) > 0:
        event.polled = True
        return False
    if event.stream is not None:
        event.stream.failure = _synchronize(event)  # a failure is told by the next wait for the stream
    return True
