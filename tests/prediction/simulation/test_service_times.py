"""From a batch curve to times of every shape a service forms."""

from dataclasses import replace

import pytest

from tests.prediction.simulation.services import exact
from workbench.prediction.simulation.simulation import service_times
from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve


def medians(curve: BatchCurve, bins: tuple[int, ...], max_batch: int) -> list[list[float]]:
    return service_times(curve, bins, max_batch=max_batch).times_ms[:, :, 0].tolist()


def test_rows_and_lengths_that_were_not_measured_follow_from_those_that_were() -> None:
    two = exact(lambda batch, _: {1: 2.0, 4: 5.0}[batch], batches=(1, 4))
    stepped = exact(lambda batch, _: {1: 2.0, 4: 5.0}[batch], batches=(1, 4), stepped=True)
    by_length = exact(lambda _, length: float(length), lengths=(16, 64))
    for why, curve, bins, most, expected in (
        ("between measured batches", two, (), 4, [[2, 3, 4, 5]]),
        ("of a stepped curve the next batch", stepped, (), 4, [[2, 5, 5, 5]]),
        ("beyond the largest as a session splits them", stepped, (), 9, [[2, 5, 5, 5, 7, 10, 10, 10, 12]]),
        ("below the smallest what it costs", exact(lambda b, _: float(b), batches=(4, 8)), (), 4, [[4, 4, 4, 4]]),
        ("lengths between their neighbours", by_length, (8, 32, 64), 1, [[16], [32], [64]]),
        ("a stepped length the next one", replace(by_length, stepped=True), (8, 32), 1, [[16], [64]]),
    ):
        assert medians(curve, bins, most) == expected, why
    assert service_times(stepped, (), max_batch=9).computed_rows.tolist() == [1, 4, 4, 4, 5, 8, 8, 8, 9]
    assert service_times(replace(by_length, stepped=True), (8, 32), max_batch=1).padded.tolist() == [16, 64]


def test_bins_and_curves_that_do_not_fit_are_refused() -> None:
    curve, whole = exact(lambda *_: 1.0, lengths=(16, 64)), exact(lambda *_: 1.0, batches=(1, 2), lengths=(8, 16))
    for found, bins, message in (
        (curve, (64, 128), r"length bin 128 is longer than every measured length \[16, 64\]"),
        (curve, (64, 16), "must be ascending"),
        (replace(whole, points=whole.points[:-1]), (16,), "lacks length 16 at batch 2"),
    ):
        with pytest.raises(ConfigError, match=message):
            service_times(found, bins, max_batch=1)
