"""What a service whose calls have a modelled time would do under other clocks: simulated at a few speeds of the device.

A clock makes the calls that the service makes longer or shorter by some factor; what that does to rate and P99 is
simulated once for a handful of factors and read off between them. Settings stay those that our clock chose.
"""

from __future__ import annotations

from dataclasses import replace

from workbench.prediction.search import at_scale
from workbench.prediction.simulation.service_times import IntArray
from workbench.values.clocks.figures import served_with_intervals
from workbench.values.clocks.statement import CallCosts, ModelledClock, ModelledService
from workbench.values.measurement import Estimate, ServiceFigures, ServiceResult
from workbench.values.service import HostCosts, ServiceQuestion

SCALES = (0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.5, 4.0)


def by_other_clocks(
    service: ServiceResult,
    stated: tuple[ModelledClock, tuple[CallCosts, ...]],
    question: ServiceQuestion,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> ModelledService:
    """At the settings that were chosen, or came closest; deterministic.

    Args:
        stated: the clock, and costs of a call at each point of the service's curve.
        lengths, bins: as for `best_settings`.
    """
    shown, (clock, costs) = service.best or service.closest, stated
    points = list(zip(service.curve.points, costs, strict=True))
    served = {length for length in shown.settings.sequence_bins or bins} & set(service.curve.lengths)
    called = min((b for b in service.curve.batches if b >= shown.mean_batch), default=service.curve.batches[-1])
    calls = [cost for point, cost in points if point.batch == called and (not served or point.length in served)]
    return ModelledService(
        clock=clock,
        calls=tuple(calls),
        scaled=tuple(
            at_scale(service.curve, shown.settings, question, host, lengths, bins, scale=scale, seed=seed)
            for scale in SCALES
        ),
    )


def with_other_clocks(
    service: ServiceResult,
    shown: ServiceFigures,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> ServiceFigures:
    """Figures of this service under another load, simulated by its modelled clock, with 95 % of the clocks that may be
    right. P95, of which clocks tell nothing, is as wide as the wider of P50 and P99. As they are where no costs are
    stated. Deterministic."""
    if service.modelled is None:
        return shown
    question = ServiceQuestion(load=shown.load, devices=shown.devices, host=host)
    scaled = tuple(
        at_scale(service.curve, shown.settings, question, host, lengths, bins, scale=scale, seed=seed)
        for scale in SCALES
    )
    asked = replace(
        service, best=shown, closest=shown, confirmed=None, modelled=replace(service.modelled, scaled=scaled)
    )
    found = served_with_intervals(asked).best
    assert found is not None  # it was given
    down, up = (
        f(getattr(each, end) / each.value for each in (found.p50_ms, found.p99_ms))
        for f, end in ((min, "low"), (max, "high"))
    )
    p95 = shown.p95_ms
    return replace(
        found,
        p95_ms=Estimate(value=p95.value, low=min(p95.low, p95.value * down), high=max(p95.high, p95.value * up)),
    )
