"""What a shared store says of an entry, and how much of it is believed.

It comes from whoever may write there. Names are checked before they become paths, counts and sizes before anything is
fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.sealed_json import Unsound, sealed, unsealed

VERSION = 1
MOST_LISTING_BYTES = 1 << 25
MOST_FILES = 100_000
MOST_BYTES = 1 << 42
MOST_DEPTH = 32
_MOST_NAME_BYTES = 1000
_MOST_PART_BYTES = 255
SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file of an entry."""

    sha256: str
    size_bytes: int


Listing = Mapping[str, Listed]
"""Path below the entry's folder, with '/' → content."""


def written(kind: str, digest: str, listing: Listing) -> bytes:
    """The JSON that makes an entry visible."""
    return sealed({"version": VERSION, "kind": kind, "entry": digest, "files": listing})


def read(content: bytes, kind: str, digest: str) -> dict[str, Listed]:
    """What `written` wrote for this very entry.

    Raises:
        Unsound: it is damaged, of another entry, or names what no entry of ours holds.
    """
    value = unsealed(content)
    if value.get("version") != VERSION or value.get("kind") != kind or value.get("entry") != digest:
        raise Unsound("is of another entry")
    files = value.get("files")
    if not isinstance(files, dict) or len(files) > MOST_FILES:
        raise Unsound(f"lists no files, or more than {MOST_FILES}")
    if wrong := next((name for name in files if not plain(name)), None):
        raise Unsound(f"names {wrong[:100]!r}, which is no path below an entry")
    try:
        found = decode(dict[str, Listed], files, "files")
    except DecodeError as error:
        raise Unsound(f"gives a file no size or sha256 ({error})") from error
    for name, one in found.items():
        if not (0 <= one.size_bytes <= MOST_BYTES and SHA256.fullmatch(one.sha256)):
            raise Unsound(f"gives {name!r} no size or sha256")
    folders = {str(parent) for name in found for parent in PurePosixPath(name).parents}
    if both := sorted(folders & found.keys()):
        raise Unsound(f"has {both[0]!r} as a file and as a folder")
    if sum(one.size_bytes for one in found.values()) > MOST_BYTES:
        raise Unsound(f"lists more than {MOST_BYTES} bytes")
    return found


def plain(name: str) -> bool:
    """Whether a name is a path that stays below any folder it is joined to, in the one form that it is written in."""
    parts = name.split("/")
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) <= _MOST_NAME_BYTES
        and len(parts) <= MOST_DEPTH
        and not _CONTROL.search(name)
        and not any("\ud800" <= character <= "\udfff" for character in name)
        and all(part not in ("", ".", "..") and len(part.encode()) <= _MOST_PART_BYTES for part in parts)
    )
