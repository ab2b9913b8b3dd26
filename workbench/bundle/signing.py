"""Signatures that minisign makes and checks: Ed25519 over the BLAKE2b-512 of a file; and whose signatures count.

The arithmetic is the library cryptography's; the formats are those of minisign 0.11, whose own tool reads everything
that is written here, and the other way round.

    public key    "Ed" · key id (8) · Ed25519 public key (32), in base64
    signature     "ED" · key id (8) · Ed25519 over BLAKE2b-512 of the content (64), in base64, and below the trusted
                  comment Ed25519 over that signature and the comment (64)
    secret key    "Ed" · two zero bytes · "B2" · 48 zero bytes · key id (8) · seed (32) and public key (32) ·
                  BLAKE2b-256 of "Ed", key id and both, or zeros

Signatures marked "Ed", over the content itself, are of minisign before 0.6 and refused. So is a secret key with a
password, which minisign writes without -W: minisign itself signs a bundle's SHA256SUMS with it.

Operations keep a file of trusted keys outside every bundle:

    # a comment
    RWS6u6Rin4Pt5HuLUXakJLw84ux+4FOXlvf0y6VpI1EvhEeauTl8CbAA   release 2026, Zhang Wei
    revoked RWQ5Jr6h/oiLuMFTUtK2a9lH4wQx0mrEbyMH/c3cVUKkFDfhunZbD8fN   laptop lost in March

One key a line, as minisign writes it, and behind it whose it is. A public key file of minisign is such a file too. A
key that is listed and revoked is revoked, wherever the lines stand.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError
from workbench.values.system.files import writing

if TYPE_CHECKING:  # the library is imported where a key is used
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

UNTRUSTED, TRUSTED = "untrusted comment: ", "trusted comment: "
ALGORITHM, PREHASHED = b"Ed", b"ED"
KEY_ID_BYTES, KEY_BYTES, SIGNATURE_BYTES = 8, 32, 64
COMMENT = "workbench bundle "
"""How a trusted comment begins that the workbench wrote."""
MOST_SIGNATURE_BYTES = 1 << 14
"""Of a signature file; minisign's own comments end at 8 KiB."""


class SignatureError(ValueError):
    """A text is no key or signature of minisign, or a signature does not hold; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    key_id: bytes
    key: bytes

    @property
    def name(self) -> str:
        """The id as minisign writes it: 16 hexadecimal digits."""
        return key_name(self.key_id)

    @property
    def text(self) -> str:
        return base64.b64encode(ALGORITHM + self.key_id + self.key).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Attributes:
    trusted_comment: covered by `comment_signature`, hence as reliable as the signature.
    """

    key_id: bytes
    signature: bytes
    trusted_comment: str
    comment_signature: bytes

    def to_text(self, comment: str) -> str:
        """The four lines of a signature file; `comment` is covered by nothing."""
        first = base64.b64encode(PREHASHED + self.key_id + self.signature).decode("ascii")
        last = base64.b64encode(self.comment_signature).decode("ascii")
        return f"{UNTRUSTED}{comment}\n{first}\n{TRUSTED}{self.trusted_comment}\n{last}\n"


def key_name(key_id: bytes) -> str:
    return f"{int.from_bytes(key_id, 'little'):016X}"


def parse_public_key(text: str) -> PublicKey:
    """A public key from its line of base64.

    Raises:
        SignatureError: it is none.
    """
    raw = decoded(text, len(ALGORITHM) + KEY_ID_BYTES + KEY_BYTES, "a public key of minisign")
    if raw[:2] != ALGORITHM:
        raise SignatureError("it is no public key of minisign: its algorithm is not Ed25519")
    return PublicKey(key_id=raw[2:10], key=raw[10:])


