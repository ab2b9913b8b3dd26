"""Feeds of given lengths."""

import numpy as np

from workbench.targets.base import Feeds


def feeds_of(*lengths: int, batch: int = 2) -> list[Feeds]:
    return [{"x": np.ones((batch, length, 32), dtype=np.float32)} for length in lengths]
