"""NPZ files of a bundle: arrays of numbers, each as large as its header says, all within a bound.

NumPy's own reader allocates what a header of a hundred bytes asks for, and unpacks whatever a kilobyte holds.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from typing import IO

import numpy as np

from workbench.targets.base import Array

MOST_BYTES, MOST_ARRAYS = 1 << 30, 1 << 16
"""Of all arrays together, unpacked."""
_MOST_RANK = 32


def read_npz(content: bytes, *, most_bytes: int = MOST_BYTES) -> dict[str, Array]:
    """Name → array. Texts of fixed length are arrays too; objects are not, so nothing is unpickled.

    Raises:
        ValueError: no NPZ file, damaged, or beyond a bound; says which.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if len(members) > MOST_ARRAYS or total > most_bytes:
                raise ValueError(f"{len(members)} arrays of {total >> 20} MiB are more than a bundle holds")
            found: dict[str, Array] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"array {name[:80]!r} is in it twice")
                with archive.open(member) as stream:
                    found[name] = _array(stream, name, member.file_size)
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"no file of arrays: {error}") from error


def _array(stream: IO[bytes], name: str, size: int) -> Array:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"array {name[:80]!r} has a header of version {version}")
    shape, in_columns, dtype = readers[version](stream)
    if dtype.hasobject or dtype.kind not in "fiubcU" or len(shape) > _MOST_RANK or any(length < 0 for length in shape):
        raise ValueError(f"array {name[:80]!r} has the type {str(dtype)[:40]}, shape {shape[:4]}")
    body = stream.read()
    if dtype.itemsize * math.prod(shape) != len(body) or stream.tell() != size:
        raise ValueError(f"array {name[:80]!r} is not as large as its header says")
    flat = np.frombuffer(body, dtype=dtype) if len(body) else np.empty(0, dtype=dtype)
    return flat.reshape(shape, order="F" if in_columns else "C")
