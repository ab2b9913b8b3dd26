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
- Requests, batches and the pump are numbers (0 ..., `total` + worker, `total` + workers) in linked queues over one
  array: each is in one place at a time.

Arrays may be lists: the interpreter is three times as quick with them. No function here makes an array
(`machine_code`). Times are milliseconds.
"""

from __future__ import annotations

import math
from typing import Any

from workbench.prediction.simulation.machine_code import machine_code

Values = Any  # an array in machine code, a list when interpreted

FRONT, URGENT, CLIENT, TO_SERVER, TO_CLIENT, TO_WORKER, FROM_WORKER, BINS = range(8)
"""Queues. URGENT: batches that the front end hands out within the task that formed them. From BINS on one for each
length bin, then one for each worker with the rows of its batch."""

FREE, OUT, PREPARING, CALLING, BACK = range(5)
"""States of a worker: without a batch; its batch leaves the front end; its own work; the model's call; on the way back.
With LitServe's own loop a free worker holds its window open."""

HOST, ARRIVAL, TIMER, DEVICE, DELAY = range(5)

WORKERS_MS, FRONT_END_MS, PROCESSORS_MS, STARTED_MS, FIRST_BATCH, BATCHES = range(6)
"""What `run` adds up after the warm-up: busy time of all workers, of the front end, of the host's processors (in
threads); the moment, and the batch, at which it began; how many batches there were in all."""

NEVER = float("inf")

ROUNDING_MS = 1e-6
"""What sums of times may be wrong by; a wait of a whole millisecond and so much more is not rounded up."""


@machine_code
def push(head: Values, tail: Values, after: Values, queue: int, item: int) -> None:
    after[item] = -1
    if head[queue] < 0:
        head[queue] = item
    else:
        after[tail[queue]] = item
    tail[queue] = item


@machine_code
def pop(head: Values, after: Values, queue: int) -> int:
    item: int = head[queue]
    head[queue] = after[item]
    return item


@machine_code
def append_queue(head: Values, tail: Values, after: Values, source: int, queue: int) -> None:
    """Everything in `source` moves to the end of `queue`."""
    if head[source] < 0:
        return
    if head[queue] < 0:
        head[queue] = head[source]
    else:
        after[tail[queue]] = head[source]
    tail[queue] = tail[source]
    head[source] = -1


@machine_code
def first_due(head: Values, due: Values) -> int:
    """The delay that ends first, as its queue; -1 without any."""
    found = -1
    for queue in range(TO_SERVER, FROM_WORKER + 1):
        if head[queue] >= 0 and (found < 0 or due[head[queue]] < due[head[found]]):
            found = queue
    return found


@machine_code
def least(values: Values, count: int) -> int:
    found = 0
    for place in range(1, count):
        if values[place] < values[found]:
            found = place
    return found


@machine_code
def ready_bin(head: Values, due: Values, waiting: Values, bins: int, max_batch: int, now: float) -> int:
    """Among bins that are full or whose oldest request is due, the one with the oldest request; -1 without any."""
    found = -1
    for place in range(bins):
        oldest = head[BINS + place]
        if (
            oldest >= 0
            and (waiting[place] >= max_batch or due[oldest] <= now)
            and (found < 0 or due[oldest] < due[head[BINS + found]])
        ):
            found = place
    return found


@machine_code
def free_worker(state: Values, in_flight: Values, workers: int, devices: int) -> int:
    """The lowest free worker of the device with the fewest batches; worker w belongs to device w % devices.

    The service takes the longest idle one (`serve.workers`): devices are alike and so are a device's workers, so that
    says only what each is called.
    """
    found = -1
    for worker in range(workers):
        if state[worker] == FREE and (found < 0 or in_flight[worker % devices] < in_flight[found % devices]):
            found = worker
    return found


@machine_code
def longest_asking(state: Values, asked: Values, workers: int) -> int:
    """Of the workers with an open window, the one that has waited longest for its next request; -1 without any."""
    found = -1
    for worker in range(workers):
        if state[worker] == FREE and (found < 0 or asked[worker] < asked[found]):
            found = worker
    return found


@machine_code
def drawn_time(times: Values, quantiles: int, max_batch: int, place: int, rows: int, uniform: float) -> float:
    """Inverse transform: the time at a uniform number, linear between quantiles."""
    first = (place * max_batch + rows - 1) * quantiles
    if quantiles == 1:
        alone: float = times[first]
        return alone
    position = uniform * (quantiles - 1)
    below = min(int(position), quantiles - 2)
    low: float = times[first + below]
    high: float = times[first + below + 1]
    return low + (position - below) * (high - low)


