"""Modelled time and device figures, with a session that has a clock of its own."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from workbench.evaluation.measure import TimingProtocol, device_figures
from workbench.evaluation.modelled_latency import time_modelled
from workbench.targets.base import DeviceSession, DeviceTimes, Feeds
from workbench.values.device_use import DeviceReading
from workbench.values.errors import MeasureError
from workbench.values.modelled_times.statement import CallCosts, TimingModel, Work

CLOCK = TimingModel(name="a card", prices=(("position", 1000.0), ("to_device", 250.0), ("to_host", 500.0)), unknowns=())


class Clocked:
    """A session that states its length times a factor as milliseconds; its events tell what the host was kept for."""

    def __init__(self, factor: float) -> None:
        self.factor, self.calls, self.last = factor, 0, 0.0

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        self.calls += 1
        self.last = self.factor * feeds["ids"].shape[1]
        return {"y": np.zeros(1)}

    def times(self) -> DeviceTimes:
        return DeviceTimes(host_to_device_ms=0.25, execute_ms=self.last + 7.0 * self.calls, device_to_host_ms=0.5)

    def costs(self) -> tuple[TimingModel, CallCosts] | None:
        paid = (("to_device", 1.0),), (("position", self.last),), (("to_host", 1.0),)
        return CLOCK, CallCosts(works=tuple(Work(count=1, amounts=one) for one in paid))

    def device_memory_bytes(self) -> int:
        return 4096

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[DeviceReading]]:
        yield [DeviceReading(power_w=93.5)]

    def close(self) -> None:
        pass


FEEDS = [{"ids": np.zeros((1, length), np.int64)} for length in (16, 32, 16, 64)]


def test_the_time_of_each_shape_stands_for_all_of_its_calls() -> None:
    candidate, baseline = Clocked(0.5), Clocked(1.0)

    latency, raw = time_modelled(candidate, baseline, FEEDS, 1, TimingProtocol(calls=1000))

    assert (candidate.calls, baseline.calls) == (3, 3)
    assert latency.clock == "modelled"
    assert latency.quiet
    assert latency.samples == 1000
    assert latency.p99_ms == pytest.approx(32.75)
    for times, factor in ((raw.candidate_ms, 0.5), (raw.baseline_ms, 1.0)):
        lengths = np.array([16, 32, 16, 64])[raw.feed]
        assert np.allclose(times, lengths * factor + 0.75)
    assert 1.9 < latency.speedup.value < 2.0


def test_a_session_that_states_no_costs_cannot_be_modelled_whatever_its_events_tell() -> None:
    class Eventful(Clocked):
        costs = None

    class OfAVendor(Clocked):
        def costs(self) -> None:
            return None

    for silent in (Eventful, OfAVendor):
        with pytest.raises(MeasureError, match=f"{silent.__name__} is of an emulated device and states no costs"):
            time_modelled(Clocked(1.0), silent(1.0), FEEDS, 1, TimingProtocol(calls=100))


class Measured(Clocked):
    """Of a device that is there: it states nothing, and its events are what a call took."""

    def times(self) -> DeviceTimes:
        return DeviceTimes(host_to_device_ms=0.25, execute_ms=self.last, device_to_host_ms=0.5)

    def costs(self) -> None:
        return None


def test_device_figures_are_medians_over_the_calls_and_the_load_of_a_device_that_is_there() -> None:
    for kind in (Clocked, Measured):
        session = kind(1.0)
        assert isinstance(session, DeviceSession)
        found = device_figures(session, FEEDS, load_s=0.01)
        assert (found.host_to_device_ms, found.execute_ms, found.device_to_host_ms) == (0.25, 24.0, 0.5)
        assert (found.memory_bytes, found.power_w, found.utilization_percent) == (4096, 93.5, None)
    assert device_figures(Clocked(1.0), FEEDS, load_s=0).power_w is None
