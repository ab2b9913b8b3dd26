"""From evaluations to a verdict: who is on the Pareto front, who cannot be told apart, who came closest, whom to ship.

Every function is pure. A difference that the measurements cannot show prefers nothing. The strongest evidence on a
candidate decides (`known`): once a front is confirmed, front and recommendation are those of the confirmation. Where
the float baseline wins, that is the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.evaluation.run_notes import LastRun, Neighbour
from workbench.report.alike import Alike, OutcomesOf, letters, recipes_of
from workbench.report.recommendation import recommend
from workbench.report.summary import BASES, Member, Summary, Views, common, failure_words
from workbench.report.words import numbers_of
from workbench.search.front import is_deferred
from workbench.values.objectives import Closest, Constraint, Objective, closest_to_feasible, pareto_front, violations
from workbench.values.results import Damage, Evaluation


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
    presets: Mapping[str, str] | None = None,
    offers_int8: bool = False,
) -> Summary:
    """Judge a sweep. Deterministic; needs at least one objective.

    Args:
        evaluations: of the search, on the validation split, one per candidate.
        confirmations: candidate id → evaluation on the holdout split, for those that were confirmed.
        damage: what of the sweep could not be read, and so is in neither.
        run: how its last run ended, where that is known.
        neighbours: candidates that were timed beside the search.
        presets: candidate id → name, of those of the space.
        offers_int8: the space has INT8 candidates: without a measurement of one nothing is recommended.
    """
    summary = Summary(
        experiment_name=experiment_name,
        experiment_file=experiment_file,
        objectives=tuple(objectives),
        constraints=tuple(constraints),
        evaluations=tuple(evaluations),
        confirmations=confirmations,
        baseline_id=baseline_id,
        front=(),
        recommended=None,
        closest=None,
        stops=Counter(_stop_reason(e) for e in evaluations if e.stop is not None),
        failures=Counter(f"{e.failure.stage}: {e.failure.kind}" for e in evaluations if e.failure is not None),
        emulated=any(e.toolchain.emulated for e in evaluations),
        damage=tuple(damage),
        run=run,
        neighbours=tuple(neighbours),
        recipes=recipes_of(evaluations, outcomes, presets or {}, baseline_id),
    )
    known = {e.candidate.id: summary.views(e) for e in evaluations if e.status == "complete"}
    alike = Alike(objectives, outcomes, baseline_id)
    able = {i: views for i, views in known.items() if summary.may_ship(views["search"])}
    better = {i: _better(summary, i, able, alike) for i in able}
    measured = [v["search"] for v in known.values() if summary.is_feasible(v["search"])]
    points = pareto_front([summary.costs(e) for e in measured], ["minimize"] * len(objectives))
    searched = [measured[place].candidate.id for place in points]  # by the search's figures: what is to be confirmed
    # where all of them are refused they are shown, with why
    ids = [i for i, other in better.items() if not other] or searched
    ids.sort(key=lambda i: (BASES.index(next(iter(known[i]))), summary.costs(next(iter(known[i].values())))[0], i))
    marks = letters(len(ids), lambda i, j: alike.altogether(*common(known[ids[i]], known[ids[j]])))
    summary = replace(
        summary,
        front=tuple(_member(summary, known[i]["search"], mark) for i, mark in zip(ids, marks, strict=True)),
        closest=None if ids else _closest(evaluations, constraints, baseline_id),
        fallen=tuple(
            _member(summary, known[i]["search"], "", better.get(i, ""))
            for i in sorted(known, key=lambda i: (i not in searched, i))
            if i not in ids and i != baseline_id and i in confirmations
        ),
    )
    if not ids:
        return summary
    found = (_without_int8(summary) if offers_int8 else "") or recommend(summary, alike)
    if isinstance(found, str):
        return replace(summary, nothing_recommended=found)
    return replace(summary, recommended=found)


def _better(summary: Summary, candidate_id: str, able: Mapping[str, Views], alike: Alike) -> str:
    """The one of these that takes a candidate off the front; empty where it is on it.

    By figures that were measured afresh, only a difference beyond the noise takes a candidate off: of so few, each
    that may be the best is worth seeing. In the search the point values decide, as they do for the sampler.
    """
    basis, mine = next(iter(able[candidate_id].items()))
    costs = summary.costs(mine)
    for other_id, other in able.items():
        if other_id == candidate_id or basis not in other or not summary.is_feasible(other[basis]):
            continue
        theirs = summary.costs(other[basis])
        if theirs == costs or any(its > own for its, own in zip(theirs, costs, strict=True)):
            continue
        if basis == "search" or alike.apart(mine, other[basis], [o.metric for o in summary.objectives]):
            return other_id
    return ""


def _without_int8(summary: Summary) -> str:
    """Why nothing is recommended where no INT8 candidate was measured, and what to do; empty where one was."""
    tried = [e for e in summary.evaluations if e.candidate.quantization.scheme != "none"]
    if any(e.measurement.accuracy is not None or e.stop is not None for e in tried):
        return ""
    said = "no INT8 candidate was measured, and without one nothing can be said of what INT8 gains"
    failed = [e.failure for e in tried if e.failure is not None]
    again = f"Run: workbench sweep {summary.experiment_file}"
    if not failed:
        cut = summary.run is not None and summary.run.reason in ("timeout", "interrupted")
        more = f"; the last run ended after {summary.run.seconds:.0f} s" if cut and summary.run is not None else ""
        longer = "which goes on where it stopped, with a longer --timeout" if cut else "with more --trials"
        return f"{said}{more}. {again}, {longer}."
    why = f"{said}: {len(failed)} failed, the first with {failure_words(failed[0])}"
    if any(e.deserves_another for e in tried):
        return f"{why}. {again}, which tries them again."
    return f"{why}. `workbench inspect` shows which layers INT8 can serve; its log: {failed[0].log_path}."


def _member(summary: Summary, evaluation: Evaluation, mark: str, better: str = "") -> Member:
    """Args: better: the candidate that took it off the front."""
    confirmed = summary.confirmations.get(evaluation.candidate.id)
    complete = confirmed is not None and confirmed.status == "complete"
    return Member(
        evaluation=evaluation,
        confirmation=confirmed,
        letters=mark,
        broken_on_holdout=summary.broken_by(confirmed) if confirmed is not None and complete else {},
        against=summary.refusal(evaluation) or (f"{better[:12]} is better by the same evidence" if better else ""),
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
    if is_deferred(evaluation):
        return f"{evaluation.stop.stage}: by what was predicted, others serve more and are as accurate"
    names = ", ".join(evaluation.stop.violations)
    return f"{evaluation.stop.stage}: " + (f"violates {names}" if names else "certainly dominated")
