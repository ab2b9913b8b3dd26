"""Average precision of each image by COCO's own evaluation, pycocotools.

Targets: {"boxes": [k, 4], "classes": [k]} of each image, corners as x1, y1, x2, y2; `classes` may be left out. Outputs
are the model's boxes after its own suppression, [n, k, 4] with scores [n, k] (or [n, k, classes], of which the best
counts). An image with nothing to find counts only for what was found there: 1 where nothing was.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

Array = np.ndarray[Any, Any]


def coco_ap(outputs: Mapping[str, Array], targets: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Array:
    boxes, scores = outputs[options["boxes"]], outputs[options["scores"]]
    classes = outputs[options["classes"]] if "classes" in options else None
    if scores.ndim == 3:
        classes = scores.argmax(axis=-1) if classes is None else classes
        scores = scores.max(axis=-1)
    if classes is None:
        classes = np.zeros(scores.shape, np.int64)
    least = options.get("score", 0.0)
    found = []
    for row, target in enumerate(targets):
        kept = scores[row] > least
        found.append(_image_ap(target, boxes[row][kept], scores[row][kept], classes[row][kept]))
    return np.array(found)


def _image_ap(target: Mapping[str, Any], boxes: Array, scores: Array, classes: Array) -> float:
    truth = np.asarray(target["boxes"], np.float64).reshape(-1, 4)
    kinds = np.asarray(target.get("classes", np.zeros(len(truth))), np.int64).reshape(-1)
    if not len(truth):
        return float(not len(boxes))
    if not len(boxes):
        return 0.0
    labels = sorted({*kinds.tolist(), *np.asarray(classes).tolist()})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": 1}],
            "categories": [{"id": label} for label in labels],
            "annotations": [
                {"id": i + 1, "image_id": 1, "category_id": int(kind), "iscrowd": 0, **_box(box)}
                for i, (box, kind) in enumerate(zip(truth, kinds, strict=True))
            ],
        }
        coco.createIndex()
        coco_found = COCO()
        coco_found.dataset = {
            **coco.dataset,
            "annotations": [
                {"id": i + 1, "image_id": 1, "category_id": int(kind), "iscrowd": 0, "score": float(score), **_box(box)}
                for i, (box, score, kind) in enumerate(zip(boxes, scores, classes, strict=True))
            ],
        }
        coco_found.createIndex()
        evaluation = COCOeval(coco, coco_found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]  # any size, 100 detections
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0


def _box(box: Array) -> dict[str, Any]:
    x1, y1, x2, y2 = (float(value) for value in box)
    return {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": max(0.0, x2 - x1) * max(0.0, y2 - y1)}
