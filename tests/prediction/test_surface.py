"""A time surface over batch and length: where it is measured, what it says between, and how wrong it says it is."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from workbench.prediction.search import best_settings
from workbench.prediction.surface import Points, chosen_points, curve_at, fitted
from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate
from workbench.values.service import HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion, ServiceSettings

BATCHES, LENGTHS = (1, 2, 4, 8, 16), (16, 24, 32, 40, 56, 64, 80, 104, 128, 192, 256)
QUESTION = ServiceQuestion(load=ServiceLoad(concurrency=16), p99_ms=1000)
Time = Callable[[int, int], float]


def encoder_ms(batch: int, length: int) -> float:
    """Overhead, linear layers and attention; a large batch uses the machine better, and loses its cache."""
    work = 0.02 * length + 0.00004 * length**2
    return 0.4 + batch * work * (0.7 + 0.3 / batch) * (1 + 0.1 * (batch * length > 1500))


def wavy_ms(batch: int, length: int) -> float:
    return encoder_ms(batch, length) * (1 + 0.08 * np.sin(length / 9))


def point(batch: int, length: int, ms: float) -> CurvePoint:
    quantiles = tuple(float(q) for q in ms * np.linspace(0.97, 1.2, 21))
    estimate = Estimate(value=ms, low=0.99 * ms, high=1.01 * ms)
    return CurvePoint(batch=batch, length=length, calls=15, p50_ms=estimate, mean_ms=ms, quantiles_ms=quantiles)


def surface_of(time_ms: Time) -> tuple[BatchCurve, Points]:
    points = chosen_points(BATCHES, LENGTHS)
    shapes = [*((points.batch, n) for n in points.lengths), *points.beside, *points.checks]
    measured = tuple(point(b, n, time_ms(b, n)) for b, n in shapes)
    curve = BatchCurve(points=measured, stepped=False, threads=2, clock="host", verdict="quiet")
    return fitted(curve, points), points


@pytest.mark.parametrize("time_ms", [encoder_ms, wavy_ms])
def test_times_between_the_points_are_within_the_stated_error(time_ms: Time) -> None:
    surface, points = surface_of(time_ms)
    curve = curve_at(surface, LENGTHS)

    off = [abs(p.p50_ms.value / time_ms(p.batch, p.length) - 1) for p in curve.points]
    inside = [p.p50_ms.low <= time_ms(p.batch, p.length) <= p.p50_ms.high for p in curve.points]
    assert len(surface.points) < len(BATCHES) * len(LENGTHS) / 2
    assert points.checks
    assert max(off) < surface.fit_error + 0.1
    assert np.mean(inside) >= 0.9
    assert np.mean(off) <= surface.fit_error + 0.01
    assert f"differ by {surface.fit_error:.1%} at most" in surface.verdict


def test_a_measured_point_stays_as_it_is_and_nothing_is_extrapolated() -> None:
    surface, _ = surface_of(encoder_ms)

    assert set(surface.points) <= set(curve_at(surface, surface.lengths).points)
    shortest = curve_at(surface, (8, 256)).points[0]
    assert shortest == replace(surface.points[0], length=8)
    with pytest.raises(ConfigError, match=re.escape("length bin 300 is longer than every measured length")):
        curve_at(surface, (16, 300))


def test_bins_of_the_service_are_chosen_like_a_curve_at_them_would_choose() -> None:
    surface, _ = surface_of(encoder_ms)
    lengths = np.random.default_rng(0).integers(8, 200, 500)
    host = HostCosts(request_ms=0.5, origin="made up")
    offered = ((256,), (64, 128, 256))
    choices = ServiceChoices(max_batch_size=(1, 8), workers=(1,), sequence_bins=offered)

    both = best_settings(surface, choices, QUESTION, host, lengths, (), seed=0)
    alone = [
        best_settings(
            curve_at(surface, bins),
            ServiceChoices(max_batch_size=(1, 8), workers=(1,)),
            QUESTION,
            host,
            lengths,
            bins,
            seed=0,
        )
        for bins in offered
    ]

    assert both.best.settings.sequence_bins == (64, 128, 256)
    assert both.best.throughput_per_s == alone[1].best.throughput_per_s
    assert both.untuned.settings == ServiceSettings(sequence_bins=(256,))
    assert both.untuned.throughput_per_s == alone[0].untuned.throughput_per_s
    assert both.at_untuned_bins.settings == replace(both.best.settings, sequence_bins=(256,))
    assert both.best.throughput_per_s.value > 1.3 * both.at_untuned_bins.throughput_per_s.value