def parse_signature(content: bytes) -> Signature:
    """A signature file.

    Raises:
        SignatureError: it is none, or a kind that is not accepted.
    """
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise SignatureError("it is no signature of minisign: not UTF-8") from None
    if lines[-1:] == [""]:
        lines.pop()
    if len(content) > MOST_SIGNATURE_BYTES or len(lines) != 4:
        raise SignatureError(f"it is no signature of minisign: {len(lines)} lines instead of 4, or a longer one")
    if not lines[0].startswith(UNTRUSTED) or not lines[2].startswith(TRUSTED):
        raise SignatureError("it is no signature of minisign: the comments are missing")
    raw = decoded(lines[1], len(PREHASHED) + KEY_ID_BYTES + SIGNATURE_BYTES, "a signature of minisign")
    if raw[:2] == ALGORITHM:
        raise SignatureError("it is of minisign's legacy kind, over the content itself; sign again without -l")
    if raw[:2] != PREHASHED:
        raise SignatureError("it is no signature of minisign: its algorithm is unknown")
    comment = lines[2].removeprefix(TRUSTED)
    if not comment.replace("\t", " ").isprintable():  # minisign's own comment has tabs
        raise SignatureError("its trusted comment holds characters that cannot be printed")
    last = decoded(lines[3], SIGNATURE_BYTES, "the signature of a trusted comment")
    return Signature(key_id=raw[2:10], signature=raw[10:], trusted_comment=comment, comment_signature=last)


def verify(public: PublicKey, content: bytes, signature: Signature) -> None:
    """Check a signature over a content, and over its own trusted comment.

    Raises:
        SignatureError: another key's, or the content, the signature or the comment was changed.
    """
    from cryptography.exceptions import InvalidSignature  # only whoever checks a signature needs the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if signature.key_id != public.key_id:
        raise SignatureError(f"it was made with key {key_name(signature.key_id)}, not {public.name}")
    try:
        key = Ed25519PublicKey.from_public_bytes(public.key)
    except ValueError:
        raise SignatureError(f"the public key {public.name} is no point of the curve") from None
    try:
        key.verify(signature.signature, hashlib.blake2b(content).digest())
    except InvalidSignature:
        raise SignatureError(f"it does not fit the content: one of them was changed after key {public.name}") from None
    try:
        key.verify(signature.comment_signature, signature.signature + signature.trusted_comment.encode("utf-8"))
    except InvalidSignature:
        raise SignatureError("its trusted comment was changed") from None


