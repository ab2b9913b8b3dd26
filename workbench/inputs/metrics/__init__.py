"""Scores, kept per sample: any prefix of a split can be scored, and any two models compared sample by sample.

    parts = [outcomes_of(task, session.run(b.feeds), b, labels=labels) for b in dataset.batches("validation", 16)]
    summarize(concatenate(parts))        # {'accuracy': ..., 'macro_f1': ...}

outputs → `score` → outcomes (`outcomes`: join, select, keep on disk) → `summary` → numbers. Entities: `entities`.
"""

from workbench.inputs.metrics.outcomes import (
    CORRECT,
    GOLD,
    PREDICTED,
    ClassificationOutcomes,
    NerOutcomes,
    Outcomes,
    TensorOutcomes,
    concatenate,
    load_outcomes,
    save_outcomes,
    select,
    size,
    take,
)
from workbench.inputs.metrics.score import (
    Agreement,
    Outputs,
    agreement,
    check_outputs,
    cut_alike,
    outcomes_of,
    scored_output,
)
from workbench.inputs.metrics.summary import by_length, by_type, per_sample, primary_metric, summarize

__all__ = [
    "CORRECT",
    "GOLD",
    "PREDICTED",
    "Agreement",
    "ClassificationOutcomes",
    "NerOutcomes",
    "Outcomes",
    "Outputs",
    "TensorOutcomes",
    "agreement",
    "by_length",
    "by_type",
    "check_outputs",
    "concatenate",
    "cut_alike",
    "load_outcomes",
    "outcomes_of",
    "per_sample",
    "primary_metric",
    "save_outcomes",
    "scored_output",
    "select",
    "size",
    "summarize",
    "take",
]
