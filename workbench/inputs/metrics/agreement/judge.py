"""What every judge of agreement is, and what they share: metrics by name, padding, refusals."""

from __future__ import annotations

import abc
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import Batch, BoolArray
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.interface import OutputUse

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]
Outputs = Mapping[str, Array]
Fractions = tuple[Floats, Floats]
"""Numerators and denominators [n, metrics]."""
Option = str | int | float | bool
_SHOWN = 60
"""Characters of a label that are shown in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric of one meaning.

    Attributes:
        unit: empty for a share of 0..1 and for what is read as one.
        bounds: of one sample's value; None where there are none.
        reduce: as in `MeasuredOutcomes`.
        counts: what a sample is one of, or has some of, where the metric is a share of these; empty where samples have
            shares of their own.
    """

    name: str
    about: str
    unit: str = ""
    higher: bool = True
    bounds: tuple[float, float] | None = (0.0, 1.0)
    reduce: str = "ratio"
    counts: Literal["", "sequences", "decisions", "detections"] = ""

    @property
    def best(self) -> float:
        """What two equal models have: 1 where more is better within bounds, else 0; not a number where nobody knows."""
        if self.bounds is not None:
            return self.bounds[1] if self.higher else self.bounds[0]
        return math.inf if self.higher else 0.0


