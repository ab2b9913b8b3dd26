"""Scores, kept per sample: any prefix of a split can be scored, and any two models compared sample by sample.

    scorer = scorer_of(dataset, model)
    parts = [scorer.score(session.run(b.feeds), b, None) for b in dataset.batches("validation", 16)]
    summarize(concatenate(parts))        # {'accuracy': ..., 'macro_f1': ...}

outputs → `scorer` → `outcomes` (join, select, keep on disk) → numbers. By task: `score`.
"""

from workbench.inputs.metrics.inference import InferredOutput, infer_outputs
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import (
    GOLD,
    ClassificationOutcomes,
    MeasuredOutcomes,
    Outcomes,
    concatenate,
    load_outcomes,
    per_sample,
    primary_of,
    same_outcomes,
    save_outcomes,
    select,
    size,
    summarize,
    take,
)
from workbench.inputs.metrics.score import (
    Outputs,
    Scorer,
    agreement,
    cut_alike,
    outcomes_of,
    scored_output,
)
from workbench.inputs.metrics.scorer import (
    counted_in_a_sample,
    not_by_distance,
    output_constraints,
    scorer_of,
    scoring_words,
    uses_of,
    usual_loss,
)

__all__ = [
    "GOLD",
    "ClassificationOutcomes",
    "InferredOutput",
    "MeaningScorer",
    "MeasuredOutcomes",
    "Outcomes",
    "Outputs",
    "Scorer",
    "agreement",
    "concatenate",
    "counted_in_a_sample",
    "cut_alike",
    "infer_outputs",
    "load_outcomes",
    "not_by_distance",
    "outcomes_of",
    "output_constraints",
    "per_sample",
    "primary_of",
    "same_outcomes",
    "save_outcomes",
    "scored_output",
    "scorer_of",
    "scoring_words",
    "select",
    "size",
    "summarize",
    "take",
    "uses_of",
    "usual_loss",
]
