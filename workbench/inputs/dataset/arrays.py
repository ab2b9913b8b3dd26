"""NPZ and NPY arrays keyed by input name; the first dimension counts the samples.

Rows are read where they lie: an NPY file, or an NPZ member that is not compressed (`np.savez`), is mapped, never
loaded. A compressed member (`np.savez_compressed`) has no random access and is held in memory once it is used.
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, IntArray, tag_rows, valid_positions
from workbench.inputs.dataset.sizing import ONE_SIZE, Sample, Shapes, Sizing
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.input_files import LIMIT_VARIABLE, open_file, raised, size_text
from workbench.values.errors import ConfigError, nearest
from workbench.values.preprocess import Array

MOST_BYTES = 1 << 36
"""Of a file: its arrays are read where they lie, so no memory is needed for it, but each is read once whole."""
MOST_UNPACKED_BYTES = 1 << 29
"""Of all compressed arrays of a file, which are held in memory: a file of half a megabyte may unpack to this."""
MOST_MEMBERS = 100_000
SIZES = ".sizes"
"""Behind an input's name: the array that says how large each of its samples truly is."""
_MOST_HEADER_BYTES = 10_000  # what NumPy itself reads without being told that the file can be trusted
_MOST_RANK, _MOST_SIZE = 32, (1 << 63) - 1
_MAGIC_BYTES = 8
_HEADER_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, struct.error)
"""What damaged archives raise; RuntimeError for encrypted members and unknown ways of compression."""
_BLOCK_BYTES = 1 << 23
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a ZIP member: lengths of its name and of its extra field


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayRows:
    """Samples that lie in arrays, one array per model input.

    Attributes:
        inputs: (model input, array), sorted by name.
        targets: class ids [n], tag ids [n, length], or None without labels.
        truths: what a metric looks at, [n, ...] of any type, in place of `targets`.
        sizes: (input, array [n] or [n, k]): true sizes of the first k axes of each sample, what lies behind is padding
            of the file; only inputs whose samples differ.
    """

    inputs: tuple[tuple[str, StoredArray], ...]
    targets: StoredArray | None
    size: int
    sha256: str
    truths: StoredArray | None = None
    sizes: tuple[tuple[str, StoredArray], ...] = ()
    sizing: Sizing = ONE_SIZE

    @property
    def sequential(self) -> Literal[False]:
        return False

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        if length is not None:
            raise ConfigError(f"a length of {length} can be asked of text only.", file=self.inputs[0][1].file)
        if self.sizes or self.sizing.pads:
            yield from (self._sized(rows) for rows in self.sizing.runs(groups, self.shapes))
            return
        for rows in groups:
            feeds = {name: _rows(array, rows) for name, array in self.inputs}
            targets = _rows(self.targets, rows).astype(np.int64) if self.targets is not None else None
            truths = tuple(_rows(self.truths, rows)) if self.truths is not None else None
            yield Batch(feeds=feeds, targets=targets, indices=rows, valid=valid_positions(feeds), truths=truths)

    def shapes(self, row: int) -> Shapes:
        """The true shape of a sample, by input."""
        sizes = dict(self.sizes)
        found = []
        for name, array in self.inputs:
            own = np.atleast_1d(_view(sizes[name])[row]).tolist() if name in sizes else []
            found.append((name, (*own, *array.shape[1 + len(own) :])))
        return tuple(found)

    def distinct(self) -> list[tuple[int, Shapes]]:
        """Every shape that samples have, with the first row of it."""
        if not self.sizes:
            return [(0, self.shapes(0))]
        columns = np.concatenate([_view(array).reshape(self.size, -1) for _, array in self.sizes], axis=1)
        firsts = np.unique(columns, axis=0, return_index=True)[1]
        return [(int(row), self.shapes(int(row))) for row in sorted(firsts)]

    def _sized(self, rows: IntArray) -> Batch:
        file = self.inputs[0][1].file
        samples = [self._sample(row) for row in rows.tolist()]
        feeds, sizes = self.sizing.stacked(samples, rows, file)
        targets = None
        if self.targets is not None:
            targets = _rows(self.targets, rows).astype(np.int64)
            if targets.ndim == 2:
                try:
                    targets = tag_rows(list(targets), next(iter(feeds.values())).shape[1])
                except ValueError as error:
                    raise ConfigError(f"rows {rows.tolist()}: {error}.", file=file) from error
        return Batch(
            feeds=feeds,
            targets=targets,
            indices=rows,
            valid=valid_positions(feeds, sizes),
            truths=tuple(_rows(self.truths, rows)) if self.truths is not None else None,
            sizes=sizes,
        )

    def _sample(self, row: int) -> Sample:
        shapes = dict(self.shapes(row))
        return {name: _view(array)[row][tuple(slice(size) for size in shapes[name])] for name, array in self.inputs}


