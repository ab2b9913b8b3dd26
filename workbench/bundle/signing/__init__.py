"""Signatures that minisign makes and checks: Ed25519 over the BLAKE2b-512 of a file.

    minisign      the formats of public keys and signatures, checking, and a file that lists whose signatures count
    secret_keys   secret keys, sealed by a password (scrypt) or plain, making them, and signing

What is signed, and when it must be, belongs to `workbench.bundle`. The arithmetic is the library cryptography's; the
formats are those of minisign 0.11, whose own tool reads everything that is written here, and the other way round.
"""

from workbench.bundle.signing.minisign import (
    TRUSTED_VARIABLE,
    PublicKey,
    Signature,
    SignatureError,
    TrustedKey,
    TrustedKeys,
    only_key,
    parse_public_key,
    parse_signature,
    read_trusted_keys,
    trusted_keys_of,
    verify,
)
from workbench.bundle.signing.secret_keys import PASSWORD_VARIABLE, SecretKey, make_keys, read_secret_key, sign

__all__ = [
    "PASSWORD_VARIABLE",
    "TRUSTED_VARIABLE",
    "PublicKey",
    "SecretKey",
    "Signature",
    "SignatureError",
    "TrustedKey",
    "TrustedKeys",
    "make_keys",
    "only_key",
    "parse_public_key",
    "parse_signature",
    "read_secret_key",
    "read_trusted_keys",
    "sign",
    "trusted_keys_of",
    "verify",
]