@machine_code
def device_end(
    calls: Values, clock: Values, since: Values, ends: Values, device: int, devices: int, workers: int
) -> float:
    """When the first call on a device ends, if none joins: its calls share it evenly."""
    first = NEVER
    for worker in range(device, workers, devices):
        first = min(first, ends[worker])
    if first == NEVER:
        return NEVER
    end: float = since[device] + (first - clock[device]) * calls[device]
    return end


@machine_code
def run(
    closed: bool,
    total: int,
    stop: int,
    warm_up: int,
    arrivals: Values,
    bin_of: Values,
    tokens: Values,
    uniforms: Values,
    times: Values,
    quantiles: int,
    bins: int,
    litserve: bool,
    max_batch: int,
    timeout: float,
    workers: int,
    devices: int,
    threads: int,
    call_share: float,
    speed: Values,
    slowness: Values,
    processors: Values,
    request_half: float,
    batch_half: float,
    worker_batch: float,
    worker_row: float,
    client_half: float,
    transport_half: float,
    network_half: float,
    head: Values,
    tail: Values,
    after: Values,
    due: Values,
    intended: Values,
    entered: Values,
    waiting: Values,
    state: Values,
    rows_of: Values,
    tokens_of: Values,
    place_of: Values,
    call_of: Values,
    worker_ends: Values,
    window_ends: Values,
    opened: Values,
    asked: Values,
    in_flight: Values,
    device_calls: Values,
    device_clock: Values,
    device_since: Values,
    device_ends: Values,
    call_ends: Values,
    latency: Values,
    finished: Values,
    batch_rows: Values,
    batch_place: Values,
    batch_tokens: Values,
    sums: Values,
) -> int:
    """Serve until `stop` requests have been answered; how many were.

    Args:
        closed: clients send again when answered, as long as fewer than `total` were sent; `arrivals` begins it.
        bin_of, tokens: of each request; uniforms: one for each batch.
        times: [bins, max_batch, quantiles] of a call, flat.
        workers: of all devices together.
        speed, slowness, processors: by the number of busy threads: work done by each in a millisecond, its inverse,
            and how many processors that occupies.
        latency, finished: in the order of answers.
    """
    now = 0.0
    work = 0.0  # done by a thread that was always busy
    busy = 0
    front_item = -1
    client_item = -1
    front_ends = NEVER
    client_ends = NEVER
    next_worker = 0
    next_worker_ends = NEVER
    next_device = 0
    device_at = NEVER
    delay_queue = -1
    delay_at = NEVER
    timer_at = NEVER
    pump_waits = False
    free = workers
    running = 0
    arrived = 0
    sent = 0
    done = 0
    batches = 0
    tickets = 1
    workers_ms = 0.0
    processors_ms = 0.0
    front_end_ms = 0.0
    arrival_at = arrivals[0]
    pump = total + workers
    own_rows = BINS + bins

    while done < stop:
        # What comes next?
        ends = min(front_ends, client_ends, next_worker_ends)
        at = now + (ends - work) * slowness[busy]
        event = HOST
        if arrival_at < at:
            at = arrival_at
            event = ARRIVAL
        if timer_at < at:
            at = timer_at
            event = TIMER
        if device_at < at:
            at = device_at
            event = DEVICE
        if delay_at < at:
            at = delay_at
            event = DELAY
        if at == NEVER:
            break
        elapsed = at - now
        if event == HOST:
            work = ends
        else:
            work += elapsed * speed[busy]
        now = at
        workers_ms += elapsed * running
        processors_ms += elapsed * processors[busy]
        if front_item >= 0:
            front_end_ms += elapsed

        entering = -1  # a request that the front end has taken in
        queued = -1  # a request that reached LitServe's queue
        starting = -1  # a worker that has its batch
        called = -1  # a worker whose call is done
        answered = -1  # a request whose answer leaves the front end
        reached = -1  # … and is back at the client
        received = -1  # … and read
        leaving = -1  # a request that leaves the client
        pump_soon = False
        decide = False  # whether a batch may be formed

        if event == HOST:
            if ends == front_ends:
                item = front_item
                front_item = -1
                front_ends = NEVER
                busy -= 1
                if item < total:
                    if entered[item] == 0:
                        entering = item
                    else:
                        answered = item
                elif item < pump:
                    worker = item - total
                    if state[worker] == BACK:
                        state[worker] = FREE
                        free += 1
                        in_flight[worker % devices] -= 1
                        append_queue(head, tail, after, own_rows + worker, FRONT)
                        decide = True  # the worker would wait for the answers otherwise
                    elif transport_half > 0:
                        due[item] = now + transport_half
                        push(head, tail, after, TO_WORKER, item)
                        delay_queue = first_due(head, due)
                        delay_at = due[head[delay_queue]]
                    else:
                        starting = worker
                else:
                    pump_waits = False
                    decide = True
            elif ends == client_ends:
                item = client_item
                client_item = -1
                client_ends = NEVER
                busy -= 1
                if entered[item] == 0:
                    leaving = item
                else:
                    received = item
            else:
                worker = next_worker
                if state[worker] == CALLING:
                    called = worker
                    busy -= threads
                    worker_ends[worker] = NEVER
                elif threads > 0:
                    state[worker] = CALLING
                    busy += threads - 1
                    worker_ends[worker] = work + call_of[worker]
                else:
                    state[worker] = CALLING
                    busy -= 1
                    worker_ends[worker] = NEVER
                    device = worker % devices
                    if device_calls[device] > 0:
                        device_clock[device] += (now - device_since[device]) / device_calls[device]
                    device_since[device] = now
                    device_calls[device] += 1
                    call_ends[worker] = device_clock[device] + call_of[worker]
                    device_ends[device] = device_end(
                        device_calls, device_clock, device_since, call_ends, device, devices, workers
                    )
                    next_device = least(device_ends, devices)
                    device_at = device_ends[next_device]
                next_worker = least(worker_ends, workers)
                next_worker_ends = worker_ends[next_worker]
        elif event == ARRIVAL:
            item = sent
            intended[item] = arrival_at
            sent += 1
            arrived += 1
            arrival_at = arrivals[arrived] if arrived < len(arrivals) else NEVER
            if client_half > 0:
                push(head, tail, after, CLIENT, item)
            else:
                leaving = item
        elif event == TIMER:
            if litserve:
                starting = least(window_ends, workers)
            else:
                timer_at = NEVER
                if not pump_waits:
                    pump_waits = True
                    push(head, tail, after, FRONT, pump)
        elif event == DEVICE:
            device = next_device
            called = device
            for worker in range(device, workers, devices):
                if call_ends[worker] < call_ends[called]:
                    called = worker
            device_clock[device] = call_ends[called]
            device_since[device] = now
            device_calls[device] -= 1
            call_ends[called] = NEVER
            device_ends[device] = device_end(
                device_calls, device_clock, device_since, call_ends, device, devices, workers
            )
            next_device = least(device_ends, devices)
            device_at = device_ends[next_device]
        else:
            queue = delay_queue
            item = pop(head, after, queue)
            delay_queue = first_due(head, due)
            delay_at = due[head[delay_queue]] if delay_queue >= 0 else NEVER
            if queue == TO_CLIENT:
                reached = item
            elif queue == TO_WORKER and litserve:
                queued = item
            elif queue == TO_WORKER:
                starting = item - total
            else:  # a request from the network, or a batch (with LitServe's loop a row of one) from a worker
                push(head, tail, after, FRONT, item)

        if entering >= 0:
            entered[entering] = 1
            if not litserve:
                place = bin_of[entering]
                push(head, tail, after, BINS + place, entering)
                waiting[place] += 1
                pump_soon = True
            elif transport_half > 0:
                due[entering] = now + transport_half
                push(head, tail, after, TO_WORKER, entering)
                delay_queue = first_due(head, due)
                delay_at = due[head[delay_queue]]
            else:
                queued = entering

        if called >= 0:
            running -= 1
            if not litserve:
                state[called] = BACK
                item = total + called
                if transport_half > 0:
                    due[item] = now + transport_half
                    push(head, tail, after, FROM_WORKER, item)
                    delay_queue = first_due(head, due)
                    delay_at = due[head[delay_queue]]
                else:
                    push(head, tail, after, FRONT, item)
            else:
                if transport_half > 0:
                    item = head[own_rows + called]
                    while item >= 0:
                        due[item] = now + transport_half
                        item = after[item]
                    append_queue(head, tail, after, own_rows + called, FROM_WORKER)
                    delay_queue = first_due(head, due)
                    delay_at = due[head[delay_queue]]
                else:
                    append_queue(head, tail, after, own_rows + called, FRONT)
                # The next window opens at once, and takes what is there.
                state[called] = FREE
                opened[called] = now
                rows_of[called] = 0
                tokens_of[called] = 0
                place_of[called] = 0
                while rows_of[called] < max_batch and waiting[0] > 0:
                    item = pop(head, after, BINS)
                    waiting[0] -= 1
                    push(head, tail, after, own_rows + called, item)
                    rows_of[called] += 1
                    tokens_of[called] += tokens[item]
                    place_of[called] = max(place_of[called], bin_of[item])
                asked[called] = tickets
                tickets += 1
                if rows_of[called] == max_batch:
                    starting = called
                elif rows_of[called] > 0:
                    window_ends[called] = now + timeout
                    timer_at = min(timer_at, window_ends[called])

        if queued >= 0:
            worker = longest_asking(state, asked, workers)
            if worker < 0:
                push(head, tail, after, BINS, queued)
                waiting[0] += 1
            else:
                push(head, tail, after, own_rows + worker, queued)
                rows_of[worker] += 1
                tokens_of[worker] += tokens[queued]
                place_of[worker] = max(place_of[worker], bin_of[queued])
                asked[worker] = tickets
                tickets += 1
                if rows_of[worker] == max_batch:
                    starting = worker
                elif rows_of[worker] == 1:
                    # Empty windows have followed each other since the worker became free.
                    windows = int((now - opened[worker]) / timeout) + 1
                    window_ends[worker] = max(opened[worker] + windows * timeout, now)
                    timer_at = min(timer_at, window_ends[worker])

        if pump_soon and not pump_waits:
            if head[FRONT] < 0:
                decide = True
            else:
                pump_waits = True
                push(head, tail, after, FRONT, pump)
        if decide and free > 0:
            place = ready_bin(head, due, waiting, bins, max_batch, now)
            while place >= 0:
                worker = free_worker(state, in_flight, workers, devices)
                rows = min(waiting[place], max_batch)
                length = 0
                for _ in range(rows):
                    item = pop(head, after, BINS + place)
                    push(head, tail, after, own_rows + worker, item)
                    length += tokens[item]
                waiting[place] -= rows
                rows_of[worker] = rows
                tokens_of[worker] = length
                place_of[worker] = place
                state[worker] = OUT
                free -= 1
                in_flight[worker % devices] += 1
                push(head, tail, after, URGENT, total + worker)
                place = ready_bin(head, due, waiting, bins, max_batch, now) if free > 0 else -1
            timer_at = NEVER
            if free > 0 and not pump_waits:
                for place in range(bins):
                    if head[BINS + place] >= 0:
                        timer_at = min(timer_at, due[head[BINS + place]])
                if timer_at < NEVER:
                    timer_at = max(timer_at, now + math.ceil(timer_at - now - ROUNDING_MS))

        if starting >= 0:
            rows = rows_of[starting]
            place = place_of[starting]
            batch_rows[batches] = rows
            batch_place[batches] = place
            batch_tokens[batches] = tokens_of[starting]
            call = drawn_time(times, quantiles, max_batch, place, rows, uniforms[batches])
            batches += 1
            running += 1
            busy += 1
            own = worker_batch + worker_row * rows
            if threads == 1:  # its own work and the call run at one rate: one appointment
                state[starting] = CALLING
                worker_ends[starting] = work + own + call * call_share
            else:
                state[starting] = PREPARING
                worker_ends[starting] = work + own
                call_of[starting] = call * call_share
            next_worker = least(worker_ends, workers)
            next_worker_ends = worker_ends[next_worker]
            if litserve:
                window_ends[starting] = NEVER
                timer_at = window_ends[least(window_ends, workers)]

        if answered >= 0:
            if network_half > 0:
                due[answered] = now + network_half
                push(head, tail, after, TO_CLIENT, answered)
                delay_queue = first_due(head, due)
                delay_at = due[head[delay_queue]]
            else:
                reached = answered
        if reached >= 0:
            if client_half > 0:
                push(head, tail, after, CLIENT, reached)
            else:
                received = reached
        if received >= 0:
            latency[done] = now - intended[received]
            finished[done] = now
            done += 1
            if done == warm_up:
                workers_ms = 0.0
                processors_ms = 0.0
                front_end_ms = 0.0
                sums[STARTED_MS] = now
                sums[FIRST_BATCH] = batches
            if closed and sent < total:
                intended[sent] = now
                if client_half > 0:  # a client sends within the task that read the answer
                    client_item = sent
                    client_ends = work + client_half
                    busy += 1
                else:
                    leaving = sent
                sent += 1
        if leaving >= 0:
            if network_half > 0:
                due[leaving] = now + network_half
                push(head, tail, after, TO_SERVER, leaving)
                delay_queue = first_due(head, due)
                delay_at = due[head[delay_queue]]
            else:
                push(head, tail, after, FRONT, leaving)

        if front_item < 0:
            if head[URGENT] >= 0:
                front_item = pop(head, after, URGENT)
                front_ends = work + batch_half
                busy += 1
            elif head[FRONT] >= 0:
                front_item = pop(head, after, FRONT)
                front_ends = work
                if front_item < total:
                    if entered[front_item] == 0:
                        due[front_item] = now + timeout  # it waits from the moment it is read
                    front_ends += request_half
                elif front_item < pump:
                    front_ends += batch_half
                busy += 1
        if client_item < 0 and head[CLIENT] >= 0:
            client_item = pop(head, after, CLIENT)
            client_ends = work + client_half
            busy += 1

    sums[WORKERS_MS] = workers_ms
    sums[PROCESSORS_MS] = processors_ms
    sums[FRONT_END_MS] = front_end_ms
    sums[BATCHES] = batches
    return done
