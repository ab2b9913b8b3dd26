"""A clock for sessions whose times are known: what the machine does meanwhile changes nothing of what is timed."""

import math

import numpy as np


class Clock:
    """Stands in for the module `time` where calls are timed; its time passes in sessions alone, a little unevenly."""

    def __init__(self) -> None:
        self.now_ms, self.rng = 0.0, np.random.default_rng(0)

    def perf_counter_ns(self) -> int:
        return round(self.now_ms * 1e6)

    def perf_counter(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.now_ms += seconds * 1000

    def call(self, takes_ms: float) -> None:
        self.now_ms += takes_ms * math.exp(self.rng.normal(0, 0.01))
