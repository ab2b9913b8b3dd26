"""The escape hatch: `loader: file.py:function` in a manifest.

The function takes a split's name and returns an iterable of (feeds of one sample, target): a dict of input name →
array without the batch dimension, and a class id, a list of tag ids, or None; whatever the metric is to see where the
manifest names one. Samples may differ in size (`sizing`). For 'holdout' it may return None: the holdout is then taken
out of the validation.

It runs in a process of its own (`user_code`). Each split is read through once when the manifest is read: to
count it, to check it, and to digest its content, so that results are never kept for data that changed; a later reading
is held against the first, sample by sample. Rows keep the loader's order; a loader whose data are sorted should shuffle
them, because early stages look at the first rows only.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, IntArray, Task, tag_rows, valid_positions
from workbench.inputs.dataset.sizing import ONE_SIZE, Shapes, Sizing, shapes_of
from workbench.user_code import Opaque, UserCode, UserCodeError, process_of
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.preprocess import Array

Sample = tuple[dict[str, Array], Any]
_MARK_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRows:
    """One split of a user's loader.

    Attributes:
        truths: targets are of any kind, for a metric that looks at them (`Batch.truths`).
        marks: 8 bytes of every sample's digest, in order.
        sha256: over the code and every sample it gave.
        kinds: shapes that samples have, each once.
        kind_of: [size] which of them each sample has.
    """

    sequential: ClassVar = True
    code: UserCode
    split: Split
    task: Task
    truths: bool
    size: int
    marks: bytes
    sha256: str
    kinds: tuple[Shapes, ...]
    kind_of: tuple[int, ...]
    sizing: Sizing = ONE_SIZE

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        if length is not None:
            raise ConfigError(f"a length of {length} can be asked of text only.", file=self.code.file)
        samples = enumerate(self._again())
        wanted_groups = list(self.sizing.runs(groups, self.shapes))
        wanted = collections.Counter(row for rows in wanted_groups for row in set(rows.tolist()))
        chosen: dict[int, Sample] = {}
        for rows in wanted_groups:
            while not all(row in chosen for row in rows.tolist()):
                row, sample = next(samples, (-1, None))
                if sample is None:
                    raise ConfigError(
                        f"{self.code.function}({self.split!r}) gave fewer than its {self.size} samples when called "
                        "again.",
                        file=self.code.file,
                        hint="It must give the same samples in the same order at every call.",
                    )
                if wanted[row]:
                    chosen[row] = sample
            yield _stacked([chosen[row] for row in rows.tolist()], rows, self)
            for row in set(rows.tolist()):
                wanted[row] -= 1
                if not wanted[row]:
                    del chosen[row]

    def shapes(self, row: int) -> Shapes:
        """The shape of a sample, by input."""
        return self.kinds[self.kind_of[row]]

    def distinct(self) -> list[tuple[int, Shapes]]:
        """Every shape that samples have, with the first row of it."""
        firsts: dict[int, int] = {}
        for row, kind in enumerate(self.kind_of):
            firsts.setdefault(kind, row)
        return [(row, self.kinds[kind]) for kind, row in firsts.items()]

    def _again(self) -> Iterator[Sample]:
        samples = _opened(self.code, self.split, self.task, None, truths=self.truths)
        for number, sample in enumerate(samples or ()):
            if _mark(sample) != self.marks[_MARK_BYTES * number : _MARK_BYTES * (number + 1)]:
                raise ConfigError(
                    f"sample {number} of {self.split!r} is another one than when {self.code.function}() was called "
                    "first.",
                    file=self.code.file,
                    hint="It must give the same samples in the same order at every call: give random numbers a seed.",
                )
            yield sample


def read_loader(
    code: UserCode,
    split: Split,
    *,
    task: Task,
    classes: int | None = None,
    truths: bool = False,
    sizing: Sizing = ONE_SIZE,
) -> LoaderRows | None:
    """Run a loader once over a split; None when it returns None for the holdout."""
    hasher = hashlib.sha256(code.sha256.encode())
    marks = bytearray()
    kinds: dict[Shapes, int] = {}
    kind_of: list[int] = []
    samples = _opened(code, split, task, classes, truths=truths)
    if samples is None:
        if split == "holdout":
            return None
        raise ConfigError(
            f"{code.function}({split!r}) returned None, where samples were asked for; only 'holdout' may be left out.",
            file=code.file,
            key=code.key,
            hint="A function that ends without `return` returns None: return a list, or `yield` each sample, and see "
            f"that no condition on the split leaves out {split!r}.",
        )
    for sample in samples:
        for part in _parts(sample):
            hasher.update(part)
        marks += _mark(sample)
        kind_of.append(kinds.setdefault(shapes_of(sample[0]), len(kinds)))
    if not marks:
        raise ConfigError(f"{code.function}({split!r}) gave no samples.", file=code.file)
    return LoaderRows(
        code=code,
        split=split,
        task=task,
        truths=truths,
        size=len(marks) // _MARK_BYTES,
        marks=bytes(marks),
        sha256=hasher.hexdigest(),
        kinds=tuple(kinds),
        kind_of=tuple(kind_of),
        sizing=sizing,
    )


def _parts(sample: Sample) -> Iterator[bytes]:
    """What a sample's digest is made of."""
    feeds, target = sample
    for name in sorted(feeds):
        array = np.ascontiguousarray(feeds[name])
        yield f"{name}:{array.dtype.str}:{array.shape}".encode()
        yield array.tobytes()
    yield from _target_parts(target)


