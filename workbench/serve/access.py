"""Who may ask: the hosts that a request may name, and named keys, of which the service knows only digests.

A page of a stranger can have its own name point at this machine (DNS rebinding); its requests then come from inside,
but name the stranger's host. What names no host, two, or one that is not expected is refused.

The file of keys has a line for each: a name, the key's SHA-256, and where it is limited, requests a second.

    # made by: workbench api-key NAME
    mobile-app   sha256:9b74c9897bac770ffc029102a200c5de03c7b8e0f6ea1b9dd21c3b2b2ff2ad30
    nightly      sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b   20/s

A key is rotated by a second line beside the first, until `workbench_key_requests_total` says that nobody uses the old
one. Keys are drawn with 256 random bits, so a plain digest tells nobody anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import math
import mmap
import os
import re
import secrets
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.serve.events import log
from workbench.serve.refusals import Refusal
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
        names = {*LOOPBACK, *allowed}
        self._any = ANY in names
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


DEFAULT = "default"
"""The key of WORKBENCH_API_KEY; no key of a file may be called so."""
_MOST_BYTES = 1 << 20
_MOST_KEYS, _MOST_LOGGED = 1000, 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)/s")
_LINE = "NAME sha256:HEX [RATE/s]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Attributes:
    digest: SHA-256 of the key.
    rate_per_s: requests that may come in a second, over any second; None for any number.
    """

    name: str
    digest: bytes
    rate_per_s: float | None = None


class Keys:
    """Keys of a file that may change, and one that does not.

    Whoever stands in no sound line of the file any more is out: a key is revoked by whatever takes its line away. A
    file that is gone, empty, unreadable or open to everybody's writing lets nobody in. The log says why.
    """

    def __init__(self, path: Path | None, fixed: Sequence[Key] = (), *, rate_per_s: float | None = None) -> None:
        """
        Args:
            rate_per_s: of keys that do not state their own.
        """
        self._path, self._fixed, self._rate_per_s = path, tuple(fixed), rate_per_s
        self.rates = Rates()
        self._seen = self._stamp()
        self._keys = (*self._read(), *fixed)

    def look(self) -> None:
        """Read the file again if it is not the one that was read; a key that stays has used what it has used."""
        before, self._seen = self._seen, self._stamp()
        if self._seen == before:
            return
        keys: tuple[Key, ...] = ()
        faults: list[ConfigError] = []
        try:
            keys = self._read(faults)
        except ConfigError as error:
            faults = [error]
        for fault in faults[:_MOST_LOGGED]:
            log("keys_refused", error=str(fault))
        self._keys = (*keys, *self._fixed)
        log("keys_read", keys=[key.name for key in keys])

    def known(self, given: bytes | None) -> Key | None:
        """Whose key it is. Takes equally long whichever it is, and whether it is one."""
        digest = hashlib.sha256(given or b"").digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    def admit(self, given: bytes | None, now_s: float) -> Key:
        """The key of a request that comes now.

        Args:
            now_s: by a clock that never goes back.

        Raises:
            Refusal: 'unauthorized', or 'rate' with the time when the key may ask again.
        """
        key = self.known(given)
        if key is None:
            raise Refusal("unauthorized", "X-API-Key is missing or wrong.")
        rate = self._rate_per_s if key.rate_per_s is None else key.rate_per_s
        if rate is not None:
            lacks = self.rates.take(key.name, rate, now_s)
            if lacks:
                wait_s = math.ceil(lacks / rate)
                raise Refusal("rate", f"This key may ask {rate:g} times a second.", max(1, wait_s))
        return key

    def _read(self, faults: list[ConfigError] | None = None) -> tuple[Key, ...]:
        return () if self._path is None else read_keys(self._path, faults)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_ctime_ns, found.st_ino, found.st_size)


def key_of(name: str, secret: str) -> Key:
    """A key that is known in clear text."""
    return Key(name=name, digest=hashlib.sha256(secret.encode()).digest())


