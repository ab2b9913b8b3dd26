"""How far one output lies from a reference's, over many samples: cosine of each, absolute errors, equal decisions.

Nothing is refused here: values that are not finite are counted and left out of the errors, and a sample that holds one
agrees with nothing: its cosine is 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import NOT_SCORED, Batch
from workbench.inputs.metrics.agreement.judge import cosines, counted, one_of
from workbench.inputs.metrics.extents import Extents, own_parts
from workbench.inputs.metrics.score import common_part
from workbench.values.agreement import OutputAgreement
from workbench.values.measurement import Estimate

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]


class Distances:
    """Running figures of one output of two models, batch by batch; deterministic for equal calls in equal order.

    Args:
        extents: tells where outputs of samples end that were padded along named axes; None where the batch's own mask
            says it all.
    """

    def __init__(self, output: str, extents: Extents | None = None) -> None:
        self.output = output
        self._extents = extents
        self._cosines: list[Floats] = []
        self._elements = self._not_finite = 0
        self._largest = self._total = 0.0

    def add(self, ours: Array, theirs: Array, batch: Batch) -> None:
        """Take in [n, …] of both, of any type of numbers. Where their sizes differ, the part that both have counts."""
        ours, theirs = common_part(ours, theirs)
        if self._extents is not None and self._extents.padded(batch):
            for row in range(len(batch)):
                both = [{self.output: ours}, {self.output: theirs}]
                mine, other = (own_parts(of, [self.output], batch, row, self._extents)[self.output] for of in both)
                self._add(mine, other, one_of(batch, row))
        else:
            self._add(ours, theirs, batch)

    def found(self) -> OutputAgreement:
        """
        Raises:
            ValueError: nothing was added.
        """
        every = np.concatenate(self._cosines)
        return OutputAgreement(
            output=self.output,
            samples=len(every),
            elements=self._elements,
            worst_cosine=float(every.min()),
            mean_cosine=float(every.mean()),
            max_abs=self._largest,
            mae=self._total / max(self._elements, 1),
            not_finite=self._not_finite,
        )

    def _add(self, ours: Array, theirs: Array, batch: Batch) -> None:
        mine, other = ours.astype(np.float64), theirs.astype(np.float64)
        kept = counted(mine, batch)
        good = np.isfinite(mine) & np.isfinite(other)
        bad = kept & ~good
        self._not_finite += int(bad.sum())
        kept &= good
        mine, other = (np.where(kept, values, 0.0).reshape(len(batch), -1) for values in (mine, other))
        error = np.abs(mine - other)
        found = np.where((mine == other).all(axis=1), 1.0, cosines(mine, other))
        self._cosines.append(np.where(bad.reshape(len(batch), -1).any(axis=1), 0.0, found))
        self._elements += int(kept.sum())
        self._largest = max(self._largest, float(error.max(initial=0.0)))
        self._total += float(error.sum())


class Decisions:
    """Running count of equal decisions: the largest along the last axis of outputs that hold classes.

    Of tokens those count that have a label; without labels those that are no padding.
    """

    def __init__(self, outputs: tuple[str, ...]) -> None:
        self.outputs = outputs
        self._same: list[Floats] = []
        self._counted: list[Floats] = []

    def add(self, output: str, ours: Array, theirs: Array, batch: Batch) -> None:
        """[n, …, classes] of both; what is not finite in either differs."""
        mine, other = (part.astype(np.float64) for part in common_part(ours, theirs))
        sound = np.isfinite(mine).all(axis=-1) & np.isfinite(other).all(axis=-1)
        same = (mine.argmax(axis=-1) == other.argmax(axis=-1)) & sound
        kept = counted(same, batch, least_rank=2)
        if batch.targets is not None and batch.targets.shape == same.shape and same.ndim > 1:
            kept &= batch.targets != NOT_SCORED
        rows = (len(batch), -1)
        self._same.append((same & kept).reshape(rows).sum(axis=1).astype(np.float64))
        self._counted.append(kept.reshape(rows).sum(axis=1).astype(np.float64))

    def found(self) -> Estimate | None:
        """Share of equal decisions; None where there is none to compare."""
        if not self._same or not (counts := np.concatenate(self._counted)).sum():
            return None
        return share(np.concatenate(self._same), counts)


def share(same: Floats, of: Floats, confidence: float = 0.95) -> Estimate:
    """sum(same) / sum(of) with Wilson's interval (JASA 22, 1927, 209-212).

    Decisions of one sample are not independent: the interval is that of as many independent ones as have the ratio's
    own variance over samples (by linearization), and of as many as there are samples where all decide alike.

    Args:
        same, of: [n], `of` with a sum above zero.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    total = float(of.sum())
    value = float(same.sum()) / total
    samples = int((of > 0).sum())
    variance = float(np.square(same - value * of).sum()) / total**2
    independent = value * (1 - value) / variance if variance > 0 else float(samples)
    z = -float(special.ndtri((1 - confidence) / 2))
    middle = (value + z**2 / (2 * independent)) / (1 + z**2 / independent)
    half = z / (1 + z**2 / independent)
    half *= math.sqrt(value * (1 - value) / independent + z**2 / (4 * independent**2))
    return Estimate(
        value=value,
        low=min(max(middle - half, 0.0), value),
        high=max(min(middle + half, 1.0), value),
        confidence=confidence,
    )
