"""The life of requests in a service, event by event: the one loop of the simulation that costs anything.

A request passes: client's thread → network → front end (in) → queue of its length bin → batch → front end (batch out)
→ transport → worker (its own work, the model's call) → transport → front end (batch back, then each answer) → network
→ client's thread. What is exact, and what makes it quick:

- Everything that occupies a thread of the host shares its processors: with n busy threads each runs at capacity(n) / n.
  All run at the same rate, so one clock (`work`) that ticks at that rate tells when each is done, and a change of n
  moves no appointment: processor sharing in virtual time. The model's call, measured with t busy threads, needs
  capacity(t) / t of its time as work of each thread. Devices beside the host have such a clock each.
- Delays that occupy nobody have one length each, so those who wait form queues, not heaps.
- The front end is an event loop: it looks for batches to form (`pump`) behind what already waits for it, so requests
  of one moment share a batch; when a batch comes back it does so at once, before the answers (`serve.service`). Its
  timer counts whole milliseconds: a batch that waited for company leaves up to one later than its timeout says.
- Items (requests 0 ..., batches `total` + worker, the pump `total` + workers) are in linked queues over one table:
  each is in one place at a time.

What the functions share stands in `state`. None of them makes an array (`machine_code`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba

from workbench.prediction.simulation.state import (
    BACK,
    BINS,
    CALLING,
    CLIENT,
    FREE,
    FROM_WORKER,
    FRONT,
    NEVER,
    NONE,
    OUT,
    PREPARING,
    TO_CLIENT,
    TO_SERVER,
    TO_WORKER,
    URGENT,
    Device,
    Items,
    Queue,
    Rates,
    Setup,
    State,
    Tables,
    Worker,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

FRONT_END_DONE, CLIENT_DONE, WORKER_DONE, ARRIVAL, TIMER, DEVICE_DONE, DELAY_OVER, NEVER_MORE = range(8)
"""Events; up to WORKER_DONE they are the end of something that occupied a thread of the host."""

NOTHING, ENTERS_BIN, FORMS, PUMPS, GOES, STARTS, RETURNS, IS_ANSWERED, REACHES_CLIENT, IS_READ, IS_SENT = range(11)
"""What follows from an event at the same moment: the request enters its bin; batches are to be formed now, or once the
front end has taken in what waits for it; the batch goes to its worker, is there, returns; the request's answer leaves
the front end, is back at the client, is read; the request leaves the client."""

ROUNDING_MS = 1e-6
"""What sums of times may be wrong by; a wait of a whole millisecond and so much more is not rounded up."""


def machine_code(function: _Function) -> _Function:
    """The function itself, compiled at its first call (some seconds) and read from numba's cache on disk later.

    It may read and write the arrays it is given, and make none: their references are not counted (`_nrt`). Counting
    them at every call of a function within, atomically, takes more than half of the time otherwise.
    """
    compiled: Callable[..., Any] = numba.njit  # its types leave `_nrt` out
    try:
        return cast(_Function, compiled(cache=True, nogil=True, _nrt=False, forceinline=True)(function))
    except RuntimeError:  # numba finds no place for its cache: neither this folder nor the user's can be written
        return cast(_Function, compiled(nogil=True, _nrt=False, forceinline=True)(function))


@machine_code
def run(
    setup: Setup,
    state: State,
    rates: Rates,
    tables: Tables,
    arrivals: Sequence[float],
    items: Items,
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    devices: Sequence[Device],
    order: list[int],
) -> int:
    """Serve until `setup.stop` requests have been answered; how many were.

    Args:
        rates: by the number of busy threads.
        arrivals: moments; in a closed loop those of each client's first request.
        order: filled with the requests in the order of their answers.
    """
    while state.done < setup.stop:
        event = advance(state, rates)
        step = NOTHING
        item = NONE
        if event == FRONT_END_DONE:
            item = state.front_item
            step = front_end_done(setup, state, items, queues, workers, devices)
        elif event == DELAY_OVER:
            queue = state.delay_queue
            item = pop(items, queues, queue)
            next_delay(state, items, queues)
            if queue == TO_CLIENT:
                step = REACHES_CLIENT
            elif queue == TO_WORKER:
                step = STARTS
            else:  # a request from the network, or a batch from a worker
                push(items, queues, FRONT, item)
        elif event == CLIENT_DONE:
            item = state.client_item
            state.client_item = NONE
            state.client_ends = NEVER
            state.busy -= 1
            step = IS_READ if items.entered[item] else IS_SENT
        elif event == WORKER_DONE:
            item = setup.total + state.next_worker
            step = worker_done(setup, state, workers, devices)
        elif event == ARRIVAL:
            item = state.sent
            step = arrive(setup, state, arrivals, items, queues)
        elif event == DEVICE_DONE:
            item = setup.total + device_done(setup, state, workers, devices)
            step = RETURNS
        elif event == TIMER:
            state.timer_at = NEVER
            step = PUMPS
        elif event == NEVER_MORE:
            break

        if step == ENTERS_BIN:
            step = enter_bin(items, queues, item)
        if step >= IS_ANSWERED:
            pass_request(setup, state, items, queues, order, step, item)
        elif step == FORMS:
            if state.free > 0:
                form_batches(setup, state, items, queues, workers, devices)
        elif step == PUMPS:
            if not state.pump_waits:
                state.pump_waits = True
                push(items, queues, FRONT, setup.total + setup.workers)
        elif step >= GOES:
            pass_batch(setup, state, tables, items, queues, workers, step, item)

        if state.front_item < 0 and (queues[FRONT].head >= 0 or queues[URGENT].head >= 0):
            take_next(setup, state, items, queues)
        if state.client_item < 0 and queues[CLIENT].head >= 0:
            client_begins(setup, state, items, queues)
    return state.done


@machine_code
def client_begins(setup: Setup, state: State, items: Items, queues: Sequence[Queue]) -> None:
    state.client_item = pop(items, queues, CLIENT)
    state.client_ends = state.work + setup.client_half
    state.busy += 1


@machine_code
def advance(state: State, rates: Rates) -> int:
    """Move the clocks to the next event, and add up what was busy until then; which event it is."""
    now = state.now
    busy = state.busy
    event = FRONT_END_DONE
    ends = state.front_ends
    if state.client_ends < ends:
        event = CLIENT_DONE
        ends = state.client_ends
    if state.worker_ends < ends:
        event = WORKER_DONE
        ends = state.worker_ends
    at = now + (ends - state.work) * rates.slowness[busy]
    if state.arrival_at < at:
        event = ARRIVAL
        at = state.arrival_at
    if state.timer_at < at:
        event = TIMER
        at = state.timer_at
    if state.device_at < at:
        event = DEVICE_DONE
        at = state.device_at
    if state.delay_at < at:
        event = DELAY_OVER
        at = state.delay_at
    if at == NEVER:
        return NEVER_MORE
    elapsed = at - now
    if event <= WORKER_DONE:
        state.work = ends
    else:
        state.work += elapsed * rates.speed[busy]
    state.now = at
    state.workers_ms += elapsed * state.running
    state.processors_ms += elapsed * rates.processors[busy]
    if state.front_item >= 0:
        state.front_end_ms += elapsed
    return event


@machine_code
def arrive(setup: Setup, state: State, arrivals: Sequence[float], items: Items, queues: Sequence[Queue]) -> int:
    request = state.sent
    items.intended[request] = state.arrival_at
    state.sent += 1
    state.arrived += 1
    state.arrival_at = arrivals[state.arrived] if state.arrived < len(arrivals) else NEVER
    if setup.client_half > 0:
        push(items, queues, CLIENT, request)
        return NOTHING
    return IS_SENT


@machine_code
def take_next(setup: Setup, state: State, items: Items, queues: Sequence[Queue]) -> None:
    """The front end begins what waits for it."""
    if queues[URGENT].head >= 0:
        state.front_item = pop(items, queues, URGENT)
        state.front_ends = state.work + setup.batch_half
        state.busy += 1
        return
    item = pop(items, queues, FRONT)
    cost = 0.0
    if item < setup.total:
        if not items.entered[item]:
            items.due[item] = state.now + setup.timeout  # it waits from the moment it is read
        cost = setup.request_half
    elif item < setup.total + setup.workers:
        cost = setup.batch_half
    state.front_item = item
    state.front_ends = state.work + cost
    state.busy += 1


@machine_code
def front_end_done(
    setup: Setup,
    state: State,
    items: Items,
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    devices: Sequence[Device],
) -> int:
    item = state.front_item
    state.front_item = NONE
    state.front_ends = NEVER
    state.busy -= 1
    number = item - setup.total
    if number < 0:
        return IS_ANSWERED if items.entered[item] else ENTERS_BIN
    if number == setup.workers:
        state.pump_waits = False
        return FORMS
    worker = workers[number]
    if worker.state == OUT:
        return GOES
    worker.state = FREE
    state.free += 1
    devices[number % setup.devices].in_flight -= 1
    append_queue(items, queues, BINS + setup.bins + number, FRONT)
    return FORMS  # the worker would wait for the answers otherwise


@machine_code
def enter_bin(items: Items, queues: Sequence[Queue], request: int) -> int:
    items.entered[request] = True
    queue = BINS + items.bin[request]
    push(items, queues, queue, request)
    queues[queue].waiting += 1
    return FORMS if queues[FRONT].head < 0 else PUMPS


@machine_code
def form_batches(
    setup: Setup,
    state: State,
    items: Items,
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    devices: Sequence[Device],
) -> None:
    """Hand batches to free workers as long as a bin is ready, then set the timer for the one that is due next."""
    place = ready_bin(setup, state, items, queues)
    while place >= 0:
        number = free_worker(setup, workers, devices)
        queue = queues[BINS + place]
        worker = workers[number]
        rows = min(queue.waiting, setup.max_batch)
        for _ in range(rows):
            request = pop(items, queues, BINS + place)
            push(items, queues, BINS + setup.bins + number, request)
            items.batch[request] = state.formed
        state.formed += 1
        queue.waiting -= rows
        worker.rows = rows
        worker.bin = place
        worker.state = OUT
        state.free -= 1
        devices[number % setup.devices].in_flight += 1
        push(items, queues, URGENT, setup.total + number)
        place = ready_bin(setup, state, items, queues) if state.free > 0 else NONE
    state.timer_at = NEVER
    if state.free > 0 and not state.pump_waits:
        at = NEVER
        for place in range(setup.bins):
            oldest = queues[BINS + place].head
            if oldest >= 0:
                at = min(at, items.due[oldest])
        if at < NEVER:
            state.timer_at = max(at, state.now + math.ceil(at - state.now - ROUNDING_MS))


@machine_code
def ready_bin(setup: Setup, state: State, items: Items, queues: Sequence[Queue]) -> int:
    """Among bins that are full or whose oldest request is due, the one with the oldest request; NONE without any."""
    found = NONE
    due = NEVER
    for place in range(setup.bins):
        queue = queues[BINS + place]
        if queue.head >= 0:
            its = items.due[queue.head]
            if its < due and (queue.waiting >= setup.max_batch or its <= state.now):
                found = place
                due = its
    return found


@machine_code
def free_worker(setup: Setup, workers: Sequence[Worker], devices: Sequence[Device]) -> int:
    """The longest idle worker (`serve.workers`) of the device with the fewest batches."""
    found = NONE
    fewest = 0
    since = 0.0
    for number in range(setup.workers):
        if workers[number].state == FREE:
            in_flight = devices[number % setup.devices].in_flight
            if found < 0 or in_flight < fewest or (in_flight == fewest and workers[number].since < since):
                found = number
                fewest = in_flight
                since = workers[number].since
    return found


@machine_code
def start(setup: Setup, state: State, tables: Tables, workers: Sequence[Worker], number: int) -> None:
    """A worker begins with its batch."""
    worker = workers[number]
    call = drawn_time(setup, tables.times, worker.bin, worker.rows, tables.uniforms[state.started])
    call = (call + slower_by(tables.idle, tables.slower, state.now - worker.since)) * setup.call_share
    own = setup.worker_batch + setup.worker_row * worker.rows
    state.started += 1
    state.running += 1
    state.busy += 1
    if setup.threads == 1:  # its own work and the call run at one rate: one appointment
        worker.state = CALLING
        worker.ends = state.work + own + call
    else:
        worker.state = PREPARING
        worker.ends = state.work + own
        worker.call = call
    next_worker(setup, state, workers)


@machine_code
def worker_done(setup: Setup, state: State, workers: Sequence[Worker], devices: Sequence[Device]) -> int:
    """A worker's own work, or its call on the host, has ended."""
    number = state.next_worker
    worker = workers[number]
    step = NOTHING
    if worker.state == CALLING:
        state.busy -= setup.threads
        worker.ends = NEVER
        worker.since = state.now
        step = RETURNS
    elif setup.threads > 0:
        worker.state = CALLING
        state.busy += setup.threads - 1
        worker.ends = state.work + worker.call
    else:
        worker.state = CALLING
        state.busy -= 1
        worker.ends = NEVER
        place = number % setup.devices
        device = devices[place]
        if device.calls > 0:
            device.work += (state.now - device.since) / device.calls
        device.since = state.now
        device.calls += 1
        worker.call_ends = device.work + worker.call
        next_device(setup, state, workers, devices, place)
    next_worker(setup, state, workers)
    return step


