"""How a detector's answers can be read, where the manifest reads them in a way that loses them: options, by trying."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.boxes import FORMATS, detections_of
from workbench.inputs.metrics.agreement.detections import match
from workbench.inputs.metrics.agreement.judge import Floats, Option, Outputs, number
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.interface import OutputUse

_READ_BY = ("axis", "format", "activation", "score_column", "class_column", "label_column")
_SCORES = (0.5, 0.25, 0.05)
"""The first at which anything is found counts."""
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
    runs, told = runs[:_TRIED], {name: value for name, value in use.options if name not in _READ_BY}
    least = number(use, "score", _SCORES[0])
    found: list[tuple[float, dict[str, Option]]] = []
    for score, where in itertools.product(sorted({least, *_SCORES}, reverse=True), _places(use, runs)):
        for form in ("cxcywh", *FORMATS):
            more: dict[str, Option] = {} if score == least else {"score": score}
            axis: dict[str, Option] = {"axis": 1} if "axis" in where else {}
            options = {**axis, "format": form, **where, **told, **more}
            beyond = _beyond(OutputUse(name=use.name, meaning="boxes", options=tuple(options.items())), runs)
            if beyond is not None and all(beyond < other - 1e-3 for other, _ in found):
                found.append((beyond, options))
        if found:
            return "boxes:" + ",".join(f"{name}={value}" for name, value in found[-1][1].items())
    return ""


def _places(use: OutputUse, runs: Sequence[tuple[Batch, Outputs]]) -> list[dict[str, Option]]:
    """Where boxes, scores and classes may stand, the likeliest first: shares are scores as they are."""
    arrays = [np.asarray(outputs[use.name], np.float64) for _, outputs in runs]
    if any(array.ndim != 3 or not array.size for array in arrays):
        return []
    found: list[tuple[int, dict[str, Option]]] = []
    for axis in (1, 2):
        rows: Floats = np.concatenate([np.moveaxis(a, axis, 2).reshape(-1, a.shape[axis]) for a in arrays])
        place: dict[str, Option] = {} if axis == 2 else {"axis": 1}
        if rows.shape[1] == 4 or "scores" in dict(use.options):
            found += [(0, place)] if rows.shape[1] == 4 else []
        elif rows.shape[1] > 4:
            shares = bool(((rows[:, 4:] >= 0) & (rows[:, 4:] <= 1)).all())
            columns = _columns(rows, shares=shares)
            logits: dict[str, Option] = {} if shares or "label_column" in columns else {"activation": "sigmoid"}
            found.append((rows.shape[1] + (0 if not logits else 1 << 20), place | columns | logits))
    return [place for _, place in sorted(found, key=lambda one: one[0])]


def _columns(rows: Floats, *, shares: bool) -> dict[str, Option]:
    """Scores of classes from column 4 on; or one that says whether there is an object, and behind it the classes, or
    the number of one."""
    scores = rows[:, 4:] if shares else 1 / (1 + np.exp(-np.clip(rows[:, 4:], -500, 500)))
    if rows.shape[1] == 6 and not shares and (rows[:, 5] == np.rint(rows[:, 5])).all():
        return {"score_column": 4, "label_column": 5}
    objects = float((scores[:, 0] > _LIKELY).mean())
    if rows.shape[1] > 5 and (scores[:, 1:].max(axis=1) > _LIKELY).mean() > max(_MANY, 2 * objects):
        return {"score_column": 4, "class_column": 5}
    return {"class_column": 4}


def _beyond(use: OutputUse, runs: Sequence[tuple[Batch, Outputs]]) -> float | None:
    """How far boxes reach over the picture's edges, as a share of it; None where they do not agree with themselves."""
    try:
        found = [one for batch, outputs in runs for one in detections_of(use, outputs, batch)]
    except (CandidateError, ConfigError):
        return None
    boxes = np.concatenate([one.boxes for one in found])
    if not len(boxes) or any((match(one, one, 0.5) == 0).any() for one in found):
        return None
    axis = 1 if ("axis", 1) in use.options else -1
    sides = [max(fed.shape[2:]) for batch, _ in runs for fed in batch.feeds.values() if fed.ndim == 4]
    places = max(float(np.abs(np.moveaxis(o[use.name], axis, -1)[..., :2]).max()) for _, o in runs)
    if sides and _SHARES < places < sides[0] / 2:
        return None  # offsets from anchors, or from cells of a grid: boxes are all over the picture
    side = 1.0 if places <= _SHARES else float(sides[0]) if sides else places
    over: Floats = np.clip(-boxes, 0, None) + np.clip(boxes - side, 0, None)
    return float(over.mean() / side)
