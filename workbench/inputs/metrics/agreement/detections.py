"""Agreement of detections: which of the float model's boxes are found again, after thresholds and suppression.

Outputs become boxes by the published post-processing, told by a few options: boxes [n, anchors, 4] with scores
[n, anchors, classes] (or [n, anchors]) in an output of its own, or one tensor [n, anchors, columns] (or
[n, columns, anchors] with `axis: 1`) that holds both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.metrics.agreement.judge import (
    Array,
    Floats,
    Fractions,
    Judge,
    MetricSpec,
    Outputs,
    columns,
    finite,
    output_of,
)
from workbench.values.errors import MeasureError

FORMATS = ("xyxy", "cxcywh", "xywh", "yxyx")
MOST_BOXES = 1000
"""Of the boxes over the score threshold, so many of the best go into suppression, which compares all with all."""
_SUMS_TO_ONE = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """What is left of one sample, best score first.

    Attributes:
        boxes: [k, 4] x1, y1, x2, y2; classes: [k]; scores: [k].
    """

    boxes: Floats
    classes: IntArray
    scores: Floats


def overlaps(boxes: Floats, others: Floats) -> Floats:
    """[k, m] intersection over union; 0 where both have no area."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = np.clip(high - low, 0.0, None).prod(axis=-1)
    union = _areas(boxes)[:, None] + _areas(others)[None] - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0), dtype=np.float64)


def _areas(boxes: Floats) -> Floats:
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=-1), dtype=np.float64)


def _kept(boxes: Floats, scores: Floats, classes: IntArray, least: float, overlap: float) -> Detections:
    order = np.flatnonzero(scores > least)
    order = order[np.argsort(-scores[order], kind="stable")][:MOST_BOXES]
    boxes, scores, classes = boxes[order], scores[order], classes[order]
    hidden = (overlaps(boxes, boxes) > overlap) & (classes[:, None] == classes[None])
    alive = np.ones(len(order), dtype=np.bool_)
    for best in range(len(order)):
        if alive[best]:
            alive[best + 1 :] &= ~hidden[best, best + 1 :]
    return Detections(boxes=boxes[alive], classes=classes[alive], scores=scores[alive])


