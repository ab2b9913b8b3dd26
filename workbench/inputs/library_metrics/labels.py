"""Scores of classes, label sets and numbers, by scikit-learn, one sample at a time.

Targets: a class by number, a row of 0 and 1 for label sets, or the right numbers.
"""

from __future__ import annotations

import functools
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


def label_ranking_ap(outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    rows = zip(targets, _output(outputs, options), strict=True)
    return np.array([metrics.label_ranking_average_precision_score(np.asarray(t)[None], y[None]) for t, y in rows])


def _output(outputs: Outputs, options: dict[str, Any]) -> np.ndarray[Any, Any]:
    return outputs[options.get("output") or next(iter(outputs))]


def _of_sets(score: Any, outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    rows = zip(targets, _output(outputs, options) > options.get("threshold", 0.5), strict=True)
    return np.array([score(np.asarray(t, bool)[None], y[None], average="samples", zero_division=1) for t, y in rows])


def _of_numbers(score: Any, outputs: Outputs, targets: Sequence[Any], options: dict[str, Any]) -> Scores:
    found = []
    for target, output in zip(targets, _output(outputs, options), strict=True):
        ours, theirs = np.asarray(target, np.float64).reshape(-1), output.astype(np.float64).reshape(-1)
        if ours.shape != theirs.shape:
            raise ValueError(f"a target has {ours.size} numbers, the output {theirs.size}")
        found.append(score(ours, theirs))
    return np.array(found)


f1_samples = functools.partial(_of_sets, metrics.f1_score)
jaccard_samples = functools.partial(_of_sets, metrics.jaccard_score)
mean_absolute_error = functools.partial(_of_numbers, metrics.mean_absolute_error)
mean_squared_error = functools.partial(_of_numbers, metrics.mean_squared_error)
