"""What a service is told when it starts: where it listens, how it batches, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.errors import ConfigError
from workbench.fingerprint import Policy
from workbench.service import ServiceSettings
from workbench.signing import TrustedKeys

_OPTIONS = {
    "queue": "--queue-limit",
    "connections": "--max-connections",
    "connections_of_address": "--max-connections-per-address",
    "no_worker_s": "--no-worker-timeout-s",
}
API_KEY_VARIABLE = "WORKBENCH_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request, and all of them together, may ask for.

    Attributes:
        texts: of one request; of raw tensors, rows.
        characters: of one text. Tokenizing takes about 1 µs for each, in the one process that answers everybody.
        words: of one text that is given as a list of words.
        connections: open at a time; `connections_of_address`, of one IPv4 address or IPv6 /64.
        queue: rows that wait; a request that would exceed it is refused with 503.
        body_timeout_s: for sending a body; a slower client is cut off with 408.
        request_timeout_s: from arrival to answer; then 504.
        batch_timeout_s: a worker that takes longer over one batch is killed and started again.
        grace_s: what is queued may still be answered for so long after SIGTERM.
        no_worker_s: the service ends with an error when no worker could answer for so long: since the last one was
            lost, or since the first start of the service failed. Whoever supervises it starts it anew.
        first_start_s: a worker's first start may take so long; then it is killed and tried again. Later ones may take
            three times what the slowest took, and never less than `no_worker_s`.
    """

    body_bytes: int = 1 << 20
    texts: int = 64
    characters: int = 10_000
    words: int = 2_000
    connections: int = 2048
    connections_of_address: int = 1024
    queue: int = 1024
    body_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    batch_timeout_s: float = 120.0
    grace_s: float = 30.0
    no_worker_s: float = 60.0
    first_start_s: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                key = _OPTIONS.get(name, f"limits.{name}")
                raise ConfigError(f"{value} is not positive.", key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything about one service but its bundle.

    Attributes:
        port: 0 for any free one; the line `listening` of the log names it.
        service: batching and workers; queueing is always 'bins'.
        devices: that workers are started on, `service.workers` on each; None for all that are visible.
        policy: what a difference between this machine and the one the bundle was measured on does.
        trusted: whose signature the bundle must carry; None for none.
        api_key: what X-API-Key must hold for /predict and /info; None for open.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    service: ServiceSettings
    devices: int | None = None
    limits: Limits = Limits()
    policy: Policy = "refuse"
    api_key: str | None = None
    trusted: TrustedKeys | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"{self.port} is no port.", key="--port", hint="Ports are 0 (any free one) to 65535.")
        if self.devices is not None and self.devices < 1:
            raise ConfigError(f"{self.devices} is less than 1.", key="--devices")
        if self.policy not in ("warn", "refuse"):
            raise ConfigError(f"{self.policy!r} is neither warn nor refuse.", key="--policy")
        if self.service.queueing != "bins":
            raise ConfigError("the service batches by length bin alone.", key="service.queueing", hint="Use bins.")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("must be printable ASCII and not empty.", key=API_KEY_VARIABLE)
