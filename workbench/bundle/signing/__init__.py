"""Signatures that minisign makes and checks: Ed25519 over the BLAKE2b-512 of a file.

    minisign      the formats of public keys and signatures, signing and checking
    secret_keys   secret keys, sealed by a password (scrypt) or plain, and making them
    trust         a file that lists whose signatures count, and whose do not any more

What is signed, and when it must be, belongs to `workbench.bundle`. The arithmetic is the library cryptography's; the
formats are those of minisign 0.11, whose own tool reads everything that is written here, and the other way round.
"""

from workbench.bundle.signing.minisign import (
    PublicKey,
    Signature,
    SignatureError,
    parse_public_key,
    parse_signature,
    verify,
)
from workbench.bundle.signing.secret_keys import PASSWORD_VARIABLE, SecretKey, make_keys, read_secret_key, sign
from workbench.bundle.signing.trust import (
    TRUSTED_VARIABLE,
    TrustedKey,
    TrustedKeys,
    only_key,
    read_trusted_keys,
    trusted_keys_of,
)

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
