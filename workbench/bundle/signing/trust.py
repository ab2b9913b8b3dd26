"""Whose signatures count: a text file that operations keep, outside every bundle.

    # a comment
    RWS6u6Rin4Pt5HuLUXakJLw84ux+4FOXlvf0y6VpI1EvhEeauTl8CbAA   release 2026, Zhang Wei
    revoked RWQ5Jr6h/oiLuMFTUtK2a9lH4wQx0mrEbyMH/c3cVUKkFDfhunZbD8fN   laptop lost in March

One key a line, as minisign writes it, and behind it whose it is. A public key file of minisign is such a file too. A
key that is listed and revoked is revoked, wherever the lines stand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.bundle.signing.minisign import UNTRUSTED, PublicKey, SignatureError, parse_public_key
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError

TRUSTED_VARIABLE = "WORKBENCH_TRUSTED_KEYS"
"""Names the file where no option does; where it is set, every bundle must be signed."""
_MOST_BYTES = 1 << 20
_LINE = re.compile(r"(?P<revoked>revoked\s+)?(?P<key>[A-Za-z0-9+/=]+)(?:\s+(?P<name>.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """Attributes:
    name: whose it is, '' where nobody said.
    """

    public: PublicKey
    name: str
    revoked: bool

    @property
    def words(self) -> str:
        return f"{self.public.name} ({self.name})" if self.name else self.public.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKeys:
    """Attributes:
    keys: in the file's order; revoked ones among them.
    """

    file: Path
    keys: tuple[TrustedKey, ...]

    def of(self, key_id: bytes) -> tuple[TrustedKey, ...]:
        """The keys of an id. Ids are short and chosen by whoever makes a key, so there may be several."""
        return tuple(key for key in self.keys if key.public.key_id == key_id)


def trusted_keys_of(file: Path | None, environment: Mapping[str, str] = os.environ) -> TrustedKeys | None:
    """The keys that an option or the environment names; None where neither does, and no signature is asked for.

    Raises:
        ConfigError: as `read_trusted_keys`.
    """
    if file is None:
        named = environment.get(TRUSTED_VARIABLE)
        if named is None:
            return None
        if not named:
            raise ConfigError(
                "is empty, and would trust nobody.", key=TRUSTED_VARIABLE, hint="Name a file or unset it."
            )
        file = Path(named)
    return read_trusted_keys(file)


def only_key(public: PublicKey) -> TrustedKeys:
    """As if a file listed this key alone: for checking what was just signed with it."""
    return TrustedKeys(
        file=Path("the key it was signed with"), keys=(TrustedKey(public=public, name="", revoked=False),)
    )


def read_trusted_keys(file: Path) -> TrustedKeys:
    """Read a file of trusted keys.

    Raises:
        ConfigError: no such file, a line that is none, or no key that is not revoked.
    """
    text = read_text(file, limit_bytes=_MOST_BYTES, key="--trusted-keys")
    found: dict[tuple[bytes, bytes], TrustedKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", UNTRUSTED.strip())):
            continue
        key = _key(file, number, line.strip())
        identity = (key.public.key_id, key.public.key)
        if identity not in found or key.revoked:
            found[identity] = key
    if all(key.revoked for key in found.values()):
        raise ConfigError(
            "lists no key that is not revoked, so no bundle could pass.",
            file=file,
            key="--trusted-keys",
            hint="Put the line of a public key into it, as `workbench keygen` prints it.",
        )
    return TrustedKeys(file=file, keys=tuple(found.values()))


def _key(file: Path, number: int, line: str) -> TrustedKey:
    match = _LINE.fullmatch(line)
    try:
        public = parse_public_key(match["key"] if match is not None else "")
    except SignatureError as error:
        raise ConfigError(
            f"{error}.",
            file=file,
            line=number,
            key="--trusted-keys",
            hint="A line is [revoked] KEY [whose it is]; comments begin with #.",
        ) from None
    assert match is not None  # parse_public_key refuses ''
    name = "".join(c for c in (match["name"] or "").strip() if c.isprintable())
    return TrustedKey(public=public, name=name, revoked=match["revoked"] is not None)
