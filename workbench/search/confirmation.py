"""The front measured again on held-out data: in full where the run's time allows, else with less effort, or in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.effort import FULL
from workbench.search.executors import Executor, InProcess, Task, TimeUp
from workbench.search.retry import survived
from workbench.search.sweep import Listener
from workbench.search.time_limit import Cost, RunTime, fitting, known_cost, predicted_by_search
from workbench.values.candidate import Candidate
from workbench.values.results import Evaluation


def confirm(
    experiment: Experiment,
    bench: Bench,
    front: Sequence[Evaluation],
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
    time: RunTime | None = None,
) -> dict[str, Evaluation]:
    """Measure the baseline and front members again on the holdout split, with fresh timing; those that were confirmed.

    Members confirmed before (by this sweep, with the same journal) are not measured again, unless that failed by no
    fault of theirs, or was cut and there is time now to do it in full.

    Args:
        front: the most important first; with too little time, the last go without.
        executor: where evaluations run; in this process when None.
        time: of the run, which the loads that follow share; None for as long as it takes.
    """
    executor = executor or InProcess(experiment, bench)
    candidates = {c.id: c for c in (experiment.baseline, *(e.candidate for e in front))}
    before = {i: bench.journal.evaluation(i, "holdout") for i in candidates}
    confirmed = {i: e for i, e in before.items() if e is not None and not e.deserves_another}
    missing = [c for i, c in candidates.items() if i not in confirmed]
    cut = [c for i, c in candidates.items() if i in confirmed and confirmed[i].cut]
    costs = {} if time is None else _costs(experiment, bench, (*missing, *cut))
    for todo, least in ((missing, None), (cut, FULL)):
        while todo:
            effort, until = FULL, None
            if time is not None:
                fits, count = fitting([costs[c.id] for c in todo], time.left_s)
                only_baseline = count == 1 and len(todo) > 1 and todo[0].id == experiment.baseline.id
                if count == 0 or only_baseline or least not in (None, fits):
                    break
                effort, until = fits, time.end - costs[todo[0].id].loaded_s(fits)
            candidate = todo.pop(0)
            known = before[candidate.id]
            attempt = known.attempt + 1 if known is not None and known.deserves_another else 1
            if predicted_by_search(experiment, bench.journal.evaluation(candidate.id)):
                effort = replace(effort, curve=False, loaded=True)
            task = Task(candidate=candidate, split="holdout", gates=False, effort=effort)
            try:
                found = survived(experiment, bench, executor, task, until=until)
            except TimeUp:
                break
            found = replace(found, attempt=max(attempt, found.attempt))
            bench.journal.write(found)
            for listener in listeners:
                listener.evaluated(found, reused=False)
            confirmed[candidate.id] = found
    return {i: confirmed[i] for i in candidates if i in confirmed}


def _costs(experiment: Experiment, bench: Bench, candidates: Sequence[Candidate]) -> Mapping[str, Cost]:
    known = bench.journal.evaluations()
    return {c.id: known_cost(experiment, known.get(c.id), known) for c in candidates}
