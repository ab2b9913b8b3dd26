"""Raw times: the speedup, on arrays whose truth is known, and their file."""

import numpy as np
import pytest

from workbench.evaluation.raw_times import RawTimes, speedup
from workbench.targets.base import Array


def raw_times(candidate_ms: Array, baseline_ms: Array) -> RawTimes:
    """Raw times of arrays [rounds, calls per round], every call over a feed of its own."""
    rounds, calls = candidate_ms.shape
    return RawTimes(
        candidate_ms=candidate_ms.astype(np.float32).ravel(),
        baseline_ms=baseline_ms.astype(np.float32).ravel(),
        feed=np.arange(rounds * calls, dtype=np.int32),
        round=np.repeat(np.arange(rounds, dtype=np.int32), calls),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_speedup_survives_drift_and_bursts_that_swamp_absolute_times(seed: int) -> None:
    generator = np.random.default_rng(seed)
    machine = np.linspace(1.0, 2.0, 25)[:, None] * np.exp(generator.normal(0, 0.02, (25, 40)))
    candidate = 2.0 * machine * np.exp(generator.normal(0, 0.02, (25, 40)))
    baseline = 3.0 * machine * np.exp(generator.normal(0, 0.02, (25, 40)))
    candidate[generator.random((25, 40)) < 0.02] *= 10
    candidate[7] *= 3

    found = speedup(raw_times(candidate, baseline), seed=0)

    assert found.value == pytest.approx(1.5, rel=0.006)
    assert 0.005 < found.high - found.low < 0.03


def test_the_interval_of_the_speedup_holds_one_for_equal_models_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        disturbed = np.exp(generator.normal(0, 0.05, (25, 1)))
        times = [3.0 * disturbed * np.exp(generator.normal(0, 0.03, (25, 4))) for _ in range(2)]
        found = speedup(raw_times(times[0], times[1]), seed=0)
        held += found.low <= 1.0 <= found.high

    assert held / 200 >= 0.91
