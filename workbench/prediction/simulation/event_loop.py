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
from collections.abc import Callable
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
    World,
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
def run(w: World) -> int:
    """Serve until `setup.stop` requests have been answered; how many were."""
    while w.state.done < w.setup.stop:
        event = advance(w)
        step = NOTHING
        item = NONE
        if event == FRONT_END_DONE:
            item = w.state.front_item
            step = front_end_done(w)
        elif event == DELAY_OVER:
            queue = w.state.delay_queue
            item = pop(w, queue)
            next_delay(w)
            if queue == TO_CLIENT:
                step = REACHES_CLIENT
            elif queue == TO_WORKER:
                step = STARTS
            else:  # a request from the network, or a batch from a worker
                push(w, FRONT, item)
        elif event == CLIENT_DONE:
            item = w.state.client_item
            w.state.client_item = NONE
            w.state.client_ends = NEVER
            w.state.busy -= 1
            step = IS_READ if w.items.entered[item] else IS_SENT
        elif event == WORKER_DONE:
            item = w.setup.total + w.state.next_worker
            step = worker_done(w)
        elif event == ARRIVAL:
            item = w.state.sent
            step = arrive(w)
        elif event == DEVICE_DONE:
            item = w.setup.total + device_done(w)
            step = RETURNS
        elif event == TIMER:
            w.state.timer_at = NEVER
            step = PUMPS
        elif event == NEVER_MORE:
            break

        if step == ENTERS_BIN:
            step = enter_bin(w, item)
        if step >= IS_ANSWERED:
            pass_request(w, step, item)
        elif step == FORMS:
            if w.state.free > 0:
                form_batches(w)
        elif step == PUMPS:
            if not w.state.pump_waits:
                w.state.pump_waits = True
                push(w, FRONT, w.setup.total + w.setup.workers)
        elif step >= GOES:
            pass_batch(w, step, item)

        if w.state.front_item < 0 and (w.queues[FRONT].head >= 0 or w.queues[URGENT].head >= 0):
            take_next(w)
        if w.state.client_item < 0 and w.queues[CLIENT].head >= 0:
            client_begins(w)
    return w.state.done


@machine_code
def client_begins(w: World) -> None:
    w.state.client_item = pop(w, CLIENT)
    w.state.client_ends = w.state.work + w.setup.client_half
    w.state.busy += 1


@machine_code
def advance(w: World) -> int:
    """Move the clocks to the next event, and add up what was busy until then; which event it is."""
    now = w.state.now
    busy = w.state.busy
    event = FRONT_END_DONE
    ends = w.state.front_ends
    if w.state.client_ends < ends:
        event = CLIENT_DONE
        ends = w.state.client_ends
    if w.state.worker_ends < ends:
        event = WORKER_DONE
        ends = w.state.worker_ends
    at = now + (ends - w.state.work) * w.slowness[busy]
    if w.state.arrival_at < at:
        event = ARRIVAL
        at = w.state.arrival_at
    if w.state.timer_at < at:
        event = TIMER
        at = w.state.timer_at
    if w.state.device_at < at:
        event = DEVICE_DONE
        at = w.state.device_at
    if w.state.delay_at < at:
        event = DELAY_OVER
        at = w.state.delay_at
    if at == NEVER:
        return NEVER_MORE
    elapsed = at - now
    if event <= WORKER_DONE:
        w.state.work = ends
    else:
        w.state.work += elapsed * w.speed[busy]
    w.state.now = at
    w.state.workers_ms += elapsed * w.state.running
    if w.state.front_item >= 0:
        w.state.front_end_ms += elapsed
    return event


@machine_code
def arrive(w: World) -> int:
    request = w.state.sent
    w.items.intended[request] = w.state.arrival_at
    w.state.sent += 1
    w.state.arrived += 1
    w.state.arrival_at = w.arrivals[w.state.arrived] if w.state.arrived < len(w.arrivals) else NEVER
    if w.setup.client_half > 0:
        push(w, CLIENT, request)
        return NOTHING
    return IS_SENT


