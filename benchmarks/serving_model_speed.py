"""The serving model against the same model in SimPy: speed and figures, in one run. Run by hand.

    pip install simpy
    python -m benchmarks.serving_model_speed [--requests 1000000] [--rounds 3] [--json FILE]

One row for each service: requests simulated a second by the compiled event loop, by the same loop interpreted (a
process without numba), and by SimPy, all on one core; and the throughput, P50 and P99 that the two models predict.
They draw different numbers, so figures agree within their noise, not to the bit. Simulated requests include the
warm-up. Each way is timed in `--rounds` rounds, one after the other within a round, and the best is kept: a disturbance
only ever slows. Requests a second are given by processor time, which other processes and guests of the host disturb
little, and by the clock. The first call compiles and is not timed.

The model in SimPy is written as SimPy's own examples are: processes, a store for each queue, and one process that
shares the processors among all that are busy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.prediction.simulation import simulate
from workbench.prediction.simulation.service_times import service_times
from workbench.prediction.simulation.simulation import Simulated
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

BINS = (16, 32, 48, 64)
LENGTHS = np.clip(np.random.default_rng(0).lognormal(2.9, 0.5, size=2000), 4, 64).astype(np.int64)
HOST = HostCosts(
    request_ms=0.2,
    batch_ms=0.2,
    worker_batch_ms=0.1,
    worker_row_ms=0.01,
    client_ms=0.1,
    transport_ms=0.1,
    capacity=(1.0, 1.2),
    origin="assumed in a benchmark",
)


def _curve(threads: int, stepped: bool) -> BatchCurve:
    points = []
    for length in BINS:
        for batch in (1, 4, 16):
            middle = 0.5 + 0.02 * batch * length
            quantiles = tuple(float(middle * spread) for spread in np.linspace(0.95, 1.15, 21) ** 2)
            points.append(
                CurvePoint(
                    batch=batch,
                    length=length,
                    calls=100,
                    p50_ms=Estimate(value=middle, low=middle, high=middle),
                    mean_ms=float(np.mean(quantiles)),
                    quantiles_ms=quantiles,
                )
            )
    return BatchCurve(points=tuple(points), stepped=stepped, threads=threads, clock="host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    name: str
    settings: ServiceSettings
    load: ServiceLoad
    threads: int = 1
    devices: int = 1


SERVICES = (
    Service(
        name="CPU, batch <= 16, 100 clients",
        settings=ServiceSettings(max_batch_size=16, batch_timeout_ms=5.0),
        load=ServiceLoad(concurrency=100),
    ),
    Service(
        name="CPU, batch <= 16, 2 workers, 100 clients",
        settings=ServiceSettings(max_batch_size=16, batch_timeout_ms=5.0, workers=2),
        load=ServiceLoad(concurrency=100),
    ),
    Service(
        name="CPU, batch <= 4, 16 clients",
        settings=ServiceSettings(max_batch_size=4, batch_timeout_ms=2.0),
        load=ServiceLoad(concurrency=16),
    ),
    Service(name="CPU, batch 1, 100 clients", settings=ServiceSettings(), load=ServiceLoad(concurrency=100)),
    Service(
        name="CPU, batch <= 16, 400/s Poisson",
        settings=ServiceSettings(max_batch_size=16, batch_timeout_ms=5.0),
        load=ServiceLoad(arrivals="poisson", rate_per_s=400.0),
    ),
    Service(
        name="2 devices, 2 workers each, batch <= 16, 200 clients",
        settings=ServiceSettings(max_batch_size=16, batch_timeout_ms=2.0, workers=2),
        load=ServiceLoad(concurrency=200),
        threads=0,
        devices=2,
    ),
)


def ours(service: Service, requests: int, seed: int) -> Simulated:
    return simulate(
        _curve(service.threads, stepped=service.threads == 0),
        service.settings,
        service.load,
        HOST,
        LENGTHS,
        BINS,
        devices=service.devices,
        requests=requests,
        seed=seed,
    )


class Shared:
    """Work that shares something: all that is under way goes on at `rate(how many threads are busy)`."""

    def __init__(self, env: Any, rate: Any) -> None:
        self.env, self.rate = env, rate
        self.jobs: dict[Any, list[float]] = {}  # event → [work left, threads]
        self.since = 0.0
        self.alarm = 0

    def work(self, amount: float, threads: int = 1) -> Any:
        """An event: that much work of each of these threads is done."""
        done = self.env.event()
        if amount <= 0:
            return done.succeed()
        self._settle()
        self.jobs[done] = [amount, threads]
        self._reschedule()
        return done

    def _speed(self) -> float:
        return float(self.rate(sum(job[1] for job in self.jobs.values())))

    def _settle(self) -> None:
        if self.jobs:
            amount = (self.env.now - self.since) * self._speed()
            for job in self.jobs.values():
                job[0] -= amount
        self.since = self.env.now

    def _reschedule(self) -> None:
        self.alarm += 1
        if self.jobs:
            left = max(0.0, min(job[0] for job in self.jobs.values()))
            alarm = self.alarm
            timeout = self.env.timeout(left / self._speed())
            timeout.callbacks.append(lambda _: self._ring(alarm))

    def _ring(self, alarm: int) -> None:
        if alarm != self.alarm:
            return
        self._settle()
        for done in [event for event, job in self.jobs.items() if job[0] <= 1e-9]:
            del self.jobs[done]
            done.succeed()
        self._reschedule()


@dataclass(slots=True)
class Asked:
    sent: float
    place: int
    answered: Any
    due: float = 0.0


class PlainService:
    """The service, as processes: a front end, workers, clients."""

    def __init__(self, simpy: Any, service: Service, requests: int, seed: int) -> None:
        self.simpy, self.service, self.env = simpy, service, simpy.Environment()
        self.random = np.random.default_rng(seed)
        curve = _curve(service.threads, stepped=service.threads == 0)
        self.threads = curve.threads
        self.times = service_times(curve, BINS, max_batch=service.settings.max_batch_size).times_ms
        capacity = HOST.capacity

        def together(threads: int) -> float:
            return capacity[min(threads, len(capacity)) - 1]

        self.call_share = together(self.threads) / self.threads if self.threads else 1.0
        self.host = Shared(self.env, lambda busy: together(busy) / busy)
        self.devices = [Shared(self.env, lambda busy: 1 / busy) for _ in range(service.devices)]
        self.front: list[Any] = []
        self.wake_front = self.env.event()
        self.client_queue: list[Any] = []
        self.wake_client = self.env.event()
        self.bins: list[list[Asked]] = [[] for _ in BINS]
        self.free = list(range(service.settings.workers * service.devices))
        self.in_flight = [0] * service.devices
        self.pump_waits = False
        self.alarm_at = float("inf")
        self.latency: list[float] = []
        self.finished: list[float] = []
        self.wanted = requests
        self.end = self.env.event()

    def run(self) -> tuple[list[float], list[float]]:
        env = self.env
        env.process(self.front_end())
        env.process(self.client_thread())
        if self.service.load.concurrency:
            full_batch_ms = float(self.times[:, -1].mean())
            for _ in range(self.service.load.concurrency):
                env.process(self.begin(self.random.random() * full_batch_ms))
        else:
            env.process(self.users())
        env.run(until=self.end)
        return self.latency, self.finished

    def begin(self, after_ms: float) -> Iterator[Any]:
        yield self.env.timeout(after_ms)
        self.send()

    def users(self) -> Iterator[Any]:
        rate = self.service.load.rate_per_s
        while True:
            yield self.env.timeout(self.random.exponential(1000 / rate))
            self.send()

    def send(self, first: bool = False) -> None:
        length = int(LENGTHS[self.random.integers(len(LENGTHS))])
        place = next(i for i, longest in enumerate(BINS) if longest >= length)
        asked = Asked(self.env.now, place, False)
        self.client_queue.insert(0 if first else len(self.client_queue), asked)
        if not self.wake_client.triggered:
            self.wake_client.succeed()

    def client_thread(self) -> Iterator[Any]:
        while True:
            while not self.client_queue:
                self.wake_client = self.env.event()
                yield self.wake_client
            asked = self.client_queue.pop(0)
            yield self.host.work(HOST.client_ms / 2)
            if not asked.answered:
                self.to_front(("in", asked))
                continue
            self.latency.append(self.env.now - asked.sent)
            self.finished.append(self.env.now)
            if len(self.latency) == self.wanted:
                self.end.succeed()
            if self.service.load.concurrency:
                self.send(first=True)

    def to_front(self, task: Any) -> None:
        self.front.append(task)
        if not self.wake_front.triggered:
            self.wake_front.succeed()

    def front_end(self) -> Iterator[Any]:
        timeout = self.service.settings.batch_timeout_ms
        while True:
            while not self.front:
                self.wake_front = self.env.event()
                yield self.wake_front
            kind, subject = self.front.pop(0)
            if kind == "in":
                subject.due = self.env.now + timeout
                yield self.host.work(HOST.request_ms / 2)
                self.bins[subject.place].append(subject)
                self.pump_soon()
            elif kind == "back":
                worker, rows = subject
                yield self.host.work(HOST.batch_ms / 2)
                self.free.append(worker)
                self.in_flight[worker % self.service.devices] -= 1
                self.front.extend(("answer", row) for row in rows)
                yield from self.hand_out()  # at once: the worker would wait for the answers otherwise
            elif kind == "answer":
                yield self.host.work(HOST.request_ms / 2)
                subject.answered = True
                self.client_queue.append(subject)
                if not self.wake_client.triggered:
                    self.wake_client.succeed()
            else:
                self.pump_waits = False
                yield from self.hand_out()

    def hand_out(self) -> Iterator[Any]:
        for worker, place, rows in self.formed():
            yield self.host.work(HOST.batch_ms / 2)
            self.env.process(self.serve(worker, place, rows))
        self.set_alarm()

    def pump_soon(self) -> None:
        if not self.pump_waits:
            self.pump_waits = True
            self.to_front(("pump", None))

    def formed(self) -> list[tuple[int, int, list[Asked]]]:
        size, found = self.service.settings.max_batch_size, []
        while self.free:
            ready = [
                (queue[0].due, place)
                for place, queue in enumerate(self.bins)
                if queue and (len(queue) >= size or queue[0].due <= self.env.now)
            ]
            if not ready:
                break
            _, place = min(ready)
            worker = min(self.free, key=lambda w: (self.in_flight[w % self.service.devices], w))
            self.free.remove(worker)
            self.in_flight[worker % self.service.devices] += 1
            rows, self.bins[place] = self.bins[place][:size], self.bins[place][size:]
            found.append((worker, place, rows))
        return found

    def set_alarm(self) -> None:
        at = min((queue[0].due for queue in self.bins if queue), default=float("inf"))
        if self.free and at < float("inf") and at != self.alarm_at:
            self.alarm_at = at
            whole_ms = math.ceil(max(0.0, at - self.env.now - 1e-6))  # as the timer of an event loop counts
            self.env.timeout(whole_ms).callbacks.append(lambda _: self.rung(at))

    def rung(self, at: float) -> None:
        if at == self.alarm_at:
            self.alarm_at = float("inf")
            self.pump_soon()

    def serve(self, worker: int, place: int, rows: list[Asked]) -> Iterator[Any]:
        yield self.env.timeout(HOST.transport_ms / 2)
        yield self.host.work(HOST.worker_batch_ms + HOST.worker_row_ms * len(rows))
        quantiles = self.times[place, len(rows) - 1]
        position = self.random.random() * (len(quantiles) - 1)
        below = min(int(position), len(quantiles) - 2)
        call = quantiles[below] + (position - below) * (quantiles[below + 1] - quantiles[below])
        if self.threads:
            yield self.host.work(call * self.call_share, self.threads)
        else:
            yield self.devices[worker % self.service.devices].work(call)
        yield self.env.timeout(HOST.transport_ms / 2)
        self.to_front(("back", (worker, rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One way to simulate one service."""

    requests: int
    clock_s: float
    processor_s: float
    throughput_per_s: float
    p50_ms: float
    p99_ms: float

    @property
    def by_clock(self) -> float:
        return self.requests / self.clock_s

    @property
    def by_processor(self) -> float:
        return self.requests / self.processor_s


