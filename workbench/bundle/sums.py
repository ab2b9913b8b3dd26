"""SHA256SUMS: every other file of a bundle with its sum, in the format that `sha256sum -c` reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.bundle.paths import name_fault
from workbench.values.errors import BundleError

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.minisig"
UNLISTED = (SUMS, SIGNATURE)
"""What lies in the bundle's folder and has no sum: a file cannot hold its own, and the signature is over the sums."""
MOST_BYTES = 1 << 22
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<name>[^\n]+)", re.ASCII)
_SHOWN = 60


def parse_sums(content: bytes, place: str) -> dict[str, str]:
    """Name → sha256 of every line.

    Only what we write ourselves is read: one form of a line, every name once, each a plain name below the folder.

    Raises:
        BundleError: anything else; names the line.
    """
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise BundleError(f"{place}: byte {error.start} is no ASCII. Copy the bundle again.") from None
    if not text.endswith("\n"):
        raise BundleError(f"{place}: its last line is not complete. Copy the bundle again.")
    found: dict[str, str] = {}
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise BundleError(f"{place}:{number}: {line[:_SHOWN]!r} is no sum with two blanks and a name behind it.")
        name = match["name"]
        if fault := name_fault(name):
            raise BundleError(f"{place}:{number}: the name {name[:_SHOWN]!r} {fault}. Do not use this bundle.")
        if name in UNLISTED:
            raise BundleError(f"{place}:{number}: {name} cannot have a sum here. Do not use this bundle.")
        if name in found:
            raise BundleError(f"{place}:{number}: {name} is listed twice. Do not use this bundle.")
        found[name] = match["sha256"]
    return found


def sums_text(sums: Mapping[str, str]) -> str:
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))
