"""What a service is told when it starts: where it listens, how it batches, whom it answers, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from workbench.bundle import Bundle, golden_batches
from workbench.bundle.fingerprint import Policy
from workbench.bundle.signing import TrustedKeys
from workbench.serve.cards import check_devices
from workbench.serve.hosts import canonical_host, is_loopback
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceSettings

_OPTIONS = {
    "queue": "--queue-limit",
    "connections": "--max-connections",
    "connections_of_address": "--max-connections-per-address",
    "no_worker_s": "--no-worker-timeout-s",
}
Exposure = Literal["open", "admin", "off"]
_PORTS = "Ports are 0 (any free one) to 65535."
_GIVE_KEYS = "Give --api-keys FILE, or WORKBENCH_API_KEY in the environment."
MOST_FRONT_ENDS = 64
API_KEY_VARIABLE = "WORKBENCH_API_KEY"
_BYTES_OF_A_NUMBER = 26
"""As JSON writes a float64 with its sign, its comma and a space."""
_SAMPLES = 2
_LARGER = 4
"""Times the golden samples, where an axis is free and has no bins: others may be larger."""
_BODIES = 16
"""That may come in at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request, and all of them together, may ask for.

    Attributes:
        unread_bytes: of all bodies together that have come in part.
        texts: of one request; of raw tensors, rows.
        characters: of one text. Tokenizing takes about 1 µs for each, in the one process that answers everybody.
        words: of one text that is given as a list of words.
        connections: open at a time; `connections_of_address`, of one IPv4 address or IPv6 /64.
        queue: rows that wait; a request that would exceed it is refused with 503.
        body_timeout_s: for sending a body; a slower client is cut off with 408.
        request_timeout_s: from arrival to answer; then 504.
        batch_timeout_s: a worker that takes longer over one batch, or than `request_timeout_s`, is killed and started
            again.
        hang_s: without a turn of the event loop; then the service does not call itself live any more.
        grace_s: what is queued may still be answered for so long after SIGTERM.
        no_worker_s: the service ends with an error when no worker could answer for so long: since the last one was
            lost, or since the first start of the service failed. Whoever supervises it starts it anew.
        first_start_s: a worker's first start may take so long; then it is killed and tried again. Later ones may take
            three times what the slowest took, and never less than `no_worker_s`.
    """

    body_bytes: int = 1 << 20
    unread_bytes: int = 128 << 20
    texts: int = 64
    characters: int = 10_000
    words: int = 2_000
    connections: int = 2048
    connections_of_address: int = 1024
    queue: int = 1024
    body_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    batch_timeout_s: float = 120.0
    hang_s: float = 10.0
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
class Access:
    """Who may ask, for what, and under which name.

    Attributes:
        hosts: that requests may name beside loopback names and the address they arrive at; see `serve.hosts`.
        key_file: the keys that X-API-Key must hold one of, as digests; see `serve.keys`. None for none.
        api_key: one more key, in clear text, named 'default'. Without any key, everybody is answered.
        keyless: to listen beyond loopback without a key is meant so.
        rate_per_s: requests that one key may send in a second, where the file does not say.
        admin_host, admin_port: where a process of its own tells liveness and readiness, and what `metrics` and `docs`
            put there; no key is asked for. 0 is any free port, None for no such process.
        metrics, docs: 'open' to whoever reaches the service, at the port of administration only, or nowhere.
    """

    hosts: tuple[str, ...] = ()
    key_file: Path | None = None
    api_key: str | None = None
    keyless: bool = False
    rate_per_s: float | None = None
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    metrics: Exposure = "open"
    docs: Exposure = "open"

    def __post_init__(self) -> None:
        for name in self.hosts:
            if canonical_host(name) is None:
                hint = "A name or an address without a port; *.NAME for all below it, * for every host."
                raise ConfigError(f"{name!r} is no host.", key="--allowed-host", hint=hint)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("must be printable ASCII and not empty.", key=API_KEY_VARIABLE)
        if self.rate_per_s is not None and not (math.isfinite(self.rate_per_s) and self.rate_per_s > 0):
            raise ConfigError(f"{self.rate_per_s} is not positive.", key="--rate-limit")
        if self.rate_per_s is not None and not self.keyed:
            raise ConfigError("limits requests of each key, and there is none.", key="--rate-limit", hint=_GIVE_KEYS)
        if self.admin_port is not None and not 0 <= self.admin_port <= 65535:
            raise ConfigError(f"{self.admin_port} is no port.", key="--admin-port", hint=_PORTS)
        for name, value in (("--metrics", self.metrics), ("--docs", self.docs)):
            if value not in ("open", "admin", "off"):
                raise ConfigError(f"{value!r} is none of open, admin and off.", key=name)
            if value == "admin" and self.admin_port is None:
                raise ConfigError("there is no port of administration.", key=name, hint="Give --admin-port as well.")

    @property
    def keyed(self) -> bool:
        """A key is asked for."""
        return self.api_key is not None or self.key_file is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything about one service but its bundle.

    Attributes:
        port: 0 for any free one; the line `listening` of the log names it.
        service: batching and workers.
        devices: that workers are started on, `service.workers` on each, as `cards.places_of` takes them; None for all
            that are visible.
        front_ends: processes that take requests in, tokenize and answer, for all cards together; None for as many as
            suit the cards and the host.
        policy: what a difference between this machine and the one the bundle was measured on does.
        trusted: whose signature the bundle must carry; None for none.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    service: ServiceSettings
    devices: str | None = None
    front_ends: int | None = 1
    limits: Limits = Limits()
    policy: Policy = "refuse"
    access: Access = Access()
    trusted: TrustedKeys | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"{self.port} is no port.", key="--port", hint=_PORTS)
        if self.devices is not None:
            check_devices(self.devices)
        if self.front_ends is not None and not 1 <= self.front_ends <= MOST_FRONT_ENDS:
            raise ConfigError(f"{self.front_ends} is not 1 to {MOST_FRONT_ENDS}.", key="--front-ends")
        if self.policy not in ("warn", "refuse"):
            raise ConfigError(f"{self.policy!r} is neither warn nor refuse.", key="--policy")
        if not is_loopback(self.host) and not self.access.keyed and not self.access.keyless:
            hint = f"{_GIVE_KEYS} --no-key serves whoever reaches it."
            raise ConfigError(f"{self.host} is not loopback, and no key is asked for.", key="--host", hint=hint)


def front_ends_of(text: str) -> int | None:
    """What `--front-ends` says: a number, or None for auto.

    Raises:
        ConfigError: it is neither.
    """
    if text == "auto":
        return None
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is neither a number nor auto.", key="--front-ends")
    return int(text)


def with_room(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """The same settings with limits that a picture fits into: what one takes as JSON, and some room; a service of texts
    or of small arrays keeps its own.

    The largest bin tells the size of a free axis, else the golden samples do.
    """
    manifest = bundle.manifest
    if manifest.text is not None:
        return settings
    bins = {axis.name: axis.bins[-1] for axis in manifest.axes if axis.bins}
    shown: dict[str, tuple[int, ...]] = {}
    for golden in golden_batches(bundle):
        for name, array in golden.feeds.items():
            known = shown.get(name, array.shape)
            shown[name] = tuple(map(max, known, array.shape))
    numbers, larger = 0, 1
    for spec in manifest.model.inputs:
        free = shown.get(spec.name, ())[1:]
        sizes = [axis if isinstance(axis, int) else bins.get(str(axis), 0) for axis in spec.shape[1:]]
        larger = larger if all(sizes) else _LARGER
        numbers += math.prod(size or (free[at] if at < len(free) else 1) for at, size in enumerate(sizes))
    body_bytes = max(settings.limits.body_bytes, _SAMPLES * larger * _BYTES_OF_A_NUMBER * numbers)
    unread_bytes = max(settings.limits.unread_bytes, _BODIES * body_bytes)
    return replace(settings, limits=replace(settings.limits, body_bytes=body_bytes, unread_bytes=unread_bytes))
