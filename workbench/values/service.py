"""How a service batches requests and what it is asked: settings, load, and the costs of the host in front of a model.

There is one queue for each length bin. A free worker takes the bin whose oldest request is the oldest of all bins that
are ready: full (max_batch_size waiting), or its oldest request has waited batch_timeout_ms. The service (`serve`) and
its simulation hold to it alike.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from workbench.values.documents.canonical import added_later
from workbench.values.errors import ConfigError

Arrivals = Literal["closed", "poisson", "trace"]
Goal = Literal["throughput", "p99"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What a service can be told without compiling anything again.

    Attributes:
        max_batch_size: samples that one call of the model takes at most.
        batch_timeout_ms: how long the oldest request waits for company. 0 sends whatever is there once a worker is
            free.
        workers: processes with a model each, for each device.
        queueing: the policy above; bundles and journals hold its name.
        sequence_bins: padded lengths that requests are grouped by and padded to, ascending; () for those compiled, or
            the dataset's own.
    """

    max_batch_size: int = 1
    batch_timeout_ms: float = 0.0
    workers: int = 1
    queueing: Literal["bins"] = "bins"
    sequence_bins: tuple[int, ...] = added_later(())

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is less than 1.", key=f"service.{name}")
        if not 0 <= self.batch_timeout_ms <= 10_000:
            raise ConfigError(f"{self.batch_timeout_ms} is outside 0 to 10000 ms.", key="service.batch_timeout_ms")
        bins = self.sequence_bins
        if bins and (list(bins) != sorted(set(bins)) or bins[0] < 1):
            raise ConfigError(f"{list(bins)} are not ascending positive lengths.", key="service.sequence_bins")

    def __str__(self) -> str:
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        said = f"batch <= {self.max_batch_size}, {self.batch_timeout_ms:g} ms, {workers}"
        return f"{said}, {bins_words(self.sequence_bins)}" if self.sequence_bins else said


