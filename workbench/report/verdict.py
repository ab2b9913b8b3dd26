"""From evaluations to a verdict: who is on the Pareto front, who cannot be told apart, who came closest, whom to ship.

Every function is pure. A difference that the measurements cannot show prefers nothing. What the held-out data
contradicts is not recommended, but the held-out numbers choose nothing by themselves, so that they stay unbiased. Where
the float baseline wins, that is the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.evaluation.last_run import LastRun
from workbench.evaluation.neighbours import Neighbour
from workbench.report.alike import Alike, OutcomesOf
from workbench.report.groups import letters
from workbench.report.recommendation import recommend
from workbench.report.summary import Member, Optimism, Summary, cost_of, drop_of, is_feasible, numbers_of, speedup_of
from workbench.values.damage import Damage
from workbench.values.objectives import Closest, Constraint, Objective, closest_to_feasible, pareto_front, violations
from workbench.values.results import Evaluation


def summarize(
    *,
    experiment_name: str,
    experiment_file: str,
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    evaluations: Sequence[Evaluation],
    confirmations: Mapping[str, Evaluation],
    outcomes: OutcomesOf,
    baseline_id: str,
    damage: Sequence[Damage] = (),
    run: LastRun | None = None,
    neighbours: Sequence[Neighbour] = (),
) -> Summary:
    """Judge a sweep. Deterministic; needs at least one objective.

    Args:
        evaluations: of the search, on the validation split, one per candidate.
        confirmations: candidate id → evaluation on the holdout split, for those that were confirmed.
        damage: what of the sweep could not be read, and so is in neither.
        run: how its last run ended, where that is known.
        neighbours: candidates that were timed beside the search.
    """
    able = [e for e in evaluations if is_feasible(e, objectives, constraints, baseline_id)]
    points = [[numbers_of(e, baseline_id)[o.metric] for o in objectives] for e in able]
    front = [able[i] for i in pareto_front(points, [o.direction for o in objectives])]
    front.sort(key=lambda e: (cost_of(e, objectives[0].metric, baseline_id), e.candidate.id))
    alike = Alike(objectives, outcomes, baseline_id)
    marks = letters(len(front), lambda i, j: alike.altogether(front[i], front[j]))
    members = tuple(
        _member(e, confirmations.get(e.candidate.id), mark, constraints, baseline_id)
        for e, mark in zip(front, marks, strict=True)
    )
    summary = Summary(
        experiment_name=experiment_name,
        experiment_file=experiment_file,
        objectives=tuple(objectives),
        constraints=tuple(constraints),
        evaluations=tuple(evaluations),
        confirmations=confirmations,
        baseline_id=baseline_id,
        front=members,
        recommended=None,
        closest=None if able else _closest(evaluations, constraints, baseline_id),
        stops=Counter(_stop_reason(e) for e in evaluations if e.stop is not None),
        failures=Counter(f"{e.failure.stage}: {e.failure.kind}" for e in evaluations if e.failure is not None),
        emulated=any(e.toolchain.emulated for e in evaluations),
        damage=tuple(damage),
        run=run,
        neighbours=tuple(neighbours),
    )
    return replace(summary, recommended=recommend(summary, alike)) if able else summary


def _member(
    evaluation: Evaluation,
    confirmation: Evaluation | None,
    mark: str,
    constraints: Sequence[Constraint],
    baseline_id: str,
) -> Member:
    broken: dict[str, float] = {}
    optimism = None
    if confirmation is not None and confirmation.status == "complete":
        found = violations(constraints, numbers_of(confirmation, baseline_id))
        broken = {name: by for name, by in found.items() if by > 0}
        before, after = drop_of(evaluation, baseline_id), drop_of(confirmation, baseline_id)
        optimism = Optimism(
            drop_pp=after.value - before.value if before is not None and after is not None else None,
            speedup=speedup_of(evaluation).value - speedup_of(confirmation).value,
        )
    return Member(
        evaluation=evaluation,
        confirmation=confirmation,
        letters=mark,
        optimism=optimism,
        broken_on_holdout=broken,
    )


def _closest(evaluations: Sequence[Evaluation], constraints: Sequence[Constraint], baseline_id: str) -> Closest | None:
    """Complete candidates by their numbers, stopped ones by what they were certain to break (a lower bound)."""
    violated = {}
    for e in evaluations:
        known = dict(e.stop.violations) if e.stop is not None else {}
        if e.status != "failed":
            known = {**violations(constraints, numbers_of(e, baseline_id)), **known}
        violated[e.candidate.id] = known
    return closest_to_feasible(constraints, violated)


def _stop_reason(evaluation: Evaluation) -> str:
    assert evaluation.stop is not None
    names = ", ".join(evaluation.stop.violations)
    return f"{evaluation.stop.stage}: " + (f"violates {names}" if names else "certainly dominated")