def drawn_key(name: str, rate_per_s: float | None = None) -> tuple[str, str]:
    """(a new key, its line for the file of keys).

    Raises:
        ConfigError: the name cannot stand in the file.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a key.", hint="Up to 64 letters, digits, '.', '_' and '-'.")
    secret = secrets.token_urlsafe(32)
    rate = "" if rate_per_s is None else f"   {rate_per_s:g}/s"
    return secret, f"{name}   sha256:{hashlib.sha256(secret.encode()).hexdigest()}{rate}"


def read_keys(path: Path, faults: list[ConfigError] | None = None) -> tuple[Key, ...]:
    """The keys of a file, at least one.

    Args:
        faults: gets what is wrong with single lines, which then count as absent; None to raise the first.

    Raises:
        ConfigError: it cannot be read, anybody may write to it, or a line is not one of a key. No line is quoted.
    """
    try:
        if not path.is_file():
            raise ConfigError("there is no such file of keys.", file=path, key="--api-keys")
        if path.stat().st_mode & 0o002:
            raise ConfigError("everybody may write to it, and so let themselves in.", file=path, hint="chmod o-w it.")
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=path, key="--api-keys") from error
    except UnicodeDecodeError as error:
        raise ConfigError("is no UTF-8 text.", file=path, key="--api-keys") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"has more than {_MOST_BYTES} bytes.", file=path, key="--api-keys")
    keys: dict[str, Key] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            key = _key(words, path, number)
            if key.name in (DEFAULT, *keys):
                raise ConfigError(f"the name {key.name} is taken.", file=path, line=number, hint="Name it otherwise.")
        except ConfigError as error:
            if faults is None:
                raise
            faults.append(error)
            continue
        keys[key.name] = key
    if not 1 <= len(keys) <= _MOST_KEYS:
        hint = "workbench api-key NAME draws one and prints its line."
        raise ConfigError(f"has {len(keys)} keys; 1 to {_MOST_KEYS} may be there.", file=path, hint=hint)
    return tuple(keys.values())


def _key(words: Sequence[str], path: Path, number: int) -> Key:
    name = _NAME.fullmatch(words[0])
    digest = _DIGEST.fullmatch(words[1].lower()) if len(words) > 1 else None
    rate = _RATE.fullmatch(words[2]) if len(words) == 3 else None
    if name is None or digest is None or len(words) > 3 or (len(words) == 3 and (rate is None or not float(rate[1]))):
        hint = "workbench api-key NAME prints one."
        raise ConfigError(f"this is no line of a key: {_LINE}.", file=path, line=number, hint=hint)
    return Key(name=name[0], digest=bytes.fromhex(digest[1]), rate_per_s=float(rate[1]) if rate else None)


def watched_keys(settings: ServeSettings) -> Keys | None:
    """The keys that a service asks for; None where it answers everybody.

    Raises:
        ConfigError: see `read_keys`.
    """
    if not settings.keyed:
        return None
    fixed = [] if settings.api_key is None else [key_of(DEFAULT, settings.api_key)]
    return Keys(settings.api_keys, fixed, rate_per_s=settings.rate_limit)


_ENTRY = struct.Struct("<8sdd")
_ENTRIES = 4096
"""Several times as many as a file of keys may have: keys that went stay in the table."""
SIZE = _ENTRIES * _ENTRY.size
_NOBODY = bytes(8)


class Rates:
    """How often each key may still ask: a bucket that fills with its rate, up to one second's worth.

    Buckets are those of all processes that have `descriptor` open, a file of SIZE zeros; without one of this process.
    The kernel unlocks for one that is killed. An entry is the digest of a key's name, what is left, and since when, by
    a clock that is the machine's (`time.perf_counter` on Linux).
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._file, self._table = descriptor, mmap.mmap(-1 if descriptor is None else descriptor, SIZE)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is being started, which gets the same file."""
        assert self._file is not None
        return _handed, (DupFd(self._file),)

    def take(self, name: str, rate_per_s: float, now_s: float) -> float:
        """0 if this key may ask now, which is counted; else how many requests it lacks, below 1."""
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        most = max(1.0, rate_per_s)
        with self._locked():
            place = int.from_bytes(digest[:4], "little") % _ENTRIES
            for _ in range(_ENTRIES):
                owner, left, since_s = _ENTRY.unpack_from(self._table, place * _ENTRY.size)
                if owner in (digest, _NOBODY):
                    break
                place = (place + 1) % _ENTRIES
            left = most if owner == _NOBODY else min(most, left + max(0.0, now_s - since_s) * rate_per_s)
            lacks = max(0.0, 1.0 - left)
            _ENTRY.pack_into(self._table, place * _ENTRY.size, digest, left if lacks else left - 1.0, now_s)
        return lacks

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def _handed(file: Any) -> Rates:
    return Rates(file.detach())


def shared_file() -> int:
    """A descriptor for `Rates`."""
    if hasattr(os, "memfd_create"):  # in containers nothing may be writable
        descriptor = os.memfd_create("rates")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, SIZE)
    return descriptor
