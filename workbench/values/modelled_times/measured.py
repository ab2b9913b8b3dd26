"""What was measured on a real device of a clock's unknowns, and a modelled measurement priced by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError
from workbench.values.measurement import Estimate, Latency, Measurement, ServiceFigures, ServiceResult
from workbench.values.modelled_times.costs import moved
from workbench.values.modelled_times.figures import (
    Figures,
    latency_figures,
    served_with_intervals,
    service_figures,
    with_intervals,
)
from workbench.values.modelled_times.statement import TimingModel, with_known

VERSION = 1
HINT = "Write it with the micro-benchmarks that `workbench show` lists."


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClock:
    """What a file of micro-benchmarks holds.

    Attributes:
        device: that it was measured on.
        values: unknown → value in its unit.
    """

    device: str
    values: Mapping[str, float]

    def words(self) -> str:
        """'int8_gain 1.4, kernel_launch 1.9, measured on CHIP', the device by its own name."""
        told = ", ".join(f"{name} {value:.4g}" for name, value in self.values.items())
        return f"{told or 'nothing'}, measured on {self.device}"


def read_measured(path: Path) -> MeasuredClock:
    """A file that micro-benchmarks wrote.

    Raises:
        ConfigError: it cannot be read, is of another form, was measured on an emulated device, or a value is not a
            positive number.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("measured"), dict):
        raise ConfigError(f"is no file of measured unknowns, version {VERSION}.", file=path, hint=HINT)
    if data.get("emulated"):
        raise ConfigError(
            "was measured on an emulated device, which knows no more than the clock it stands for.",
            file=path,
            hint="Run the micro-benchmarks on a real device.",
        )
    found = {}
    for name, entry in data["measured"].items():
        value = entry.get("value") if isinstance(entry, dict) else None
        if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
            raise ConfigError(
                f"{value!r} is not a positive number.", file=path, key=f"measured.{name}.value", hint=HINT
            )
        found[name] = float(value)
    return MeasuredClock(device=str(data.get("device", "an unnamed device")), values=found)


def at_measured(measurement: Measurement, measured: Mapping[str, float]) -> Measurement:
    """The same costs by the clock with these values in it; as it is where times were measured, or no costs are stated.

    A service keeps its settings, and what it does untuned moves as what it does tuned.

    Raises:
        ValueError: no such unknown.
    """
    latency, service = measurement.latency, measurement.service
    if latency is None or latency.modelled is None:
        return measurement
    found = replace(measurement, latency=_latency(latency, measured))
    return found if service is None else replace(found, service=_service(service, measured))


def _latency(latency: Latency, measured: Mapping[str, float]) -> Latency:
    assert latency.modelled is not None  # the caller has looked
    clock = latency.modelled.clock
    then = latency_figures(latency, moved(clock, _logs(clock, measured)))
    slower = _factor(then, "latency_p50_ms")
    speedup = float(then["speedup"][1])
    p50 = latency.p50_ms.value * slower
    priced = replace(
        latency,
        p50_ms=_exactly(p50),
        p95_ms=latency.p95_ms * _factor(then, "latency_p95_ms"),
        p99_ms=None if latency.p99_ms is None else latency.p99_ms * _factor(then, "latency_p99_ms"),
        mean_ms=latency.mean_ms / _factor(then, "throughput_per_s"),
        throughput_per_s=latency.throughput_per_s * _factor(then, "throughput_per_s"),
        speedup=_exactly(speedup),
        baseline_p50_ms=latency.baseline_p50_ms * slower * speedup / latency.speedup.value,
        modelled=replace(latency.modelled, clock=with_known(clock, measured)),
    )
    return with_intervals(priced)


def _service(service: ServiceResult, measured: Mapping[str, float]) -> ServiceResult:
    stated = service.modelled
    if stated is None or service.confirmed is not None:
        return service
    known = moved(stated.clock, _logs(stated.clock, measured))
    then = service_figures(service, known)
    times = np.log(known.call_ms(stated.calls))
    scale = float(np.exp((times[:, 1] - times[:, 0]).mean()))
    priced = replace(
        service,
        best=None if service.best is None else _served(service.best, then),
        closest=_served(service.closest, then),
        untuned=_served(service.untuned, then),
        modelled=replace(
            stated,
            clock=with_known(stated.clock, measured),
            scaled=tuple(replace(one, scale=one.scale / scale) for one in stated.scaled),
        ),
    )
    if service.best is not None and not np.isfinite(then["service_throughput_per_s"][1]):
        priced = replace(priced, best=None, closest=_served(service.best, then))
    return served_with_intervals(priced)


def _served(figures: ServiceFigures, then: Figures) -> ServiceFigures:
    rate = _factor(then, "service_throughput_per_s") if "service_throughput_per_s" in then else 1.0
    rate = rate if math.isfinite(rate) else 1.0
    p50, p99 = _factor(then, "service_p50_ms"), _factor(then, "service_p99_ms")
    return replace(
        figures,
        throughput_per_s=_times(figures.throughput_per_s, rate),
        p50_ms=_times(figures.p50_ms, p50),
        p95_ms=_times(figures.p95_ms, p99),
        p99_ms=_times(figures.p99_ms, p99),
        own=None,
    )


def _logs(clock: TimingModel, measured: Mapping[str, float]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """[unknowns, 2] nothing moved, and what was measured."""
    with_known(clock, measured)  # refuses what is not among them
    factors = [u.price_factor(measured[u.name]) if u.name in measured else 1.0 for u in clock.unknowns]
    return np.stack([np.zeros(len(factors)), np.log(np.array(factors))], axis=1)


def _factor(then: Figures, metric: str) -> float:
    return float(then[metric][1] / then[metric][0])


def _times(estimate: Estimate, factor: float) -> Estimate:
    values = (each * factor for each in (estimate.value, estimate.low, estimate.high))
    value, low, high = values
    return replace(estimate, value=value, low=low, high=high)


def _exactly(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)