def _target_parts(target: Any) -> Iterator[bytes]:
    """Of an array all values, which its `repr` would leave out."""
    if isinstance(target, np.ndarray):
        yield f"{target.dtype.str}:{target.shape}".encode()
        yield np.ascontiguousarray(target).tobytes()
    elif isinstance(target, Mapping):
        for name in sorted(target):
            yield f"{name}:".encode()
            yield from _target_parts(target[name])
    elif isinstance(target, list | tuple) and any(not isinstance(item, int | float | str) for item in target):
        for item in target:
            yield from _target_parts(item)
        yield b"."
    else:
        yield repr(target).encode()


def _mark(sample: Sample) -> bytes:
    hasher = hashlib.blake2b(digest_size=_MARK_BYTES)
    for part in _parts(sample):
        hasher.update(part)
    return hasher.digest()


def _opened(code: UserCode, split: Split, task: Task, classes: int | None, *, truths: bool) -> Iterator[Sample] | None:
    words = f"failed for {split!r}: {{}}."
    try:
        rows = process_of(code).stream(split)
    except UserCodeError as error:
        if error.kind == "no iterable":
            words = f"{code.function}({split!r}) {{}}."
        at_import = {"import": "cannot be imported: {}.", "no function": "{}."}.get(error.kind)
        raise error.config(at_import or words, key=code.key if at_import else None) from error
    if rows is None:
        return None

    def checked() -> Iterator[Sample]:
        number = -1
        try:
            for number, row in enumerate(rows):
                yield _checked(row, f"sample {number} of {split!r}", code, task, classes, truths=truths)
        except UserCodeError as error:
            raise error.config(f"sample {number + 1} of {split!r}: {{}}.") from error

    return checked()


def _checked(row: object, place: str, code: UserCode, task: Task, classes: int | None, *, truths: bool) -> Sample:
    if not (isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], Mapping) and row[0]):
        what = "None" if row is None else f"a {type(row).__name__}"
        raise ConfigError(f"{place} is {what}, not a tuple of (dict of arrays, target).", file=code.file)
    feeds = {}
    for name, value in row[0].items():
        feeds[name] = array = _array(value, f"{place}: input {name!r}", code)
        if array.dtype.kind not in "fiub":
            raise ConfigError(f"{place}: input {name!r} holds {array.dtype}, not numbers.", file=code.file)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError(f"{place}: input {name!r} holds NaN or infinity.", file=code.file)
    return feeds, _target(row[1], place, code, task, classes, truths=truths)


def _array(value: Any, place: str, code: UserCode) -> Array:
    if isinstance(value, Opaque):
        raise ConfigError(f"{place} is {value!r}, not an array.", file=code.file)
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ConfigError(f"{place} is no array: {error}.", file=code.file) from error


def _target(value: Any, place: str, code: UserCode, task: Task, classes: int | None, *, truths: bool) -> Any:
    if task == "tensors":
        if truths and isinstance(value, Opaque):
            raise ConfigError(
                f"{place}: target is {value!r}.",
                file=code.file,
                hint="Give None, numbers, strings, arrays, or lists and dicts of them.",
            )
        return value if truths else None
    found: Any = None if isinstance(value, Opaque) else _array(value, f"{place}: target", code)
    if found is None or found.dtype.kind not in "iu" or found.ndim != (1 if task == "ner" else 0):
        wanted = "a list of tag ids" if task == "ner" else "a class id"
        raise ConfigError(f"{place}: target {value!r} is not {wanted}.", file=code.file)
    scored = found[found != NOT_SCORED] if task == "ner" else found
    if (scored < 0).any() or (classes is not None and (scored >= classes).any()):
        limit = f"0 to {classes - 1}" if classes is not None else "0 and up"
        raise ConfigError(f"{place}: target {value!r} is outside the labels, {limit}.", file=code.file)
    return found.tolist()


def _stacked(samples: list[Sample], rows: IntArray, source: LoaderRows) -> Batch:
    feeds, sizes = source.sizing.stacked([feeds for feeds, _ in samples], rows, source.code.file)
    said = [target for _, target in samples]
    targets = None
    if source.task == "ner":
        targets = tag_rows([np.array(tags, dtype=np.int64) for tags in said], feeds, rows, source.code.file)
    elif source.task == "classification":
        targets = np.array(said, dtype=np.int64)
    return Batch(
        feeds=feeds,
        targets=targets,
        indices=rows,
        valid=valid_positions(feeds, sizes),
        truths=tuple(said) if source.task == "tensors" and source.truths else None,
        sizes=sizes,
    )
