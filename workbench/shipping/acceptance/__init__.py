"""Acceptance: measured figures against another platform's, criterion by criterion.

    baseline = read_baseline(Path("experiments/baselines/a100-triton.yaml"))
    verdict = judge(baseline, loads=[at_1, at_100], agreement=agreement, accuracy_drop_pp=drop)

Compared is like with like: as many clients, as long texts, as many samples a request, memory of the same thing. What
was not measured is not passed, and neither is what this much data cannot prove: an interval that holds the limit.
Modelled figures decide a rehearsal at most, and the verdict says so.
"""

from workbench.shipping.acceptance.baseline import (
    AcceptanceLimits,
    Baseline,
    LoadFigures,
    Resource,
    of_load,
    of_prediction,
    read_baseline,
    recorded,
    write_baseline,
)
from workbench.shipping.acceptance.judge import judge
from workbench.shipping.acceptance.verdict import Criterion, Outcome, Verdict, verdict_from_json

__all__ = [
    "AcceptanceLimits",
    "Baseline",
    "Criterion",
    "LoadFigures",
    "Outcome",
    "Resource",
    "Verdict",
    "judge",
    "of_load",
    "of_prediction",
    "read_baseline",
    "recorded",
    "verdict_from_json",
    "write_baseline",
]
