"""Signatures that minisign makes and checks: Ed25519 over the BLAKE2b-512 of a file; and whose signatures count.

The arithmetic is the library cryptography's; the formats are those of minisign 0.11, whose own tool reads everything
that is written here, and the other way round.

    public key    "Ed" · key id (8) · Ed25519 public key (32), in base64
    signature     "ED" · key id (8) · Ed25519 over BLAKE2b-512 of the content (64), in base64, and below the trusted
                  comment Ed25519 over that signature and the comment (64)
    secret key    "Ed" · "Sc" or two zero bytes · "B2" · salt (32) · opslimit, memlimit (8 each, little-endian)
                  · key id (8) · seed (32) and public key (32) · BLAKE2b-256 of "Ed", key id and both

Signatures marked "Ed", over the content itself, are of minisign before 0.6 and refused. The last 104 bytes of a secret
key are XORed with what scrypt makes of the password; "two zero bytes" stands for a plain key, which minisign -W writes.
minisign takes libsodium's "sensitive" limits: 1 GiB of memory, some seconds.

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
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError, ToolchainError

UNTRUSTED, TRUSTED = "untrusted comment: ", "trusted comment: "
ALGORITHM, PREHASHED = b"Ed", b"ED"
KEY_ID_BYTES, KEY_BYTES, SIGNATURE_BYTES = 8, 32, 64
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


PASSWORD_VARIABLE = "WORKBENCH_SIGNING_PASSWORD_FILE"
"""Names a file with the password of a secret key, for whoever signs without a terminal."""
OPSLIMIT, MEMLIMIT = 1 << 25, 1 << 30
_MOST_OPSLIMIT, _MOST_MEMLIMIT = 1 << 28, 1 << 30
"""Eight times minisign's own time, and its own memory, which is the most that hashlib.scrypt takes."""
_SCRYPT, _PLAIN, _CHECKSUM = b"Sc", b"\0\0", b"B2"
_SALT_BYTES, _SEALED_BYTES, _CHECK_BYTES = 32, 104, 32
_HEAD_BYTES = 2 + 2 + 2 + _SALT_BYTES + 8 + 8
_MOST_KEY_BYTES = 1 << 12
_BLOCK = 8
"""scrypt's r in libsodium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    key_id: bytes
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
        key_id=secret.key_id, signature=made, trusted_comment=trusted_comment, comment_signature=over_comment
    )


def make_keys(secret_file: Path, public_file: Path, password: str | None, *, memlimit: int = MEMLIMIT) -> PublicKey:
    """Make a pair of keys and write both files; the secret one readable by its owner only.

    Args:
        password: None leaves the secret key plain.
        memlimit: bytes that opening it takes; minisign's own by default.

    Raises:
        ConfigError: one of the files exists.
        ToolchainError: they cannot be written.
    """
    for file in (secret_file, public_file):
        if os.path.lexists(file):
            raise ConfigError("exists already and is left alone.", file=file, hint="Choose another name.")
    seed, key_id = secrets.token_bytes(32), secrets.token_bytes(KEY_ID_BYTES)
    public = PublicKey(key_id=key_id, key=_public_bytes(seed))
    opslimit = min(OPSLIMIT, memlimit // 32)
    body = key_id + seed + public.key
    body += hashlib.blake2b(ALGORITHM + body, digest_size=_CHECK_BYTES).digest()
    if password is None:
        head = ALGORITHM + _PLAIN + _CHECKSUM + bytes(_SALT_BYTES + 16)
    else:
        salt = secrets.token_bytes(_SALT_BYTES)
        limits = opslimit.to_bytes(8, "little") + memlimit.to_bytes(8, "little")
        head = ALGORITHM + _SCRYPT + _CHECKSUM + salt + limits
        body = _xor(body, _stream(password, salt, opslimit, memlimit))
    kind = "minisign secret key" if password is None else "minisign encrypted secret key"
    _write_new(secret_file, f"{UNTRUSTED}{kind}\n{base64.b64encode(head + body).decode('ascii')}\n", 0o600)
    _write_new(public_file, f"{UNTRUSTED}minisign public key {public.name}\n{public.text}\n", 0o644)
    return public


def read_secret_key(file: Path, ask: Callable[[], str]) -> SecretKey:
    """Open a secret key.

    Args:
        ask: gives the password; called where the key has one.

    Raises:
        ConfigError: no such file, no secret key, readable by everybody, or the wrong password.
        ToolchainError: not enough memory to open it.
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
    hint = "Make one with `workbench keygen` or `minisign -G`; the public key is another file."
    try:
        raw = decoded(lines[1] if len(lines) == 2 else "", _HEAD_BYTES + _SEALED_BYTES, "a secret key of minisign")
    except SignatureError as error:
        raise ConfigError(f"{error}.", file=file, key="--sign", hint=hint) from None
    algorithm, derivation, checksum = raw[:2], raw[2:4], raw[4:6]
    if algorithm != ALGORITHM or checksum != _CHECKSUM or derivation not in (_SCRYPT, _PLAIN):
        raise ConfigError("it is no secret key of minisign.", file=file, key="--sign", hint=hint)
    salt, limits, body = raw[6 : 6 + _SALT_BYTES], raw[6 + _SALT_BYTES : _HEAD_BYTES], raw[_HEAD_BYTES:]
    sealed = derivation == _SCRYPT
    if sealed:
        opslimit, memlimit = int.from_bytes(limits[:8], "little"), int.from_bytes(limits[8:], "little")
        if not 0 < opslimit <= _MOST_OPSLIMIT or not 0 < memlimit <= _MOST_MEMLIMIT:
            raise ConfigError("asks for more memory or time than any key needs.", file=file, key="--sign", hint=hint)
        body = _xor(body, _stream(ask(), salt, opslimit, memlimit))
    key_id, seed, key, check = body[:8], body[8:40], body[40:72], body[72:]
    expected = hashlib.blake2b(ALGORITHM + body[:72], digest_size=_CHECK_BYTES).digest()
    # minisign writes zeros for the check of a plain key
    if not hmac.compare_digest(check, expected) and (sealed or any(check)):
        why = "the password is wrong, or the file is damaged." if sealed else "the file is damaged."
        raise ConfigError(why, file=file, key="--sign")
    if _public_bytes(seed) != key:
        raise ConfigError(f"the two halves of key {key_name(key_id)} do not belong together.", file=file, key="--sign")
    return SecretKey(key_id=key_id, seed=seed, public=PublicKey(key_id=key_id, key=key))


