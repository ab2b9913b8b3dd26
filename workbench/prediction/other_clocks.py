"""What a service whose calls have a modelled time would do under other clocks: simulated at a few speeds of the device.

A clock makes the calls that the service makes longer or shorter by some factor; what that does to rate and P99 is
simulated once for a handful of factors and read off between them. Settings stay those that our clock chose.
"""

from __future__ import annotations

from workbench.prediction.search import at_scale
from workbench.prediction.simulation.service_times import IntArray
from workbench.values.clocks.statement import CallCosts, ModelledClock, ModelledService
from workbench.values.measurement import ServiceResult
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
