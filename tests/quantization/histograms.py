"""Histograms of whole arrays."""

from typing import Any

import numpy as np

from workbench.quantization.histogram import Histogram, HistogramCounter


def histogram_of(values: np.ndarray[Any, np.dtype[np.float32]]) -> Histogram:
    """The histogram of one array of any shape."""
    counter = HistogramCounter()
    if values.size:
        counter.add(values.reshape(-1), float(values.min()), float(values.max()))
    return counter.histogram()


EMPTY = HistogramCounter().histogram()