def _stream(password: str, salt: bytes, opslimit: int, memlimit: int) -> bytes:
    n, p = _cost(opslimit, memlimit)
    try:
        return hashlib.scrypt(
            password.encode(), salt=salt, n=n, r=_BLOCK, p=p, maxmem=128 * _BLOCK * (n + p + 8), dklen=_SEALED_BYTES
        )
    except (MemoryError, ValueError) as error:
        raise ToolchainError(
            f"the secret key's password cannot be turned into a key: {error or 'out of memory'}. Opening it takes "
            f"{128 * _BLOCK * n >> 20} MiB; use a machine that has them."
        ) from error


def _cost(opslimit: int, memlimit: int) -> tuple[int, int]:
    """scrypt's n and p of libsodium's two limits (`pickparams` of crypto_pwhash_scryptsalsa208sha256)."""
    opslimit = max(opslimit, 32_768)
    if opslimit < memlimit // 32:
        return _power_above(opslimit // (4 * _BLOCK) // 2), 1
    n = _power_above(memlimit // (128 * _BLOCK) // 2)
    return n, max(1, min(opslimit // 4 // n, 0x3FFFFFFF) // _BLOCK)


def _power_above(least: int) -> int:
    """The smallest power of two, from 2 on, above `least`."""
    return max(2, 1 << least.bit_length())


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _private(seed: bytes):  # type: ignore[no-untyped-def]  # the library is imported where a key is used
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def _public_bytes(seed: bytes) -> bytes:
    found: bytes = _private(seed).public_key().public_bytes_raw()
    return found


def _write_new(file: Path, text: str, mode: int) -> None:
    """A file that did not exist, with its rights from the start."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ToolchainError(f"{file} cannot be written: {error.strerror}. Choose another folder.") from error
