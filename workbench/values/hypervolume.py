"""Hypervolume: how much of the space below a reference point a set of points dominates; every axis is a cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def hypervolume(points: Floats | Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume of the union of the boxes between each point and the reference, exact for any number of axes.

    Points that do not lie below the reference on every axis add nothing. With one or two axes it is a sum over the
    sorted front; with more, by exclusive volumes (While, Bradstreet and Barone, "A fast way of calculating exact
    hypervolumes", 2012), which takes milliseconds for fronts of some tens of points on three axes.

    Args:
        points: [n, m], less is better on every axis.
        reference: [m].

    Raises:
        ValueError: a coordinate is NaN.
    """
    bound = np.asarray(reference, dtype=np.float64)
    found = np.asarray(points, dtype=np.float64).reshape(-1, len(bound))
    if np.isnan(found).any() or np.isnan(bound).any():
        raise ValueError("NaN has no place in a hypervolume")
    return _volume(nondominated(found[(found < bound).all(axis=1)]), bound)


def nondominated(points: Floats) -> Floats:
    """The points that no other dominates, each once, sorted by the first axis."""
    found = np.unique(points, axis=0)
    if found.shape[1] == 2:  # sorted by the first axis: a point stays where the second is below all before it
        lowest = np.minimum.accumulate(found[:, 1]) if len(found) else found[:, 1]
        return found[np.concatenate([[True], found[1:, 1] < lowest[:-1]])] if len(found) else found
    no_worse = np.all(found[:, None, :] >= found[None, :, :], axis=2)
    alone: Floats = found[np.count_nonzero(no_worse, axis=1) == 1]  # each is no worse than itself
    return alone


def _volume(front: Floats, bound: Floats) -> float:
    if not len(front):
        return 0.0
    if len(bound) == 1:
        return float(bound[0] - front[0, 0])
    if len(bound) == 2:
        widths = np.append(front[1:, 0], bound[0]) - front[:, 0]
        return float(np.sum(widths * (bound[1] - front[:, 1])))
    total = 0.0
    for index, point in enumerate(front):
        limited = np.maximum(front[index + 1 :], point)
        total += float(np.prod(bound - point)) - _volume(nondominated(limited), bound)
    return total