@machine_code
def take_next(w: World) -> None:
    """The front end begins what waits for it."""
    if w.queues[URGENT].head >= 0:
        w.state.front_item = pop(w, URGENT)
        w.state.front_ends = w.state.work + w.setup.batch_half
        w.state.busy += 1
        return
    item = pop(w, FRONT)
    cost = 0.0
    if item < w.setup.total:
        if not w.items.entered[item]:
            w.items.due[item] = w.state.now + w.setup.timeout  # it waits from the moment it is read
        cost = w.setup.request_half
        if w.items.bin[item] == NONE:
            cost += w.setup.batch_after
    elif item < w.setup.total + w.setup.workers:
        cost = w.setup.batch_half
    w.state.front_item = item
    w.state.front_ends = w.state.work + cost
    w.state.busy += 1


@machine_code
def front_end_done(w: World) -> int:
    item = w.state.front_item
    w.state.front_item = NONE
    w.state.front_ends = NEVER
    w.state.busy -= 1
    number = item - w.setup.total
    if number < 0:
        return IS_ANSWERED if w.items.entered[item] else ENTERS_BIN
    if number == w.setup.workers:
        w.state.pump_waits = False
        return FORMS
    worker = w.workers[number]
    if worker.state == OUT:
        return GOES
    worker.state = FREE
    w.state.free += 1
    w.devices[number % w.setup.devices].in_flight -= 1
    w.items.bin[w.queues[BINS + w.setup.bins + number].head] = NONE
    append_queue(w, BINS + w.setup.bins + number, FRONT)
    return FORMS  # the worker would wait for the answers otherwise


@machine_code
def enter_bin(w: World, request: int) -> int:
    w.items.entered[request] = True
    queue = BINS + w.items.bin[request]
    push(w, queue, request)
    w.queues[queue].waiting += 1
    return FORMS if w.queues[FRONT].head < 0 else PUMPS


@machine_code
def form_batches(w: World) -> None:
    """Hand batches to free workers as long as a bin is ready, then set the timer for the one that is due next."""
    place = ready_bin(w)
    while place >= 0:
        number = free_worker(w)
        queue = w.queues[BINS + place]
        worker = w.workers[number]
        rows = min(queue.waiting, w.setup.max_batch)
        for _ in range(rows):
            request = pop(w, BINS + place)
            push(w, BINS + w.setup.bins + number, request)
            w.items.batch[request] = w.state.formed
        w.state.formed += 1
        queue.waiting -= rows
        worker.rows = rows
        worker.bin = place
        worker.state = OUT
        w.state.free -= 1
        w.devices[number % w.setup.devices].in_flight += 1
        push(w, URGENT, w.setup.total + number)
        place = ready_bin(w) if w.state.free > 0 else NONE
    w.state.timer_at = NEVER
    if w.state.free > 0 and not w.state.pump_waits:
        at = NEVER
        for place in range(w.setup.bins):
            oldest = w.queues[BINS + place].head
            if oldest >= 0:
                at = min(at, w.items.due[oldest])
        if at < NEVER:
            w.state.timer_at = max(at, w.state.now + math.ceil(at - w.state.now - ROUNDING_MS))


@machine_code
def ready_bin(w: World) -> int:
    """Among bins that are full or whose oldest request is due, the one with the oldest request; NONE without any."""
    found = NONE
    due = NEVER
    for place in range(w.setup.bins):
        queue = w.queues[BINS + place]
        if queue.head >= 0:
            its = w.items.due[queue.head]
            if its < due and (queue.waiting >= w.setup.max_batch or its <= w.state.now):
                found = place
                due = its
    return found


@machine_code
def free_worker(w: World) -> int:
    """The longest idle worker (`serve.workers`) of the device with the fewest batches."""
    found = NONE
    fewest = 0
    since = 0.0
    for number in range(w.setup.workers):
        if w.workers[number].state == FREE:
            in_flight = w.devices[number % w.setup.devices].in_flight
            if found < 0 or in_flight < fewest or (in_flight == fewest and w.workers[number].since < since):
                found = number
                fewest = in_flight
                since = w.workers[number].since
    return found


