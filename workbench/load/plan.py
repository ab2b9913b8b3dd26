"""What a load generator is told: where, how requests come, for how long, and what it may not exceed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad, is_loopback

MOST_CONNECTIONS = 2000
MOST_SECONDS = 24 * 3600.0
MOST_REQUESTS = 50_000_000
MOST_BATCH = 1024
_DEFAULT_CONNECTIONS = 256
_PORT = 80

Wire = Literal["predict", "kserve-v2/json", "kserve-v2/binary", "kserve-v2/grpc", "openai/chat", "openai/completions"]
"""What requests look like: our own POST /predict; the open inference protocol with tensors as JSON or as
bytes behind it (gRPC stands in results of an earlier workbench alone); OpenAI's API for chats and for completions, both
answered by streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What a request keeps that counts as good; None for no limit. Milliseconds.

    Attributes:
        ttft_ms: to the first token. `tpot_ms`: per output token after it. `latency_ms`: to the end of the answer.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms", "latency_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{value:g} ms is no limit.", key=f"--{name.replace('_', '-')}")

    def __bool__(self) -> bool:
        return (self.ttft_ms, self.tpot_ms, self.latency_ms) != (None, None, None)

    def __str__(self) -> str:
        limits = (("TTFT", self.ttft_ms), ("TPOT", self.tpot_ms), ("latency", self.latency_ms))
        return ", ".join(f"{name} ≤ {value:g} ms" for name, value in limits if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run.

    Attributes:
        url: of the server, without a path: 'http://127.0.0.1:8000'.
        path: what is posted to.
        wire: what requests look like.
        model: that is asked, with its version; '' where the server has one.
        batch: samples in each request.
        length: tokens of every sample, where requests were made so; None for the lengths of the data.
        metrics: host:port with the server's /metrics, where that is not the URL's.
        load: a trace is replayed once, from the start of the warm-up on.
        duration_s: of the part that counts; `warmup_s` comes before it under the same load.
        max_requests: ends the run early, warm-up included.
        connections: at most open at once; None for the clients of a closed loop, 256 for an open one. Requests of an
            open loop that find none free wait, and their latency runs.
        outstanding: requests of an open loop waiting or in flight; what comes on top is counted as not sent.
        timeout_s: from sending to the whole answer.
        allowed_hosts: hosts other than this one that may be loaded.
        limits: of streams of tokens, that goodput is counted by.
    """

    url: str
    path: str = "/predict"
    wire: Wire = "predict"
    model: str = ""
    batch: int = 1
    length: int | None = None
    metrics: tuple[str, int] | None = None
    load: ServiceLoad
    duration_s: float = 30.0
    warmup_s: float = 2.0
    max_requests: int = 5_000_000
    connections: int | None = None
    outstanding: int = 20_000
    timeout_s: float = 30.0
    seed: int = 0
    allowed_hosts: tuple[str, ...] = ()
    limits: TokenLimits = TokenLimits()  # a frozen value

    def __post_init__(self) -> None:
        limits = {
            "duration_s": (0.1, MOST_SECONDS),
            "warmup_s": (0.0, MOST_SECONDS),
            "max_requests": (1, MOST_REQUESTS),
            "batch": (1, MOST_BATCH),
            "outstanding": (1, 1_000_000),
            "timeout_s": (0.01, 3600.0),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{getattr(self, name):g} is outside {least:g} to {most:g}.", key=f"load.{name}")
        if not 1 <= self.open_connections <= MOST_CONNECTIONS:
            raise ConfigError(
                f"{self.open_connections} connections are outside 1 to {MOST_CONNECTIONS}.",
                key="load.connections",
                hint="Start several load generators for more.",
            )
        if self.load.arrivals == "closed" and self.open_connections < (self.load.concurrency or 0):
            raise ConfigError(
                f"{self.load.concurrency} clients need as many connections; {self.connections} are allowed.",
                key="load.connections",
            )
        if not self.path.startswith("/") or any(c <= " " or c > "~" for c in self.path):
            raise ConfigError(
                f"{self.path!r} cannot stand in a request line.", key="path", hint="Write it as /predict."
            )
        host, _ = self.address
        if not is_loopback(host) and host not in self.allowed_hosts:
            raise ConfigError(
                f"{host} is not this machine; a load is for servers whose owner agreed to it.",
                key="url",
                hint=f"Name it: --host-allowed {host}",
            )

    @property
    def open_connections(self) -> int:
        if self.connections is not None:
            return self.connections
        return self.load.concurrency or _DEFAULT_CONNECTIONS

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) of the URL.

        Raises:
            ConfigError: no http URL of a host.
        """
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{self.url!r} is no URL: {error}.", key="url") from error
        if parts.scheme != "http" or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise ConfigError(
                f"{self.url!r} is no address of a service.",
                key="url",
                hint="Write http://HOST:PORT; TLS ends at a proxy in front of it.",
            )
        if parts.path not in ("", "/"):
            raise ConfigError(f"{self.url!r} has a path; requests go to {self.path}.", key="url")
        return parts.hostname, _PORT if port is None else port

    @property
    def streams(self) -> bool:
        """Whether answers are streams of tokens."""
        return self.wire.startswith("openai/")


def arrival_times(
    load: ServiceLoad, seconds: float, seed: int, *, most: int = MOST_REQUESTS
) -> npt.NDArray[np.float64]:
    """[requests] seconds from the start at which an open loop's requests are due, ascending, all before `seconds`.

    Poisson arrivals have exponential gaps from `seed`; a trace is taken as it is. Deterministic.

    Args:
        most: no more than so many are drawn, however high the rate: they are all in memory.

    Raises:
        ValueError: a closed loop, whose requests are due when their client is free.
    """
    if load.arrivals == "trace":
        trace = np.asarray(load.trace_s, dtype=np.float64)
        return trace[trace < seconds][:most]
    if load.rate_per_s is None:
        raise ValueError("a closed loop has no arrival times")
    random = np.random.default_rng(seed)
    found: list[npt.NDArray[np.float64]] = []
    at_once = min(max(64, int(load.rate_per_s * seconds * 0.1)), most)
    last, count = 0.0, 0
    while last < seconds and count < most:
        gaps = random.exponential(1 / load.rate_per_s, size=at_once)
        found.append(last + np.cumsum(gaps))
        last, count = float(found[-1][-1]), count + at_once
    times = np.concatenate(found)
    return times[times < seconds][:most]
