"""How many cards a demand takes, for each candidate worth shipping."""

from __future__ import annotations

import numpy as np

from workbench.api.opening import find_candidate, refuse_language_model
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.prediction.capacity import CapacityPlan, Demand
from workbench.prediction.capacity import plan_capacity as plan_members
from workbench.prediction.stage import service_choices, serving_lengths
from workbench.report import Summary
from workbench.values.errors import ConfigError


def plan_capacity(
    question: Experiment, journal: Journal, summary: Summary, demand: Demand, candidate: str | None = None
) -> CapacityPlan:
    """Sizes for a demand, candidate by candidate: the front, or the one named, and the baseline to compare with;
    confirmed figures where there are some. Deterministic.

    Args:
        candidate: id or its first digits; None for the front.
    """
    refuse_language_model(question, "plan of capacity")
    if question.service is None or question.space.service is None:
        raise ConfigError(
            "has no `service:` section, so its sweep measured no batch curves.",
            file=question.path,
            hint="Add service: {concurrency: 100, p99_ms: 50} to it and service: {max_batch_size: [1, 8, 32], "
            "batch_timeout_ms: [0, 2], workers: [1, 2]} to its space, then sweep; compiles come from the store.",
        )
    evaluations, confirmations = journal.evaluations(), journal.evaluations("holdout")
    named = None if candidate is None else find_candidate(candidate, journal)
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