class Judge(abc.ABC):
    """Agreement in one output, or in a few that mean something only together; metrics are the same against the float
    model and against labels.

    Attributes:
        use: the output that is judged, with its options and limits.
        whole_labels: its labels are whole numbers.
    """

    can_have_labels = True
    whole_labels = False

    def __init__(self, *, use: OutputUse) -> None:
        self.use = use

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all outputs it looks at."""
        return (self.use.name,)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """In the order of the columns of `judge`; the first is the meaning's primary one."""
        return self.specs("the float model's")

    @property
    def label_metrics(self) -> tuple[MetricSpec, ...]:
        """Those of `labelled`; empty where the meaning has no labels."""
        return self.specs("the labels'") if self.can_have_labels else ()

    @abc.abstractmethod
    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        """The metrics, by what they compare with."""

    @abc.abstractmethod
    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        """Fractions of every sample of a batch.

        Raises:
            MeasureError: an output is missing, holds NaN or infinity, or has another shape than the reference.
        """

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        """Sample by sample, each label as the answer of a model that is always right."""
        name, parts = self.use.name, []
        output = output_of(outputs, name)
        for row, label in enumerate(labels):
            ours, one = output[row : row + 1], one_of(batch, row)
            if one.valid is not None and ours.ndim > 1 and ours.shape[1] == one.valid.shape[1]:
                ours = ours if np.size(label) == ours.size else ours[:, one.valid[0]]
            truth = self.truth(label, ours.shape, int(batch.indices[row]))
            parts.append(self.judge({name: ours}, {name: truth}, one))
        return joined(parts)

    def check_label(self, label: Any, sample: int) -> None:
        """Whether a label is one of this meaning's, as far as it can be told without an output."""
        self.numbers(label, sample, whole=self.whole_labels)

    def truth(self, label: Any, shape: tuple[int, ...], sample: int) -> Array:
        """A label as the output [1, ...] of this shape that would be right."""
        array = self.numbers(label, sample)
        if array.size != math.prod(shape):
            raise self.no_label(sample, f"has the shape {list(array.shape)}, the output {list(shape[1:])}")
        return array.reshape(shape)

    def pair(self, outputs: Outputs, reference: Outputs, batch: Batch) -> tuple[Floats, Floats]:
        """The output of both models, finite and of one shape [n, ...].

        Raises:
            MeasureError: it is not.
        """
        ours, theirs = output_of(outputs, self.use.name), output_of(reference, self.use.name)
        if ours.shape != theirs.shape:
            raise MeasureError(f"output {self.use.name!r} is {ours.shape}; the float model gives {theirs.shape}.")
        return finite(ours, self.use.name, batch), finite(theirs, self.use.name, batch)

    def numbers(self, label: Any, sample: int, *, whole: bool = False) -> Array:
        """A label as an array of numbers."""
        try:
            array = np.asarray(json.loads(label) if isinstance(label, str) else label)  # a CSV file holds texts alone
        except ValueError:  # no number, or lists of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in ("iub" if whole else "fiub") and array.size:
            plain = str(label) if isinstance(label, str) else label
            said = repr(plain) if len(repr(plain)) < _SHOWN else f"{array.dtype} {list(array.shape)}"
            raise self.no_label(sample, f"is {said}, not {'whole ' if whole else ''}numbers")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self.no_label(sample, "holds NaN or infinity")
        return array

    def no_label(self, sample: int, why: str) -> ConfigError:
        return ConfigError(
            f"the label of sample {sample} (counted from 0 in its file) {why}.",
            key=f"outputs.{self.use.name}.against",
            hint="docs/your-model.md says what labels of every meaning are.",
        )

    def option(self, name: str, default: Option) -> Option:
        """The manifest's word for an option, else the default."""
        return dict(self.use.options).get(name, default)

    def number(self, name: str, default: float) -> float:
        """A numeric option."""
        found = self.option(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ConfigError(f"{found!r} is not a number.", key=f"outputs.{self.use.name}.{name}")
        return float(found)

    def index(self, name: str, among: Array | None = None, axis: int | None = None) -> int | None:
        """An option that is a whole number, None where it was not given.

        Args:
            among: an array that has such an axis, or such a place along `axis`; counted from its end below 0.
        """
        found = dict(self.use.options).get(name)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise ConfigError(f"{found!r} is not a whole number.", key=f"outputs.{self.use.name}.{name}")
        if found is not None and among is not None:
            first, most = (1, among.ndim) if axis is None else (0, among.shape[axis])
            if not first <= found % max(most, 1) < most or not -most <= found < most:
                rule = f"{found} is none of {first} to {most - 1}: the output {self.use.name!r} is {list(among.shape)}."
                raise ConfigError(rule, key=f"outputs.{self.use.name}.{name}")
            return found % most
        return found

    def word(self, name: str, choices: tuple[str, ...]) -> str:
        """An option that is one of some words; the first is the default."""
        found = self.option(name, choices[0])
        if found not in choices:
            raise ConfigError(
                f"{found!r} is none of {', '.join(choices)}.",
                key=f"outputs.{self.use.name}.{name}",
                hint=nearest(str(found), choices),
            )
        return str(found)


def one_of(batch: Batch, row: int) -> Batch:
    """A batch of one of its samples."""
    at = slice(row, row + 1)
    return replace(
        batch,
        feeds={name: array[at] for name, array in batch.feeds.items()},
        targets=None if batch.targets is None else batch.targets[at],
        indices=batch.indices[at],
        valid=None if batch.valid is None else batch.valid[at],
        truths=None if batch.truths is None else batch.truths[at],
        sizes={name: sizes[at] for name, sizes in batch.sizes.items()},
    )


def joined(parts: Sequence[Fractions]) -> Fractions:
    """Fractions of consecutive samples as one."""
    return np.concatenate([top for top, _ in parts]), np.concatenate([low for _, low in parts])


def output_of(outputs: Outputs, name: str) -> Array:
    if name not in outputs:
        raise MeasureError(f"the model gives no output {name!r}; it gives {', '.join(sorted(outputs))}.")
    return outputs[name]


def finite(array: Array, name: str, batch: Batch) -> Floats:
    """The array in float64.

    Raises:
        MeasureError: it holds NaN or infinity; names the sample.
    """
    values = array.astype(np.float64)
    if not (good := np.isfinite(values)).all():
        row = int(good.reshape(len(batch), -1).all(axis=1).argmin())
        raise not_finite(name, "NaN or infinity", batch, row)
    return values


def not_finite(name: str, what: str, batch: Batch, row: int) -> MeasureError:
    return MeasureError(
        f"output {name!r} holds {what} for sample {int(batch.indices[row])} (counted from 0 in its file). "
        "Compare layer by layer, or keep the most sensitive layers in float."
    )


def counted(array: Array, batch: Batch, *, least_rank: int = 3) -> BoolArray:
    """[n, ...] as the array: which of its values are of no padding.

    Args:
        least_rank: an array of fewer axes is not one per position, however long its second axis is.
    """
    kept: BoolArray = np.ones(array.shape, dtype=np.bool_)
    if batch.valid is not None and per_position(array, batch, least_rank):
        kept &= batch.valid.reshape(*batch.valid.shape, *(1 for _ in array.shape[2:]))
    return kept


def per_position(array: Array, batch: Batch, least_rank: int = 3) -> bool:
    """[n, length, ...] with the batch's own padded length: padding must not count."""
    return batch.valid is not None and array.ndim >= least_rank and array.shape[:2] == batch.valid.shape


def flat(array: Array, batch: Batch) -> Floats:
    """[n, values] in float64, 0 on padding."""
    return np.where(counted(array, batch), array.astype(np.float64), 0.0).reshape(len(batch), -1)


def cosines(ours: Floats, theirs: Floats) -> Floats:
    """[n] of rows [n, values]; 1 where both are 0, 0 where only one is."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    same = (ours == theirs).all(axis=1).astype(np.float64)
    found = np.divide((ours * theirs).sum(axis=1), norms, out=same, where=norms > 0)
    return np.asarray(np.clip(found, -1.0, 1.0), dtype=np.float64)


DISTANCES = (
    MetricSpec(name="cosine", about="mean over samples", bounds=(-1.0, 1.0)),
    MetricSpec(name="max_abs_error", about="of any value", unit="abs", higher=False, bounds=None, reduce="max"),
    MetricSpec(name="mae", about="mean over values", unit="abs", higher=False, bounds=None),
)


def distances(ours: Array, theirs: Array, batch: Batch) -> tuple[tuple[Floats, Floats | float], ...]:
    """Fractions of the three, without padding."""
    mine, other = flat(ours, batch), flat(theirs, batch)
    errors = np.abs(mine - other)
    values = (errors.sum(axis=1), sums(counted(ours, batch), batch))
    return (cosines(mine, other), 1.0), (errors.max(axis=1, initial=0.0), 1.0), values


def sums(array: Array, batch: Batch) -> Floats:
    """[n] of [n, ...]."""
    return np.asarray(array.reshape(len(batch), -1).sum(axis=1, dtype=np.float64))


def columns(*fractions: tuple[Floats, Floats | float]) -> Fractions:
    """[n, metrics] of (numerators, denominators) of single metrics; a number stands for that of every sample."""
    numerators = np.column_stack([top for top, _ in fractions])
    denominators = np.column_stack(
        [np.broadcast_to(np.asarray(low, dtype=np.float64), top.shape) for top, low in fractions]
    )
    return numerators.astype(np.float64), denominators.astype(np.float64)
