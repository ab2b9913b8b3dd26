"""How far two tensors of equal name lie apart, summed up batch by batch in constant memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

WORST = 1e5
"""The largest relative error that is told apart: beyond, there is no common signal left."""

MASKED = -9000.0
"""What a mask adds before a softmax is below: exporters write -1e4, -1e9, the lowest float or -inf."""


class Differences:
    """Running sums in float64 over one pair of tensors, A (the reference) and B.

    Args:
        masked: the tensor goes into a softmax: elements that both sides mask out are left out of every sum, since
            they are large and mean nothing.

    Attributes:
        elements: compared so far.
        not_finite: elements that are NaN or infinite in one of the two, or NaN in both. They are in no other sum;
            the same infinity in both counts as equal.
        largest: of |a - b|.
        magnitude: the largest |a| that is finite.
        whole: the tensor holds whole numbers.
        differing: elements that differ, where it does.
    """

    def __init__(self, *, masked: bool = False) -> None:
        self.elements = self.not_finite = self.differing = 0
        self.whole = False
        self.largest = self.magnitude = 0.0
        self._masked = masked
        self._aa = self._bb = self._dd = self._absolute = 0.0

    def add(self, a: Array, b: Array) -> None:
        """Take in two arrays of one shape, of any type of numbers."""
        if a.dtype.kind != "f":
            self.whole = True
            self.differing += int(np.count_nonzero(a != b))
        x, y = (np.asarray(values, np.float64).reshape(-1) for values in (a, b))
        if self._masked:
            seen = ~((x < MASKED) & (y < MASKED))  # NaN is below nothing
            x, y = x[seen], y[seen]
        finite = np.isfinite(x) & np.isfinite(y)
        self.magnitude = max(self.magnitude, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
        if not finite.all():
            self.not_finite += int(np.count_nonzero(~finite & (x != y)))  # NaN differs from NaN
            x, y = x[finite], y[finite]
        difference = np.abs(x - y)
        self.elements += x.size
        self._aa, self._bb = self._aa + float(x @ x), self._bb + float(y @ y)
        self._dd, self._absolute = self._dd + float(difference @ difference), self._absolute + float(difference.sum())
        self.largest = max(self.largest, float(difference.max(initial=0.0)))

    def cosine(self) -> float:
        """1 - cos = (|d|² - (|a| - |b|)²) / (2 |a| |b|) with d = a - b: exact where a·b would cancel."""
        a, b = math.sqrt(self._aa), math.sqrt(self._bb)
        if a == 0.0 or b == 0.0:
            return 1.0 if a == b and self.elements else 0.0
        return min(max(1.0 - (self._dd - (a - b) ** 2) / (2 * a * b), -1.0), 1.0)

    def mean_absolute(self) -> float:
        return self._absolute / max(self.elements, 1)

    def relative_error(self) -> float:
        """|a - b| / |a|, at most `WORST`; `WORST` itself where a value is not finite."""
        if self.not_finite:
            return WORST
        if self._dd == 0.0:
            return 0.0
        return min(math.sqrt(self._dd / self._aa), WORST) if self._aa > 0 else WORST


def differences_of(a: Array, b: Array) -> Differences:
    """Of one pair, `b` in the shape of `a`."""
    total = Differences()
    total.add(a, b.reshape(a.shape))
    return total
