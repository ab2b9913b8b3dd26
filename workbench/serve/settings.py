"""What a service is told when it starts: where it listens, how it batches, whom it answers, and what it refuses.

A field with a `help` is an option, of `workbench serve` and of `python -m workbench.serve` alike.
"""
# ruff: noqa: RUF009  # `_option` gives a dataclass field

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from workbench.serve.access import canonical_host
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceSettings, is_loopback

if TYPE_CHECKING:  # types only: whoever asks for the options alone need not wait for the libraries behind a bundle
    from workbench.bundle.signing import TrustedKeys

_GIVE_KEYS = "Give --api-keys FILE, or WORKBENCH_API_KEY in the environment."
MOST_FRONT_ENDS = 64
API_KEY_VARIABLE = "WORKBENCH_API_KEY"


def _option(default: Any, help_text: str, flag: str = "") -> Any:
    """A field that is an option, called as the field where no flag is given."""
    return field(default=default, metadata={"help": help_text, "flag": flag})


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
        hang_s: without a word of a front end; then it is killed and started again.
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
    connections: int = _option(2048, "open at a time", "--max-connections")
    connections_of_address: int = _option(1024, "of one client's address", "--max-connections-per-address")
    queue: int = _option(1024, "samples that may wait; more are refused with 503", "--queue-limit")
    body_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    batch_timeout_s: float = 120.0
    hang_s: float = 10.0
    grace_s: float = 30.0
    no_worker_s: float = _option(
        60.0, "end with an error when no worker could answer for so many seconds", "--no-worker-timeout-s"
    )
    first_start_s: float = 600.0

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if not (math.isfinite(value) and value > 0):
                key = one.metadata.get("flag", f"limits.{one.name}")
                raise ConfigError(f"{value} is not positive.", key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything about one service but its bundle.

    Attributes:
        port: the line `listening` of the log names the one that was free.
        workers, max_batch_size, batch_timeout_ms: in place of the bundle's; `service` is what comes of it.
        front_ends: for all cards together.
        allowed_host: beside loopback names and the address that a request arrives at; see `serve.access`.
        api_keys: the file of keys, as digests; see `serve.access`. Without any key, everybody is answered.
        api_key: one more, in clear text, named 'default'.
        trusted: whose signature the bundle must carry; None for none.
    """

    host: str = _option("127.0.0.1", "address to listen on; 0.0.0.0 for all")
    port: int = _option(8000, "0 for any free one")
    workers: int | None = _option(None, "processes with a model each, for each device; default: the bundle's")
    devices: str | None = _option(None, "cards to use: all (default), a number of them, or names: 0,1,3 (one: 3,)")
    front_ends: str = _option(
        "auto", "processes that take requests in, for all cards; auto: one for each card, at most half of the CPUs"
    )
    max_batch_size: int | None = _option(None, "samples in one call; default: the bundle's")
    batch_timeout_ms: float | None = _option(None, "how long a sample waits for others; default: the bundle's")
    policy: Literal["warn", "refuse"] = _option("refuse", "when this machine is not one the bundle was made for")
    trusted_keys: Path | None = _option(
        None, "file of public keys: the bundle must be signed by one of them; default: WORKBENCH_TRUSTED_KEYS"
    )
    allowed_host: list[str] | None = _option(None, "that requests may name, beside loopback; again for more")
    api_keys: Path | None = _option(None, "file of keys, as `workbench api-key` prints their lines")
    no_key: bool = _option(False, "listen beyond loopback and ask for no key")
    metrics: Literal["open", "off"] = _option("open", "/metrics, for which no key is asked")
    service: ServiceSettings = field(default_factory=ServiceSettings)
    limits: Limits = Limits()
    trusted: TrustedKeys | None = None
    api_key: str | None = field(default_factory=lambda: os.environ.get(API_KEY_VARIABLE))

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"{self.port} is no port.", key="--port", hint="Ports are 0 (any free one) to 65535.")
        if self.front_ends != "auto":
            if not self.front_ends.isdecimal():
                raise ConfigError(f"{self.front_ends!r} is neither a number nor auto.", key="--front-ends")
            if not 1 <= int(self.front_ends) <= MOST_FRONT_ENDS:
                raise ConfigError(f"{self.front_ends} is not 1 to {MOST_FRONT_ENDS}.", key="--front-ends")
        for name in self.allowed_host or ():
            if canonical_host(name) is None:
                hint = "A name or an address without a port; *.NAME for all below it, * for every host."
                raise ConfigError(f"{name!r} is no host.", key="--allowed-host", hint=hint)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("must be printable ASCII and not empty.", key=API_KEY_VARIABLE)
        if not is_loopback(self.host) and not self.keyed and not self.no_key:
            hint = f"{_GIVE_KEYS} --no-key serves whoever reaches it."
            raise ConfigError(f"{self.host} is not loopback, and no key is asked for.", key="--host", hint=hint)

    @property
    def keyed(self) -> bool:
        """A key is asked for."""
        return self.api_key is not None or self.api_keys is not None

    @property
    def hosts(self) -> list[str]:
        """`allowed_host` as `Hosts` takes them."""
        return [host for host in map(canonical_host, self.allowed_host or ()) if host is not None]


def options_of(kind: type[Any]) -> Iterator[tuple[str, str, Any, Any, str]]:
    """(field, flag, type, default, help) of each option among a dataclass's fields."""
    hints = get_type_hints(kind, localns={"TrustedKeys": Any})
    for one in dataclasses.fields(kind):
        if "help" in one.metadata:
            flag = one.metadata["flag"] or f"--{one.name.replace('_', '-')}"
            yield one.name, flag, hints[one.name], one.default, one.metadata["help"]
