"""Arrays as they lie in NPZ and NPY files: opened, checked, and read by row.

An NPY file, or an NPZ member that is not compressed (`np.savez`), is mapped, never loaded. A compressed member
(`np.savez_compressed`) has no random access and is held in memory once it is used.
"""

from __future__ import annotations

import contextlib
import functools
import io
import lzma
import math
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from workbench.inputs.dataset.batch import IntArray
from workbench.values.documents.input_files import LIMIT_VARIABLE, open_file, raised, size_text
from workbench.values.errors import ConfigError
from workbench.values.preprocess import Array

MOST_BYTES = 1 << 36
"""Of a file: its arrays are read where they lie, so no memory is needed for it, but each is read once whole."""
MOST_UNPACKED_BYTES = 1 << 29
"""Of all compressed arrays of a file, which are held in memory: a file of half a megabyte may unpack to this."""
MOST_MEMBERS = 100_000
_BLOCK_BYTES = 1 << 23
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a ZIP member: lengths of its name and of its extra field
_MOST_HEADER_BYTES = 10_000  # what NumPy itself reads without being told that the file can be trusted
_MOST_RANK, _MOST_SIZE = 32, (1 << 63) - 1
_MAGIC_BYTES = 8
_HEADER_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, struct.error)
"""What damaged archives raise; RuntimeError for encrypted members and unknown ways of compression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """One array on disk.

    Attributes:
        member: name inside an NPZ, None for an NPY file.
        offset: where its bytes begin in the file, None when they are compressed.
    """

    file: Path
    member: str | None
    dtype: str
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int | None

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def place(self) -> str:
        return f"array {self.member!r}" if self.member is not None else "array"


def npz_arrays(path: Path, *, texts: Collection[str] = ()) -> dict[str, StoredArray]:
    """The arrays of an NPZ file by name, none of them read yet.

    Args:
        texts: names of arrays that may hold texts instead of numbers.
    """
    arrays: dict[str, StoredArray] = {}
    packed_bytes = 0
    try:
        with open_file(path, limit_bytes=MOST_BYTES) as raw, zipfile.ZipFile(raw) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise ConfigError(f"holds {len(members)} arrays, more than {MOST_MEMBERS}.", file=path)
            for info in members:
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise _damaged(path, f"array {name!r} is in it twice")
                with archive.open(info) as stream:
                    dtype, shape, fortran_order, header_bytes = _npy_header(stream)
                offset = None
                if info.compress_type == zipfile.ZIP_STORED:
                    raw.seek(info.header_offset)
                    offset = info.header_offset + _LOCAL_HEADER.size + header_bytes
                    offset += sum(_LOCAL_HEADER.unpack(raw.read(_LOCAL_HEADER.size)))
                else:
                    packed_bytes += info.file_size
                array = _stored(path, name, dtype, shape, fortran_order, offset, texts=name in texts)
                if array.size_bytes != (found := info.file_size - header_bytes):
                    raise _damaged(path, f"{array.place} has {found} bytes, but its header promises {array.size_bytes}")
                arrays[name] = array
            size = os.fstat(raw.fileno()).st_size
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    if packed_bytes > raised(MOST_UNPACKED_BYTES):
        raise ConfigError(
            f"its compressed arrays have {size_text(packed_bytes)}; at most {size_text(raised(MOST_UNPACKED_BYTES))} "
            "are unpacked into memory.",
            file=path,
            hint="Write it with numpy.savez: arrays that are not compressed are read where they lie. "
            f"{LIMIT_VARIABLE}=N in the environment allows N GiB.",
        )
    for array in arrays.values():
        if array.offset is not None and array.offset + array.size_bytes > size:
            raise _damaged(path, f"{array.place} ends behind the end of the file")
    return arrays


def npy_array(path: Path, *, texts: bool = False) -> StoredArray:
    try:
        with open_file(path, limit_bytes=MOST_BYTES) as stream:
            dtype, shape, fortran_order, offset = _npy_header(stream)
            size = os.fstat(stream.fileno()).st_size
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    array = _stored(path, None, dtype, shape, fortran_order, offset, texts=texts)
    if size < offset + array.size_bytes:
        raise _damaged(path, f"{size} bytes, but its header promises {offset + array.size_bytes}")
    return array


def _npy_header(stream: IO[bytes]) -> tuple[np.dtype[np.generic], tuple[int, ...], bool, int]:
    """Type, shape, whether columns come first, and the bytes of the header, behind which the stream stands."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"NPY format version {version} holds no plain numbers")
    field = _HEADER_LENGTHS[version]
    (length,) = field.unpack(stream.read(field.size))
    if length > _MOST_HEADER_BYTES:  # it would be read whole before NumPy looks at it
        raise ValueError(f"its header has {length} bytes, more than {_MOST_HEADER_BYTES}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header = stream.read(length)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # how Python 2 wrote numbers, for one
            shape, fortran_order, dtype = read(io.BytesIO(field.pack(length) + header))
    # NumPy evaluates the header as a Python literal, and whatever that stumbles over escapes as it is
    except Exception as error:
        raise ValueError(f"its header is no description of an array: {error}") from error
    if len(shape) > _MOST_RANK or any(isinstance(size, bool) or not 0 <= size <= _MOST_SIZE for size in shape):
        raise ValueError(f"its header declares the shape {list(shape)}")
    return dtype, shape, fortran_order, _MAGIC_BYTES + field.size + length


def _stored(
    path: Path,
    member: str | None,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
    fortran_order: bool,
    offset: int | None,
    *,
    texts: bool,
) -> StoredArray:
    array = StoredArray(
        file=path, member=member, dtype=dtype.str, shape=shape, fortran_order=fortran_order, offset=offset
    )
    if dtype.kind not in ("fiubU" if texts else "fiub"):
        hint = "Write texts as numpy.array(list of str), without object and pickle." if texts else None
        raise ConfigError(f"{array.place} holds {dtype}, not numbers.", file=path, hint=hint)
    if 0 in shape[1:]:
        raise ConfigError(f"{array.place} has the shape {list(shape)}: samples without values.", file=path)
    if not shape:
        raise ConfigError(f"{array.place} is a single number; the first dimension must count samples.", file=path)
    return array


def scan(array: StoredArray) -> None:
    """Read every byte once: what ZIP's checksums say, and whether all floats are numbers."""
    dtype = np.dtype(array.dtype)
    block = max(1, _BLOCK_BYTES // dtype.itemsize) * dtype.itemsize
    done = 0
    try:
        with _open_data(array) as stream:
            while raw := stream.read(block):
                values = np.frombuffer(raw, dtype=dtype)
                if dtype.kind == "f" and not (finite := np.isfinite(values)).all():
                    flat = done + int(np.argmin(finite))
                    order: Literal["F", "C"] = "F" if array.fortran_order else "C"
                    sample = int(np.unravel_index(flat, array.shape, order=order)[0])
                    name = array.member if array.member is not None else array.file.stem
                    raise ConfigError(
                        f"input {name!r} holds {values[flat - done]} in sample {sample}.",
                        file=array.file,
                        hint="Remove the sample (counted from 0) or repair it.",
                    )
                done += values.size
    except _DAMAGE as error:
        raise _damaged(array.file, error) from error
    if done != math.prod(array.shape):
        raise _damaged(array.file, f"{array.place} has {done} of {math.prod(array.shape)} values")


def _open_data(array: StoredArray) -> IO[bytes]:
    """A stream that stands at the array's first value."""
    if array.member is None:
        stream: IO[bytes] = array.file.open("rb")
    else:
        with zipfile.ZipFile(array.file) as archive:  # an open member keeps the file open after the archive is closed
            names = archive.namelist()
            stream = archive.open(array.member if array.member in names else f"{array.member}.npy")
    with contextlib.ExitStack() as closing:
        closing.enter_context(stream)
        _npy_header(stream)
        closing.pop_all()
    return stream


def rows_of(array: StoredArray, rows: IntArray) -> Array:
    return np.ascontiguousarray(load_array(array)[rows])


@functools.lru_cache(maxsize=64)
def load_array(array: StoredArray) -> Array:
    """The whole array: mapped where its bytes lie open in the file, in memory otherwise."""
    order: Literal["F", "C"] = "F" if array.fortran_order else "C"
    if array.offset is not None:
        return np.memmap(array.file, dtype=array.dtype, mode="r", offset=array.offset, shape=array.shape, order=order)
    try:
        with _open_data(array) as stream:
            content = stream.read(array.size_bytes + 1)
        return np.frombuffer(content, dtype=array.dtype).reshape(array.shape, order=order)
    except _DAMAGE as error:
        raise _damaged(array.file, error) from error


def _damaged(path: Path, reason: object) -> ConfigError:
    return ConfigError(
        f"cannot be read: {reason}.",
        file=path,
        hint="It is damaged, incomplete, or not written by np.save or np.savez.",
    )
