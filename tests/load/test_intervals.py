import numpy as np
import pytest

from workbench.load.intervals import percentiles, share, throughput


def test_values_are_nearest_rank_percentiles() -> None:
    latency = np.arange(1, 1001, dtype=np.float64)
    at = np.linspace(0, 9.99, 1000)

    p50, p95, p99 = percentiles(at, latency, 10.0, (0.5, 0.95, 0.99), seed=0)

    assert (p50.value, p95.value, p99.value) == (500, 950, 990)
    assert p99.low <= p99.value <= p99.high
    assert percentiles(at, latency, 10.0, (0.99,), seed=5) == percentiles(at, latency, 10.0, (0.99,), seed=5)
    one = percentiles(np.array([0.5]), np.array([7.0]), 1.0, (0.5, 0.99), seed=0)
    assert [(e.value, e.low, e.high) for e in one] == [(7.0, 7.0, 7.0)] * 2


@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_intervals_hold_where_neighbours_share_their_fate(probability: float) -> None:
    """A slow wave of 0.1 s strides moves all requests of a moment together; independence would claim far too much."""
    random = np.random.default_rng(1)
    runs, held, naive_width, width = 30, 0, 0.0, 0.0
    truth = float(
        np.quantile(np.repeat(random.gamma(4, 2, 200_000), 5) + random.exponential(1, 1_000_000), probability)
    )
    for seed in range(runs):
        latency = np.repeat(random.gamma(4, 2, 100), 20) + random.exponential(1, 2000)
        at = np.repeat(np.arange(100) * 0.1, 20) + random.uniform(0, 0.1, 2000)
        (found,) = percentiles(at, latency, 10.0, (probability,), seed=seed)
        held += found.low <= truth <= found.high
        width += found.high - found.low
        shuffled = random.permutation(2000)  # the same values, their order in time forgotten
        (naive,) = percentiles(at, latency[shuffled], 10.0, (probability,), seed=seed)
        naive_width += naive.high - naive.low

    assert held / runs >= 0.85
    assert width > 1.5 * naive_width


def test_throughput_is_answers_over_the_window_with_the_spread_of_its_seconds() -> None:
    steady = np.arange(0, 20, 0.01)
    rate, seconds = throughput(steady, 20.0)

    assert rate.value == pytest.approx(100)
    assert rate.high - rate.low < 2
    assert len(seconds) == 20
    assert sum(seconds) == len(steady)

    halting = np.concatenate([np.arange(0, 10, 0.01), np.arange(10, 20, 0.1)])
    uneven, _ = throughput(halting, 20.0)
    assert uneven.high - uneven.low > 20

    rate, seconds = throughput(np.linspace(0, 0.49, 100), 0.5)

    assert rate.value == pytest.approx(200)
    assert rate.low < 200 < rate.high or rate.low == rate.high == 200, "a short window has an interval, too"
    assert seconds == (100,)
    weighed, seconds = throughput(np.array([0.5, 1.5, 1.6]), 2.0, np.array([10.0, 1.0, 2.0]))
    assert (weighed.value, seconds) == (pytest.approx(6.5), (10, 3))


def test_a_share_has_the_interval_of_its_blocks_and_of_its_count() -> None:
    at = np.arange(0, 40, 0.1)
    all_kept = share(at, np.ones(400, dtype=np.bool_), 40.0, span_ms=10.0, seed=0)
    none_kept = share(at, np.zeros(400, dtype=np.bool_), 40.0, span_ms=10.0, seed=0)
    spread = share(at, np.arange(400) % 2 == 0, 40.0, span_ms=10.0, seed=0)
    together = share(at, at < 20, 40.0, span_ms=10.0, seed=0)

    assert (all_kept.value, all_kept.high) == (1.0, 1.0)
    assert all_kept.low == pytest.approx(0.025 ** (1 / 400), abs=1e-6), "Clopper and Pearson"
    assert (none_kept.value, none_kept.low) == (0.0, 0.0)
    assert none_kept.high == pytest.approx(1 - 0.025 ** (1 / 400), abs=1e-6)
    assert spread.value == together.value == 0.5
    assert together.high - together.low > 2 * (spread.high - spread.low), "neighbours in time fail together"
