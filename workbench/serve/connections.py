"""Who may connect, and whose turn it is: bounds over all connections, and how much of each is read at once.

At a bound the newcomer is let in where another connection is of no use: one whose first request does not come, then
one that idles between requests. Connections that are being answered are never closed for others.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.serve.events import log_seldom

if TYPE_CHECKING:
    from workbench.serve.protocol import BoundedHttp

_PIECE_BYTES = 16 << 10
"""Read at once of what is no body of a known length."""
_BODY_BYTES = 64 << 10
"""Read at once of a body whose length is known."""
_PATIENCE_S = 1.0
"""A connection without a request is left alone for so long, however many wait."""

Idleness = Literal["busy", "between requests", "without a request"]
_buffer = memoryview(bytearray(_BODY_BYTES))
"""For every connection: what is read into it is copied out before the next read."""
_piece = _buffer[:_PIECE_BYTES]


class Connections(Collector):
    """All open connections of one front end."""

    def __init__(self, *, most: int, most_of_address: int, rejected: Callable[[str], None] = lambda _: None) -> None:
        """
        Args:
            rejected: told the kind of every refusal that the application does not see.
        """
        self.rejected = rejected
        self.refused = 0
        """Newcomers that found no room."""
        self.displaced = 0
        """Connections that were closed to make room."""
        self.on_close: Callable[[], None] = lambda: None
        """Called when there is one less."""
        self._most, self._most_of_address = most, most_of_address
        self._open: dict[str, dict[Connection, float]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def admit(self, connection: Connection, address: str, now_s: float) -> bool:
        """Whether there is room for a newcomer, or can be made."""
        same = self._open.get(address, {})
        if len(same) >= self._most_of_address:
            crowd: Iterable[tuple[Connection, float]] = same.items()
        elif self._count >= self._most:
            crowd = max(self._open.values(), key=len).items()  # who holds most gives way first
        else:
            crowd = ()
            self._add(connection, address, now_s)
            return True
        log_seldom("connections_at_their_bound", kind="connections", open=self._count)
        useless = _most_useless(crowd, now_s)
        if useless is None:
            self.refused += 1
            return False
        self.displaced += 1
        self.remove(useless)
        useless.http.make_room()
        self._add(connection, address, now_s)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget one that is closed; also one that was forgotten already."""
        same = self._open.get(connection.address)
        if same is not None and same.pop(connection, None) is not None:
            self._count -= 1
            if not same:
                del self._open[connection.address]
            self.on_close()

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("workbench_connections", "Connections that are open.", self._count)
        closed = CounterMetricFamily(
            "workbench_connections_closed",
            "Connections that were closed for want of room: newcomers refused, idle ones displaced.",
            labels=["how"],
        )
        closed.add_metric(["refused"], self.refused)
        closed.add_metric(["displaced"], self.displaced)
        yield closed

    def _add(self, connection: Connection, address: str, now_s: float) -> None:
        self._open.setdefault(address, {})[connection] = now_s
        self._count += 1


class Connection(asyncio.BufferedProtocol):
    """One connection: reads no more than it may, if it may be there at all."""

    def __init__(self, http: BoundedHttp, connections: Connections) -> None:
        self.http, self.address = http, ""
        self._all = connections
        self._admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one
        self.address = address_of(transport.get_extra_info("peername"))
        self._admitted = self._all.admit(self, self.address, asyncio.get_running_loop().time())
        if self._admitted:
            self.http.connection_made(transport)
        else:
            self.http.refuse_connection(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        wanted = self.http.wanted()
        if wanted is None or wanted <= _PIECE_BYTES:
            return _piece
        return _buffer[: min(wanted, _BODY_BYTES)]

    def buffer_updated(self, nbytes: int) -> None:
        if self._admitted:
            self.http.data_received(bytes(_buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            self._all.remove(self)
            self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._admitted:
            self.http.pause_writing()

    def resume_writing(self) -> None:
        if self._admitted:
            self.http.resume_writing()


def address_of(peer: Any) -> str:
    """Whose connections count together: an IPv4 address, or the 64 bits of an IPv6 address that one customer gets."""
    if not peer:
        return ""
    host = str(peer[0])
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def _most_useless(crowd: Iterable[tuple[Connection, float]], now_s: float) -> Connection | None:
    """The oldest that has sent no whole head yet, else the oldest that idles between requests."""
    idle: Connection | None = None
    for connection, since_s in crowd:
        if now_s - since_s < _PATIENCE_S:
            continue
        how = connection.http.idleness()
        if how == "without a request":
            return connection
        if how == "between requests" and idle is None:
            idle = connection
    return idle
