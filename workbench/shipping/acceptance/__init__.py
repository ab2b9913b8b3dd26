"""Acceptance: measured figures against another platform's, criterion by criterion.

    baseline = read_baseline(Path("experiments/baselines/a100-triton.yaml"))
    verdict = evaluate(baseline, loads=[at_1, at_100], agreement=agreement, accuracy_loss_pp=drop)

Compared is like with like: as many clients, as long texts, as many samples a request, memory of the same thing. What
was not measured is not passed, and neither is what this much data cannot prove: an interval that holds the limit.
What is known of an emulated device decides a rehearsal at most, and the verdict says so.
"""

from workbench.shipping.acceptance.baseline import (
    Baseline,
    LoadFigures,
    Resource,
    of_load,
    read_baseline,
    recorded,
    write_baseline,
)
from workbench.shipping.acceptance.criteria import evaluate
from workbench.shipping.acceptance.verdict import Criterion, Outcome, Verdict

__all__ = [
    "Baseline",
    "Criterion",
    "LoadFigures",
    "Outcome",
    "Resource",
    "Verdict",
    "evaluate",
    "of_load",
    "read_baseline",
    "recorded",
    "write_baseline",
]
