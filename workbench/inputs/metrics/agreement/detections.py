"""Agreement of detections: which of the float model's boxes are found again, after thresholds and suppression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.boxes import Detections, corners_of, detections_of, overlaps
from workbench.inputs.metrics.agreement.judge import (
    Array,
    Floats,
    Fractions,
    Judge,
    MetricSpec,
    Outputs,
    columns,
    no_label,
    number,
    numbers_of,
    option,
)


class DetectionsJudge(Judge):
    """Boxes of one class match one to one, the best score first, where they overlap by at least `match` (0.5).

    A sample on which neither model finds anything says nothing. Labels are [k, 4], or [k, 5] with the class at the end,
    in the output's `format`; or a mapping of `boxes` [k, 4] and `classes` [k].
    """

    @property
    def reads(self) -> tuple[str, ...]:
        more = (str(option(self.use, name, "")) for name in ("scores", "labels"))
        return (self.use.name, *(name for name in more if name))

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="f1", about=f"of {whose} detections", counts="detections"),
            MetricSpec(name="recall", about=f"{whose} detections that are found", counts="detections"),
            MetricSpec(name="precision", about=f"detections that are {whose} too", counts="detections"),
            MetricSpec(name="matched_iou", about="mean overlap of detections that match"),
            MetricSpec(name="image_ap", about=f"mean over images of their average precision at {whose} detections"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        return self._compared(detections_of(self.use, outputs, batch), detections_of(self.use, reference, batch))

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        samples = zip(labels, batch.indices.tolist(), strict=True)
        truths = [self._truth(label, sample) for label, sample in samples]
        return self._compared(detections_of(self.use, outputs, batch), truths)

    def check_label(self, label: Any, sample: int) -> None:
        self._truth(label, sample)

    def _truth(self, label: Any, sample: int) -> Detections:
        classes = None
        if isinstance(label, Mapping):
            if "boxes" not in label:
                raise no_label(self.use, sample, f"has {', '.join(map(str, label)) or 'nothing'}, but no boxes")
            label, classes = label["boxes"], label.get("classes")
        rows = np.asarray(numbers_of(self.use, label, sample), dtype=np.float64)
        rows = rows if rows.size else np.zeros((0, 5))
        if rows.ndim != 2 or rows.shape[1] not in (4, 5):
            raise no_label(self.use, sample, f"has the shape {list(rows.shape)}, not [boxes, 4] or [boxes, 5]")
        kinds: Array = rows[:, 4] if rows.shape[1] == 5 else np.zeros(len(rows))
        if classes is not None:
            kinds = numbers_of(self.use, classes, sample, whole=True).reshape(-1)
        if len(kinds) != len(rows):
            raise no_label(self.use, sample, f"has {len(kinds)} classes for {len(rows)} boxes")
        boxes = corners_of(self.use, rows[:, :4])
        if (boxes[:, 2:] < boxes[:, :2]).any():
            raise no_label(self.use, sample, "has a box that ends before it begins; mind the output's `format`")
        return Detections(boxes=boxes, classes=np.rint(kinds).astype(np.int64), scores=np.ones(len(rows)))

    def _compared(self, ours: Sequence[Detections], theirs: Sequence[Detections]) -> Fractions:
        least = number(self.use, "match", 0.5)
        pairs = list(zip(ours, theirs, strict=True))
        overlaps_of = [match(*both, least) for both in pairs]
        matched = np.array([np.count_nonzero(one > 0) for one in overlaps_of], dtype=np.float64)
        overlap = np.array([one.sum() for one in overlaps_of], dtype=np.float64)
        found, there = np.array([[len(one.boxes) for one in both] for both in pairs], dtype=np.float64).T
        precisions = np.array([average_precision(*both) for both in pairs])
        return columns(
            (2 * matched, found + there),
            (matched, there),
            (matched, found),
            (overlap, matched),
            (precisions, (found + there > 0).astype(np.float64)),
        )


def match(ours: Detections, theirs: Detections, least: float) -> Floats:
    """[k] overlap of each of our boxes with the one it is matched with; 0 where there is none.

    Each in the order of its score takes the box of its class that it overlaps most and nobody took before.
    """
    found = np.zeros(len(ours.boxes))
    if not len(ours.boxes) or not len(theirs.boxes):
        return found
    shared = overlaps(ours.boxes, theirs.boxes) * (ours.classes[:, None] == theirs.classes[None])
    for row in range(len(found)):
        best = int(shared[row].argmax())
        if shared[row, best] >= least and shared[row, best] > 0:
            found[row] = shared[row, best]
            shared[:, best] = 0.0
    return found


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
