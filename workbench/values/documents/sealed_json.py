"""JSON files that show any change: each carries the sha256 of what it says.

    write_sealed(path, {"began": "2026-01-01"})     {"began":"2026-01-01","sha256":"…"}
    read_sealed(path)                               {"began": "2026-01-01"}, or Unsound

The text is canonical, so one flipped bit anywhere in the file is found, in white space too. The digest finds damage; it
is no signature.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.values.documents.canonical import digest_of_plain, encode, text_of_plain
from workbench.values.errors import ToolchainError
from workbench.values.system.files import write_bytes_atomically

_SEAL = "sha256"
_MOST_BYTES = 1 << 30
"""The outcomes of ten million samples."""


class Unsound(Exception):
    """A file is not what was written. The message follows the file's name: 'is missing', 'is empty'."""


def write_sealed(path: Path, value: Mapping[str, object]) -> None:
    """Write an object whole or not at all; it must have no key 'sha256' of its own.

    Raises:
        ToolchainError: the disk cannot be written.
    """
    write_bytes_atomically(path, sealed(value))


def sealed(value: Mapping[str, object]) -> bytes:
    """What `write_sealed` writes."""
    body = encode(value)
    return _with_seal(body, digest_of_plain(body))


def _with_seal(body: dict[str, Any], seal: object) -> bytes:
    return (text_of_plain({**body, _SEAL: seal}) + "\n").encode()


def read_sealed(path: Path) -> dict[str, Any]:
    """The object that `write_sealed` wrote.

    Raises:
        Unsound: it is not there, or not what was written.
        ToolchainError: this user may not read it; the file may be sound.
    """
    return unsealed(read_bytes(path))


def unsealed(data: bytes) -> dict[str, Any]:
    """The object that `sealed` made bytes of.

    Raises:
        Unsound: they are not what was made.
    """
    if not data.strip(b"\0"):
        raise Unsound("holds nothing but zeros" if data else "is empty")
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise Unsound("holds something else than was written")
        seal = value.pop(_SEAL, None)
        if seal is None:
            raise Unsound("carries no sha256")
        same = _with_seal(value, seal) == data and digest_of_plain(value) == seal
    except (ValueError, RecursionError) as error:
        raise Unsound("is not JSON any more") from error
    if not same:
        raise Unsound("does not match the sha256 in it")
    return value


def read_bytes(path: Path) -> bytes:
    """A whole regular file, with the errors of `read_sealed`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unsound("is no regular file")  # a FIFO would be waited for without end
        if status.st_size > _MOST_BYTES:
            raise Unsound(f"has {status.st_size} bytes, more than are ever written")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise Unsound("is missing") from error
    except PermissionError as error:
        raise ToolchainError(f"{path} cannot be read: {error.strerror}. Make it readable for this user.") from error
    except OSError as error:
        raise Unsound(f"cannot be read: {error.strerror}") from error
