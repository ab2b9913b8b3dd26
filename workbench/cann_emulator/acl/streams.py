"""Streams, events and the virtual clock (pyacl.md §1.3, §5.1).

A stream holds back what was queued until somebody waits for it: a result copied too early is stale, as it may be on a
device. Each stream has a clock in microseconds of the modelled device; queued work moves it on, and an event takes
the time at which the stream reaches it. `mdl.execute` runs on a stream of its own, so events around it show next to
nothing. The host does not sleep; what it waits for moves on what it knows of the device's time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.cann_emulator.acl import codes, handles, leaks
from workbench.cann_emulator.acl.contexts import ON_RELEASE, SETTING, Context, Device

STREAMS_PER_DEVICE = 1984
EVENTS_PER_DEVICE = 65536
SYNC, TIME_LINE = 1, 8

Work = Callable[[], int]
"""Does the work and gives a return code."""


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One queued piece of work.

    Attributes:
        spans: device and host memory it touches, (address, bytes), for strict mode.
        callback: work for another thread; the stream waits for it when `blocks`.
    """

    work: Work
    duration_us: float = 0.0
    spans: tuple[tuple[int, int], ...] = ()
    callback: bool = False
    blocks: bool = False
    what: str = "task"


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """A queue of one context.

    Attributes:
        clock_us: when the last queued task ends.
        done_us: when the last executed task ended.
        failure: of a task, told by the next wait.
    """

    context: Context
    site: tuple[str, int]
    default: bool = False
    handle: int = 0
    number: int = 0
    clock_us: float = 0.0
    done_us: float = 0.0
    failure: int = 0
    tasks: deque[Task] = field(default_factory=deque)
    lock: threading.RLock = field(default_factory=threading.RLock)
    subscriber: int = 0
    overflow: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """A mark in a stream.

    Attributes:
        by_default: made by `create_event`, without flags.
        time_us: when the stream reached, or will reach, the last record; None before any.
        pending: the recording task while the stream has not come to it.
    """

    context: Context
    flag: int
    site: tuple[str, int]
    by_default: bool = False
    handle: int = 0
    time_us: float | None = None
    pending: Task | None = None
    stream: Stream | None = None
    polled: bool = False


def create(context: Context, site: tuple[str, int], default: bool = False) -> Stream | None:
    """A stream; None when the device has 1984 of them."""
    on_device = [s for s in handles.alive(Stream) if s.context.device is context.device]
    if len(on_device) >= STREAMS_PER_DEVICE:
        return None
    now = context.device.clock_us
    stream = Stream(context=context, site=site, default=default, number=len(on_device), clock_us=now, done_us=now)
    stream.handle = handles.give(stream)
    return stream


def default_stream(context: Context) -> Stream:
    if not isinstance(context.stream, Stream):
        with SETTING:
            if not isinstance(context.stream, Stream):
                context.stream = create(context, context.site, default=True)
    assert isinstance(context.stream, Stream), "the default stream exists beside the limit"
    return context.stream


def resolve(handle: int, context: Context) -> tuple[Stream | None, int]:
    """The stream of a handle, 0 being the default one of the context; or None and a code."""
    if handle == 0:
        return default_stream(context), 0
    stream = handles.look(handle, Stream)
    if stream is None:
        return None, codes.RT_INVALID_HANDLE
    return (stream, 0) if stream.context is context else (None, codes.RT_STREAM_CONTEXT)


def queue(stream: Stream, task: Task) -> None:
    """Append work; its time counts from the end of what is queued, or from now when the stream is idle."""
    stream.clock_us = max(stream.clock_us, stream.context.device.clock_us) + task.duration_us
    stream.tasks.append(task)


def advance(stream: Stream, duration_us: float) -> None:
    """Count time on an empty stream, for work that the caller did itself."""
    queue(stream, Task(work=_nothing, duration_us=duration_us))
    stream.tasks.pop()
    stream.done_us = stream.clock_us
    stream.context.device.busy_us += duration_us


def drain(stream: Stream, until: Task | None = None) -> int:
    """Execute what is queued, up to and with `until`; 0 or the code of the first task that failed since the last wait.

    After a failure the rest of the queue is dropped, as a stream that met an exception executes nothing more.
    """
    with stream.lock:
        while stream.tasks:
            task = stream.tasks.popleft()
            code = task.work()
            stream.done_us += task.duration_us
            stream.context.device.busy_us += task.duration_us
            if code:
                stream.failure = stream.failure or code
                stream.tasks.clear()
            if task is until:
                break
        if not stream.tasks:
            stream.done_us = stream.clock_us
        failure, stream.failure = stream.failure, 0
        return failure


def synchronize(stream: Stream) -> int:
    """Drain, and let the host know the time."""
    code = drain(stream)
    device = stream.context.device
    device.clock_us = max(device.clock_us, stream.clock_us)
    return code


def synchronize_device(device: Device) -> int:
    """Wait for all streams of a device; the first failure."""
    found = 0
    for stream in handles.alive(Stream):
        if stream.context.device is device:
            found = synchronize(stream) or found
    return found


def pending_us(stream: Stream) -> float:
    """Virtual time that the stream still needs from what the host knows."""
    return stream.clock_us - max(stream.done_us, stream.context.device.clock_us) if stream.tasks else 0.0


def record(event: Event, stream: Stream) -> None:
    def reached() -> int:
        if event.pending is task:
            event.pending = None
        return 0

    task = Task(work=reached, what="event")
    queue(stream, task)
    event.time_us, event.pending, event.stream, event.polled = stream.clock_us, task, stream, False


def wait_for(stream: Stream, event: Event) -> None:
    """Later work of `stream` starts when `event` was reached; an event that was never recorded holds nothing up."""
    source, recorded = event.stream, event.pending
    if source is None or event.time_us is None:
        return
    stream.clock_us = max(stream.clock_us, event.time_us)
    if recorded is None:
        return

    def caught_up() -> int:
        return drain(source, recorded) if recorded in source.tasks else 0

    queue(stream, Task(work=caught_up, what="wait for an event"))


def destroy(stream: Stream) -> int:
    code = synchronize(stream)
    handles.drop(stream.handle)
    return code


def touched(address: int, count: int) -> Task | None:
    """A queued task that uses this memory, if there is one."""
    for stream in handles.alive(Stream):
        for task in list(stream.tasks):
            if any(start < address + count and address < start + size for start, size in task.spans):
                return task
    return None


def _nothing() -> int:
    return 0


def _end_with(context: Context) -> None:
    """A context takes its streams and events along; other than default ones, the program should have destroyed them."""
    for stream in handles.alive(Stream):
        if stream.context is context:
            stream.tasks.clear()
            handles.drop(stream.handle)
            if not stream.default:
                leaks.reclaimed.append(("streams", stream.site))
    for event in handles.alive(Event):
        if event.context is context:
            handles.drop(event.handle)
            leaks.reclaimed.append(("events", event.site))


def _left() -> list[leaks.Alive]:
    made = [s for s in handles.alive(Stream) if not s.default]
    found: list[leaks.Alive] = [("streams", s.site, handles.LIVE, s.handle) for s in made]
    return found + [("events", e.site, handles.LIVE, e.handle) for e in handles.alive(Event)]


ON_RELEASE.append(_end_with)
leaks.COLLECTORS.append(_left)
