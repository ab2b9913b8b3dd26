"""Acceptance: measured figures against another platform's, criterion by criterion.

    baseline = read_baseline(Path("experiments/baselines/a100-triton.yaml"))
    verdict = evaluate(baseline, loads=[at_1, at_100], agreement=agreement, accuracy_loss_pp=drop)

Compared is like with like: as many clients, as long texts, as many samples a request, memory of the same thing. What
was not measured is not passed, and neither is what this much data cannot prove: an interval that holds the limit.
What is known of an emulated device decides a rehearsal at most, and the verdict says so.
"""
