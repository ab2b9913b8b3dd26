"""Average precision of one image's detections, as COCO computes it over a set.

Detections of a class are ranked by score and matched at each IoU of 0.50, 0.55 … 0.95; precision, made monotone, is
read at 101 recalls; the mean is over IoUs and over the classes that the image has. COCO's mAP of a set ranks the
detections of all images together, so that it has no value per image and is no mean of these.
"""

from __future__ import annotations

import numpy as np

from workbench.inputs.metrics.agreement.boxes import Detections, overlaps
from workbench.inputs.metrics.agreement.judge import Floats

_IOUS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MOST = 100
"""Of an image and class, so many of the best count."""


def average_precision(ours: Detections, theirs: Detections) -> float:
    """Of `ours` where `theirs` are right; 0 where these are none."""
    found = []
    for kind in np.unique(theirs.classes):
        mine = np.flatnonzero(ours.classes == kind)
        mine = mine[np.argsort(-ours.scores[mine], kind="stable")][:_MOST]
        shared = overlaps(ours.boxes[mine], theirs.boxes[theirs.classes == kind])
        found += [_at(shared, least) for least in _IOUS]
    return float(np.mean(found)) if found else 0.0


def _at(shared: Floats, least: float) -> float:
    """Of overlaps [ranked detections, boxes that are there]."""
    ranked, there = shared.shape
    taken, right = np.zeros(there, dtype=np.bool_), np.zeros(ranked)
    for row in range(ranked):
        free = np.where(taken, -1.0, shared[row])
        best = int(free.argmax())
        if free[best] >= least - 1e-10:
            taken[best], right[row] = True, 1.0
    hits = right.cumsum()
    precision = np.maximum.accumulate((hits / np.arange(1, ranked + 1))[::-1])[::-1]
    places = np.searchsorted(hits / there, _RECALLS, side="left")
    return float(np.append(precision, 0.0)[np.minimum(places, ranked)].mean())