def timed_ours(service: Service, requests: int, seed: int) -> Timed:
    started, processor = time.perf_counter(), time.process_time()
    simulated = ours(service, requests, seed)
    clock_s, processor_s = time.perf_counter() - started, time.process_time() - processor
    return Timed(
        requests=simulated.sent_in_all,
        clock_s=clock_s,
        processor_s=processor_s,
        throughput_per_s=simulated.throughput_per_s,
        p50_ms=float(np.percentile(simulated.latency_ms, 50)),
        p99_ms=simulated.p99_ms,
    )


def timed_simpy(service: Service, requests: int, seed: int) -> Timed:
    try:
        import simpy
    except ImportError:
        raise SystemExit("SimPy is the peer here and not installed: pip install simpy") from None
    started, processor = time.perf_counter(), time.process_time()
    latency, finished = PlainService(simpy, service, requests, seed).run()
    clock_s, processor_s = time.perf_counter() - started, time.process_time() - processor
    warm_up = min(max(200, 5 * (service.load.concurrency or 0)), requests // 2)
    counted = latency[warm_up:]
    return Timed(
        requests=requests,
        clock_s=clock_s,
        processor_s=processor_s,
        throughput_per_s=1000 * len(counted) / (finished[-1] - finished[warm_up - 1]),
        p50_ms=float(np.percentile(counted, 50)),
        p99_ms=float(np.percentile(counted, 99)),
    )


def timed_interpreted(number: int, requests: int, seed: int) -> Timed:
    """In a process of its own, where numba cannot be imported."""
    code = (
        "import sys, json, dataclasses\n"
        "sys.modules['numba'] = None\n"
        "from benchmarks.serving_model_speed import SERVICES, timed_ours\n"
        f"print(json.dumps(dataclasses.asdict(timed_ours(SERVICES[{number}], {requests}, {seed}))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True, cwd=Path.cwd()
    )
    return Timed(**json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--slow-requests", type=int, default=20_000, help="of the interpreted and the SimPy way")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    for service in SERVICES:
        ours(service, 1000, 0)
    busy = os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, load average {busy:.1f} before")
    print(f"requests a second of processor time (by the clock), best of {given.rounds}; predicted rate, P50, P99\n")
    rows = []
    for number, service in enumerate(SERVICES):
        found: dict[str, list[Timed]] = {"compiled": [], "interpreted": [], "SimPy": []}
        for seed in range(given.rounds):
            found["compiled"].append(timed_ours(service, given.requests, seed))
            found["interpreted"].append(timed_interpreted(number, given.slow_requests, seed))
            found["SimPy"].append(timed_simpy(service, given.slow_requests, seed))
        print(service.name)
        for way, several in found.items():
            clock, processor = max(t.by_clock for t in several), max(t.by_processor for t in several)
            figures = [
                float(np.median([getattr(t, f) for t in several])) for f in ("throughput_per_s", "p50_ms", "p99_ms")
            ]
            print(
                f"  {way:12} {processor:12,.0f} ({clock:12,.0f})   {figures[0]:7.1f}/s  P50 {figures[1]:7.2f}  "
                f"P99 {figures[2]:7.2f} ms"
            )
            rows.append(
                {
                    "service": service.name,
                    "way": way,
                    "requests_per_s": clock,
                    "requests_per_processor_s": processor,
                    "predicted": dict(zip(("throughput_per_s", "p50_ms", "p99_ms"), figures, strict=True)),
                }
            )
    print(f"\nload average {os.getloadavg()[0]:.1f} after")
    if given.json:
        given.json.write_text(json.dumps({"load_average_before": busy, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