class DetectionsJudge(Judge):
    """Boxes of one class match one to one, the best score first, where they overlap by at least `match` (0.5).

    A sample on which neither model finds anything says nothing. Labels are [k, 4], or [k, 5] with the class at the end,
    in the output's `format`; or a mapping of `boxes` [k, 4] and `classes` [k].
    """

    @property
    def reads(self) -> tuple[str, ...]:
        more = (str(self.option(name, "")) for name in ("scores", "labels"))
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
        return self._compared(self.detections(outputs, batch), self.detections(reference, batch))

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        samples = zip(labels, batch.indices.tolist(), strict=True)
        truths = [self._truth(label, sample) for label, sample in samples]
        return self._compared(self.detections(outputs, batch), truths)

    def detections(self, outputs: Outputs, batch: Batch) -> list[Detections]:
        """Decode, keep what reaches the score, and suppress what overlaps a better box of its class.

        Raises:
            MeasureError: an output has an impossible shape, or holds NaN or infinity.
            ConfigError: an option is not one.
        """
        table = finite(output_of(outputs, self.use.name), self.use.name, batch)
        axis = self.index("axis", table) or -1
        table = np.moveaxis(table, axis, -1)
        if table.ndim < 3 or table.shape[-1] < 4:
            raise MeasureError(f"output {self.use.name!r} is {table.shape}; boxes are [samples, boxes, 4 or more].")
        table = table.reshape(len(batch), math.prod(table.shape[:-1]) // len(batch), table.shape[-1])
        if not table.size:
            return [Detections(boxes=np.zeros((0, 4)), classes=np.zeros(0, np.int64), scores=np.zeros(0))] * len(table)
        boxes = self._corners(table[..., :4])
        scores, classes = self._scores(table, outputs, batch)
        least, overlap = self.number("score", 0.5), self.number("iou", 0.5)
        return [_kept(*sample, least, overlap) for sample in zip(boxes, scores, classes, strict=True)]

    def _corners(self, boxes: Floats) -> Floats:
        """Boxes [..., 4] of the output's `format` as x1, y1, x2, y2."""
        form = self.word("format", FORMATS)
        first, second = boxes[..., :2], boxes[..., 2:]
        if form == "cxcywh":
            return np.concatenate([first - second / 2, first + second / 2], axis=-1)
        if form == "xywh":
            return np.concatenate([first, first + second], axis=-1)
        if form == "yxyx":
            return boxes[..., [1, 0, 3, 2]]
        return boxes

    def _scores(self, table: Floats, outputs: Outputs, batch: Batch) -> tuple[Floats, IntArray]:
        """Score and class of every box, [n, boxes] each."""
        anchors = table.shape[1]
        named = self.option("scores", "")
        objectness = self.index("score_column", table, -1)
        first_class = self.index("class_column", table, -1)
        if named:
            rows = finite(output_of(outputs, str(named)), str(named), batch)
            if rows.ndim == 3 and rows.shape[-1] == anchors != rows.shape[1]:
                rows = np.moveaxis(rows, 1, -1)
            if not rows.size or rows.size % (len(batch) * anchors) or (rows.ndim == 3 and rows.shape[1] != anchors):
                raise MeasureError(f"output {named!r} is {rows.shape}, which are no scores of {anchors} boxes.")
            per_class = rows.reshape(len(batch), anchors, -1)
        elif first_class is not None:
            per_class = table[..., first_class:]
        elif objectness is not None:
            per_class = table[..., objectness, None]
        else:
            per_class = table[..., 4:] if table.shape[-1] > 4 else np.ones((*table.shape[:2], 1))
        activation = self.word("activation", ("none", "sigmoid", "softmax"))
        if activation == "sigmoid":
            per_class = 1 / (1 + np.exp(-np.clip(per_class, -500, 500)))
        elif activation == "softmax":
            shifted = np.exp(per_class - per_class.max(axis=-1, keepdims=True))
            per_class = shifted / shifted.sum(axis=-1, keepdims=True)
        background = self.index("background")  # the class that is none: as told (-1 for none at all)
        if background is None and per_class.shape[-1] > 1 and (np.abs(per_class.sum(axis=-1) - 1) < _SUMS_TO_ONE).all():
            background = 0  # else the first of scores that sum to 1
        if background is not None and background >= 0:
            self.index("background", per_class, -1)
            per_class = per_class.copy()
            per_class[..., background] = -np.inf
        best = per_class.argmax(axis=-1)
        scores = np.take_along_axis(per_class, best[..., None], axis=-1)[..., 0]
        if first_class is not None and objectness is not None:
            scores = scores * table[..., objectness]
        label = self.index("label_column", table, -1)
        if label is not None:
            best = np.rint(table[..., label])
        labels = self.option("labels", "")
        if labels:
            kinds = finite(output_of(outputs, str(labels)), str(labels), batch)
            if kinds.size != best.size:
                raise MeasureError(f"output {labels!r} is {kinds.shape}, which are no labels of {anchors} boxes.")
            best = np.rint(kinds).reshape(best.shape)
        return scores, best.astype(np.int64)

    def check_label(self, label: Any, sample: int) -> None:
        self._truth(label, sample)

    def _truth(self, label: Any, sample: int) -> Detections:
        classes = None
        if isinstance(label, Mapping):
            if "boxes" not in label:
                raise self.no_label(sample, f"has {', '.join(map(str, label)) or 'nothing'}, but no boxes")
            label, classes = label["boxes"], label.get("classes")
        rows = np.asarray(self.numbers(label, sample), dtype=np.float64)
        rows = rows if rows.size else np.zeros((0, 5))
        if rows.ndim != 2 or rows.shape[1] not in (4, 5):
            raise self.no_label(sample, f"has the shape {list(rows.shape)}, not [boxes, 4] or [boxes, 5]")
        kinds: Array = rows[:, 4] if rows.shape[1] == 5 else np.zeros(len(rows))
        if classes is not None:
            kinds = self.numbers(classes, sample, whole=True).reshape(-1)
        if len(kinds) != len(rows):
            raise self.no_label(sample, f"has {len(kinds)} classes for {len(rows)} boxes")
        boxes = self._corners(rows[:, :4])
        if (boxes[:, 2:] < boxes[:, :2]).any():
            raise self.no_label(sample, "has a box that ends before it begins; mind the output's `format`")
        return Detections(boxes=boxes, classes=np.rint(kinds).astype(np.int64), scores=np.ones(len(rows)))

    def _compared(self, ours: Sequence[Detections], theirs: Sequence[Detections]) -> Fractions:
        least = self.number("match", 0.5)
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