def decoded(text: str, size: int, what: str) -> bytes:
    """The bytes of a line of base64, in its one form.

    Raises:
        SignatureError: no base64, or not of `size` bytes.
    """
    try:
        raw = base64.b64decode(text.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise SignatureError(f"it is not {what}: no base64") from None
    if len(raw) != size or base64.b64encode(raw).decode("ascii") != text.strip():
        raise SignatureError(f"it is not {what}: {len(raw)} bytes instead of {size}")
    return raw


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
        match = _LINE.fullmatch(line.strip())
        try:
            public = parse_public_key(match["key"] if match is not None else "")
        except SignatureError as error:
            hint = "A line is [revoked] KEY [whose it is]; comments begin with #."
            raise ConfigError(f"{error}.", file=file, line=number, key="--trusted-keys", hint=hint) from None
        assert match is not None  # parse_public_key refuses ''
        revoked, identity = match["revoked"] is not None, (public.key_id, public.key)
        if identity not in found or revoked:
            name = "".join(c for c in (match["name"] or "").strip() if c.isprintable())
            found[identity] = TrustedKey(public=public, name=name, revoked=revoked)
    if all(key.revoked for key in found.values()):
        raise ConfigError(
            "lists no key that is not revoked, so no bundle could pass.",
            file=file,
            key="--trusted-keys",
            hint="Put the line of a public key into it, as `workbench keygen` prints it.",
        )
    return TrustedKeys(file=file, keys=tuple(found.values()))


_PLAIN, _CHECKSUM = b"\0\0", b"B2"
_PLAIN_BYTES, _CHECK_BYTES = 48, 32
"""Of a plain key's salt and limits, all zeros; of its checksum."""
_SECRET_BYTES = 2 + 2 + 2 + _PLAIN_BYTES + KEY_ID_BYTES + 2 * KEY_BYTES + _CHECK_BYTES
_MOST_KEY_BYTES = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    seed: bytes = field(repr=False)
    public: PublicKey


def sign(secret: SecretKey, content: bytes, trusted_comment: str) -> Signature:
    """Sign a content and a comment of one printable line."""
    if not trusted_comment.isprintable():
        raise ValueError("a trusted comment is one printable line")
    key = _private(secret.seed)
    made = key.sign(hashlib.blake2b(content).digest())
    over_comment = key.sign(made + trusted_comment.encode("utf-8"))
    return Signature(
        key_id=secret.public.key_id,
        signature=made,
        trusted_comment=trusted_comment,
        comment_signature=over_comment,
    )


def make_keys(secret_file: Path, public_file: Path) -> PublicKey:
    """Make a pair of keys and write both files; the secret one readable by its owner only.

    Raises:
        ConfigError: one of the files exists.
        ToolchainError: they cannot be written.
    """
    for file in (secret_file, public_file):
        if os.path.lexists(file):
            raise ConfigError("exists already and is left alone.", file=file, hint="Choose another name.")
    seed, key_id = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_ID_BYTES)
    public = PublicKey(key_id=key_id, key=_private(seed).public_key().public_bytes_raw())
    body = key_id + seed + public.key
    body += hashlib.blake2b(ALGORITHM + body, digest_size=_CHECK_BYTES).digest()
    raw = base64.b64encode(ALGORITHM + _PLAIN + _CHECKSUM + bytes(_PLAIN_BYTES) + body).decode("ascii")
    _write_new(secret_file, f"{UNTRUSTED}minisign secret key\n{raw}\n", 0o600)
    _write_new(public_file, f"{UNTRUSTED}minisign public key {public.name}\n{public.text}\n", 0o644)
    return public


def read_secret_key(file: Path) -> SecretKey:
    """Read a secret key.

    Raises:
        ConfigError: no such file, no secret key, one with a password, or readable by everybody.
    """
    text = read_text(file, limit_bytes=_MOST_KEY_BYTES, key="--sign")
    if stat.S_IMODE(file.stat().st_mode) & 0o007:
        raise ConfigError(
            "can be read or written by every user of this machine, and is secret.",
            file=file,
            key="--sign",
            hint=f"Run chmod 600 {file}, and ask yourself who may have copied it.",
        )
    lines = text.splitlines()
    try:
        raw = decoded(lines[1] if len(lines) == 2 else "", _SECRET_BYTES, "a secret key of minisign")
        if raw[:2] != ALGORITHM or raw[4:6] != _CHECKSUM:
            raise SignatureError("it is no secret key of minisign")
        if raw[2:4] != _PLAIN:
            raise SignatureError("it has a password, which minisign alone asks for: minisign -S -s KEY -m SHA256SUMS")
    except SignatureError as error:
        hint = "Make one with `workbench keygen` or `minisign -G -W`; the public key is another file."
        raise ConfigError(f"{error}.", file=file, key="--sign", hint=hint) from None
    body, check = raw[-_CHECK_BYTES - 72 : -_CHECK_BYTES], raw[-_CHECK_BYTES:]
    seed, public = body[8:40], PublicKey(key_id=body[:8], key=body[40:])
    expected = hashlib.blake2b(ALGORITHM + body, digest_size=_CHECK_BYTES).digest()
    # minisign writes zeros for the check of a plain key
    if (any(check) and check != expected) or _private(seed).public_key().public_bytes_raw() != public.key:
        raise ConfigError(f"key {public.name} is damaged.", file=file, key="--sign")
    return SecretKey(seed=seed, public=public)


def _private(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def _write_new(file: Path, text: str, mode: int) -> None:
    """A file that did not exist, with its rights from the start."""
    with writing(file, "Choose another folder."):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
