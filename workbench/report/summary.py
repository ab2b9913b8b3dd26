"""From evaluations to a verdict: the Pareto front, its groups, the recommendation and what speaks for it.

Every function is pure. Three rules keep the verdict honest. A difference that the measurements cannot show is not
used to prefer anything. What the held-out data contradicts is not recommended, but the held-out numbers choose
nothing by themselves, so that they stay unbiased. The float baseline may win, and then it is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workbench.candidate import Candidate, Scalar, describe
from workbench.objectives import METRICS, Closest, Constraint, Objective, closest_to_feasible, pareto_front, violations
from workbench.report.groups import letters
from workbench.results import Estimate, Evaluation, metrics
from workbench.significance import Outcomes, indistinguishable, may_be_equal

Standing = Literal["front", "dominated", "infeasible", "stopped", "failed"]
OutcomesOf = Callable[[str], Outcomes | None]
"""Candidate id → its per-sample outcomes on the validation split, None where they were not kept."""

_SPEED = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s", "speedup")
_ACCURACY = ("accuracy", "accuracy_drop_pp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimism:
    """How much the search flattered a candidate: its validation numbers against the held-out ones.

    The search chose the candidate *because of* its validation numbers, so luck is in them; the held-out data knew
    nothing of the choice. Positive means that validation looked better than it is.

    Attributes:
        drop_pp: drop on holdout minus drop on validation; None where a drop is not known.
        speedup: speed-up in the search minus the one timed afresh.
    """

    drop_pp: float | None
    speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A candidate on the Pareto front.

    Attributes:
        confirmation: the same candidate on the holdout split, timed afresh; None before it was confirmed.
        letters: members that share a letter cannot be told apart; empty when it differs from every other.
        broken_on_holdout: constraints that the holdout numbers break, metric → by how much.
    """

    evaluation: Evaluation
    confirmation: Evaluation | None
    letters: str
    optimism: Optimism | None
    broken_on_holdout: Mapping[str, float]

    @property
    def id(self) -> str:
        return self.evaluation.candidate.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What changing one setting of the recommended candidate would do, as far as it was measured.

    Attributes:
        before, after: the setting's value in the recommended candidate and in the other; None where it does not apply.
        speed_ratio: the other's speed over the recommended one's.
        accuracy_pp: the other's accuracy minus the recommended one's.
        told_apart: whether the two differ beyond their noise.
        feasible: whether the other meets every constraint.
    """

    candidate_id: str
    parameter: str
    before: Scalar
    after: Scalar
    speed_ratio: float
    accuracy_pp: float
    told_apart: bool
    feasible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The candidate to ship.

    Attributes:
        reason: why this one, in a few sentences.
        warnings: what speaks against relying on it, in sentences.
        alternatives: other front members: candidate id → what it would cost and buy.
        steps: evaluated candidates that differ from it in one setting.
    """

    candidate_id: str
    reason: str
    warnings: tuple[str, ...]
    alternatives: Mapping[str, str]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything the reports show.

    Attributes:
        experiment_file: as the user would type it; part of the commands that reproduce a candidate.
        evaluations: all of the search, on the validation split, in the order given.
        front: best first in the first objective.
        recommended: None only when no candidate meets every constraint; then `closest` says who came closest.
        stops, failures: reason → count.
        emulated: any number here comes from our emulator and says nothing about a real device.
    """

    experiment_name: str
    experiment_file: str
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    evaluations: tuple[Evaluation, ...]
    confirmations: Mapping[str, Evaluation]
    baseline_id: str
    front: tuple[Member, ...]
    recommended: Recommendation | None
    closest: Closest | None
    stops: Mapping[str, int]
    failures: Mapping[str, int]
    emulated: bool

    @property
    def baseline(self) -> Evaluation | None:
        return self.find(self.baseline_id)

    def find(self, candidate_id: str) -> Evaluation | None:
        return next((e for e in self.evaluations if e.candidate.id == candidate_id), None)

    def member(self, candidate_id: str) -> Member | None:
        return next((m for m in self.front if m.id == candidate_id), None)

    def numbers(self, evaluation: Evaluation) -> dict[str, float]:
        """`results.metrics`, with the baseline's drop against itself made explicit."""
        return _numbers(evaluation, self.baseline_id)

    def standing(self, evaluation: Evaluation) -> Standing:
        if evaluation.status != "complete":
            return evaluation.status
        if self.member(evaluation.candidate.id) is not None:
            return "front"
        able = _is_feasible(evaluation, self.objectives, self.constraints, self.baseline_id)
        return "dominated" if able else "infeasible"


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
) -> Summary:
    """Judge a sweep. Deterministic; needs at least one objective.

    Args:
        evaluations: of the search, on the validation split, one per candidate.
        confirmations: candidate id → evaluation on the holdout split, for those that were confirmed.
    """
    able = [e for e in evaluations if _is_feasible(e, objectives, constraints, baseline_id)]
    points = [[_numbers(e, baseline_id)[o.metric] for o in objectives] for e in able]
    front = [able[i] for i in pareto_front(points, [o.direction for o in objectives])]
    front.sort(key=lambda e: (_cost(e, objectives[0].metric, baseline_id), e.candidate.id))
    alike = _Alike(objectives, outcomes, baseline_id)
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
    )
    return replace(summary, recommended=_recommend(summary, able, alike)) if able else summary


