"""From a detector's outputs to boxes: the published post-processing, told by a few options.

boxes [n, anchors, 4] with scores [n, anchors, classes] (or [n, anchors]) in an output of its own,
or one tensor [n, anchors, columns] (or [n, columns, anchors] with `axis: 1`) that holds both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.metrics.agreement.judge import Floats, Outputs, finite, index, number, option, output_of, word
from workbench.values.errors import MeasureError
from workbench.values.interface import OutputUse

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


def detections_of(use: OutputUse, outputs: Outputs, batch: Batch) -> list[Detections]:
    """Decode, keep what reaches the score, and suppress what overlaps a better box of its class.

    Raises:
        MeasureError: an output has an impossible shape, or holds NaN or infinity.
        ConfigError: an option is not one.
    """
    table = finite(output_of(outputs, use.name), use.name, batch)
    axis = index(use, "axis", table) or -1
    table = np.moveaxis(table, axis, -1)
    if table.ndim < 3 or table.shape[-1] < 4:
        raise MeasureError(f"output {use.name!r} is {table.shape}; boxes are [samples, boxes, 4 or more].")
    table = table.reshape(len(batch), math.prod(table.shape[:-1]) // len(batch), table.shape[-1])
    if not table.size:
        return [Detections(boxes=np.zeros((0, 4)), classes=np.zeros(0, np.int64), scores=np.zeros(0)) for _ in table]
    boxes = corners_of(use, table[..., :4])
    scores, classes = _scores(use, table, outputs, batch)
    least, overlap = number(use, "score", 0.5), number(use, "iou", 0.5)
    return [_kept(*sample, least, overlap) for sample in zip(boxes, scores, classes, strict=True)]


def overlaps(boxes: Floats, others: Floats) -> Floats:
    """[k, m] intersection over union; 0 where both have no area."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = np.clip(high - low, 0.0, None).prod(axis=-1)
    union = _areas(boxes)[:, None] + _areas(others)[None] - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0), dtype=np.float64)


def _areas(boxes: Floats) -> Floats:
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=-1), dtype=np.float64)


def corners_of(use: OutputUse, boxes: Floats) -> Floats:
    """Boxes [..., 4] of the output's `format` as x1, y1, x2, y2."""
    form = word(use, "format", FORMATS)
    first, second = boxes[..., :2], boxes[..., 2:]
    if form == "cxcywh":
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    if form == "xywh":
        return np.concatenate([first, first + second], axis=-1)
    if form == "yxyx":
        return boxes[..., [1, 0, 3, 2]]
    return boxes


def _scores(use: OutputUse, table: Floats, outputs: Outputs, batch: Batch) -> tuple[Floats, IntArray]:
    """Score and class of every box, [n, boxes] each."""
    anchors = table.shape[1]
    named = option(use, "scores", "")
    objectness = index(use, "score_column", table, -1)
    first_class = index(use, "class_column", table, -1)
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
    activation = word(use, "activation", ("none", "sigmoid", "softmax"))
    if activation == "sigmoid":
        per_class = 1 / (1 + np.exp(-np.clip(per_class, -500, 500)))
    elif activation == "softmax":
        shifted = np.exp(per_class - per_class.max(axis=-1, keepdims=True))
        per_class = shifted / shifted.sum(axis=-1, keepdims=True)
    background = index(use, "background")  # the class that is none: as told (-1 for none at all)
    if background is None and per_class.shape[-1] > 1 and (np.abs(per_class.sum(axis=-1) - 1) < _SUMS_TO_ONE).all():
        background = 0  # else the first of scores that sum to 1
    if background is not None and background >= 0:
        index(use, "background", per_class, -1)
        per_class = per_class.copy()
        per_class[..., background] = -np.inf
    best = per_class.argmax(axis=-1)
    scores = np.take_along_axis(per_class, best[..., None], axis=-1)[..., 0]
    if first_class is not None and objectness is not None:
        scores = scores * table[..., objectness]
    label = index(use, "label_column", table, -1)
    if label is not None:
        best = np.rint(table[..., label])
    labels = option(use, "labels", "")
    if labels:
        kinds = finite(output_of(outputs, str(labels)), str(labels), batch)
        if kinds.size != best.size:
            raise MeasureError(f"output {labels!r} is {kinds.shape}, which are no labels of {anchors} boxes.")
        best = np.rint(kinds).reshape(best.shape)
    return scores, best.astype(np.int64)


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
