"""Outcomes: what became of every single sample, as arrays that can be joined, cut and kept; and their numbers."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import BoolArray, IntArray, Task
from workbench.values.paired_scores import PairedScores
from workbench.values.system.files import temporary_beside

FloatArray = npt.NDArray[np.float64]

CORRECT, PREDICTED, GOLD = 0, 1, 2
"""Columns of entity and token counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassificationOutcomes:
    """Class ids [n]."""

    predicted: IntArray
    target: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NerOutcomes:
    """Counts per sentence.

    Attributes:
        types: names of the entity types, [t]; the one field that is not per sentence.
        entities: [n, t, 3], columns CORRECT, PREDICTED, GOLD.
        tokens: [n, 3], the same over scored tokens whose tag is not O; correct means the very same tag.
    """

    types: npt.NDArray[np.str_]
    entities: IntArray
    tokens: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredOutcomes:
    """Any metrics, kept as a fraction per sample, so that every prefix and every pair of models can be compared.

    Attributes:
        names: [m]; the first is the primary metric, which objectives and constraints call 'accuracy'.
        units: [m] such as 'dB'; empty for shares of 0..1.
        higher: [m] more is better.
        bounds: [m, 2] least and largest value of a sample; NaN where there is none.
        reduce: [m] 'ratio' is the sum of the numerators over that of the denominators, 'max' and 'min' the largest and
            the least of the samples' own fractions.
        numerators, denominators: [n, m]; a denominator of 0 leaves the sample out.
    """

    names: npt.NDArray[np.str_]
    units: npt.NDArray[np.str_]
    higher: BoolArray
    bounds: FloatArray
    reduce: npt.NDArray[np.str_]
    numerators: FloatArray
    denominators: FloatArray


def measured(
    metrics: Sequence[tuple[str, str, bool, tuple[float | None, float | None] | None, str]],
    fractions: tuple[FloatArray, FloatArray],
) -> MeasuredOutcomes:
    """Of metrics as (name, unit, more is better, bounds of a sample, reduce), and their [n, m] fractions."""
    names, units, higher, bounds, reduce = zip(*metrics, strict=True)
    return MeasuredOutcomes(
        names=np.array(names, dtype=np.str_),
        units=np.array(units, dtype=np.str_),
        higher=np.array(higher),
        bounds=np.array([both or (None, None) for both in bounds], dtype=np.float64),
        reduce=np.array(reduce, dtype=np.str_),
        numerators=fractions[0],
        denominators=fractions[1],
    )


Outcomes = ClassificationOutcomes | NerOutcomes | MeasuredOutcomes
AnyOutcomes = TypeVar("AnyOutcomes", bound=Outcomes)

_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Outcomes)}
_OF_ALL_SAMPLES = ("types", "names", "units", "higher", "bounds", "reduce")
"""Fields that are not per sample."""
_NO_LONGER_KEPT = ("lengths", "scored")
_VERSION = 1


def size(outcomes: Outcomes) -> int:
    """How many samples were scored."""
    return len(getattr(outcomes, _per_sample(outcomes)[0]))


def concatenate(parts: Sequence[AnyOutcomes]) -> AnyOutcomes:
    """Outcomes of consecutive batches as one, in order.

    Raises:
        ValueError: there are none, or they are of different kinds or entity types.
    """
    if not parts:
        raise ValueError("no outcomes to concatenate")
    first = parts[0]
    for part in parts:
        if type(part) is not type(first) or any(
            not np.array_equal(getattr(part, name), getattr(first, name), equal_nan=name == "bounds")
            for name in _OF_ALL_SAMPLES
            if hasattr(first, name)
        ):
            raise ValueError("outcomes of different kinds do not join")
    joined: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _per_sample(first)}
    return dataclasses.replace(first, **joined)


def select(outcomes: AnyOutcomes, samples: IntArray | slice) -> AnyOutcomes:
    """Some samples in the order given; one that is named twice counts twice, as a bootstrap needs."""
    chosen: dict[str, Any] = {name: getattr(outcomes, name)[samples] for name in _per_sample(outcomes)}
    return dataclasses.replace(outcomes, **chosen)


def take(outcomes: AnyOutcomes, count: int) -> AnyOutcomes:
    """The first `count` samples."""
    return select(outcomes, slice(count))


def same_outcomes(a: Outcomes, b: Outcomes) -> bool:
    """Whether every sample has the same outcome in both, bit for bit."""
    if type(a) is not type(b):
        return False
    pairs = [(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)]
    return all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)


def save_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Write outcomes as an NPZ file, whole or not at all. No pickle is involved."""
    arrays: dict[str, Any] = {f.name: getattr(outcomes, f.name) for f in dataclasses.fields(outcomes)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(path) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, kind=np.array(type(outcomes).__name__), version=np.array(_VERSION), **arrays)


def load_outcomes(path: Path) -> Outcomes:
    """Read what `save_outcomes` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or of another version; names it.
    """
    try:
        # opened here, because np.load leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files if name not in _NO_LONGER_KEPT}
        kind, version = _KINDS[str(arrays.pop("kind"))], int(arrays.pop("version"))
        if version != _VERSION:
            raise ValueError(f"version {version} is unknown; this workbench reads version {_VERSION}")
        outcomes: Outcomes = kind(**arrays)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of outcomes: {error}") from error
    if len({len(getattr(outcomes, name)) for name in _per_sample(outcomes)}) != 1:
        raise ValueError(f"{path}: not a file of outcomes: its arrays differ in length")
    return outcomes


def _per_sample(outcomes: Outcomes) -> list[str]:
    return [f.name for f in dataclasses.fields(outcomes) if f.name not in _OF_ALL_SAMPLES]


def primary_metric(task: Task) -> str:
    """Name in `summarize` of what objectives and constraints call 'accuracy', where the task alone decides it."""
    return {"classification": "accuracy", "ner": "entity_f1"}.get(task, "top1_agreement")


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


def per_sample(outcomes: Outcomes, at: int = 0) -> BoolArray | IntArray | PairedScores:
    """What paired tests compare.

    Args:
        at: number of the metric among several that were measured; the first is the primary one.

    Returns:
        classification: bool [n], correct. ner: entity counts [n, 3], columns CORRECT, PREDICTED, GOLD.
        measured: the metric's fractions.
    """
    match outcomes:
        case ClassificationOutcomes():
            correct: BoolArray = outcomes.predicted == outcomes.target
            return correct
        case NerOutcomes():
            counts: IntArray = outcomes.entities.sum(axis=1)
            return counts
        case MeasuredOutcomes():
            low, high = (float(bound) for bound in outcomes.bounds[at])
            return PairedScores(
                numerators=outcomes.numerators[:, at],
                denominators=outcomes.denominators[:, at],
                higher=bool(outcomes.higher[at]),
                bounds=(low, high) if np.isfinite(low) and np.isfinite(high) else None,
                unit=str(outcomes.units[at]),
            )


def primary_of(outcomes: Outcomes, task: Task) -> tuple[str, str, bool]:
    """Name and unit of what objectives and constraints call 'accuracy', and whether more of it is better."""
    if isinstance(outcomes, MeasuredOutcomes):
        return str(outcomes.names[0]), str(outcomes.units[0]), bool(outcomes.higher[0])
    return primary_metric(task), "", True


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
