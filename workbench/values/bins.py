"""Which padded lengths to group texts by: chosen from the lengths that texts really have.

A text costs what its bin costs, so fewer padded tokens are less work; every further bin is one more compiled file on
targets that fix their shapes, and one more queue in which a batch has to fill up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

ATTENTION = 1 / 3072
"""Work of a text padded to L tokens: L + ATTENTION * L². Each token of a block of width h takes 24 h² operations in
linear layers and 4 h for every token it attends to, so ATTENTION is 1 / (6 h); this is h = 512."""


def optimal_bins(lengths: IntArray, count: int, max_length: int, *, multiple: int = 8) -> tuple[int, ...]:
    """At most `count` bins with the least expected work of one text padded to its bin; the last is `max_length`.

    Exact, by dynamic programming over the histogram of lengths (work as in `ATTENTION`). Deterministic; a bin that
    saves nothing is left out.

    Args:
        lengths: [n] tokens of texts, at least one; longer ones count as `max_length`.
        multiple: bins before the last are multiples of it.

    Raises:
        ValueError: no lengths, or `count` is less than 1.
    """
    if count < 1 or len(lengths) == 0:
        raise ValueError(f"{count} bins of {len(lengths)} lengths")
    edges = np.array([*range(multiple, max_length, multiple), max_length], dtype=np.int64)
    texts = np.bincount(np.searchsorted(edges, np.minimum(lengths, max_length)), minlength=len(edges))
    work = edges + ATTENTION * edges.astype(np.float64) ** 2
    before = np.concatenate([[0], np.cumsum(texts)])
    # least[j]: least work of all texts up to edge j when edge j is a bin; with one bin all of them are padded to it
    least = before[1:] * work
    came_from: list[IntArray] = []
    for _ in range(min(count, len(edges)) - 1):
        # from bin i to the next one j: texts between them are padded to j
        through = least[:, None] + (before[None, 1:] - before[1:, None]) * work[None, :]
        through[np.tril_indices(len(edges))] = np.inf
        best = through.argmin(axis=0)
        found = through[best, np.arange(len(edges))]
        better = found < least * (1 - 1e-12)
        came_from.append(np.where(better, best, -1))
        least = np.where(better, found, least)
    found = [len(edges) - 1]
    for step in reversed(came_from):  # from the last bin back to the first, which came from nowhere
        if step[found[-1]] >= 0:
            found.append(int(step[found[-1]]))
    return tuple(int(edges[j]) for j in reversed(found))


def timed_length(length: int | None, bins: Sequence[int] | None) -> int | None:
    """The padded length that a question about one length comes to in these bins; None for the texts' own lengths."""
    if length is None or bins is None:
        return length
    return next((found for found in bins if found >= length), length)
