"""Who may connect, and whose turn it is: bounds over all connections.

At a bound the newcomer is let in where another connection is of no use: one whose first request does not come, then
one that idles between requests. Connections that are being answered are never closed for others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.serve.events import log_seldom
from workbench.serve.metrics import labelled

if TYPE_CHECKING:
    from workbench.serve.http import HttpConnection

_PATIENCE_S = 1.0
"""A connection without a request is left alone for so long, however many wait."""

Idleness = Literal["busy", "between requests", "without a request"]


class Connections(Collector):
    """All open connections of one front end."""

    def __init__(self, *, most: int, most_of_address: int) -> None:
        self.refused = 0
        """Newcomers that found no room."""
        self.displaced = 0
        """Connections that were closed to make room."""
        self._most, self._most_of_address = most, most_of_address
        self._open: dict[str, dict[HttpConnection, float]] = {}
        self.count = 0

    def admit(self, connection: HttpConnection, address: str, now_s: float) -> bool:
        """Whether there is room for a newcomer, or can be made."""
        same = self._open.get(address, {})
        if len(same) >= self._most_of_address:
            crowd = same.items()
        elif self.count >= self._most:
            crowd = max(self._open.values(), key=len).items()  # who holds most gives way first
        else:
            self._add(connection, address, now_s)
            return True
        log_seldom("connections_at_their_bound", kind="connections", open=self.count)
        useless = _most_useless(crowd, now_s)
        if useless is None:
            self.refused += 1
            return False
        self.displaced += 1
        self.remove(useless)
        useless.make_room()
        self._add(connection, address, now_s)
        return True

    def remove(self, connection: HttpConnection) -> None:
        """Forget one that is closed; also one that was forgotten already."""
        same = self._open.get(connection.address)
        if same is not None and same.pop(connection, None) is not None:
            self.count -= 1
            if not same:
                del self._open[connection.address]

    def all(self) -> list[HttpConnection]:
        return [one for same in self._open.values() for one in same]

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("workbench_connections", "Connections that are open.", self.count)
        about = "Connections that were closed for want of room: newcomers refused, idle ones displaced."
        closed = [("refused", self.refused), ("displaced", self.displaced)]
        yield labelled(CounterMetricFamily, "workbench_connections_closed", about, "how", closed)

    def _add(self, connection: HttpConnection, address: str, now_s: float) -> None:
        self._open.setdefault(address, {})[connection] = now_s
        self.count += 1


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


def _most_useless(crowd: Iterable[tuple[HttpConnection, float]], now_s: float) -> HttpConnection | None:
    """The oldest that has sent no whole head yet, else the oldest that idles between requests."""
    idle: HttpConnection | None = None
    for connection, since_s in crowd:
        if now_s - since_s < _PATIENCE_S:
            continue
        how = connection.idleness()
        if how == "without a request":
            return connection
        if how == "between requests" and idle is None:
            idle = connection
    return idle
