"""What a sweep advises on its space."""

from __future__ import annotations

from workbench.api.opening import outcomes_of, summary_of
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.report.advice import Advice, advise
from workbench.space.space import assignment_of


def advice_of(question: Experiment, journal: Journal) -> Advice:
    """From what was measured; quick."""
    summary = summary_of(question, journal)
    pairs = ((e.candidate.id, assignment_of(question.space, e.candidate)) for e in summary.evaluations)
    chosen = {identity: assignment for identity, assignment in pairs if assignment is not None}
    return advise(
        summary,
        outcomes_of(journal),
        chosen,
        {p.name: p.choices for p in question.space.parameters if len(p.choices) > 1},
    )
