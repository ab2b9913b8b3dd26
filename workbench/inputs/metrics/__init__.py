"""Scores, kept per sample: any prefix of a split can be scored, and any two models compared sample by sample.

    scorer = scorer_of(dataset, model)
    parts = [scorer.score(session.run(b.feeds), b, None) for b in dataset.batches("validation", 16)]
    summarize(concatenate(parts))        # {'accuracy': ..., 'macro_f1': ...}

outputs → `scorer` → `outcomes` (join, select, keep on disk) → numbers. By task: `score`.
"""

from workbench.inputs.metrics.inference import InferredOutput, infer_outputs
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.score import scored_output
from workbench.inputs.metrics.scorer import counted_in_a_sample, scorer_of, usual_loss

__all__ = [
    "InferredOutput",
    "MeaningScorer",
    "counted_in_a_sample",
    "infer_outputs",
    "scored_output",
    "scorer_of",
    "usual_loss",
]