def complexity(candidate: Candidate, baseline: Candidate) -> int:
    """How many settings somebody who runs this candidate must know beyond the baseline's; off and zero are free."""
    known = baseline.parameters()
    count = 0
    for name, value in candidate.parameters().items():
        if value == known.get(name) or value in (False, 0, ""):
            continue
        count += len(str(value).split()) if name == "compile.disabled_fusions" else 1
    return count


def differing_parameters(candidates: Sequence[Candidate]) -> list[str]:
    """Names of the settings in which the candidates are not all alike, in the order of `Candidate.parameters`."""
    tables = [c.parameters() for c in candidates]
    names = dict.fromkeys(name for table in tables for name in table)
    parts = list(dict.fromkeys(name.split(".")[0] for name in names))
    differing = [name for name in names if len({repr(table.get(name)) for table in tables}) > 1]
    return sorted(differing, key=lambda name: parts.index(name.split(".")[0]))


# --- the recommendation ------------------------------------------------------------------------------------------


def _recommend(summary: Summary, able: Sequence[Evaluation], alike: _Alike) -> Recommendation:
    """The best in the first objective whose advantage is real; then accuracy, then simplicity decide.

    Step by step, those stay who cannot be told apart from the best of the step: first the leading objective, then
    the others, then accuracy and speed if they were no objectives, then the fewest settings. The rest is point values
    and, last, the id, so that equal input gives an equal answer.
    """
    baseline = next((e for e in able if e.candidate.id == summary.baseline_id), None)
    pool = [m.evaluation for m in summary.front]
    if baseline is not None and baseline not in pool:
        pool.append(baseline)
    fit = [e for e in pool if not _is_contradicted(summary, e)]
    passed_over = [e for e in pool if e not in fit] if fit else []
    left = fit or pool
    order = _criteria(summary.objectives)
    if order[0] in _SPEED and baseline in left and not any(_faster(summary, e) for e in left if e is not baseline):
        left = [baseline]
    for metric in order:
        best = min(left, key=lambda e: _cost(e, metric, summary.baseline_id))
        left = [e for e in left if e is best or alike.in_metric(e, best, metric)]
    origin = baseline or left[0]

    def simplest(e: Evaluation) -> tuple[object, ...]:
        costs = [_cost(e, metric, summary.baseline_id) for metric in reversed(order)]
        return complexity(e.candidate, origin.candidate), *costs, e.candidate.id

    chosen = min(left, key=simplest)
    return Recommendation(
        candidate_id=chosen.candidate.id,
        reason=_reason(summary, chosen, ties=len(left), lead=order[0], passed_over=passed_over),
        warnings=_warnings(summary, chosen),
        alternatives=_alternatives(summary, chosen, alike),
        steps=_steps(summary, chosen, alike),
    )


def _criteria(objectives: Sequence[Objective]) -> list[str]:
    """The leading objective is the first that is not accuracy: the limit on accuracy is what constraints are for."""
    names = [o.metric for o in objectives]
    others = [name for name in names if name not in _ACCURACY]
    order = others + [name for name in names if name in _ACCURACY]
    order += [] if any(name in _ACCURACY for name in names) else ["accuracy"]
    order += [] if any(name in _SPEED for name in names) else ["speedup"]
    return order


def _is_contradicted(summary: Summary, evaluation: Evaluation) -> bool:
    """Whether the held-out data breaks a constraint, or, with no limit on accuracy, a loss of accuracy is certain."""
    member = summary.member(evaluation.candidate.id)
    if member is not None and member.broken_on_holdout:
        return True
    limited = any(c.metric in _ACCURACY for c in summary.constraints)
    drop = _drop(evaluation, summary.baseline_id)
    return not limited and drop is not None and drop.low > 0


