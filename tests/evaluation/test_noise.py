"""The word about the noise, from counters and times of machines that were quiet, drifting, shared or throttled."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from workbench.evaluation.noise import Counters, Steadiness, steadiness, verdict

BEFORE = Counters(
    wall_s=100.0,
    cpus=2,
    busy_s=500.0,
    stolen_s=1.0,
    own_s=50.0,
    throttled_s=0.0,
    preemptions=10,
)
ALONE = replace(BEFORE, wall_s=110.0, busy_s=510.0, own_s=60.0)
STEADY = Steadiness(drift=0.01, spread=0.008)


def times(factor: npt.NDArray[np.float64], seed: int = 0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Rounds of eight calls over work of three very different sizes, slowed by a factor per round."""
    work = np.random.default_rng(seed).integers(0, 3, (len(factor), 8))
    noise = np.exp(np.random.default_rng(seed + 1).normal(0, 0.005, work.shape))
    return np.array([1.0, 4.0, 16.0])[work] * noise * factor[:, None], work


def test_neither_different_lengths_nor_one_bad_round_are_noise_and_drift_has_the_direction_of_time() -> None:
    bad = np.ones(25)
    bad[10] = 5.0
    for factor in (np.ones(25), bad):
        found = steadiness(*times(factor))
        assert abs(found.drift) < 0.01
        assert found.spread < 0.01
    for start, end, sign in ((1.0, 1.3, 1), (1.3, 1.0, -1)):
        drift = steadiness(*times(np.linspace(start, end, 24))).drift
        assert np.sign(drift) == sign
        assert 0.12 < abs(drift) < 0.25


def test_each_disturbance_is_named_with_its_amount() -> None:
    for after, words in (
        (replace(ALONE, busy_s=520.0), "other processes kept 1.0 of 2 CPUs busy while we used 1.0"),
        (replace(ALONE, stolen_s=3.0), "the hypervisor took 10.0% of the CPU time"),
        (replace(ALONE, throttled_s=1.5), "CPU quota held us back for 15.0% of the time"),
        (replace(ALONE, preemptions=2010), "our threads lost their CPU 200 times per second"),
    ):
        quiet, said, holds = verdict(STEADY, BEFORE, after, of="the baseline")
        assert not quiet
        assert not holds
        assert words in said
        assert "may be slower throughout" in said
        assert "whoever runs fewer threads" in said


def test_symptoms_without_a_cause_say_so() -> None:
    quiet, words, holds = verdict(Steadiness(drift=-0.12, spread=0.07), BEFORE, ALONE, of="the baseline", settled=False)

    assert (quiet, holds) == (False, True)
    assert "sped up by 12%" in words
    assert "differ by 7%" in words
    assert "did not settle" in words
    assert "no cause in CPU load" in words