@machine_code
def device_done(setup: Setup, state: State, workers: Sequence[Worker], devices: Sequence[Device]) -> int:
    """The worker whose call on the device has ended."""
    place = state.next_device
    called = place
    for number in range(place, setup.workers, setup.devices):
        if workers[number].call_ends < workers[called].call_ends:
            called = number
    device = devices[place]
    device.work = workers[called].call_ends
    device.since = state.now
    device.calls -= 1
    workers[called].call_ends = NEVER
    workers[called].since = state.now
    next_device(setup, state, workers, devices, place)
    return called


@machine_code
def pass_request(
    setup: Setup, state: State, items: Items, queues: Sequence[Queue], order: list[int], step: int, request: int
) -> None:
    """A request on its way between the front end and the client, as far as it comes at this moment."""
    if step == IS_ANSWERED:
        if setup.network_half > 0:
            delay(state, items, queues, TO_CLIENT, request, setup.network_half)
            return
        step = REACHES_CLIENT
    if step == REACHES_CLIENT:
        if setup.client_half > 0:
            push(items, queues, CLIENT, request)
            return
        step = IS_READ
    if step == IS_READ:
        order[state.done] = request
        items.finished[request] = state.now
        state.done += 1
        if state.done == setup.warm_up:
            begin_sums(state)
        if not setup.closed or state.sent == setup.total:
            return
        request = state.sent
        items.intended[request] = state.now
        state.sent += 1
        if setup.client_half > 0:  # a client sends within the task that read the answer
            state.client_item = request
            state.client_ends = state.work + setup.client_half
            state.busy += 1
            return
    if setup.network_half > 0:
        delay(state, items, queues, TO_SERVER, request, setup.network_half)
    else:
        push(items, queues, FRONT, request)


