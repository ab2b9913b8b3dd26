"""Whose loss it is: what the float model loses as it runs today, and what a candidate loses beyond that.

Only where the float baseline computes in fewer bits than float32, with which accuracy is compared.
"""

from __future__ import annotations

from workbench.report.scored import scored_by
from workbench.report.summary import Summary
from workbench.report.words import interval
from workbench.values.measurement import Accuracy, AccuracyComparison
from workbench.values.results import Evaluation


def losses_sentence(summary: Summary, evaluation: Evaluation) -> str:
    """'Against float32 …, the float baseline (force_fp16) loses …; beyond it, this one loses …', by the strongest
    evidence on both; '' where the baseline itself is float32."""
    baseline = summary.baseline
    own = None if baseline is None else _accuracy(summary, baseline)
    ours = _accuracy(summary, evaluation)
    if baseline is None or own is None or own.comparison is None or not own.reference:
        return ""
    mode = baseline.candidate.precision.mode
    found = f"Against {own.reference}, the float baseline as it runs today ({mode}) loses {_lost(own, own.comparison)}"
    if ours is not None and ours.against_baseline is not None:
        found += f"; beyond it this candidate loses {_lost(ours, ours.against_baseline)}"
    return f"{found} of {scored_by(own).noun}."


def _accuracy(summary: Summary, evaluation: Evaluation) -> Accuracy | None:
    return summary.strongest(evaluation).measurement.accuracy


def _lost(accuracy: Accuracy, compared: AccuracyComparison) -> str:
    return interval(compared.drop_pp, f" {scored_by(accuracy).drop_unit}", 2, signed=True)
