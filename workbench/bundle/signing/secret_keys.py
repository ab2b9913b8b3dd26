"""Secret keys in minisign's format: making them, opening them with a password, signing.

    "Ed" · "Sc" or two zero bytes · "B2" · salt (32) · opslimit, memlimit (8 each, little-endian)
    · key id (8) · seed (32) and public key (32) · BLAKE2b-256 of "Ed", key id and both

The last 104 bytes are XORed with what scrypt makes of the password; "two zero bytes" stands for a plain key, which
minisign -W writes. minisign takes libsodium's "sensitive" limits: 1 GiB of memory, some seconds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from workbench.bundle.signing.minisign import (
    ALGORITHM,
    KEY_ID_BYTES,
    UNTRUSTED,
    PublicKey,
    Signature,
    SignatureError,
    decoded,
    key_name,
)
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError, ToolchainError

PASSWORD_VARIABLE = "WORKBENCH_SIGNING_PASSWORD_FILE"
"""Names a file with the password of a secret key, for whoever signs without a terminal."""
OPSLIMIT, MEMLIMIT = 1 << 25, 1 << 30
_MOST_OPSLIMIT, _MOST_MEMLIMIT = 1 << 28, 1 << 30
"""Eight times minisign's own time, and its own memory, which is the most that hashlib.scrypt takes."""
_SCRYPT, _PLAIN, _CHECKSUM = b"Sc", b"\0\0", b"B2"
_SALT_BYTES, _SEALED_BYTES, _CHECK_BYTES = 32, 104, 32
_HEAD_BYTES = 2 + 2 + 2 + _SALT_BYTES + 8 + 8
_MOST_BYTES = 1 << 12
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
    text = read_text(file, limit_bytes=_MOST_BYTES, key="--sign")
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
