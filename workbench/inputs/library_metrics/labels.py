"""Scores of classes, label sets and numbers, by scikit-learn, one sample at a time.

Targets: a class by number, a row of 0 and 1 for label sets, or the right numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn import metrics

Outputs = Mapping[str, np.ndarray[Any, Any]]
Scores = np.ndarray[Any, Any]


def log_loss(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    scores = _output(outputs, options).astype(np.float64)
    if options.get("from", "logits") == "logits":
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
    classes = list(range(scores.shape[-1]))
    rows = zip(targets, scores, strict=True)
    return np.array([metrics.log_loss([int(target)], row[None], labels=classes) for target, row in rows])


def f1_samples(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    found = _output(outputs, options) > options.get("threshold", 0.5)
    rows = zip(targets, found, strict=True)
    return np.array(
        [metrics.f1_score(np.asarray(t, bool)[None], y[None], average="samples", zero_division=1) for t, y in rows]
    )


def jaccard_samples(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    found = _output(outputs, options) > options.get("threshold", 0.5)
    rows = zip(targets, found, strict=True)
    return np.array(
        [metrics.jaccard_score(np.asarray(t, bool)[None], y[None], average="samples", zero_division=1) for t, y in rows]
    )


def label_ranking_ap(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    rows = zip(targets, _output(outputs, options), strict=True)
    return np.array([metrics.label_ranking_average_precision_score(np.asarray(t)[None], y[None]) for t, y in rows])


def mean_absolute_error(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    rows = zip(targets, _output(outputs, options), strict=True)
    return np.array([metrics.mean_absolute_error(*_numbers(t, y)) for t, y in rows])


def mean_squared_error(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    rows = zip(targets, _output(outputs, options), strict=True)
    return np.array([metrics.mean_squared_error(*_numbers(t, y)) for t, y in rows])


def _output(outputs: Outputs, options: dict[str, Any]) -> np.ndarray[Any, Any]:
    return outputs[options.get("output") or next(iter(outputs))]


def _numbers(target: Any, output: np.ndarray[Any, Any]) -> tuple[Scores, Scores]:
    ours, theirs = np.asarray(target, np.float64).reshape(-1), output.astype(np.float64).reshape(-1)
    if ours.shape != theirs.shape:
        raise ValueError(f"a target has {ours.size} numbers, the output {theirs.size}")
    return ours, theirs