@machine_code
def start(w: World, number: int) -> None:
    """A worker begins with its batch."""
    worker = w.workers[number]
    call = drawn_time(w, worker.bin, worker.rows, w.uniforms[w.state.started])
    call = (call + slower_by(w, w.state.now - worker.since)) * w.setup.call_share
    own = w.setup.worker_batch + w.setup.worker_row * worker.rows
    w.state.started += 1
    w.state.running += 1
    w.state.busy += 1
    if w.setup.threads == 1:  # its own work and the call run at one rate: one appointment
        worker.state = CALLING
        worker.ends = w.state.work + own + call
    else:
        worker.state = PREPARING
        worker.ends = w.state.work + own
        worker.call = call
    next_worker(w)


@machine_code
def worker_done(w: World) -> int:
    """A worker's own work, or its call on the host, has ended."""
    number = w.state.next_worker
    worker = w.workers[number]
    step = NOTHING
    if worker.state == CALLING:
        w.state.busy -= w.setup.threads
        worker.ends = NEVER
        worker.since = w.state.now
        step = RETURNS
    elif w.setup.threads > 0:
        worker.state = CALLING
        w.state.busy += w.setup.threads - 1
        worker.ends = w.state.work + worker.call
    else:
        worker.state = CALLING
        w.state.busy -= 1
        worker.ends = NEVER
        place = number % w.setup.devices
        device = w.devices[place]
        if device.calls > 0:
            device.work += (w.state.now - device.since) / device.calls
        device.since = w.state.now
        device.calls += 1
        worker.call_ends = device.work + worker.call
        next_device(w, place)
    next_worker(w)
    return step


@machine_code
def device_done(w: World) -> int:
    """The worker whose call on the device has ended."""
    place = w.state.next_device
    called = place
    for number in range(place, w.setup.workers, w.setup.devices):
        if w.workers[number].call_ends < w.workers[called].call_ends:
            called = number
    device = w.devices[place]
    device.work = w.workers[called].call_ends
    device.since = w.state.now
    device.calls -= 1
    w.workers[called].call_ends = NEVER
    w.workers[called].since = w.state.now
    next_device(w, place)
    return called


@machine_code
def pass_request(w: World, step: int, request: int) -> None:
    """A request on its way between the front end and the client, as far as it comes at this moment."""
    if step == IS_ANSWERED:
        if w.setup.network_half > 0:
            delay(w, TO_CLIENT, request, w.setup.network_half)
            return
        step = REACHES_CLIENT
    if step == REACHES_CLIENT:
        if w.setup.client_half > 0:
            push(w, CLIENT, request)
            return
        step = IS_READ
    if step == IS_READ:
        w.order[w.state.done] = request
        w.items.finished[request] = w.state.now
        w.state.done += 1
        if w.state.done == w.setup.warm_up:
            begin_sums(w)
        if not w.setup.closed or w.state.sent == w.setup.total:
            return
        request = w.state.sent
        w.items.intended[request] = w.state.now
        w.state.sent += 1
        if w.setup.client_half > 0:  # a client sends within the task that read the answer
            w.state.client_item = request
            w.state.client_ends = w.state.work + w.setup.client_half
            w.state.busy += 1
            return
    if w.setup.network_half > 0:
        delay(w, TO_SERVER, request, w.setup.network_half)
    else:
        push(w, FRONT, request)


@machine_code
def pass_batch(w: World, step: int, item: int) -> None:
    """A batch on its way between the front end and its worker, as far as it comes at this moment."""
    if step == RETURNS:
        w.workers[item - w.setup.total].state = BACK
        w.state.running -= 1
        if w.setup.transport_half > 0:
            delay(w, FROM_WORKER, item, w.setup.transport_half)
        else:
            push(w, FRONT, item)
    elif step == GOES and w.setup.transport_half > 0:
        delay(w, TO_WORKER, item, w.setup.transport_half)
    else:
        start(w, item - w.setup.total)


