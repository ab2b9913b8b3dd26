"""The front measured again on held-out data: in full where the run's time allows, else with less effort, or in part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import InProcess, TimeUp
from workbench.search.executors.worker_pool import WorkerPool, Workers, survived
from workbench.search.forecast import RunTime, fitting, known_cost, predicted_by_search
from workbench.search.stages.request import FULL, Task
from workbench.search.sweep import Listener
from workbench.values.candidate import Candidate
from workbench.values.results import Evaluation


def confirm(
    experiment: Experiment,
    bench: Bench,
    front: Sequence[Evaluation],
    listeners: Sequence[Listener] = (),
    workers: Workers | None = None,
    time: RunTime | None = None,
) -> dict[str, Evaluation]:
    """Measure the baseline and front members again on the holdout split, with fresh timing; those that were confirmed.

    Members confirmed before (by this sweep, with the same journal) are not measured again, unless that failed by no
    fault of theirs, or was cut and there is time now to do it in full.

    Args:
        front: the most important first; with too little time, the last go without.
        workers: who evaluates; this process where it is None. What compiles ahead has nothing to do.
        time: of the run, which the loads that follow share; None for as long as it takes.
    """
    workers, time = workers or Workers(cards=(InProcess(experiment, bench),)), time or RunTime(math.inf)
    candidates = {c.id: c for c in (experiment.baseline, *(e.candidate for e in front))}
    before = {i: bench.journal.evaluation(i, "holdout") for i in candidates}
    confirmed = {i: e for i, e in before.items() if e is not None and not e.deserves_another}
    missing = [c for i, c in candidates.items() if i not in confirmed]
    cut = [c for i, c in candidates.items() if i in confirmed and confirmed[i].cut]
    known = bench.journal.evaluations()
    costs = {c.id: known_cost(experiment, known.get(c.id), known) for c in (*missing, *cut)}
    with WorkerPool[Candidate](replace(workers, compilers=())) as pool:
        for todo, least in ((missing, None), (cut, FULL)):
            while todo or pool.working:
                if not todo or not pool.free:
                    candidate, future = pool.first()
                    try:
                        found = future.result()
                    except TimeUp:  # nor is there time for others
                        todo = []
                        continue
                    earlier = before[candidate.id]
                    attempt = earlier.attempt + 1 if earlier is not None and earlier.deserves_another else 1
                    confirmed[candidate.id] = found = replace(found, attempt=max(attempt, found.attempt))
                    bench.journal.write(found)
                    for listener in listeners:
                        listener.evaluated(found, reused=False)
                    continue
                effort, count = fitting([costs[c.id] for c in todo], time.left_s * len(workers.cards))
                only_baseline = count == 1 and len(todo) > 1 and todo[0].id == experiment.baseline.id
                if count == 0 or only_baseline or least not in (None, effort):
                    todo = []
                    continue
                until = time.end - costs[todo[0].id].loaded_s(effort)
                candidate = todo.pop(0)
                if predicted_by_search(experiment, known.get(candidate.id)):
                    effort = replace(effort, curve=False, loaded=True)
                task = Task(candidate=candidate, split="holdout", gates=False, effort=effort)
                pool.begin(candidate, partial(survived, experiment, bench, task=task, until=until))
    return {i: confirmed[i] for i in candidates if i in confirmed}
