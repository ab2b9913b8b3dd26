"""Figures of a simulated service, their intervals and what is said when they must not be relied on."""

import subprocess
import sys

import numpy as np
import pytest

from tests.prediction.simulation.services import exact, exponential, poisson, served
from workbench.prediction.simulation import figures


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """M/M/1 at half load: 19 in 20 in the long run, and at least 33 of 40 here."""
    curve, held = exponential(1.0, quantiles=2001), {"p50": 0, "p99": 0, "rate": 0}
    for seed in range(40):
        found = figures(served(curve, poisson(500), requests=30_000, seed=seed))
        held["p50"] += found.p50_ms.low <= 2 * np.log(2) <= found.p50_ms.high
        held["p99"] += found.p99_ms.low <= 2 * np.log(100) <= found.p99_ms.high
        held["rate"] += found.throughput_per_s.low <= 500 <= found.throughput_per_s.high

    assert min(held.values()) >= 33, held


def test_more_requests_than_a_service_can_answer_are_named() -> None:
    found = figures(served(exact(lambda *_: 1.0), poisson(1200), requests=20_000))

    assert not found.reliable
    assert "1200 requests/s are more than it can answer" in found.note
    assert found.throughput_per_s.value == pytest.approx(1000, rel=0.01)
    for load in (0.5, 0.9, 0.97):
        keeps_up = figures(served(exact(lambda *_: 1.0), poisson(1000 * load), requests=20_000))
        assert keeps_up.reliable, keeps_up.note


def test_numba_is_imported_only_when_a_service_is_simulated() -> None:
    code = "import sys, workbench.prediction.search\nprint('numba' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.strip() == "False"
