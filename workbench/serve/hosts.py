"""Which hosts a request may name.

A page of a stranger can have its own name point at this machine (DNS rebinding); its requests then come from inside,
but name the stranger's host. What names no host, two, or one that is not expected is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from workbench.serve.refusals import Refusal

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
_NAMED = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::[0-9]{1,5})?")
_ALLOWED = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


class Hosts:
    """The names under which a service may be asked, whatever the port behind them."""

    def __init__(self, allowed: Iterable[str] = (), *, addresses: bool = False) -> None:
        """Loopback names, and `allowed` as `canonical_host` gives them.

        Args:
            addresses: any address is taken instead of a name: no stranger's page can have one for its name.
        """
        names = {*LOOPBACK, *allowed}
        self._any, self._addresses = ANY in names, addresses
        self._names = frozenset(names)
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))

    def check(self, headers: Sequence[tuple[bytes, bytes]], here: str = "") -> None:
        """See what the headers of a request name.

        Args:
            headers: names in lower case.
            here: the address at which this connection arrived, which may be named too.

        Raises:
            Refusal: 'bad_request' where not exactly one host is named, 'host' where it is not an allowed one.
        """
        given = [value for name, value in headers if name == b"host"]
        found = _NAMED.fullmatch(given[0].decode("latin-1").lower()) if len(given) == 1 else None
        if found is None:
            raise Refusal("bad_request", "A request must name one host: the header Host, once.", close=True)
        name = found[1]
        if self._any or name in self._names or name.endswith(self._ends):
            return
        if here and name == (f"[{here}]" if ":" in here else here):
            return
        if self._addresses and _is_address(name):
            return
        raise Refusal(
            "host", "The service does not answer for this host; --allowed-host names further ones.", close=True
        )


def canonical_host(name: str) -> str | None:
    """An entry of an allow-list as `Hosts` takes it; None for what is no host's name.

    Args:
        name: a name, an address, `*.` and a name for everything below it, or `*` for every host.
    """
    if name == ANY:
        return name
    name = name.strip().lower().rstrip(".")
    bare = name.removeprefix("[").removesuffix("]")
    if _is_address(bare):
        return f"[{bare}]" if ":" in bare else bare
    return name if _ALLOWED.fullmatch(name) else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ip_address(host).is_loopback


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
