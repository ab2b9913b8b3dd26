"""Outcomes: what became of every single sample, as NumPy arrays that can be joined, cut and kept on disk."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import BoolArray, IntArray
from workbench.values.system.files import temporary_beside

FloatArray = npt.NDArray[np.float64]

CORRECT, PREDICTED, GOLD = 0, 1, 2
"""Columns of entity and token counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassificationOutcomes:
    """Class ids [n]; `lengths` [n] are the samples' positions without padding."""

    predicted: IntArray
    target: IntArray
    lengths: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NerOutcomes:
    """Counts per sentence.

    Attributes:
        types: names of the entity types, [t]; the one field that is not per sentence.
        entities: [n, t, 3], columns CORRECT, PREDICTED, GOLD.
        tokens: [n, 3], the same over scored tokens whose tag is not O; correct means the very same tag.
        scored: [n] tokens that were scored, O included.
        lengths: [n] positions without padding.
    """

    types: npt.NDArray[np.str_]
    entities: IntArray
    tokens: IntArray
    scored: IntArray
    lengths: IntArray


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
        lengths: [n] positions without padding.
    """

    names: npt.NDArray[np.str_]
    units: npt.NDArray[np.str_]
    higher: BoolArray
    bounds: FloatArray
    reduce: npt.NDArray[np.str_]
    numerators: FloatArray
    denominators: FloatArray
    lengths: IntArray


Outcomes = ClassificationOutcomes | NerOutcomes | MeasuredOutcomes
AnyOutcomes = TypeVar("AnyOutcomes", bound=Outcomes)

_KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind for kind in (ClassificationOutcomes, NerOutcomes, MeasuredOutcomes)
}
_OF_ALL_SAMPLES = ("types", "names", "units", "higher", "bounds", "reduce")
"""Fields that are not per sample."""
_VERSION = 1


def size(outcomes: Outcomes) -> int:
    """How many samples were scored."""
    return len(outcomes.lengths)


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
            arrays = {name: stored[name] for name in stored.files}
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
