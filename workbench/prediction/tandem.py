"""A pipeline's service, simulated: stages in tandem whose workers, glue and front end share the same processors.

A request passes: client → front end → for each stage, once those that it takes from are done: its glue (one process
for each function) → queue of the stage → batches of its workers → back; then the answer's glue → front end → client.
Whatever is busy on the host shares its processors as `prediction.simulation` has it: with n busy threads each runs at
capacity(n) / n, so one clock of work tells when each is done. Cards have such a clock of their own.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve
from workbench.values.service import HostCosts, ServiceSettings

Floats = npt.NDArray[np.float64]
WARM_UP_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TandemStage:
    """One stage as the simulation sees it.

    Attributes:
        takes: names of stages before it.
        rounds: [requests] of each item of each of its rounds, which padded size it has. A round begins when the one
            before is done and glue has looked at it; a request without any has no items.
        weights: [sizes] what a call of this size takes, relative to the mean of the curve's own.
        glue_ms: [requests] processor time of its glue, for all rounds; zeros without.
        curve: of one call by batch, at the machine's first speed.
    """

    name: str
    takes: tuple[str, ...]
    rounds: Sequence[Sequence[Sequence[int]]]
    weights: Sequence[float]
    glue_ms: Sequence[float]
    curve: BatchCurve
    settings: ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tandem:
    """What it did after its warm-up.

    Attributes:
        latency_ms: [requests] in the order of answers.
        throughput_per_s: requests answered in a second.
        busy: stage → share of the time that a worker of it has a batch.
        mean_batch: stage → rows.
    """

    latency_ms: Floats
    throughput_per_s: float
    busy: Mapping[str, float]
    mean_batch: Mapping[str, float]

    @property
    def p99_ms(self) -> float:
        return float(np.percentile(self.latency_ms, 99))


class _Shared:
    """Threads that share processors: `work` is the clock of each of them."""

    def __init__(self, capacity: Callable[[int], float]) -> None:
        self._capacity, self.work, self.now, self._threads = capacity, 0.0, 0.0, 0
        self.heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._count = 0

    def begin(self, work: float, threads: int, done: Callable[[], None]) -> None:
        self._count += 1
        self._threads += threads
        heapq.heappush(self.heap, (self.work + work, self._count, threads, done))

    def next_at(self) -> float:
        return self.now + (self.heap[0][0] - self.work) / self._rate() if self.heap else math.inf

    def _rate(self) -> float:
        return self._capacity(self._threads) / self._threads if self._threads else 1.0

    def advance(self, to: float) -> None:
        self.work += (to - self.now) * self._rate()
        self.now = to

    def finish(self) -> Callable[[], None]:
        ends, _, threads, done = heapq.heappop(self.heap)
        self.work = max(self.work, ends)
        self._threads -= threads
        return done


class _Server:
    """One thread with a queue: the front end, a process of glue."""

    def __init__(self, host: _Shared) -> None:
        self._host, self._waiting, self._busy = host, deque[tuple[float, Callable[[], None]]](), False

    def ask(self, work: float, done: Callable[[], None]) -> None:
        self._waiting.append((work, done))
        self._start()

    def _start(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        work, done = self._waiting.popleft()

        def ended() -> None:
            self._busy = False
            done()
            self._start()

        self._host.begin(work, 1, ended)


class _Stage:
    """A queue for each size, and workers; who is next is as in `serve.batcher`."""

    def __init__(self, stage: TandemStage, world: _World) -> None:
        self.stage, self._world = stage, world
        self._queues: dict[int, deque[tuple[float, int]]] = {}
        self._free = stage.settings.workers
        self.busy_ms, self.batches, self.rows = 0.0, 0, 0
        points = sorted({point.batch: point for point in stage.curve.points}.items())
        self._batches = [batch for batch, _ in points]
        self._times = [float(point.mean_ms) for _, point in points]

    def add(self, request: int, sizes: Sequence[int]) -> None:
        for size in sizes:
            self._queues.setdefault(size, deque()).append((self._world.now, request))
        self.pump()

    def pump(self) -> None:
        settings, now = self.stage.settings, self._world.now
        while self._free and (waiting := {size: queue for size, queue in self._queues.items() if queue}):
            dues = {size: queue[0][0] + settings.batch_timeout_ms for size, queue in waiting.items()}
            ready = [n for n, q in waiting.items() if len(q) >= settings.max_batch_size or dues[n] <= now + 1e-9]
            if not ready:
                self._world.at(min(dues.values()), self.pump)
                return
            size = min(ready, key=dues.__getitem__)
            queue = waiting[size]
            rows = [queue.popleft()[1] for _ in range(min(len(queue), settings.max_batch_size))]
            self._free -= 1
            self._world.front.ask(self._world.host_costs.batch_ms, partial(self._run, rows, self.stage.weights[size]))

    def _run(self, rows: list[int], weight: float) -> None:
        host, began = self._world.host_costs, self._world.now
        call = weight * self._call_ms(len(rows))
        own = host.worker_batch_ms + host.worker_row_ms * len(rows)

        def ended() -> None:
            self._free += 1
            self.busy_ms += self._world.now - began
            self.batches, self.rows = self.batches + 1, self.rows + len(rows)
            self._world.front.ask(host.batch_after_ms, lambda: self._world.returned(self.stage.name, rows))
            self.pump()

        threads = self.stage.curve.threads
        if threads:
            shared = self._world.capacity(threads) / threads  # it was timed with so many threads busy
            self._world.host.begin(own + call * shared, threads, ended)
        else:
            self._world.host.begin(own, 1, lambda: self._world.card.begin(call, 1, ended))

    def _call_ms(self, rows: int) -> float:
        if self.stage.curve.stepped:
            at = next((place for place, batch in enumerate(self._batches) if batch >= rows), len(self._batches) - 1)
            return self._times[at]
        return float(np.interp(rows, self._batches, self._times))


class _World:
    def __init__(
        self, stages: Sequence[TandemStage], answer_ms: Sequence[float], host: HostCosts, devices: int
    ) -> None:
        self.host_costs, self.now = host, 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.host, self.card = _Shared(self.capacity), _Shared(lambda calls: float(min(calls, devices)))
        self.front, self._answer_ms = _Server(self.host), answer_ms
        self._answering = _Server(self.host)
        self.stages = {each.name: _Stage(each, self) for each in stages}
        self._glue = {each.name: _Server(self.host) for each in stages}
        self._left: dict[tuple[int, str], int] = {}
        self._round: dict[tuple[int, str], int] = {}
        self._done: dict[int, set[str]] = {}
        self._kinds = len(answer_ms)
        self.answered: Callable[[int], None] = lambda request: None

    def capacity(self, threads: int) -> float:
        return self.host_costs.capacity[min(threads, len(self.host_costs.capacity)) - 1]

    def at(self, moment: float, then: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (moment, self._count, then))

    def send(self, request: int) -> None:
        self._done[request] = set()
        host = self.host_costs
        self.host.begin(host.client_ms / 2, 1, lambda: self.front.ask(host.request_ms / 2, lambda: self._go(request)))

    def _go(self, request: int) -> None:
        """Begin the stages whose sources are done."""
        done = self._done[request]
        for name, one in self.stages.items():
            if name not in done and (request, name) not in self._left and done.issuperset(one.stage.takes):
                self._left[request, name] = 0
                self._begin(request, name, 0)

    def _begin(self, request: int, name: str, number: int) -> None:
        """The glue of a round, then its items; behind the last round the stage is done."""
        stage = self.stages[name].stage
        rounds = stage.rounds[request % self._kinds]
        glue_ms = stage.glue_ms[request % self._kinds] / max(1, len(rounds))
        if number and number >= len(rounds):
            self._ended(request, name)
            return
        self._round[request, name] = number
        ask = self._glue[name].ask if glue_ms else _at_once
        ask(glue_ms, partial(self._enter, request, name, rounds[number] if rounds else ()))

    def _enter(self, request: int, name: str, sizes: Sequence[int]) -> None:
        self._left[request, name] = len(sizes)
        if sizes:
            self.stages[name].add(request, sizes)
        else:
            self._ended(request, name)

    def returned(self, name: str, rows: Sequence[int]) -> None:
        for request in rows:
            self._left[request, name] -= 1
            if not self._left[request, name]:
                self._begin(request, name, self._round[request, name] + 1)

    def _ended(self, request: int, name: str) -> None:
        done = self._done[request]
        done.add(name)
        if len(done) < len(self.stages):
            self._go(request)
            return
        for each in self.stages:
            self._left.pop((request, each))
            self._round.pop((request, each))
        del self._done[request]
        ask, host = self._answering.ask if self._answer_ms[request % self._kinds] else _at_once, self.host_costs
        ask(
            self._answer_ms[request % self._kinds],
            lambda: self.front.ask(
                host.request_ms / 2,
                lambda: self.host.begin(host.client_ms / 2, 1, lambda: self.answered(request)),
            ),
        )

    def step(self) -> None:
        at = min(self.host.next_at(), self.card.next_at(), self._timers[0][0] if self._timers else math.inf)
        if at == math.inf:
            raise AssertionError("a pipeline whose requests wait for nothing")
        self.now = max(self.now, at)
        host_at, card_at = self.host.next_at(), self.card.next_at()
        for shared in (self.host, self.card):
            shared.advance(self.now)
        if host_at <= self.now:
            self.host.finish()()
        elif card_at <= self.now:
            self.card.finish()()
        else:
            heapq.heappop(self._timers)[2]()


def _at_once(work: float, done: Callable[[], None]) -> None:
    done()


def simulate_tandem(
    stages: Sequence[TandemStage],
    answer_ms: Sequence[float],
    host: HostCosts,
    *,
    concurrency: int,
    devices: int = 1,
    requests: int = 400,
    seed: int = 0,
) -> Tandem:
    """Serve a closed loop of clients until so many requests are answered. Deterministic.

    Args:
        devices: cards that calls share, each call on one.
        answer_ms: [requests] processor time of the answer's glue. Requests of this many kinds, whose items the stages
            have, come in an order drawn from `seed`.

    Raises:
        ConfigError: no clients.
    """
    if concurrency < 1:
        raise ConfigError(f"{concurrency} is less than 1.", key="service.concurrency")
    kinds = len(answer_ms)
    order = np.concatenate([np.random.default_rng((seed, r)).permutation(kinds) for r in range(-(-requests // kinds))])
    shuffled = [
        replace(each, rounds=[each.rounds[int(k)] for k in order], glue_ms=[each.glue_ms[int(k)] for k in order])
        for each in stages
    ]
    world = _World(shuffled, [answer_ms[int(k)] for k in order], host, devices)
    sent_at: dict[int, float] = {}
    latency: list[float] = []
    ended: list[float] = []

    def send(request: int) -> None:
        sent_at[request] = world.now
        world.send(request)

    def answered(request: int) -> None:
        latency.append(world.now - sent_at.pop(request))
        ended.append(world.now)
        send(request + concurrency)

    world.answered = answered
    for client in range(concurrency):
        send(client)
    while len(latency) < requests:
        world.step()
    warm = min(max(concurrency, round(WARM_UP_SHARE * requests)), requests - 2)
    passed = max(ended[-1] - ended[warm - 1] if warm else ended[-1], 1e-9)
    return Tandem(
        latency_ms=np.array(latency[warm:]),
        throughput_per_s=1000 * (len(latency) - warm) / passed,
        busy={n: s.busy_ms / max(world.now, 1e-9) / s.stage.settings.workers for n, s in world.stages.items()},
        mean_batch={n: s.rows / s.batches if s.batches else 0.0 for n, s in world.stages.items()},
    )
