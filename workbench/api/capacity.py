"""How many cards a demand takes, and what each change of a sweep brings the fleet, as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.api.opening import find_candidate, recommended_of, refuse_language_model
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.prediction.capacity import CapacityPlan, Demand
from workbench.prediction.capacity import plan_capacity as plan_members
from workbench.prediction.fleet_cost import Capacity, fleet_costs
from workbench.prediction.highest_rate import one_card
from workbench.prediction.prices import Prices
from workbench.prediction.stage import service_choices, serving_lengths
from workbench.prediction.what_if import Fleet, PriorityClass, Timed, fleet_plan, what_ifs
from workbench.report import Summary
from workbench.targets import described
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.results import Evaluation


def plan_capacity(
    question: Experiment,
    journal: Journal,
    summary: Summary,
    *,
    demand: Demand | None,
    p99_ms: float,
    candidate: str | None = None,
    fleet: Fleet | None = None,
    classes: Sequence[PriorityClass] = (),
    prices: Prices | None = None,
    card_power_w: float | None = None,
) -> Capacity:
    """Sizes for a demand, candidate by candidate, and for a fleet, what-if by what-if; deterministic.

    Args:
        demand: None where only the present fleet is known; there is then no plan by candidates.
        candidate: id or its first digits; None for the front, and for the recommended one.
        fleet: None for no what-ifs.
    """
    refuse_language_model(question, "plan of capacity")
    if question.service is None or question.space.service is None:
        raise ConfigError(
            "has no `service:` section, so its sweep measured no batch curves.",
            file=question.path,
            hint="Add service: {concurrency: 100, p99_ms: 50} to it and service: {max_batch_size: [1, 8, 32], "
            "batch_timeout_ms: [0, 2], workers: [1, 2]} to its space, then sweep; compiles come from the store.",
        )
    named = None if candidate is None else find_candidate(candidate, journal)
    plan = None if demand is None else _members(question, journal, summary, demand, named)
    if fleet is None:
        return Capacity(plan=plan, fleet=None, prices=prices)
    chosen = named or recommended_of(question, summary)
    timed = _timed(question, journal.evaluations(), p99_ms)
    steps = what_ifs(question.baseline, chosen, timed)
    on_host = described(chosen.target).on_host
    sized = fleet_plan(
        steps,
        replace(fleet, cards_per_server=1) if on_host else fleet,
        p99_ms=p99_ms,
        unit="server process" if on_host else "card",
        emulated=any(timed[s.candidate_id].evaluation.toolchain.emulated for s in steps if s.candidate_id in timed),
        rate_per_s=None if demand is None else demand.rate_per_s,
        headroom=0.0 if demand is None else demand.headroom,
        classes=classes,
    )
    return Capacity(plan=plan, fleet=sized, prices=prices, costs=fleet_costs(sized, prices, card_power_w))


def _members(
    question: Experiment, journal: Journal, summary: Summary, demand: Demand, named: Candidate | None
) -> CapacityPlan:
    """The front, or the one named, and the baseline to compare with; confirmed figures where there are some."""
    assert question.service is not None  # asked above
    evaluations, confirmations = journal.evaluations(), journal.evaluations("holdout")
    planned = [m.evaluation for m in summary.front] if named is None else [evaluations[named.id]]
    baseline = evaluations.get(question.baseline.id)
    if baseline is not None and baseline.measurement.service is not None and baseline not in planned:
        planned.append(baseline)
    # a confirmation's batch curve and load test are fresh, and nobody was chosen for them
    fresh = {i: e for i, e in confirmations.items() if e.measurement.service is not None}
    chosen = [fresh.get(e.candidate.id, e) for e in planned]
    lengths = question.dataset.lengths("validation")
    return plan_members(
        chosen,
        demand,
        choices={e.candidate.id: service_choices(question, e.candidate) for e in chosen},
        lengths=np.zeros(1, dtype=np.int64) if lengths is None else lengths,
        bins={e.candidate.id: () if lengths is None else serving_lengths(question, e.candidate) for e in chosen},
        titles={e.candidate.id: summary.title(e.candidate) for e in chosen},
        baseline_id=question.baseline.id,
        host=question.service.host,
        seed=question.seed,
    )


def _timed(question: Experiment, evaluations: Mapping[str, Evaluation], p99_ms: float) -> dict[str, Timed]:
    """Of the search: curves of one split and time, so that steps differ in nothing but their settings."""
    assert question.service is not None  # asked above
    lengths = question.dataset.lengths("validation")
    return {
        e.candidate.id: Timed(
            evaluation=e,
            card=one_card(
                e,
                p99_ms,
                np.zeros(1, dtype=np.int64) if lengths is None else lengths,
                () if lengths is None else serving_lengths(question, e.candidate),
                question.seed,
                question.service.host,
            ),
            choices=service_choices(question, e.candidate),
        )
        for e in evaluations.values()
        if e.measurement.service is not None and e.measurement.service.curve.points
    }
