"""Histograms of whole arrays."""

from typing import Any

import numpy as np

from workbench.quantization.histogram import Histogram, HistogramCounter


def histogram_of(*parts: np.ndarray[Any, np.dtype[np.float32]]) -> Histogram:
    """The histogram of arrays of any shape, one after another."""
    counter = HistogramCounter()
    for values in parts:
        if values.size:
            counter.add(values.reshape(-1), float(values.min()), float(values.max()))
    return counter.histogram()


def content(histogram: Histogram) -> tuple[object, ...]:
    counts = histogram.counts.tobytes()
    return histogram.exponent, histogram.zeros, histogram.minimum, histogram.maximum, counts
