"""Numbers from outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.inputs.dataset.batch import BoolArray, IntArray, Task
from workbench.inputs.metrics.outcomes import (
    CORRECT,
    GOLD,
    PREDICTED,
    AnyOutcomes,
    ClassificationOutcomes,
    FloatArray,
    MeasuredOutcomes,
    NerOutcomes,
    Outcomes,
    select,
    size,
)
from workbench.values.paired_scores import PairedScores

PRIMARY: Mapping[Task, str] = {"classification": "accuracy", "ner": "entity_f1", "tensors": "top1_agreement"}


def primary_metric(task: Task) -> str:
    """Name in `summarize` of what objectives and constraints call 'accuracy', where the task alone decides it."""
    return PRIMARY[task]


def summarize(outcomes: Outcomes) -> dict[str, float]:
    """Metric → value over all samples; shares are in 0..1.

    macro_f1 is the unweighted mean over the classes that occur as target or prediction (scikit-learn's default).
    Entity and token scores are micro averages; a share of nothing is 0, as in seqeval.

    Raises:
        ValueError: there are no samples.
    """
    if size(outcomes) == 0:
        raise ValueError("no samples to summarize")
    match outcomes:
        case ClassificationOutcomes():
            return {
                "accuracy": float(np.mean(outcomes.predicted == outcomes.target)),
                "macro_f1": _macro_f1(outcomes.predicted, outcomes.target),
            }
        case NerOutcomes():
            entities = _scores(outcomes.entities.sum(axis=(0, 1)))
            return {
                "entity_f1": entities["f1"],
                "entity_precision": entities["precision"],
                "entity_recall": entities["recall"],
                "token_f1": _scores(outcomes.tokens.sum(axis=0))["f1"],
            }
        case MeasuredOutcomes():
            return {str(name): _measured(outcomes, at) for at, name in enumerate(outcomes.names)}


def per_sample(outcomes: Outcomes) -> BoolArray | IntArray | PairedScores:
    """What paired tests compare.

    Returns:
        classification: bool [n], correct. ner: entity counts [n, 3], columns CORRECT, PREDICTED, GOLD.
        measured: the primary metric's fractions.
    """
    match outcomes:
        case ClassificationOutcomes():
            correct: BoolArray = outcomes.predicted == outcomes.target
            return correct
        case NerOutcomes():
            counts: IntArray = outcomes.entities.sum(axis=1)
            return counts
        case MeasuredOutcomes():
            low, high = (float(bound) for bound in outcomes.bounds[0])
            return PairedScores(
                numerators=outcomes.numerators[:, 0],
                denominators=outcomes.denominators[:, 0],
                higher=bool(outcomes.higher[0]),
                bounds=(low, high) if np.isfinite(low) and np.isfinite(high) else None,
                unit=str(outcomes.units[0]),
            )


def primary_of(outcomes: Outcomes, task: Task) -> tuple[str, str, bool]:
    """Name and unit of what objectives and constraints call 'accuracy', and whether more of it is better."""
    if isinstance(outcomes, MeasuredOutcomes):
        return str(outcomes.names[0]), str(outcomes.units[0]), bool(outcomes.higher[0])
    return primary_metric(task), "", True


def by_type(outcomes: NerOutcomes) -> dict[str, dict[str, float]]:
    """Entity type → precision, recall, f1, and gold (how many there are)."""
    counts = outcomes.entities.sum(axis=0)
    return {
        str(name): {**_scores(row), "gold": float(row[GOLD])} for name, row in zip(outcomes.types, counts, strict=True)
    }


def by_length(outcomes: AnyOutcomes, bins: Sequence[int]) -> dict[int, dict[str, float]]:
    """Bin → `summarize` of the samples whose length falls in it, and `samples`; bins without any are left out."""
    found = {}
    for low, high in zip((0, *bins), bins, strict=False):
        chosen = np.flatnonzero((outcomes.lengths > low) & (outcomes.lengths <= high)).astype(np.int64)
        if chosen.size:
            found[high] = {**summarize(select(outcomes, chosen)), "samples": float(chosen.size)}
    return found


def _measured(outcomes: MeasuredOutcomes, at: int) -> float:
    """The value of metric number `at`; of samples that have nothing to say, the best that is known of it."""
    numerators, denominators = outcomes.numerators[:, at], outcomes.denominators[:, at]
    counted = denominators != 0
    if not counted.any():
        low, high = outcomes.bounds[at]
        best = float(high if outcomes.higher[at] else low)
        return best if np.isfinite(best) else 0.0
    if outcomes.reduce[at] == "ratio":
        return float(numerators.sum() / denominators.sum())
    fractions: FloatArray = numerators[counted] / denominators[counted]
    return float(fractions.max() if outcomes.reduce[at] == "max" else fractions.min())


def _scores(counts: IntArray) -> dict[str, float]:
    """Precision, recall and F1 of counts [3]."""
    correct, predicted, gold = (float(counts[column]) for column in (CORRECT, PREDICTED, GOLD))
    return {
        "precision": correct / predicted if predicted else 0.0,
        "recall": correct / gold if gold else 0.0,
        "f1": 2 * correct / (predicted + gold) if predicted + gold else 0.0,
    }


def _macro_f1(predicted: IntArray, target: IntArray) -> float:
    classes = int(max(predicted.max(), target.max())) + 1
    correct = np.bincount(target[predicted == target], minlength=classes)
    occurrences = np.bincount(predicted, minlength=classes) + np.bincount(target, minlength=classes)
    seen = occurrences > 0
    return float(np.mean(2 * correct[seen] / occurrences[seen]))
