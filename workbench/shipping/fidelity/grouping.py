"""How samples become the calls of a service: batches within each length, and every shape that was compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset import Batch, Dataset
from workbench.targets.base import Array, Feeds
from workbench.values.measurement import Split

Rows = npt.NDArray[np.int64]
Run = Callable[[Feeds], dict[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A batch size and padded length that was compiled; no length where samples are no texts."""

    batch: int
    length: int | None

    def __str__(self) -> str:
        return f"batch {self.batch}" + ("" if self.length is None else f", length {self.length}")


def groups(window: Batch, data: Dataset, most: int) -> Iterator[tuple[Rows, Feeds]]:
    """The calls of a service that has these requests in its queues: (places in the window, feeds) of each.

    One queue for each padded length, batches of up to `most` rows in the order of arrival, the last of a queue as full
    as it is, as after its timeout.

    Args:
        data: with the lengths of the service, to the largest of which that holds a sample the window is padded.
    """
    axis, bins, own = _lengths(window, data)
    places = np.searchsorted(np.asarray(bins), own) if bins else np.zeros(len(window), dtype=np.int64)
    for place in np.unique(places):
        members = np.flatnonzero(places == place).astype(np.int64)
        for start in range(0, len(members), most):
            rows = members[start : start + most]
            feeds = {name: array[rows] for name, array in window.feeds.items()}
            if bins:
                feeds = {name: _cut(name, array, data, axis, bins[int(place)]) for name, array in feeds.items()}
            yield rows, feeds


def answered(window: Batch, calls: Iterator[tuple[Rows, Feeds]], run: Run) -> dict[str, Array]:
    """The outputs of all calls in the window's order; where calls differ in size, filled up with zeros."""
    parts = [(rows, run(feeds)) for rows, feeds in calls]
    found: dict[str, Array] = {}
    for name, first in parts[0][1].items():
        arrays = [outputs[name] for _, outputs in parts]
        if any(array.shape[:1] != (len(rows),) for (rows, _), array in zip(parts, arrays, strict=True)):
            continue  # it does not count samples
        largest = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
        made = np.zeros((len(window), *largest), dtype=first.dtype)
        for (rows, _), array in zip(parts, arrays, strict=True):
            for row, own in zip(rows.tolist(), array, strict=True):
                made[row][tuple(slice(size) for size in own.shape)] = own
        found[name] = made
    return found


def filled_shape(window: Batch, data: Dataset, split: Split, shape: Shape) -> Iterator[tuple[Rows, Batch, int]]:
    """Full batches of one compiled shape, made of the window's samples that fit: (places, batch, rows that count).

    The last one is filled up with its last sample again. Nothing where no sample fits.
    """
    fits = np.arange(len(window)) if shape.length is None else np.flatnonzero(window.lengths <= shape.length)
    source = data.split(split).source
    for start in range(0, len(fits), shape.batch):
        places = fits[start : start + shape.batch].astype(np.int64)
        rows = np.concatenate([places, np.repeat(places[-1:], shape.batch - len(places))])
        if shape.length is None:
            yield places, taken(window, rows), len(places)
            continue
        (batch,) = source.read([window.indices[rows]], shape.length)
        yield places, batch, len(places)


def taken(batch: Batch, rows: Rows) -> Batch:
    """Some samples of a batch, in the order given."""
    return Batch(
        feeds={name: array[rows] for name, array in batch.feeds.items()},
        targets=None if batch.targets is None else batch.targets[rows],
        indices=batch.indices[rows],
        valid=None if batch.valid is None else batch.valid[rows],
        truths=None if batch.truths is None else tuple(batch.truths[int(row)] for row in rows),
        sizes={name: sizes[rows] for name, sizes in batch.sizes.items()},
    )


def _lengths(window: Batch, data: Dataset) -> tuple[str, Sequence[int], Rows]:
    """(the axis that has bins, '' for texts; the bins, none where nothing is padded; the size of each sample)."""
    if data.preprocessor is not None:
        return "", data.preprocessor.bins, window.lengths
    sizing = data.sizing
    if sizing is None or len(sizing.binned) != 1 or sizing.steps or sizing.binned[0].name not in window.sizes:
        return "", (), window.lengths
    (use,) = sizing.binned
    return use.name, use.bins, window.sizes[use.name]


def _cut(name: str, array: Array, data: Dataset, axis: str, size: int) -> Array:
    if not axis:
        return np.ascontiguousarray(array[:, :size])
    sizing = data.sizing
    assert sizing is not None  # it names the axis
    at = [slice(size) if known == axis else slice(None) for known in sizing.names(name, array.ndim - 1)]
    return np.ascontiguousarray(array[(slice(None), *at)])
