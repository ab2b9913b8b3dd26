"""The linked queues of the event loop, over one table of items, and the delays that some of them are."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.prediction.simulation.machine_code import machine_code
from workbench.prediction.simulation.state import FROM_WORKER, NEVER, NONE, TO_SERVER, Items, Queue, State


@machine_code
def delay(state: State, items: Items, queues: Sequence[Queue], queue: int, item: int, duration: float) -> None:
    """`item` joins the delay `queue`, where all wait equally long: only the first of a queue can be the next."""
    at = state.now + duration
    items.due[item] = at
    if queues[queue].head < 0 and (at < state.delay_at or (at == state.delay_at and queue < state.delay_queue)):
        state.delay_queue = queue
        state.delay_at = at
    push(items, queues, queue, item)


@machine_code
def next_delay(state: State, items: Items, queues: Sequence[Queue]) -> None:
    """Find the delay that ends first; of several that end at one moment the one of the lowest queue."""
    state.delay_queue = NONE
    state.delay_at = NEVER
    for queue in range(TO_SERVER, FROM_WORKER + 1):
        head = queues[queue].head
        if head >= 0 and items.due[head] < state.delay_at:
            state.delay_queue = queue
            state.delay_at = items.due[head]


@machine_code
def push(items: Items, queues: Sequence[Queue], queue: int, item: int) -> None:
    items.after[item] = NONE
    its = queues[queue]
    if its.head < 0:
        its.head = item
    else:
        items.after[its.tail] = item
    its.tail = item


@machine_code
def pop(items: Items, queues: Sequence[Queue], queue: int) -> int:
    its = queues[queue]
    item = its.head
    its.head = items.after[item]
    return item


@machine_code
def append_queue(items: Items, queues: Sequence[Queue], source: int, queue: int) -> None:
    """Everything in `source`, where something is, moves to the end of `queue`."""
    its = queues[queue]
    if its.head < 0:
        its.head = queues[source].head
    else:
        items.after[its.tail] = queues[source].head
    its.tail = queues[source].tail
    queues[source].head = NONE