def _faster(summary: Summary, evaluation: Evaluation) -> bool:
    speedup = best_known_speedup(summary, evaluation)
    return speedup is not None and speedup.low > 1


def best_known_speedup(summary: Summary, evaluation: Evaluation) -> Estimate | None:
    """The one timed afresh at the end where there is one, since nobody was chosen for it; else the search's."""
    found = summary.confirmations.get(evaluation.candidate.id, evaluation)
    latency = found.measurement.latency or evaluation.measurement.latency
    return latency.speedup if latency is not None else None


def best_known_drop(summary: Summary, evaluation: Evaluation) -> Estimate | None:
    """The drop on holdout where it was confirmed, else the one of the search; zero for the baseline."""
    confirmed = summary.confirmations.get(evaluation.candidate.id)
    found = _drop(confirmed, summary.baseline_id) if confirmed is not None else None
    return found if found is not None else _drop(evaluation, summary.baseline_id)


def _reason(summary: Summary, chosen: Evaluation, *, ties: int, lead: str, passed_over: Sequence[Evaluation]) -> str:
    speedup, drop = best_known_speedup(summary, chosen), best_known_drop(summary, chosen)
    where = "held-out data" if chosen.candidate.id in summary.confirmations else "the validation split"
    words = []
    if chosen.candidate.id == summary.baseline_id:
        words.append(
            "Ship the float baseline as it is: no candidate that meets every constraint is faster beyond the noise."
            if lead in _SPEED
            else "Ship the float baseline as it is: no candidate that meets every constraint beats it."
        )
    else:
        best = {"minimize": "lowest", "maximize": "highest"}[METRICS[lead].direction]
        among = f" among the {count_of(ties, 'candidate')} that cannot be told apart from the best" if ties > 1 else ""
        rank = "fastest" if lead in _SPEED else f"{best} {lead}"
        kept = "meets every constraint" if summary.constraints else "loses no accuracy for certain"
        words.append(
            f"It is the {rank} that {kept}."
            if not among
            else f"It {kept} and is the simplest{among} ({rank}, then accuracy)."
        )
        if speedup is not None:
            words.append(
                f"Against the float baseline it is {interval(speedup, 'x', 2)} as fast"
                + (f", with an accuracy drop of {interval(drop, ' pp', 2, signed=True)}" if drop is not None else "")
                + f", measured on {where}."
            )
    for other in passed_over:
        if other.candidate.id == summary.baseline_id:
            continue
        if _cost(other, lead, summary.baseline_id) < _cost(chosen, lead, summary.baseline_id):
            words.append(
                f"{other.candidate.short_id} looked better in {lead} and was passed over: {_why_not(summary, other)}."
            )
    return " ".join(words)


def _why_not(summary: Summary, evaluation: Evaluation) -> str:
    member = summary.member(evaluation.candidate.id)
    broken = member.broken_on_holdout if member is not None else {}
    if broken:
        return "on held-out data it breaks " + ", ".join(over(name, by) for name, by in broken.items())
    return "it certainly loses accuracy, and no constraint says how much may be lost"


def _warnings(summary: Summary, chosen: Evaluation) -> tuple[str, ...]:
    found = []
    latency = chosen.measurement.latency
    if summary.emulated:
        found.append("These numbers come from the emulator; they say nothing about a real device.")
    if latency is not None and not latency.quiet:
        found.append(f"Its timing was disturbed: {latency.verdict}.".replace("..", "."))
    member = summary.member(chosen.candidate.id)
    if member is not None and member.broken_on_holdout:
        broken = ", ".join(over(name, by) for name, by in member.broken_on_holdout.items())
        found.append(f"On held-out data it breaks {broken}, and so does every other candidate of the front.")
    drop = best_known_drop(summary, chosen)
    limit = next((c.limit for c in summary.constraints if c.metric == "accuracy_drop_pp"), None)
    if drop is not None and limit is not None and drop.value <= limit < drop.high:
        found.append(
            f"The limit of {limit:g} pp lies inside the interval of its drop (up to {drop.high:+.2f} pp): "
            "more samples would be needed to be sure of it."
        )
    if chosen.candidate.id not in summary.confirmations:
        found.append("It was not confirmed on held-out data.")
    return tuple(found)


def _alternatives(summary: Summary, chosen: Evaluation, alike: _Alike) -> dict[str, str]:
    return {m.id: _trade(summary, chosen, m, alike) for m in summary.front if m.id != chosen.candidate.id}


