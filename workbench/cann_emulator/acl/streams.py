"""Streams of `acl.rt` and the virtual clock (pyacl.md §1.3, §2.5 "Stream and event", §5.1).

A stream holds back what was queued until somebody waits for it: a result copied too early is stale, as it may be on a
device. What is queued arrives at the device when the host queues it (clock.py), starts when all before it is done,
and takes as long as the time model says. An event takes the time at which the stream reaches it.

Times are whole nanoseconds, so that equal work has equal times wherever on the axis it lies.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from workbench.cann_emulator.acl import clock, errors, handles, memory, profile, rt_device
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.acl.rt_device import ON_RELEASE, SETTING, Context, Device

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.execution import Run

STREAMS_PER_DEVICE = 1984
COPY = "MEMCPY_ASYNC"
"""Type of a copy's task, as a profile has it; those of events are EVENT_RECORD and EVENT_WAIT (pyacl.md §5.4)."""

Work = Callable[[], int | None]
"""Does the work and gives a return code, or fails with one."""


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One queued piece of work."""

    work: Work
    duration_ns: int = 0
    callback: bool = False  # work for another thread
    arrival_ns: int = 0  # when it came to the device
    done_ns: int = 0  # when it was done, once it is
    kind: str = ""  # the vendor's type of task, as a profile has it; empty for what is no task of the device
    run: Run | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Stream(Made):
    """A queue of one context."""

    KIND: ClassVar[str] = "streams"
    context: Context
    number: int = 0
    due_ns: int = 0  # when the last queued task ends, as far as that is known when it is queued
    done_ns: int = 0  # when the last executed task ended
    failure: int = 0  # of a task, told by the next wait
    tasks: deque[Task] = field(default_factory=deque)
    lock: threading.RLock = field(default_factory=threading.RLock)
    subscriber: int = 0  # thread that its callbacks run in; 0 for none


def _new_stream(context: Context, own: bool = False) -> Stream:
    device = context.device
    if device.streams >= STREAMS_PER_DEVICE:
        raise Failed(errors.RT_NO_STREAM_RESOURCE)
    now = clock.now_ns()
    stream = Stream(context=context, own=own, number=device.streams, due_ns=now, done_ns=now)
    device.streams += 1
    context.owned[handles.give(stream)] = stream
    return stream


def default_stream(context: Context) -> Stream:
    with SETTING:
        if not isinstance(context.stream, Stream):
            context.stream = _new_stream(context, own=True)
        return context.stream


def resolve(handle: int) -> Stream:
    """The stream of a handle in the current context, 0 being its default one."""
    context = rt_device.required()
    if handle == 0:
        return default_stream(context)
    stream = handles.need(handle, Stream, what="stream", code=errors.RT_INVALID_HANDLE)
    if stream.context is not context:
        raise errors.refused(errors.RT_STREAM_CONTEXT, "EE1010", what="The stream", reason="")
    return stream


def queue(stream: Stream, task: Task) -> None:
    """Append work; it starts when it has come to the device and all before it is done."""
    task.arrival_ns = clock.now_ns()
    stream.due_ns = max(stream.due_ns, task.arrival_ns) + task.duration_ns
    stream.tasks.append(task)


def drain(stream: Stream, until: Task | None = None) -> int:
    """Execute what is queued, up to and with `until`; 0 or the code of the first task that failed since the last wait.

    After a failure the rest of the queue is dropped, as a stream that met an exception executes nothing more.
    """
    with stream.lock:
        while stream.tasks:
            task = stream.tasks.popleft()
            began_ns = stream.done_ns = max(stream.done_ns, task.arrival_ns)
            code = code_of(task.work)
            stream.done_ns += task.duration_ns
            task.done_ns = stream.done_ns
            stream.context.device.busy_us += task.duration_ns / 1000
            if code:
                stream.failure = stream.failure or code
                stream.tasks.clear()
            else:
                device = stream.context.device.index
                profile.done(device, stream.number, task.kind, began_ns, stream.done_ns, task.run)
            if task is until:
                break
        if not stream.tasks:
            stream.due_ns = stream.done_ns
        failure, stream.failure = stream.failure, 0
        return failure


def code_of(work: Work) -> int:
    try:
        return work() or 0
    except Failed as failed:
        return failed.code


def synchronize(stream: Stream) -> int:
    """Drain; the host has waited so long. A paced process has the card to itself meanwhile."""
    with clock.alone_on(stream.context.device.physical) if clock.IS_PACED and stream.tasks else nullcontext():
        if clock.IS_PACED:
            stream.done_ns = max(stream.done_ns, clock.now_ns())  # others had the card until now
        code = drain(stream)
        clock.reach(stream.done_ns)
        return code


def _synchronize_device(device: Device) -> int:
    """Wait for all streams of a device; a failure of one."""
    owned = [thing for context in list(device.contexts.values()) for thing in list(context.owned.values())]
    return max((synchronize(stream) for stream in owned if isinstance(stream, Stream)), default=0)


def forget(thing: Made, context: Context) -> None:
    context.owned.pop(thing.handle, None)
    handles.drop(thing.handle)
    if isinstance(thing, Stream):
        thing.tasks.clear()
        context.device.streams -= 1


def _end_with(context: Context) -> None:
    """A context takes its streams and events along; other than default ones, the program should have destroyed them."""
    for thing in list(context.owned.values()):
        handles.reclaim(thing)
        forget(thing, context)


ON_RELEASE.append(_end_with)


@call("rt", "i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one ends contexts with their streams, events and models, and frees the memory of
    this process on the device that is left."""
    device = rt_device.device_of(device_id)
    if device.sets == 0:
        raise Failed(errors.RT_CONTEXT_RELEASE_ERROR)
    code = _synchronize_device(device)
    with SETTING:
        device.sets -= 1
        if device.sets:
            return code
        for context in list(device.contexts.values()):
            handles.reclaim(context)
            rt_device.end(context)
        device.default = None
        if device.arena is not None:
            for block in list(device.arena.blocks.values()):
                handles.reclaimed.append(block.KIND)
                memory.release(device.arena, block)
        rt_device.update_use()
    return code


call("rt", "", "r", name="synchronize_device")(lambda: _synchronize_device(rt_device.required().device))
call("rt", "k", "r", name="synchronize_stream")(lambda stream: synchronize(resolve(stream)))
# flags change only how quick launch and wait are; an A2 has one priority
call("rt", "", "kr", name="create_stream")(lambda: _new_stream(rt_device.required()).handle)
call("rt", "ii", "kr", name="create_stream_with_config")(lambda _, flag: _new_stream(rt_device.required()).handle)


@call("rt", "k", "r")
def destroy_stream(stream: int) -> int:
    """Waits for what is queued. The default stream belongs to its context and is refused."""
    errors.present(stream=stream)
    found = resolve(stream)
    if found.own:
        raise errors.undefined("destroy_stream of a default stream", errors.RT_PARAM_INVALID)
    code = synchronize(found)
    forget(found, found.context)
    return code


@call("rt", "ki", "r")
def synchronize_stream_with_timeout(stream: int, timeout: int) -> int:
    """Milliseconds of the virtual clock, -1 waits for ever."""
    if timeout < -1:
        raise Failed(errors.RT_PARAM_INVALID)
    found = resolve(stream)
    if timeout >= 0 and found.tasks and found.due_ns - clock.now_ns() > timeout * 1_000_000:
        clock.spend(timeout * 1_000_000)
        raise errors.refused(errors.RT_STREAM_SYNC_TIMEOUT, "EE1002", reason=f"Time-out: {timeout} ms.")
    return synchronize(found)
