"""NPZ and NPY arrays keyed by input name; the first dimension counts the samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, IntArray, tag_rows, valid_positions
from workbench.inputs.dataset.sizing import ONE_SIZE, Sample, Shapes, Sizing
from workbench.inputs.dataset.stored import StoredArray, load_array, npy_array, npz_arrays, rows_of, scan
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.errors import ConfigError, nearest
from workbench.values.preprocess import Feeds

SIZES = ".sizes"
"""Behind an input's name: the array that says how large each of its samples truly is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLabels:
    """What arrays say of each sample: one value, or several by name.

    Attributes:
        label: name of the one array, or what the names of several begin with: LABEL.KEY.
        arrays: (name, [n, ...]), sorted.
        sizes: (name, [n] or [n, k]), of those whose samples differ in their first k axes.
    """

    label: str
    arrays: tuple[tuple[str, StoredArray], ...]
    sizes: tuple[tuple[str, StoredArray], ...] = ()

    def of(self, rows: IntArray) -> tuple[Any, ...]:
        """For each row its value, or KEY → value."""
        columns, sizes = {}, dict(self.sizes)
        for name, array in self.arrays:
            own = rows_of(sizes[name], rows).reshape(len(rows), -1).tolist() if name in sizes else [()] * len(rows)
            pairs = zip(rows_of(array, rows), own, strict=True)
            columns[name] = [value[tuple(map(slice, size))] if size else value for value, size in pairs]
        if self.label in columns:
            return tuple(columns[self.label])
        keys = [name.removeprefix(f"{self.label}.") for name in columns]
        return tuple(dict(zip(keys, values, strict=True)) for values in zip(*columns.values(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayRows:
    """Samples that lie in arrays, one array per model input.

    Attributes:
        inputs: (model input, array), sorted by name.
        targets: class ids [n], tag ids [n, length], or None without labels.
        truths: what a metric or an output is compared with, of any type, in place of `targets`.
        sizes: (input, array [n] or [n, k]): true sizes of the first k axes of each sample, what lies behind is padding
            of the file; only inputs whose samples differ.
    """

    sequential: ClassVar = False
    inputs: tuple[tuple[str, StoredArray], ...]
    targets: StoredArray | None
    size: int
    sha256: str
    truths: StoredLabels | None = None
    sizes: tuple[tuple[str, StoredArray], ...] = ()
    sizing: Sizing = ONE_SIZE

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        if length is not None:
            raise ConfigError(f"a length of {length} can be asked of text only.", file=self.inputs[0][1].file)
        sized, file = bool(self.sizes or self.sizing.pads), self.inputs[0][1].file
        for rows in self.sizing.runs(groups, self.shapes) if sized else groups:
            feeds: Feeds = {name: rows_of(array, rows) for name, array in self.inputs} if not sized else {}
            sizes: dict[str, IntArray] = {}
            if sized:
                feeds, sizes = self.sizing.stacked([self._sample(row) for row in rows.tolist()], rows, file)
            targets = rows_of(self.targets, rows).astype(np.int64) if self.targets is not None else None
            if sized and targets is not None and targets.ndim == 2:
                targets = tag_rows(list(targets), feeds, rows, file)
            yield Batch(
                feeds=feeds,
                targets=targets,
                indices=rows,
                valid=valid_positions(feeds, sizes),
                truths=None if self.truths is None else self.truths.of(rows),
                sizes=sizes,
            )

    def shapes(self, row: int) -> Shapes:
        """The true shape of a sample, by input."""
        sizes = dict(self.sizes)
        found = []
        for name, array in self.inputs:
            own = np.atleast_1d(load_array(sizes[name])[row]).tolist() if name in sizes else []
            found.append((name, (*own, *array.shape[1 + len(own) :])))
        return tuple(found)

    def distinct(self) -> list[tuple[int, Shapes]]:
        """Every shape that samples have, with the first row of it."""
        if not self.sizes:
            return [(0, self.shapes(0))]
        columns = np.concatenate([load_array(array).reshape(self.size, -1) for _, array in self.sizes], axis=1)
        firsts = np.unique(columns, axis=0, return_index=True)[1]
        return [(int(row), self.shapes(int(row))) for row in sorted(firsts)]

    def _sample(self, row: int) -> Sample:
        shapes = dict(self.shapes(row))
        return {
            name: load_array(array)[row][tuple(slice(size) for size in shapes[name])] for name, array in self.inputs
        }


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
        truths: labels are numbers or texts of any shape, with `.sizes` of their own where samples differ, several as
            `LABEL.KEY`; and there may be none.
    """
    if isinstance(files, Path):
        place, arrays = files, npz_arrays(files, texts=(label,) if truths and label is not None else ())
    else:
        place = next(iter(files.values()))
        arrays = {name: npy_array(path, texts=truths and name == label) for name, path in files.items()}
    named = _labels(label, arrays, place) if label is not None and truths else None
    targets = None
    if label is not None and not truths:
        if label not in arrays:
            raise ConfigError(f"no array {label!r} with the labels.", file=place, hint=nearest(label, arrays))
        targets = arrays.pop(label)
    sizes = {name: arrays.pop(name + SIZES) for name in tuple(arrays) if name + SIZES in arrays}
    if not arrays:
        raise ConfigError("holds no array for any model input.", file=place)
    labels = {"the labels": targets} if targets is not None else {} if named is None else dict(named.arrays)
    counts = {name: array.shape[0] for name, array in {**arrays, **labels}.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ConfigError(f"arrays differ in their number of samples ({said}).", file=place)
    size = next(iter(counts.values()))
    if size == 0:
        raise ConfigError("has no rows.", file=place, hint="A split needs at least one sample.")
    for array in arrays.values():
        scan(array)
    for name, array in sizes.items():
        _check_sizes(name, array, arrays[name])
    if targets is not None:
        _check_targets(targets, classes, tags)
    sha256 = file_digest(files) if isinstance(files, Path) else digest({n: file_digest(p) for n, p in files.items()})
    return ArrayRows(
        inputs=tuple(sorted(arrays.items())),
        targets=targets,
        size=size,
        sha256=sha256,
        truths=named,
        sizes=tuple(sorted(sizes.items())),
        sizing=sizing,
    )


def _labels(label: str, arrays: dict[str, StoredArray], place: Path) -> StoredLabels | None:
    """What belongs to the labels, taken out of the arrays."""
    ours = {name: arrays.pop(name) for name in tuple(arrays) if name == label or name.startswith(label + ".")}
    sizes = {name: ours.pop(name + SIZES) for name in tuple(ours) if name + SIZES in ours}
    if not ours:
        return None
    if label in ours and len(ours) > 1:
        raise ConfigError(
            f"holds {', '.join(map(repr, ours))}: labels are one array, or several that all have names.",
            file=place,
            hint=f"Call the first {label}.NAME too.",
        )
    for name, array in ours.items():
        scan(array)
        if name in sizes:
            _check_sizes(name, sizes[name], array, least=0)
    return StoredLabels(label=label, arrays=tuple(sorted(ours.items())), sizes=tuple(sorted(sizes.items())))


def _check_sizes(name: str, sizes: StoredArray, array: StoredArray, *, least: int = 1) -> None:
    axes = sizes.shape[1] if len(sizes.shape) == 2 else 1
    known = np.dtype(sizes.dtype).kind in "iu" and len(sizes.shape) in (1, 2) and axes < len(array.shape)
    if not known or sizes.shape[0] != array.shape[0]:
        raise ConfigError(
            f"array {name + SIZES!r} is {np.dtype(sizes.dtype)} {list(sizes.shape)} beside {name!r} "
            f"{list(array.shape)}.",
            file=sizes.file,
            hint="It holds whole numbers [samples], or [samples, k] for the first k axes of a sample.",
        )
    scan(sizes)
    values = load_array(sizes).astype(np.int64).reshape(sizes.shape[0], -1)
    wrong = (values < least) | (values > np.array(array.shape[1 : 1 + axes]))
    if wrong.any():
        sample, axis = (int(place) for place in np.argwhere(wrong)[0])
        raise ConfigError(
            f"sample {sample} of {name!r} has the size {values[sample, axis]} along its axis {axis}; the array holds "
            f"{least} to {array.shape[1 + axis]}.",
            file=sizes.file,
        )


def _check_targets(targets: StoredArray, classes: int | None, tags: bool) -> None:
    rank = 2 if tags else 1
    if np.dtype(targets.dtype).kind not in "iu" or len(targets.shape) != rank:
        wanted = "tag ids [samples, length]" if tags else "class ids [samples]"
        rule = f"labels are {np.dtype(targets.dtype)} {list(targets.shape)}; expected whole numbers, {wanted}."
        raise ConfigError(rule, file=targets.file)
    scan(targets)
    values = load_array(targets).astype(np.int64)
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