@machine_code
def pass_batch(
    setup: Setup,
    state: State,
    tables: Tables,
    items: Items,
    queues: Sequence[Queue],
    workers: Sequence[Worker],
    step: int,
    item: int,
) -> None:
    """A batch on its way between the front end and its worker, as far as it comes at this moment."""
    if step == RETURNS:
        workers[item - setup.total].state = BACK
        state.running -= 1
        if setup.transport_half > 0:
            delay(state, items, queues, FROM_WORKER, item, setup.transport_half)
        else:
            push(items, queues, FRONT, item)
    elif step == GOES and setup.transport_half > 0:
        delay(state, items, queues, TO_WORKER, item, setup.transport_half)
    else:
        start(setup, state, tables, workers, item - setup.total)


@machine_code
def begin_sums(state: State) -> None:
    state.workers_ms = 0.0
    state.processors_ms = 0.0
    state.front_end_ms = 0.0
    state.started_ms = state.now
    state.first_batch = state.started


@machine_code
def next_worker(setup: Setup, state: State, workers: Sequence[Worker]) -> None:
    """Find the worker that is done first on the host."""
    found = 0
    ends = workers[0].ends
    for number in range(1, setup.workers):
        if workers[number].ends < ends:
            found = number
            ends = workers[number].ends
    state.next_worker = found
    state.worker_ends = ends


