"""Feeds by their size, and in an order in which every stretch holds short and long ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workbench.targets.base import Feeds


def shape_ranks(feeds: Sequence[Feeds]) -> npt.NDArray[np.int64]:
    """[feeds] numbers, equal for feeds of equal shapes, ascending with their size."""
    shapes = [tuple(sorted((name, array.shape) for name, array in feed.items())) for feed in feeds]
    sizes = {shape: sum(math.prod(dimensions) for _, dimensions in shape) for shape in shapes}
    ranks = {shape: rank for rank, shape in enumerate(sorted(sizes, key=lambda shape: (sizes[shape], shape)))}
    return np.array([ranks[shape] for shape in shapes], dtype=np.int64)


def side_by_side(feeds: Sequence[Feeds], others: Sequence[Feeds]) -> Sequence[Feeds]:
    """Feeds that are as large as what both sessions are fed: one order serves both."""
    if others is feeds:
        return feeds
    return [
        {**mine, **{f"{name} of the other": array for name, array in theirs.items()}}
        for mine, theirs in zip(feeds, others, strict=True)
    ]


def scattered(feeds: Sequence[Feeds]) -> list[int]:
    """All feeds once, so that any stretch of neighbours holds short and long ones in fair shares.

    The golden ratio's multiples modulo 1 fill the unit interval evenly at every length; they pick from the feeds
    sorted by size.
    """
    by_size = np.argsort(shape_ranks(feeds), kind="stable")
    golden = (np.arange(len(feeds)) * (math.sqrt(5) - 1) / 2) % 1
    places = np.argsort(np.argsort(golden, kind="stable"), kind="stable")
    return [int(i) for i in by_size[places]]
