"""Who may ask: the hosts that a request may name, and named keys, of which the service knows only digests.

A page of a stranger can have its own name point at this machine (DNS rebinding); its requests then come from inside,
but name the stranger's host. What names no host, two, or one that is not expected is refused.

The file of keys has a line for each: a name and the key's SHA-256. How often a key may ask, a gateway in front says.

    # made by: workbench api-key NAME
    mobile-app   sha256:9b74c9897bac770ffc029102a200c5de03c7b8e0f6ea1b9dd21c3b2b2ff2ad30
    nightly      sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b

A key is rotated by a second line beside the first, until `workbench_key_requests_total` says that nobody uses the old
one. Keys are drawn with 256 random bits, so a plain digest tells nobody anything.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.serve.events import log
from workbench.serve.refusals import Refusal
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError

if TYPE_CHECKING:
    from workbench.serve.settings import ServeSettings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
_NAMED = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::[0-9]{1,5})?")
_ALLOWED = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


class Hosts:
    """The names under which a service may be asked, whatever the port behind them."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Loopback names, and `allowed` as `canonical_host` gives them."""
        self._names = frozenset((*LOOPBACK, *allowed))
        self._ends = tuple(name[1:] for name in self._names if name.startswith("*."))

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
        arrived_at = f"[{here}]" if ":" in here else here
        if not (self._names & {ANY, found[1]} or found[1].endswith(self._ends) or found[1] == arrived_at):
            hint = "--allowed-host names further ones."
            raise Refusal("host", f"The service does not answer for this host; {hint}", close=True)


def canonical_host(name: str) -> str | None:
    """An entry of an allow-list as `Hosts` takes it; None for what is no host's name.

    Args:
        name: a name, an address, `*.` and a name for everything below it, or `*` for every host.
    """
    if name == ANY:
        return name
    name = name.strip().lower().rstrip(".")
    bare = name.removeprefix("[").removesuffix("]")
    try:
        ip_address(bare)
    except ValueError:
        return name if _ALLOWED.fullmatch(name) else None
    return f"[{bare}]" if ":" in bare else bare


DEFAULT = "default"
"""The key of WORKBENCH_API_KEY; no key of a file may be called so."""
_MOST_BYTES = 1 << 20
_MOST_KEYS, _MOST_LOGGED = 1000, 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_LINE = "NAME sha256:HEX"


class Keys:
    """Keys of a file that may change, and one that does not.

    Whoever stands in no sound line of the file any more is out: a key is revoked by whatever takes its line away. A
    file that is gone, empty, unreadable or open to everybody's writing lets nobody in. The log says why.
    """

    def __init__(self, path: Path | None, fixed: Mapping[str, str] | None = None) -> None:
        """Args: fixed: name → a key in clear text."""
        self._path = path
        self._fixed = {name: _digest(secret) for name, secret in (fixed or {}).items()}
        self._seen = self._stamp()
        self._keys = self._fixed | ({} if path is None else read_keys(path))

    def look(self) -> None:
        """Read the file again if it is not the one that was read."""
        before, self._seen = self._seen, self._stamp()
        if self._seen == before or self._path is None:
            return
        keys, faults = dict[str, bytes](), list[ConfigError]()
        try:
            keys = read_keys(self._path, faults)
        except ConfigError as error:
            faults = [error]
        for fault in faults[:_MOST_LOGGED]:
            log("keys_refused", error=str(fault))
        self._keys = keys | self._fixed
        log("keys_read", keys=list(keys))

    def admit(self, given: bytes | None) -> str:
        """The name of the key. Takes equally long whichever it is, and whether it is one.

        Raises:
            Refusal: 'unauthorized'.
        """
        digest = hashlib.sha256(given or b"").digest()
        found = [name for name, known in self._keys.items() if hmac.compare_digest(digest, known)]
        if not found:
            raise Refusal("unauthorized", "X-API-Key is missing or wrong.")
        return found[-1]

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_ctime_ns, found.st_ino, found.st_size)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def drawn_key(name: str) -> tuple[str, str]:
    """(a new key, its line for the file of keys).

    Raises:
        ConfigError: the name cannot stand in the file.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a key.", hint="Up to 64 letters, digits, '.', '_' and '-'.")
    secret = secrets.token_urlsafe(32)
    return secret, f"{name}   sha256:{_digest(secret).hex()}"


def read_keys(path: Path, faults: list[ConfigError] | None = None) -> dict[str, bytes]:
    """Name → SHA-256 of each key of a file, at least one.

    Args:
        faults: gets what is wrong with single lines, which then count as absent; None to raise the first.

    Raises:
        ConfigError: it cannot be read, anybody may write to it, or a line is not one of a key. No line is quoted.
    """
    text = read_text(path, limit_bytes=_MOST_BYTES, key="--api-keys")
    if path.stat().st_mode & 0o002:
        raise ConfigError("everybody may write to it, and so let themselves in.", file=path, hint="chmod o-w it.")
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, digest = _NAME.fullmatch(words[0]), _DIGEST.fullmatch(words[-1].lower())
        fault = None
        if len(words) != 2 or name is None or digest is None:
            hint = "workbench api-key NAME prints one. Requests a second are limited by a gateway in front."
            fault = ConfigError(f"this is no line of a key: {_LINE}.", file=path, line=number, hint=hint)
        elif name[0] in (DEFAULT, *keys):
            hint = "Name it otherwise."
            fault = ConfigError(f"the name {name[0]} is taken.", file=path, line=number, hint=hint)
        else:
            keys[name[0]] = bytes.fromhex(digest[1])
        if fault is not None:
            if faults is None:
                raise fault
            faults.append(fault)
    if not 1 <= len(keys) <= _MOST_KEYS:
        hint = "workbench api-key NAME draws one and prints its line."
        raise ConfigError(f"has {len(keys)} keys; 1 to {_MOST_KEYS} may be there.", file=path, hint=hint)
    return keys


def watched_keys(settings: ServeSettings) -> Keys | None:
    """The keys that a service asks for; None where it answers everybody.

    Raises:
        ConfigError: see `read_keys`.
    """
    if not settings.keyed:
        return None
    return Keys(settings.api_keys, {} if settings.api_key is None else {DEFAULT: settings.api_key})
