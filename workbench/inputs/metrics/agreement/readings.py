"""How a detector's answers can be read, where the manifest reads them in a way that loses them: found by trying."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.detections import DetectionsJudge, match
from workbench.inputs.metrics.agreement.judge import Floats, Option, Outputs
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.interface import OutputUse

_READ_BY = ("axis", "format", "activation", "score_column", "class_column", "label_column")
_TRIED = 4
"""Samples."""
_SHARES = 1.5
"""Places up to here are shares of the picture's side."""
_LIKELY, _MANY = 0.25, 0.3
"""Where a column says what is an object, classes are likely at so many anchors, of which most are none."""


def reading_of(use: OutputUse, runs: Sequence[tuple[Batch, Outputs]]) -> str:
    """`boxes:axis=1,format=cxcywh,class_column=4`: so read they agree with themselves, and lie within the picture best;
    empty where they do in no way, as offsets from anchors do.

    Args:
        runs: of the float model.
    """
    told: dict[str, Option] = {name: value for name, value in use.options if name not in _READ_BY}
    lower: list[dict[str, Option]] = [{}] if "score" in told else [{}, {"score": _LIKELY}]
    for score, place in itertools.product(lower, _places(use, runs[:_TRIED])):
        found: list[tuple[float, int, dict[str, Option]]] = []
        for order, form in enumerate(("cxcywh", "xyxy", "xywh", "yxyx")):
            options = {**{k: v for k, v in place.items() if k == "axis"}, "format": form, **place, **told, **score}
            tried = OutputUse(name=use.name, meaning="boxes", options=tuple(options.items()))
            if (beyond := _beyond(tried, runs[:_TRIED])) is not None:
                found.append((round(beyond, 3), order, options))
        if found:
            return "boxes:" + ",".join(f"{name}={value}" for name, value in min(found)[2].items())
    return ""


def _places(use: OutputUse, runs: Sequence[tuple[Batch, Outputs]]) -> Iterator[dict[str, Option]]:
    """Where boxes, scores and classes may stand, shares before logits, few columns of many boxes first."""
    arrays = [np.asarray(outputs[use.name], np.float64) for _, outputs in runs]
    if any(array.ndim != 3 or not array.size for array in arrays):
        return
    every = [np.concatenate([np.moveaxis(a, axis, 2).reshape(-1, a.shape[axis]) for a in arrays]) for axis in (1, 2)]
    for activation in ("none", "sigmoid"):
        for axis, rows in sorted(enumerate(every, 1), key=lambda one: one[1].shape[1]):
            place: dict[str, Option] = {"axis": 1} if axis == 1 else {}
            shares = bool(((rows[:, 4:] >= 0) & (rows[:, 4:] <= 1)).all())
            if rows.shape[1] == 4:
                yield place
            elif rows.shape[1] == 6 and (rows[:, 5] == np.rint(rows[:, 5])).all() and rows[:, 5].max() > 1:
                yield place | {"score_column": 4, "label_column": 5}
            elif rows.shape[1] > 4 and shares == (activation == "none"):
                yield (
                    place
                    | _columns(rows if shares else 1 / (1 + np.exp(-np.clip(rows, -500, 500))))
                    | ({} if shares else {"activation": activation})
                )


def _columns(rows: Floats) -> dict[str, Option]:
    """Scores of classes from column 4 on; or one that says what is an object, and classes behind it."""
    objects = float((rows[:, 4] > _LIKELY).mean())
    if rows.shape[1] > 5 and (rows[:, 5:].max(axis=1) > _LIKELY).mean() > max(_MANY, 2 * objects):
        return {"score_column": 4, "class_column": 5}
    return {"class_column": 4}


def _beyond(use: OutputUse, runs: Sequence[tuple[Batch, Outputs]]) -> float | None:
    """How far boxes reach over the picture's edges, as a share of it; None where they do not agree with themselves."""
    judge = DetectionsJudge(use=use)
    try:
        found = [one for batch, outputs in runs for one in judge.detections(outputs, batch)]
    except (CandidateError, ConfigError):
        return None
    boxes = np.concatenate([one.boxes for one in found])
    if not len(boxes) or any((match(one, one, 0.5) == 0).any() for one in found):
        return None
    axis = 1 if ("axis", 1) in use.options else -1
    places = max(float(np.abs(np.moveaxis(o[use.name], axis, -1)[..., :2]).max()) for _, o in runs)
    sides = [float(max(fed.shape[2:])) for batch, _ in runs for fed in batch.feeds.values() if fed.ndim == 4]
    if sides and _SHARES < places < sides[0] / 2:
        return None  # offsets from anchors, or from cells of a grid: boxes are all over the picture
    side = 1.0 if places <= _SHARES else sides[0] if sides else places
    over: Floats = np.clip(-boxes, 0, None) + np.clip(boxes - side, 0, None)
    return float(over.mean() / side)