def read_arrays(
    files: Path | Mapping[str, Path],
    *,
    label: str | None,
    classes: int | None,
    tags: bool,
    truths: bool = False,
    sizing: Sizing = ONE_SIZE,
) -> ArrayRows:
    """Open arrays and check all of them in one pass at constant memory.

    The dialect: `NAME` [samples, ...] for every input, and where samples differ in size, `NAME.sizes`, whole numbers
    [samples] or [samples, k]: the true sizes of the first axis, or of the first k axes, of each sample.

    Args:
        files: an NPZ file, or input name → NPY file.
        label: name of the array with class or tag ids; None to read no labels.
        classes: how many labels there are; None when nobody knows.
        tags: labels are tag ids [n, length] instead of class ids [n].
        truths: labels are numbers or texts of any shape, and there may be none.

    Raises:
        ConfigError: a file is damaged, the arrays have different numbers of samples, a float is NaN or infinite,
            or a label is out of range; names array and sample.
    """
    if isinstance(files, Path):
        place, arrays = files, npz_arrays(files, texts=label if truths else None)
    else:
        place = next(iter(files.values()))
        arrays = {name: _npy_array(path, texts=truths and name == label) for name, path in files.items()}
    targets = None
    if label is not None and (label in arrays or not truths):
        if label not in arrays:
            raise ConfigError(f"no array {label!r} with the labels.", file=place, hint=nearest(label, arrays))
        targets = arrays.pop(label)
    sizes = {name: arrays.pop(name + SIZES) for name in tuple(arrays) if name + SIZES in arrays}
    if not arrays:
        raise ConfigError("holds no array for any model input.", file=place)
    size = _common_size(arrays, targets, place)
    for array in arrays.values():
        _scan(array)
    for name, array in sizes.items():
        _check_sizes(name, array, arrays[name])
    if targets is not None and truths:
        _scan(targets)
    elif targets is not None:
        _check_targets(targets, classes, tags)
    sha256 = file_digest(files) if isinstance(files, Path) else digest({n: file_digest(p) for n, p in files.items()})
    return ArrayRows(
        inputs=tuple(sorted(arrays.items())),
        targets=None if truths else targets,
        size=size,
        sha256=sha256,
        truths=targets if truths else None,
        sizes=tuple(sorted(sizes.items())),
        sizing=sizing,
    )


def npz_arrays(path: Path, *, texts: str | None = None) -> dict[str, StoredArray]:
    """The arrays of an NPZ file by name, none of them read yet.

    Args:
        texts: name of an array that may hold texts instead of numbers.

    Raises:
        ConfigError: not an NPZ file, or one whose members are not what their headers say.
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
                array = _stored(path, name, dtype, shape, fortran_order, offset, texts=name == texts)
                _refuse_other_size(array, info.file_size - header_bytes)
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


def _npy_array(path: Path, *, texts: bool = False) -> StoredArray:
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


def _refuse_other_size(array: StoredArray, found_bytes: int) -> None:
    if array.size_bytes != found_bytes:
        rule = f"{array.place} has {found_bytes} bytes, but its header promises {array.size_bytes}"
        raise _damaged(array.file, rule)


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


def _common_size(arrays: Mapping[str, StoredArray], targets: StoredArray | None, place: Path) -> int:
    sizes = {name: array.shape[0] for name, array in arrays.items()}
    if targets is not None:
        sizes["the labels"] = targets.shape[0]
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ConfigError(f"arrays differ in their number of samples ({counts}).", file=place)
    size = next(iter(sizes.values()))
    if size == 0:
        raise ConfigError("has no rows.", file=place, hint="A split needs at least one sample.")
    return size


def _check_sizes(name: str, sizes: StoredArray, array: StoredArray) -> None:
    axes = sizes.shape[1] if len(sizes.shape) == 2 else 1
    known = np.dtype(sizes.dtype).kind in "iu" and len(sizes.shape) in (1, 2) and axes < len(array.shape)
    if not known or sizes.shape[0] != array.shape[0]:
        raise ConfigError(
            f"array {name + SIZES!r} is {np.dtype(sizes.dtype)} {list(sizes.shape)} beside {name!r} "
            f"{list(array.shape)}.",
            file=sizes.file,
            hint="It holds whole numbers [samples], or [samples, k] for the first k axes of a sample.",
        )
    _scan(sizes)
    values = _view(sizes).astype(np.int64).reshape(sizes.shape[0], -1)
    wrong = (values < 1) | (values > np.array(array.shape[1 : 1 + axes]))
    if wrong.any():
        sample, axis = (int(place) for place in np.argwhere(wrong)[0])
        raise ConfigError(
            f"sample {sample} of {name!r} has the size {values[sample, axis]} along its axis {axis}; the array holds "
            f"1 to {array.shape[1 + axis]}.",
            file=sizes.file,
        )


def _scan(array: StoredArray) -> None:
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


def _check_targets(targets: StoredArray, classes: int | None, tags: bool) -> None:
    rank = 2 if tags else 1
    if np.dtype(targets.dtype).kind not in "iu" or len(targets.shape) != rank:
        wanted = "tag ids [samples, length]" if tags else "class ids [samples]"
        rule = f"labels are {np.dtype(targets.dtype)} {list(targets.shape)}; expected whole numbers, {wanted}."
        raise ConfigError(rule, file=targets.file)
    _scan(targets)
    values = _view(targets).astype(np.int64)
    known = values >= 0
    if classes is not None:
        known &= values < classes
    if tags:
        known |= values == NOT_SCORED
    if not known.all():
        sample = int(np.argwhere(~known)[0][0])
        limit = f"0 to {classes - 1}" if classes is not None else "0 and up"
        value = values[~known][0]
        raise ConfigError(f"sample {sample} has label {value}; labels are {limit}.", file=targets.file)


def _rows(array: StoredArray, rows: IntArray) -> Array:
    return np.ascontiguousarray(_view(array)[rows])


@functools.lru_cache(maxsize=64)
def _view(array: StoredArray) -> Array:
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


def load_array(array: StoredArray) -> Array:
    """All values of an array, mapped where its bytes lie open in the file."""
    return _view(array)


def _damaged(path: Path, reason: object) -> ConfigError:
    return ConfigError(
        f"cannot be read: {reason}.",
        file=path,
        hint="It is damaged, incomplete, or not written by np.save or np.savez.",
    )