def _trade(summary: Summary, chosen: Evaluation, member: Member, alike: _Alike) -> str:
    """'1.08x as fast, -0.40 pp accuracy' with what is no more than noise marked as such."""
    other = member.evaluation
    broken = "".join(f"; on held-out data it breaks {over(n, by)}" for n, by in member.broken_on_holdout.items())
    if alike.altogether(chosen, other):
        return f"cannot be told apart from it{broken}"
    step = _difference(summary, chosen, other)
    same_speed = alike.in_metric(chosen, other, "speedup")
    same_accuracy = alike.in_metric(chosen, other, "accuracy")
    words = [
        "as fast within the noise" if same_speed else f"{step[0]:.2f}x as fast",
        "as accurate within the noise" if same_accuracy else f"{step[1]:+.2f} pp accuracy",
    ]
    mine, its = summary.numbers(chosen), summary.numbers(other)
    for o in summary.objectives:
        if o.metric not in (*_SPEED, *_ACCURACY) and mine[o.metric] != its[o.metric]:
            words.append(f"{o.metric} {its[o.metric]:.4g} instead of {mine[o.metric]:.4g}")
    return ", ".join(words) + broken


def _steps(summary: Summary, chosen: Evaluation, alike: _Alike) -> tuple[Step, ...]:
    found = []
    mine = chosen.candidate.parameters()
    for other in summary.evaluations:
        differing = differing_parameters([chosen.candidate, other.candidate])
        if other.status != "complete" or len(differing) != 1:
            continue
        ratio, accuracy_pp = _difference(summary, chosen, other)
        found.append(
            Step(
                candidate_id=other.candidate.id,
                parameter=differing[0],
                before=mine.get(differing[0]),
                after=other.candidate.parameters().get(differing[0]),
                speed_ratio=ratio,
                accuracy_pp=accuracy_pp,
                told_apart=not alike.altogether(chosen, other),
                feasible=_is_feasible(other, summary.objectives, summary.constraints, summary.baseline_id),
            )
        )
    return tuple(sorted(found, key=lambda s: (s.parameter, str(s.after), s.candidate_id)))


def _difference(summary: Summary, chosen: Evaluation, other: Evaluation) -> tuple[float, float]:
    """(speed of the other over the chosen one, accuracy of the other minus the chosen one in pp), both complete.

    Speed is calls per second at equal batch sizes, else samples per second.
    """
    mine, its = summary.numbers(chosen), summary.numbers(other)
    same_batch = chosen.candidate.serving.batch == other.candidate.serving.batch
    name = "speedup" if same_batch else "throughput_per_s"
    return its[name] / mine[name], 100 * (its["accuracy"] - mine["accuracy"])


# --- who cannot be told apart --------------------------------------------------------------------------------------


class _Alike:
    """Whether two complete evaluations cannot be told apart, with the per-sample outcomes read at most once each."""

    def __init__(self, objectives: Sequence[Objective], outcomes: OutcomesOf, baseline_id: str) -> None:
        self._objectives, self._read, self._baseline_id = objectives, outcomes, baseline_id
        self._outcomes: dict[str, Outcomes | None] = {}

    def altogether(self, a: Evaluation, b: Evaluation) -> bool:
        """In speed, in accuracy, and in every objective."""
        names = dict.fromkeys(("speedup", "accuracy", *(o.metric for o in self._objectives)))
        return all(self.in_metric(a, b, name) for name in names)

    def in_metric(self, a: Evaluation, b: Evaluation, metric: str) -> bool:
        """Times through the intervals of the speed-up (of the time per call or sample when batch sizes differ),
        accuracy through the paired test, everything else as it stands: sizes and counts carry no noise."""
        if metric in _ACCURACY:
            return self._in_accuracy(a, b)
        if metric in _SPEED:
            if a.candidate.serving.batch == b.candidate.serving.batch or metric == "speedup":
                return may_be_equal(_speedup(a), _speedup(b))
            per_sample = metric == "throughput_per_s"
            return may_be_equal(_time(a, per_sample=per_sample), _time(b, per_sample=per_sample))
        return metrics(a)[metric] == metrics(b)[metric]

    def _in_accuracy(self, a: Evaluation, b: Evaluation) -> bool:
        ours, theirs = self._of(a.candidate.id), self._of(b.candidate.id)
        if ours is not None and theirs is not None and ours.shape == theirs.shape:
            return indistinguishable(ours, theirs)
        first, second = _drop(a, self._baseline_id), _drop(b, self._baseline_id)
        if first is None or second is None:
            return metrics(a)["accuracy"] == metrics(b)["accuracy"]
        return first.low <= second.high and second.low <= first.high

    def _of(self, candidate_id: str) -> Outcomes | None:
        if candidate_id not in self._outcomes:
            self._outcomes[candidate_id] = self._read(candidate_id)
        return self._outcomes[candidate_id]