@machine_code
def begin_sums(w: World) -> None:
    w.state.workers_ms = 0.0
    w.state.front_end_ms = 0.0
    w.state.started_ms = w.state.now
    w.state.first_batch = w.state.started


@machine_code
def next_worker(w: World) -> None:
    """Find the worker that is done first on the host."""
    found = 0
    ends = w.workers[0].ends
    for number in range(1, w.setup.workers):
        if w.workers[number].ends < ends:
            found = number
            ends = w.workers[number].ends
    w.state.next_worker = found
    w.state.worker_ends = ends


@machine_code
def next_device(w: World, changed: int) -> None:
    """Find the device whose first call ends first, if none joins; the calls of `changed` are others than before."""
    first = NEVER
    for number in range(changed, w.setup.workers, w.setup.devices):
        first = min(first, w.workers[number].call_ends)
    device = w.devices[changed]
    device.ends = NEVER
    if first < NEVER:  # its calls share it evenly
        device.ends = device.since + (first - device.work) * device.calls
    found = 0
    for place in range(1, w.setup.devices):
        if w.devices[place].ends < w.devices[found].ends:
            found = place
    w.state.next_device = found
    w.state.device_at = w.devices[found].ends


@machine_code
def drawn_time(w: World, place: int, rows: int, uniform: float) -> float:
    """Inverse transform: the time at a uniform number, linear between quantiles."""
    first = (place * w.setup.max_batch + rows - 1) * w.setup.quantiles
    if w.setup.quantiles == 1:
        return w.times[first]
    position = uniform * (w.setup.quantiles - 1)
    below = min(int(position), w.setup.quantiles - 2)
    low = w.times[first + below]
    return low + (position - below) * (w.times[first + below + 1] - low)


@machine_code
def slower_by(w: World, waited: float) -> float:
    """Linear between measured waits, and no more beyond the longest."""
    last = len(w.idle) - 1
    if waited >= w.idle[last]:
        return w.slower[last]
    place = 1
    while w.idle[place] <= waited:
        place += 1
    share = (waited - w.idle[place - 1]) / (w.idle[place] - w.idle[place - 1])
    return w.slower[place - 1] + share * (w.slower[place] - w.slower[place - 1])


@machine_code
def delay(w: World, queue: int, item: int, duration: float) -> None:
    """`item` joins the delay `queue`, where all wait equally long: only the first of a queue can be the next."""
    at = w.state.now + duration
    w.items.due[item] = at
    if w.queues[queue].head < 0 and (at < w.state.delay_at or (at == w.state.delay_at and queue < w.state.delay_queue)):
        w.state.delay_queue = queue
        w.state.delay_at = at
    push(w, queue, item)


@machine_code
def next_delay(w: World) -> None:
    """Find the delay that ends first; of several that end at one moment the one of the lowest queue."""
    w.state.delay_queue = NONE
    w.state.delay_at = NEVER
    for queue in range(TO_SERVER, FROM_WORKER + 1):
        head = w.queues[queue].head
        if head >= 0 and w.items.due[head] < w.state.delay_at:
            w.state.delay_queue = queue
            w.state.delay_at = w.items.due[head]


@machine_code
def push(w: World, queue: int, item: int) -> None:
    w.items.after[item] = NONE
    its = w.queues[queue]
    if its.head < 0:
        its.head = item
    else:
        w.items.after[its.tail] = item
    its.tail = item


@machine_code
def pop(w: World, queue: int) -> int:
    its = w.queues[queue]
    item = its.head
    its.head = w.items.after[item]
    return item


@machine_code
def append_queue(w: World, source: int, queue: int) -> None:
    """Everything in `source`, where something is, moves to the end of `queue`."""
    its = w.queues[queue]
    if its.head < 0:
        its.head = w.queues[source].head
    else:
        w.items.after[its.tail] = w.queues[source].head
    its.tail = w.queues[source].tail
    w.queues[source].head = NONE
