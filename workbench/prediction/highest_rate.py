"""The highest rate of requests that one card carries within a limit on P99, by its batch curve; and what limits it.

Front ends are a resource too. Requests of all of them wait in the same queues, so only the time before and after the
queues changes: the simulated front end stands for the slower of two stages, so many front ends side by side and the one
process with the queues, and what the other stage takes is waiting that occupies nobody. Its processors are not shared
with the model's, as where cards compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from workbench.inputs.dataset.batch import IntArray
from workbench.prediction.search import best_settings
from workbench.values.errors import ConfigError
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion

LimitedBy = Literal["the model", "the front end", "the limit on P99"]

_MOST_FRONT_ENDS = 8
_WORTH = 1.02
"""Times the rate that one more front end must give."""
BUSY = 0.6
"""Share of its time above which the busiest part of a service counts as what limits it: by queueing in front of it a
request waits as long as it is served. Below it, a limit on P99 leaves little room beyond a lone request's time."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCard:
    """One card as it is simulated.

    Attributes:
        host: what serving costs its host, by one front end.
        lengths, bins: as `simulation.simulate` takes them.
    """

    service: ServiceResult
    p99_ms: float
    host: HostCosts
    lengths: IntArray
    bins: tuple[int, ...]
    seed: int

    def asked(self, load: ServiceLoad | None, choices: ServiceChoices, front_ends: int = 1) -> ServiceResult:
        """The best of the choices under a load, or at the highest rate where there is none."""
        question = ServiceQuestion(load=load, p99_ms=self.p99_ms)
        host = with_front_ends(self.host, front_ends)
        return best_settings(self.service.curve, choices, question, host, self.lengths, self.bins, seed=self.seed)

    def with_as_many_front_ends_as_pay(self, choices: ServiceChoices) -> tuple[ServiceResult, int]:
        """At the highest rate, and how many front ends that takes; one where what several cost was not measured."""
        found, count = self.asked(None, choices), 1
        while self.host.front_end_ms and count < _MOST_FRONT_ENDS and self._waits_for_them(found, count):
            more = self.asked(None, choices, count + 1)
            if more.best is None or found.best is None or rate_of(more.best) < _WORTH * rate_of(found.best):
                break
            found, count = more, count + 1
        return found, count

    def _waits_for_them(self, found: ServiceResult, count: int) -> bool:
        host = with_front_ends(self.host, count)
        return found.best is not None and limited_by(found.best, host) == "the front end"


def one_card(
    evaluation: Evaluation, p99_ms: float, lengths: IntArray, bins: tuple[int, ...], seed: int, host: HostCosts | None
) -> OneCard:
    """Args: host: of the fleet; None for what the sweep predicted with.

    Raises:
        ConfigError: the candidate has no batch curve.
    """
    service = service_of(evaluation)
    return OneCard(
        service=service,
        p99_ms=p99_ms,
        host=replace(host or predicted_with(service), client_ms=0.0),  # a fleet's clients compute elsewhere
        lengths=lengths,
        bins=bins,
        seed=seed,
    )


def on_its_curve(choices: ServiceChoices, service: ServiceResult) -> ServiceChoices:
    """Of the bins those that its curve tells of: a confirmation's was timed at the chosen and untuned ones alone."""
    if service.curve.checks:
        return choices
    exact = tuple(bins for bins in choices.sequence_bins if set(bins) <= set(service.curve.lengths))
    return replace(choices, sequence_bins=exact)


def rate_of(highest: ServiceFigures) -> float:
    """The rate that was offered, which the answers of a finite run are near to but not equal."""
    return highest.load.rate_per_s or highest.throughput_per_s.value


def limited_by(highest: ServiceFigures, host: HostCosts) -> LimitedBy:
    front_ms = host.request_ms + host.batch_ms / highest.mean_batch  # utilization law
    busy: dict[LimitedBy, float] = {
        "the model": highest.worker_busy or 0.0,
        "the front end": rate_of(highest) * front_ms / 1000,
    }
    busiest = max(busy, key=lambda part: busy[part])
    return busiest if busy[busiest] >= BUSY else "the limit on P99"


def service_of(evaluation: Evaluation) -> ServiceResult:
    """Raises: ConfigError: it has no batch curve."""
    service = evaluation.measurement.service
    if service is None or not service.curve.points:
        raise ConfigError(
            f"candidate {evaluation.candidate.short_id} has no batch curve, so nothing says what a card of it carries.",
            hint="Give the experiment and its search space a `service:` section and sweep again.",
        )
    return service


def predicted_with(service: ServiceResult) -> HostCosts:
    """Raises: ConfigError: the result does not say."""
    host = (service.best or service.closest).host
    if host is None:
        raise ConfigError("the sweep does not say what serving costs its host.", hint="Sweep again.")
    return host
