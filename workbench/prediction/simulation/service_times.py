"""From a batch curve to the times that a simulation draws from: one row of quantiles for each (length bin, rows).

The curve holds a few batches and lengths; a service forms every number of rows up to its limit. Between measured
shapes the quantiles are interpolated, each with its like, or stepped up, as the artifact does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve

Floats = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """What a call of each shape takes.

    Attributes:
        times_ms: [bins, rows - 1, quantiles] at evenly spaced probabilities from 0 to 1.
        computed_rows: [rows] that a call of rows + 1 rows computes: more where it is padded to a compiled batch.
        padded: [bins] padded positions of a row; 1 where samples are not sequences.
    """

    times_ms: Floats
    computed_rows: IntArray
    padded: IntArray


def service_times(curve: BatchCurve, bins: tuple[int, ...], *, max_batch: int) -> ServiceTimes:
    """Times of calls of up to `max_batch` rows in each of the service's length bins.

    Rows between measured batches lie between their times, or cost what the next measured batch costs where the curve
    is stepped; rows beyond the largest are split, as a session on a device does it: as many largest batches as are
    full, then what is left, each at the same quantile. Fewer rows than the smallest batch cost what that one costs. A
    bin that was not measured costs what the next longer one costs (stepped), or lies between its neighbours; one
    shorter than all costs what the shortest costs.

    Args:
        bins: ascending padded lengths; () where samples are not sequences.

    Raises:
        ConfigError: a bin is longer than every measured length, or the curve has no points.
    """
    if not curve.points:
        raise ConfigError("the batch curve has no points. Measure it first.", key="curve")
    lengths, batches = curve.lengths, curve.batches
    if not bins or lengths == (0,):
        bins = (lengths[-1],)
    if list(bins) != sorted(set(bins)):
        raise ConfigError(f"length bins {list(bins)} must be ascending.", key="bins")
    if bins[-1] > lengths[-1]:
        raise ConfigError(
            f"length bin {bins[-1]} is longer than every measured length {list(lengths)}.",
            key="bins",
            hint="Measure the curve at the service's own bins.",
        )
    measured = _measured(curve)
    by_bin = np.stack([_at(measured, np.array(lengths), length, curve.stepped) for length in bins])
    rows_up_to_largest = min(max_batch, batches[-1])
    by_rows = np.moveaxis(by_bin, 1, 0)
    small = [_at(by_rows, np.array(batches), rows, curve.stepped) for rows in range(1, rows_up_to_largest + 1)]
    computed = [min(b for b in batches if b >= rows) if curve.stepped else rows for rows in range(1, len(small) + 1)]
    for rows in range(len(small) + 1, max_batch + 1):
        full, rest = divmod(rows, batches[-1])
        small.append(full * small[batches[-1] - 1] + (small[rest - 1] if rest else 0.0))
        computed.append(full * batches[-1] + (computed[rest - 1] if rest else 0))
    return ServiceTimes(
        times_ms=np.ascontiguousarray(np.stack(small, axis=1)),
        computed_rows=np.array(computed, dtype=np.int64),
        padded=np.array([_padded(length, lengths, curve.stepped) for length in bins], dtype=np.int64),
    )


def _measured(curve: BatchCurve) -> Floats:
    """[lengths, batches, quantiles], with as many quantiles as the finest point has."""
    count = max(len(point.quantiles_ms) for point in curve.points)
    probabilities = np.linspace(0, 1, count)
    by_shape = {
        (p.length, p.batch): np.interp(probabilities, np.linspace(0, 1, len(p.quantiles_ms)), p.quantiles_ms)
        for p in curve.points
    }
    missing = [
        (length, batch) for length in curve.lengths for batch in curve.batches if (length, batch) not in by_shape
    ]
    if missing:
        raise ConfigError(
            f"the batch curve lacks length {missing[0][0]} at batch {missing[0][1]}. Measure every batch at every "
            "length.",
            key="curve",
        )
    return np.stack([np.stack([by_shape[length, batch] for batch in curve.batches]) for length in curve.lengths])


def _at(values: Floats, at: IntArray, wanted: int, stepped: bool) -> Floats:
    """values[k] belongs to at[k], ascending; the value at `wanted`, which is at most the last."""
    above = int(np.searchsorted(at, wanted))
    if stepped or above == 0 or at[above] == wanted:
        return np.asarray(values[above], dtype=np.float64)
    share = (wanted - at[above - 1]) / (at[above] - at[above - 1])
    return np.asarray(values[above - 1] + share * (values[above] - values[above - 1]), dtype=np.float64)


def _padded(length: int, lengths: tuple[int, ...], stepped: bool) -> int:
    return max(1, min(measured for measured in lengths if measured >= length) if stepped else length)
