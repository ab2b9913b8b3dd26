"""The signature of a bundle: over SHA256SUMS, which holds the sum of every other file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.bundle.opened import Bundle, read_bounded
from workbench.bundle.paths import MOST_SUMS_BYTES, SIGNATURE, SUMS
from workbench.bundle.signing import (
    MOST_SIGNATURE_BYTES,
    SecretKey,
    Signature,
    SignatureError,
    TrustedKeys,
    key_name,
    parse_signature,
    sign,
    verify,
)
from workbench.values.documents.json_reader import loads
from workbench.values.errors import BundleError
from workbench.values.system.files import write_text_atomically

_COMMENT = "workbench bundle "


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Whose signature a bundle carries, after it was checked.

    Attributes:
        key: id of the key, and whose it is by the file of trusted keys.
        trusted_comment: the signed words beside it: name, manifest and time where the workbench wrote them.
    """

    key: str
    trusted_comment: str


def sign_bundle(directory: Path, name: str, manifest_sha256: str, secret: SecretKey) -> None:
    """Write SHA256SUMS.minisig, in place of one that is there. What is signed must have been checked before."""
    sums = read_bounded(directory, SUMS, MOST_SUMS_BYTES)
    facts = {
        "name": name,
        "manifest_sha256": manifest_sha256,
        "signed_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # ASCII: minisign refuses to show anything else
    signature = sign(secret, sums, _COMMENT + json.dumps(facts, sort_keys=True))
    write_text_atomically(directory / SIGNATURE, signature.to_text(f"{SUMS}, signature from workbench"))


def check_signature(bundle: Bundle, trusted: TrustedKeys) -> Signer:
    """Require a signature of one of these keys over the sums that were read with the bundle.

    Raises:
        BundleError: there is none; it is none; by a key that is not listed, or is revoked; or it does not hold.
    """
    place = f"{bundle.directory}: {SIGNATURE}"
    if not os.path.lexists(bundle.directory / SIGNATURE):
        raise BundleError(
            f"{bundle.directory}: it is not signed, and {trusted.file} says whose signatures are required here. "
            "Get the signed bundle, or sign it after you checked it: workbench sign."
        )
    signature = read_signature(bundle.directory)
    keys = trusted.of(signature.key_id)
    if not keys:
        raise BundleError(
            f"{place} is by key {key_name(signature.key_id)}, which {trusted.file} does not list. Add the key's line "
            "if you trust whoever holds it; otherwise do not use this bundle."
        )
    failed = None
    for key in keys:
        try:
            verify(key.public, bundle.sums, signature)
        except SignatureError as error:
            failed = error
            continue
        if key.revoked:
            raise BundleError(
                f"{place} is by key {key.words}, which {trusted.file} lists as revoked. Sign the bundle with another "
                "key after you checked where it comes from."
            )
        _check_comment(bundle, signature.trusted_comment)
        return Signer(key=key.words, trusted_comment=signature.trusted_comment)
    raise BundleError(f"{place} is not valid: {failed}. Do not use this bundle.")


def read_signature(directory: Path) -> Signature:
    """The signature beside the sums, whoever made it.

    Raises:
        BundleError: it is no plain file inside the bundle, too large, or no signature of minisign.
    """
    try:
        return parse_signature(read_bounded(directory, SIGNATURE, MOST_SIGNATURE_BYTES))
    except SignatureError as error:
        raise BundleError(f"{directory}: {SIGNATURE} cannot be used: {error}. Copy the bundle again.") from error


def _check_comment(bundle: Bundle, comment: str) -> None:
    """A comment that the workbench wrote names this bundle; another tool's says what it likes."""
    if not comment.startswith(_COMMENT):
        return
    try:
        facts: Any = loads(comment.removeprefix(_COMMENT))
        named = (facts["name"], facts["manifest_sha256"])
    except (ValueError, KeyError, TypeError):
        named = None
    if named != (bundle.manifest.name, bundle.manifest_sha256):
        raise BundleError(f"{bundle.directory}: {SIGNATURE} was made for another bundle: {comment[:200]}.")
