"""What a shared store says of an entry, and how much of it is believed.

It comes from whoever may write there. Names are checked before they become paths, counts and sizes before anything is
fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

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
    files = {name: {"sha256": one.sha256, "size_bytes": one.size_bytes} for name, one in listing.items()}
    return sealed({"version": VERSION, "kind": kind, "entry": digest, "files": files})


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
    found: dict[str, Listed] = {}
    for name, one in files.items():
        if not plain(name):
            raise Unsound(f"names {name[:100]!r}, which is no path below an entry")
        size = one.get("size_bytes") if isinstance(one, dict) else None
        sha256 = one.get("sha256") if isinstance(one, dict) else None
        if not (isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MOST_BYTES):
            raise Unsound(f"gives {name!r} no size")
        if not (isinstance(sha256, str) and SHA256.fullmatch(sha256)):
            raise Unsound(f"gives {name!r} no sha256")
        found[name] = Listed(sha256=sha256, size_bytes=size)
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
