"""Front ends as a resource: what one answers, how many a rate needs, and a service with several as the simulation
takes it.

Requests of all front ends wait in the same queues, so only the time before and after them changes. The simulated front
end stands for the slower of two stages, so many front ends side by side and the one process with the queues; what the
other stage takes is waiting that occupies nobody. Its processors are not shared with the model's, as where cards
compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from workbench.values.service import HostCosts

BUSY = 0.8
"""Share of its time that a front end, or the process with the queues, may work in the mean: requests come unevenly."""
Stage = Literal["the front ends", "the queues"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnds:
    """What a service of several cards needs of front ends.

    Attributes:
        one_per_s: requests a second that one front end answers at most, by its processor time.
        count: that keep each below BUSY of it; 1 is the process that has the queues as well.
        queues_per_s: requests a second that the process with the queues hands on at most; None with one front end.
        services: how many services the cards are to be divided among, so that no process with queues is above BUSY.
    """

    one_per_s: float
    count: int
    queues_per_s: float | None
    services: int


def front_ends_for(rate_per_s: float, host: HostCosts, mean_batch: float) -> FrontEnds | None:
    """For so many requests a second on one host; None where one does not suffice and several were not measured."""
    alone_ms = host.request_ms + host.batch_ms / mean_batch
    if rate_per_s * alone_ms / 1000 <= BUSY:
        one = 1000 / alone_ms if alone_ms else math.inf
        return FrontEnds(one_per_s=one, count=1, queues_per_s=None, services=1)
    if not host.front_end_ms:
        return None
    queue_ms = host.passed_row_ms + host.passed_batch_ms / mean_batch
    services = max(1, math.ceil(rate_per_s * queue_ms / 1000 / BUSY))
    each = math.ceil(rate_per_s / services * host.front_end_ms / 1000 / BUSY)
    return FrontEnds(
        one_per_s=1000 / host.front_end_ms,
        count=services * max(2, each),
        queues_per_s=1000 / queue_ms if queue_ms else None,
        services=services,
    )


def with_front_ends(host: HostCosts, count: int) -> HostCosts:
    """Costs by which a service with so many front ends is simulated as one with one.

    Raises:
        ValueError: several are wanted, and what they cost was not measured.
    """
    if count == 1:
        return host
    if not host.front_end_ms:
        raise ValueError("what several front ends cost was not measured")
    taken_ms, stage_ms = host.front_end_ms + host.passed_row_ms, host.front_end_ms / count
    return replace(
        host,
        request_ms=max(stage_ms, host.passed_row_ms),
        batch_ms=host.passed_batch_ms,
        network_ms=host.network_ms + taken_ms - max(stage_ms, host.passed_row_ms),
        origin=f"{host.origin}; {count} front ends",
    )
