"""The front measured again in full on held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors import Executor, InProcess, Task
from workbench.search.retry import survived
from workbench.search.sweep import Listener
from workbench.values.results import Evaluation


def confirm(
    experiment: Experiment,
    bench: Bench,
    front: Sequence[Evaluation],
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
) -> dict[str, Evaluation]:
    """Measure front members and the baseline again in full on the holdout split, with fresh timing.

    Members confirmed before (by this sweep, with the same journal) are not measured again, unless that failed by no
    fault of theirs.

    Args:
        executor: where evaluations run; in this process when None.
    """
    executor = executor or InProcess(experiment, bench)
    confirmed: dict[str, Evaluation] = {}
    candidates = [experiment.baseline, *(e.candidate for e in front)]
    for candidate in {c.id: c for c in candidates}.values():
        found = bench.journal.evaluation(candidate.id, "holdout")
        if found is None or found.deserves_another:
            attempt = 1 if found is None else found.attempt + 1
            found = survived(experiment, bench, executor, Task(candidate=candidate, split="holdout", gates=False))
            found = replace(found, attempt=max(attempt, found.attempt))
            bench.journal.write(found)
            for listener in listeners:
                listener.evaluated(found, reused=False)
        confirmed[candidate.id] = found
    return confirmed
