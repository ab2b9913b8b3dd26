"""What the event loop reads and writes.

Of `Items`, which are many, a named tuple holds a column for each of their values. Of the others
each is a row: a record of a structured array, which `records` makes. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

NONE = -1
"""No item, no queue, no bin, no worker."""
NEVER = float("inf")

FRONT, URGENT, CLIENT, TO_SERVER, TO_CLIENT, TO_WORKER, FROM_WORKER, BINS = range(8)
"""Queues. FRONT waits for the front end; URGENT are batches that it hands out within the task that formed them; CLIENT
waits for the client's thread; TO_… and FROM_… are delays. From BINS on one for each length bin, then one for each
worker with the rows of its batch."""

FREE, OUT, PREPARING, CALLING, BACK = range(5)
"""A worker: without a batch; its batch leaves the front end; its own work; the model's call; on the way back."""

_TYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}


class Setup(NamedTuple):
    """What stays as it is.

    Attributes:
        closed: clients send again when answered, as long as fewer than `total` were sent; `arrivals` begins it.
        stop: answers after which the service ends.
        warm_up: answers after which sums begin.
        quantiles: of each call's time.
        workers: of all devices together; worker w belongs to device w % devices.
        threads: of a call on the host; 0 where a device runs it.
        call_share: work of each thread in a millisecond of the call as it was measured.
        request_half …: half of `HostCosts`' value: what one way costs.
    """

    closed: bool
    total: int
    stop: int
    warm_up: int
    quantiles: int
    bins: int
    max_batch: int
    timeout: float
    workers: int
    devices: int
    threads: int
    call_share: float
    request_half: float
    batch_half: float
    batch_after: float
    worker_batch: float
    worker_row: float
    client_half: float
    transport_half: float
    network_half: float


@dataclass(slots=True)
class State:
    """Where the service stands, and what was added up since the warm-up.

    Attributes:
        work: what a thread that was always busy would have done.
        busy: threads of the host that are busy.
        front_item, client_item: what the front end's thread, and the client's, works on.
        front_ends, client_ends, worker_ends: in `work`, when the front end, the client's thread and the worker
            `next_worker` are done with what they do on the host.
        device_at, delay_at, timer_at, arrival_at: moments at which the call of `next_device`, the delay of the first in
            `delay_queue`, the wait for company, and the wait for the next arrival end.
        pump_waits: the pump is in the front end's queue.
        free: workers without a batch.
        running: workers that have theirs.
        workers_ms, front_end_ms: busy time of all workers and of the front end, since `started_ms` and the batch
            `first_batch`.
    """

    arrival_at: float
    free: int
    now: float = 0.0
    work: float = 0.0
    busy: int = 0
    front_item: int = NONE
    front_ends: float = NEVER
    client_item: int = NONE
    client_ends: float = NEVER
    next_worker: int = 0
    worker_ends: float = NEVER
    next_device: int = 0
    device_at: float = NEVER
    delay_queue: int = NONE
    delay_at: float = NEVER
    timer_at: float = NEVER
    pump_waits: bool = False
    running: int = 0
    arrived: int = 0
    sent: int = 0
    done: int = 0
    formed: int = 0
    started: int = 0
    workers_ms: float = 0.0
    front_end_ms: float = 0.0
    started_ms: float = 0.0
    first_batch: int = 0


class Items(NamedTuple):
    """What waits in one queue at a time: requests, workers' batches and the pump; a column for each of their values.

    Attributes:
        after: the item behind it.
        due: when its delay ends; of a request in a bin, until when it waits for company.
        bin, batch: of a request; its batch by its number in the order in which they are formed. The bin is NONE of the
            first answer of each batch that came back.
        intended, finished: when a request is sent, and its answer read.
        entered: the front end has taken the request in.
    """

    after: list[int]
    due: list[float]
    bin: list[int]
    batch: list[int]
    intended: list[float]
    finished: list[float]
    entered: list[bool]


@dataclass(slots=True)
class Queue:
    """First and last item; `waiting` counts the items of a bin's queue."""

    head: int = NONE
    tail: int = NONE
    waiting: int = 0


@dataclass(slots=True)
class Worker:
    """`rows` and `bin` of its batch; `call` is the work of its call.

    `ends` is when it is done in its host's work, `call_ends` in its device's; NEVER where it does nothing there. Its
    last call ended at the moment `since`.
    """

    state: int = FREE
    rows: int = 0
    bin: int = 0
    call: float = 0.0
    ends: float = NEVER
    call_ends: float = NEVER
    since: float = 0.0


@dataclass(slots=True)
class Device:
    """`work` is what a call that was always there would have got until the moment `since`; `ends` is a moment."""

    in_flight: int = 0
    calls: int = 0
    work: float = 0.0
    since: float = 0.0
    ends: float = NEVER


class World(NamedTuple):
    """Everything that the functions of the event loop share.

    Attributes:
        speed, slowness: by the number of busy threads: work of each in a millisecond, and its inverse.
        times: [bins, max_batch, quantiles] of a call, flat; `uniforms` draw the time of each batch's call.
        idle, slower: by how much a call is slower after its worker did nothing for so long; both from 0, ascending.
        arrivals: moments; in a closed loop those of each client's first request.
        order: filled with the requests in the order of their answers.
    """

    setup: Setup
    state: State
    speed: list[float]
    slowness: list[float]
    times: list[float]
    uniforms: list[float]
    idle: list[float]
    slower: list[float]
    arrivals: list[float]
    items: Items
    queues: list[Queue]
    workers: list[Worker]
    devices: list[Device]
    order: list[int]


def dtype_of(kind: type[Any]) -> np.dtype[np.void]:
    return np.dtype([(field.name, _TYPES[str(field.type)]) for field in fields(kind)], align=True)


def records(count: int, row: Any) -> Any:
    """`count` records like `row`."""
    table = np.empty(count, dtype_of(type(row)))
    table[:] = astuple(row)
    return table