@machine_code
def next_device(setup: Setup, state: State, workers: Sequence[Worker], devices: Sequence[Device], changed: int) -> None:
    """Find the device whose first call ends first, if none joins; the calls of `changed` are others than before."""
    first = NEVER
    for number in range(changed, setup.workers, setup.devices):
        first = min(first, workers[number].call_ends)
    device = devices[changed]
    device.ends = NEVER
    if first < NEVER:  # its calls share it evenly
        device.ends = device.since + (first - device.work) * device.calls
    found = 0
    for place in range(1, setup.devices):
        if devices[place].ends < devices[found].ends:
            found = place
    state.next_device = found
    state.device_at = devices[found].ends


@machine_code
def drawn_time(setup: Setup, times: Sequence[float], place: int, rows: int, uniform: float) -> float:
    """Inverse transform: the time at a uniform number, linear between quantiles."""
    first = (place * setup.max_batch + rows - 1) * setup.quantiles
    if setup.quantiles == 1:
        return times[first]
    position = uniform * (setup.quantiles - 1)
    below = min(int(position), setup.quantiles - 2)
    low = times[first + below]
    return low + (position - below) * (times[first + below + 1] - low)


@machine_code
def slower_by(idle: Sequence[float], slower: Sequence[float], waited: float) -> float:
    """Linear between measured waits, and no more beyond the longest."""
    last = len(idle) - 1
    if waited >= idle[last]:
        return slower[last]
    place = 1
    while idle[place] <= waited:
        place += 1
    share = (waited - idle[place - 1]) / (idle[place] - idle[place - 1])
    return slower[place - 1] + share * (slower[place] - slower[place - 1])


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