def _speedup(evaluation: Evaluation) -> Estimate:
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    return latency.speedup


def _time(evaluation: Evaluation, *, per_sample: bool) -> Estimate:
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    scale = latency.drift * (latency.batch if per_sample else 1)
    p50 = latency.p50_ms
    return replace(p50, value=p50.value / scale, low=p50.low / scale, high=p50.high / scale)


# --- numbers and words ---------------------------------------------------------------------------------------------


def interval(estimate: Estimate, unit: str, digits: int, *, signed: bool = False) -> str:
    """'1.52x [1.48, 1.56]'."""
    sign = "+" if signed else ""
    low, high = (f"{v:{sign}.{digits}f}" for v in (estimate.low, estimate.high))
    return f"{estimate.value:{sign}.{digits}f}{unit} [{low}, {high}]"


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def over(metric: str, by: float) -> str:
    """'accuracy_drop_pp by 0.3 pp'."""
    unit = METRICS[metric].unit
    return f"{metric} by {by:.3g}" + (f" {unit}" if unit else "")


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
        found = violations(constraints, _numbers(confirmation, baseline_id))
        broken = {name: by for name, by in found.items() if by > 0}
        before, after = _drop(evaluation, baseline_id), _drop(confirmation, baseline_id)
        optimism = Optimism(
            drop_pp=after.value - before.value if before is not None and after is not None else None,
            speedup=_speedup(evaluation).value - _speedup(confirmation).value,
        )
    return Member(
        evaluation=evaluation,
        confirmation=confirmation,
        letters=mark,
        optimism=optimism,
        broken_on_holdout=broken,
    )


def _numbers(evaluation: Evaluation, baseline_id: str) -> dict[str, float]:
    numbers = metrics(evaluation)
    if evaluation.candidate.id == baseline_id and "accuracy" in numbers:
        numbers.setdefault("accuracy_drop_pp", 0.0)
    return numbers


def _drop(evaluation: Evaluation, baseline_id: str) -> Estimate | None:
    accuracy = evaluation.measurement.accuracy
    if accuracy is not None and accuracy.comparison is not None:
        return accuracy.comparison.drop_pp
    if accuracy is not None and evaluation.candidate.id == baseline_id:
        return Estimate(value=0.0, low=0.0, high=0.0)
    return None


def _is_feasible(
    evaluation: Evaluation, objectives: Sequence[Objective], constraints: Sequence[Constraint], baseline_id: str
) -> bool:
    """Complete, every objective and every constraint measured, every constraint met."""
    if evaluation.status != "complete":
        return False
    numbers = _numbers(evaluation, baseline_id)
    found = violations(constraints, numbers)
    return all(o.metric in numbers for o in objectives) and all(found.get(c.metric, 1.0) <= 0 for c in constraints)


def _cost(evaluation: Evaluation, metric: str, baseline_id: str) -> float:
    value = _numbers(evaluation, baseline_id)[metric]
    return -value if METRICS[metric].direction == "maximize" else value


def _closest(evaluations: Sequence[Evaluation], constraints: Sequence[Constraint], baseline_id: str) -> Closest | None:
    """Complete candidates by their numbers, stopped ones by what they were certain to break (a lower bound)."""
    violated = {}
    for e in evaluations:
        known = dict(e.stop.violations) if e.stop is not None else {}
        if e.status != "failed":
            known = {**violations(constraints, _numbers(e, baseline_id)), **known}
        violated[e.candidate.id] = known
    return closest_to_feasible(constraints, violated)


def _stop_reason(evaluation: Evaluation) -> str:
    assert evaluation.stop is not None
    names = ", ".join(evaluation.stop.violations)
    return f"{evaluation.stop.stage}: " + (f"violates {names}" if names else "certainly dominated")


def title(candidate: Candidate, baseline_id: str) -> str:
    """What a candidate is, for a row: its description, with threads and batch where they are not 1."""
    words = describe(candidate) + (" (float baseline)" if candidate.id == baseline_id else "")
    serving = candidate.serving
    if serving.intra_op_threads != 1:
        words += f", {serving.intra_op_threads} threads"
    if serving.batch != 1:
        words += f", batch {serving.batch}"
    return words
