"""The escape hatch: `loader: file.py:function` in a manifest.

The function takes a split's name and returns an iterable of (feeds of one sample, target): a dict of input name →
array without the batch dimension, and a class id, a list of tag ids, or None. Samples of one batch are stacked, so
they must have equal shapes. For 'holdout' it may return None: the holdout is then taken out of the validation.

Each split is read through once when the manifest is read: to count it, to check it, and to digest its content, so
that results are never kept for data that changed. Rows keep the loader's order; a loader whose data are sorted
should shuffle them, because early stages look at the first rows only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, IntArray, Task, valid_positions
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import ConfigError, nearest
from workbench.values.preprocess import Array
from workbench.values.results import Split

Sample = tuple[dict[str, Array], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRows:
    """One split of a user's loader.

    Attributes:
        file_sha256: of the loader's own source.
        sha256: over that and over every sample it gave.
    """

    file: Path
    function: str
    split: Split
    task: Task
    file_sha256: str
    size: int
    sha256: str

    @property
    def sequential(self) -> Literal[True]:
        return True

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        if length is not None:
            raise ConfigError(f"a length of {length} can be asked of text only.", file=self.file)
        samples = enumerate(_samples(self.file, self.function, self.file_sha256, self.split, self.task, None))
        chosen: dict[int, Sample] = {}
        for rows in groups:
            wanted = set(rows.tolist())
            chosen = {row: sample for row, sample in chosen.items() if row in wanted}
            while len(chosen) < len(wanted):
                row, sample = next(samples, (-1, None))
                if sample is None:
                    raise ConfigError(
                        f"{self.function}({self.split!r}) gave fewer than its {self.size} samples when called again.",
                        file=self.file,
                        hint="It must give the same samples in the same order at every call.",
                    )
                if row in wanted:
                    chosen[row] = sample
            yield _stacked([chosen[row] for row in rows.tolist()], rows, self.file)


def read_loader(
    file: Path, function: str, split: Split, *, task: Task, classes: int | None = None
) -> LoaderRows | None:
    """Run a loader once over a split; None when it returns None.

    Raises:
        ConfigError: it cannot be imported, fails, or gives a sample that is not one (with its number).
    """
    file_sha256 = file_digest(file)
    if _call(_function(file, function, file_sha256), split, file) is None:
        return None
    hasher = hashlib.sha256(file_sha256.encode())
    size = 0
    for feeds, target in _samples(file, function, file_sha256, split, task, classes):
        for name in sorted(feeds):
            array = np.ascontiguousarray(feeds[name])
            hasher.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
            hasher.update(array.tobytes())
        hasher.update(repr(target).encode())
        size += 1
    if size == 0:
        raise ConfigError(f"{function}({split!r}) gave no samples.", file=file)
    return LoaderRows(
        file=file,
        function=function,
        split=split,
        task=task,
        file_sha256=file_sha256,
        size=size,
        sha256=hasher.hexdigest(),
    )


@functools.lru_cache(maxsize=4)
def _function(file: Path, function: str, sha256: str) -> Callable[[str], Any]:
    name = f"workbench_loader_{sha256[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("is not a Python file.", file=file, key="loader")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling inside the loader look it up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's code may raise anything; it is reported as the user's file
        raise ConfigError(f"cannot be imported: {type(error).__name__}: {error}.", file=file, key="loader") from error
    found = getattr(module, function, None)
    if not callable(found):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise ConfigError(f"has no function {function!r}.", file=file, key="loader", hint=nearest(function, known))
    return found  # type: ignore[no-any-return]  # callable, checked above; its result is checked row by row


def _call(function: Callable[[str], Any], split: Split, file: Path) -> Any:
    try:
        return function(split)
    except Exception as error:  # as above
        raise ConfigError(f"failed for {split!r}: {type(error).__name__}: {error}.", file=file) from error


def _samples(file: Path, function: str, sha256: str, split: Split, task: Task, classes: int | None) -> Iterator[Sample]:
    rows = _call(_function(file, function, sha256), split, file)
    if not isinstance(rows, Iterable):
        raise ConfigError(f"{function}({split!r}) returned {type(rows).__name__}, not an iterable.", file=file)
    iterator = iter(rows)
    number = 0
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except Exception as error:  # as above
            raise ConfigError(f"sample {number} of {split!r}: {type(error).__name__}: {error}.", file=file) from error
        yield _checked(row, f"sample {number} of {split!r}", file, task, classes)
        number += 1


def _checked(row: object, place: str, file: Path, task: Task, classes: int | None) -> Sample:
    if not (isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], Mapping) and row[0]):
        raise ConfigError(f"{place} is not a tuple of (dict of arrays, target).", file=file)
    feeds = {str(name): np.asarray(value) for name, value in row[0].items()}
    for name, array in feeds.items():
        if array.dtype.kind not in "fiub":
            raise ConfigError(f"{place}: input {name!r} holds {array.dtype}, not numbers.", file=file)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError(f"{place}: input {name!r} holds NaN or infinity.", file=file)
    return feeds, _target(row[1], place, file, task, classes)


def _target(value: Any, place: str, file: Path, task: Task, classes: int | None) -> Any:
    if task == "tensors":
        return None
    found = np.asarray(value)
    if found.dtype.kind not in "iu" or found.ndim != (1 if task == "ner" else 0):
        wanted = "a list of tag ids" if task == "ner" else "a class id"
        raise ConfigError(f"{place}: target {value!r} is not {wanted}.", file=file)
    scored = found[found != NOT_SCORED] if task == "ner" else found
    if (scored < 0).any() or (classes is not None and (scored >= classes).any()):
        limit = f"0 to {classes - 1}" if classes is not None else "0 and up"
        raise ConfigError(f"{place}: target {value!r} is outside the labels, {limit}.", file=file)
    return found.tolist()


def _stacked(samples: list[Sample], rows: IntArray, file: Path) -> Batch:
    first = samples[0][0]
    expected = _shapes(samples[0])
    for row, sample in zip(rows, samples, strict=True):
        shapes = _shapes(sample)
        if shapes != expected:
            raise ConfigError(
                f"sample {row} has shapes {shapes}; others of its batch have {expected}.",
                file=file,
                hint="Pad samples to one shape in the loader.",
            )
    feeds = {name: np.stack([sample[0][name] for sample in samples]) for name in first}
    targets = None if samples[0][1] is None else np.array([target for _, target in samples], dtype=np.int64)
    return Batch(feeds=feeds, targets=targets, indices=rows, valid=valid_positions(feeds))


def _shapes(sample: Sample) -> dict[str, tuple[int, ...]]:
    feeds, target = sample
    return {**{name: array.shape for name, array in feeds.items()}, "target": np.shape(target)}