def bins_words(bins: tuple[int, ...]) -> str:
    """'bins 16 32 64', 'length 64'."""
    return f"{'bins' if len(bins) > 1 else 'length'} {' '.join(map(str, bins))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """What clients ask.

    Attributes:
        arrivals: 'closed' is `concurrency` clients that each send the next request when they have their answer;
            'poisson' is independent users, `rate_per_s` in the mean; 'trace' replays arrival times.
        trace_s: arrival times from 0, ascending.
    """

    arrivals: Arrivals = "closed"
    concurrency: int | None = None
    rate_per_s: float | None = None
    trace_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        wanted = {"closed": "concurrency", "poisson": "rate_per_s", "trace": "trace_s"}[self.arrivals]
        for name in ("concurrency", "rate_per_s", "trace_s"):
            value = getattr(self, name)
            if name == wanted and not value:
                raise ConfigError(f"arrivals {self.arrivals!r} need it.", key=f"load.{name}")
            if name != wanted and value:
                raise ConfigError(f"means nothing with arrivals {self.arrivals!r}.", key=f"load.{name}")
        if (self.concurrency or 1) < 1 or (self.rate_per_s or 1.0) <= 0:
            raise ConfigError("must be positive.", key=f"load.{wanted}")
        if list(self.trace_s) != sorted(self.trace_s) or (self.trace_s and self.trace_s[0] < 0):
            raise ConfigError("arrival times must ascend from 0.", key="load.trace_s")

    def __str__(self) -> str:
        if self.arrivals == "closed":
            return f"{self.concurrency} clients, closed loop"
        if self.arrivals == "poisson":
            return f"{self.rate_per_s:g} requests/s, Poisson"
        return f"a trace of {len(self.trace_s)} requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChoices:
    """Service settings a search may choose from.

    Attributes:
        today: what the service runs now, one of them; None where nobody said it.
        sequence_bins: sets of padded lengths, where nothing is compiled for them; () where they are no choice.
    """

    max_batch_size: tuple[int, ...] = (1,)
    batch_timeout_ms: tuple[float, ...] = (0.0,)
    workers: tuple[int, ...] = (1,)
    today: ServiceSettings | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    sequence_bins: tuple[tuple[int, ...], ...] = added_later(())

    def settings(self) -> tuple[ServiceSettings, ...]:
        """Every combination that differs: without batching the timeout means nothing."""
        found: dict[ServiceSettings, None] = {}
        for bins in self.sequence_bins or ((),):
            for batch in self.max_batch_size:
                for timeout_ms in self.batch_timeout_ms if batch > 1 else (0.0,):
                    for workers in self.workers:
                        one = ServiceSettings(
                            max_batch_size=batch, batch_timeout_ms=timeout_ms, workers=workers, sequence_bins=bins
                        )
                        found[one] = None
        return tuple(found)

    @classmethod
    def only(cls, settings: ServiceSettings) -> ServiceChoices:
        """No choice but these settings."""
        return cls(
            max_batch_size=(settings.max_batch_size,),
            batch_timeout_ms=(settings.batch_timeout_ms,),
            workers=(settings.workers,),
            sequence_bins=(settings.sequence_bins,) if settings.sequence_bins else (),
        )

    @property
    def untuned(self) -> ServiceSettings:
        """What is run today, or the first choices where that is not said."""
        return self.settings()[0] if self.today is None else self.today


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """What serving costs the host beside the model, as processor time, and how its processors share.

    Attributes:
        request_ms: front end (HTTP, tokenizing, queueing, answering), for each request; one process does it.
        batch_ms: front end, for each batch handed to a worker and taken back, before the worker has the next.
        batch_after_ms: front end, for each batch, while the worker has the next one already.
        worker_batch_ms, worker_row_ms: in the worker, for each batch and each of its rows, beside the model's own call.
        client_ms: load generator, for each request, where it runs on the same host; 0 where it does not.
        transport_ms: waiting that occupies nobody (wake-ups, hand-over between processes), for each batch, both ways.
        network_ms: waiting that occupies nobody, for each request, both ways.
        capacity: work done by 1, 2, … busy threads together in one second, relative to one thread alone; the last
            entry holds for more. (1.0, 1.2) says that two threads on two hyper-threads do 1.2 times the work of one.
        origin: 'measured on …', or whose assumption it is.
        spread: relative standard deviation of the times, all of them together, over repetitions; 0 where assumed.
        capacity_spread: that of each entry of `capacity`, from one moment to another; () where assumed.
        processors: where `capacity` tells of more threads than there are; 0 for as many as it tells of.
    """

    EARLIER: ClassVar = dict.fromkeys(
        ("wait_ms", "wait_spread", "after_idle", "unexplained", "front_end_ms", "passed_row_ms", "passed_batch_ms")
    )
    request_ms: float
    batch_ms: float = 0.0
    batch_after_ms: float = added_later(0.0)
    worker_batch_ms: float = 0.0
    worker_row_ms: float = 0.0
    client_ms: float = 0.0
    transport_ms: float = 0.0
    network_ms: float = 0.0
    capacity: tuple[float, ...] = (1.0,)
    origin: str
    spread: float = added_later(0.0)
    capacity_spread: tuple[float, ...] = added_later(())
    processors: int = added_later(0)

    def __post_init__(self) -> None:
        for name in (field for field in self.__slots__ if field.endswith("_ms")):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{getattr(self, name)} is no time.", key=f"host.{name}")
        if not self.capacity or self.capacity[0] != 1.0 or not 0 < min(self.capacity) <= max(self.capacity) < math.inf:
            raise ConfigError(f"{list(self.capacity)} must begin with 1 and be positive.", key="host.capacity")
        if self.capacity_spread and len(self.capacity_spread) != len(self.capacity):
            raise ConfigError("needs one entry for each of capacity.", key="host.capacity_spread")

    def front_end_busy(self, rate_per_s: float, mean_batch: float) -> float:
        """Share of the time that the front end works at this rate (utilization law)."""
        return rate_per_s * (self.request_ms + (self.batch_ms + self.batch_after_ms) / mean_batch) / 1000

    @property
    def processor_count(self) -> int:
        return self.processors or len(self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQuestion:
    """For what load service settings are chosen, and which are best.

    Attributes:
        load: None for Poisson arrivals at whatever rate: the highest that keeps `p99_ms` is sought, and is what
            throughput means then.
        goal: 'throughput' takes the most requests per second among settings that keep `p99_ms`; 'p99' the least P99.
        p99_ms: limit, None for none; needed where the load is sought.
        devices: cards behind one front end.
        host: assumed costs of the host; None to measure them here.
        curve_s: how long each candidate's batch curve is timed, about; every shape is called 15 times at least.
        confirm_s: how long each front member is loaded for real, 0 for not at all.
    """

    load: ServiceLoad | None
    goal: Goal = "throughput"
    p99_ms: float | None = None
    devices: int = 1
    host: HostCosts | None = None
    curve_s: float = 6.0
    confirm_s: float = 10.0

    def __post_init__(self) -> None:
        if self.load is None and (self.p99_ms is None or self.goal != "throughput"):
            raise ConfigError(
                "the highest rate is sought, so a limit on P99 must say where it ends.",
                key="service.p99_ms",
                hint="Write p99_ms, and goal: throughput.",
            )
        if self.p99_ms is not None and not self.p99_ms > 0:
            raise ConfigError(f"{self.p99_ms:g} is not above 0.", key="service.p99_ms")
        if self.devices < 1:
            raise ConfigError(f"{self.devices} is less than 1.", key="service.devices")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone, by its spelling; names other than localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
