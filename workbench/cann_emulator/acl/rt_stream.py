"""Streams and events of `acl.rt` (pyacl.md §1.3, §2.5 "Stream and event")."""

from __future__ import annotations

import numpy as np

from workbench.cann_emulator.acl import codes, contexts, handles, host_clock, reason, streams, strict
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.streams import Event

_NOT_READY, _COMPLETE = 0, 1
_BY_DEFAULT = streams.SYNC | streams.TIME_LINE


@call("", "kr")
def create_stream() -> int:
    return streams.create(contexts.required(), site()).handle


@call("ii", "kr")
def create_stream_with_config(priority: int, flag: int) -> int:
    """Flags change only how quick launch and wait are; an A2 has one priority."""
    return streams.create(contexts.required(), site()).handle


@call("k", "r")
def destroy_stream(stream: int) -> int:
    """Waits for what is queued. The default stream belongs to its context and is refused."""
    reason.present(stream=stream)
    found = streams.resolve(stream)
    if found.default:
        raise strict.undefined("destroy_stream of a default stream", codes.RT_PARAM_INVALID)
    return streams.destroy(found)


@call("k", "r")
def synchronize_stream(stream: int) -> int:
    return streams.synchronize(streams.resolve(stream))


@call("ki", "r")
def synchronize_stream_with_timeout(stream: int, timeout: int) -> int:
    """Milliseconds of the virtual clock, -1 waits for ever."""
    if timeout < -1:
        raise Failed(codes.RT_PARAM_INVALID)
    found = streams.resolve(stream)
    if timeout >= 0 and streams.pending_ns(found) > timeout * 1_000_000:
        host_clock.spend(timeout * 1_000_000)
        raise reason.refused(codes.RT_STREAM_SYNC_TIMEOUT, "EE1002", reason=f"Time-out: {timeout} ms.")
    return streams.synchronize(found)


@call("k", "Ir")
def stream_query(stream: int) -> int:
    """0 when everything is done, 1 when not. Asking lets the stream get on."""
    found = streams.resolve(stream)
    if not found.tasks:
        return 0
    done = streams.pending_ns(found) <= 0
    if code := streams.synchronize(found):
        raise Failed(code)
    return int(not done)


@call("", "kr")
def create_event() -> int:
    return _create_event(_BY_DEFAULT, by_default=True)


@call("I", "kr")
def create_event_with_flag(flag: int) -> int:
    return _create_event(flag)


@call("I", "kr")
def create_event_ex_with_flag(flag: int) -> int:
    return _create_event(flag)


@call("k", "r")
def destroy_event(event: int) -> None:
    found = _event(event)
    found.context.owned.pop(event, None)
    handles.drop(event)


@call("kk", "r")
def record_event(event: int, stream: int) -> None:
    streams.record(_event(event), streams.resolve(stream))


@call("kk", "r")
def reset_event(event: int, stream: int) -> None:
    """Only events made with flag 1 can be waited for and reset; those of `create_event` are for waiting alone."""
    found = _event(event)
    streams.resolve(stream)
    if not found.flag & streams.SYNC:
        raise Failed(codes.RT_FEATURE_NOT_SUPPORT)
    if found.by_default:
        strict.undefined("reset_event of an event that create_event made")
    found.time_ns, found.pending, found.stream = None, None, None


@call("k", "r")
def synchronize_event(event: int) -> int:
    return _synchronize(_event(event))


@call("ki", "r")
def synchronize_event_with_timeout(event: int, timeout: int) -> int:
    if timeout < -1:
        raise Failed(codes.RT_PARAM_INVALID)
    found = _event(event)
    if timeout >= 0 and streams.left_ns(found) > timeout * 1_000_000:
        host_clock.spend(timeout * 1_000_000)
        raise Failed(codes.RT_EVENT_SYNC_TIMEOUT)
    return _synchronize(found)


@call("k", "Ir")
def query_event_status(event: int) -> int:
    """0 not ready, 1 complete. Before its time the first question finds it not ready; the next finds it done.

    An event that was never recorded counts as complete.
    """
    return _COMPLETE if _reached(_event(event)) else _NOT_READY


@call("k", "Ir")
def query_event(event: int) -> int:
    """The deprecated form, the other way round: 0 complete, 1 not ready (pyacl.md §1.3)."""
    return 0 if _reached(_event(event)) else 1


@call("kk", "fr")
def event_elapsed_time(start: int, end: int) -> float:
    """Milliseconds, negative when the two are swapped; single precision, as the vendor's float."""
    reason.present(start=start, end=end)
    first, second = handles.look(start, Event), handles.look(end, Event)
    if first is None or second is None:
        raise strict.undefined("event_elapsed_time of an event that is gone", codes.RT_INVALID_HANDLE)
    if any(event.time_ns is None and event.pending is None for event in (first, second)):
        raise Failed(codes.RT_INTERNAL_ERROR)
    if first.time_ns is None or second.time_ns is None:
        raise Failed(codes.RT_EVENT_TIMESTAMP_INVALID)
    return float(np.float32((second.time_ns - first.time_ns) / 1e6))


@call("kk", "r")
def stream_wait_event(stream: int, event: int) -> None:
    """Later work of the stream waits for the event; an event for time stamps alone (flag 8) cannot be waited for."""
    found, queue = _event(event), streams.resolve(stream)
    if not found.flag & streams.SYNC:
        raise Failed(codes.RT_FEATURE_NOT_SUPPORT)
    streams.wait_for(queue, found)


def _event(handle: int) -> Event:
    return handles.need(handle, Event, "event", "event", codes.RT_INVALID_HANDLE)


def _create_event(flag: int, *, by_default: bool = False) -> int:
    context = contexts.required()
    event = Event(context=context, flag=flag, by_default=by_default, site=site())
    context.owned[handles.give(event)] = event
    return event.handle


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
