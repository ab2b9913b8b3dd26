"""Which candidate to ship, why, what speaks against relying on it, and what the others would cost and buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.report.alike import Alike
from workbench.report.scored import scored
from workbench.report.summary import (
    ACCURACY,
    SERVICE,
    SPEED,
    Member,
    Recommendation,
    Step,
    Summary,
    best_known_drop,
    best_known_service,
    best_known_speedup,
    cost_of,
    drop_of,
)
from workbench.report.words import count_of, differing_parameters, interval, over
from workbench.values.candidate import Candidate
from workbench.values.measurement import Estimate
from workbench.values.objectives import METRICS, Objective
from workbench.values.results import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The chosen one and how it came to be chosen.

    Attributes:
        criteria: metrics in the order in which they decided.
        rivals: how many, itself included, cannot be told apart from the best in the first criterion.
        ties: how many of them are left after every criterion, so that only simplicity decided.
        passed_over: what the held-out data, or a certain loss of accuracy, speaks against.
    """

    chosen: Evaluation
    criteria: Sequence[str]
    rivals: int
    ties: int
    passed_over: Sequence[Evaluation]


def recommend(summary: Summary, alike: Alike) -> Recommendation:
    """The best in the first objective whose advantage is real; then accuracy, then simplicity decide.

    Needs at least one feasible candidate. The recommendation that `summary` may hold already is not read.
    """
    choice = _choose(summary, alike)
    return Recommendation(
        candidate_id=choice.chosen.candidate.id,
        reason=_reason(summary, choice),
        warnings=_warnings(summary, choice.chosen),
        alternatives=_alternatives(summary, choice.chosen, alike),
        steps=_steps(summary, choice.chosen, alike),
    )


def complexity(candidate: Candidate, baseline: Candidate) -> int:
    """How many settings somebody who runs this candidate must know beyond the baseline's; off and zero are free."""
    known = baseline.parameters()
    count = 0
    for name, value in candidate.parameters().items():
        if value == known.get(name) or value in (False, 0, ""):
            continue
        count += len(str(value).split()) if name == "compile.disabled_fusions" else 1
    return count


# --- the choice ----------------------------------------------------------------------------------------------------


def _choose(summary: Summary, alike: Alike) -> _Choice:
    """Step by step, those stay who cannot be told apart from the best of the step.

    First comes the leading objective, then the others, then accuracy and speed if they were no objectives, then the
    fewest settings. The rest is point values and, last, the id, so that equal input gives an equal answer.
    """
    baseline = summary.baseline if summary.baseline is not None and summary.is_feasible(summary.baseline) else None
    pool = [m.evaluation for m in summary.front]
    if baseline is not None and baseline not in pool:
        pool.append(baseline)
    fit = [e for e in pool if not _is_contradicted(summary, e)]
    left = fit or pool
    criteria = _criteria(summary.objectives)
    if criteria[0] in SPEED and baseline in left and not any(_faster(summary, e) for e in left if e is not baseline):
        left = [baseline]
    counts = []
    for metric in criteria:
        best = min(left, key=lambda e: cost_of(e, metric, summary.baseline_id))
        left = [e for e in left if e is best or alike.in_metric(e, best, metric)]
        counts.append(len(left))
    origin = baseline or left[0]

    def simplest(e: Evaluation) -> tuple[object, ...]:
        costs = [cost_of(e, metric, summary.baseline_id) for metric in reversed(criteria)]
        return complexity(e.candidate, origin.candidate), *costs, e.candidate.id

    return _Choice(
        chosen=min(left, key=simplest),
        criteria=criteria,
        rivals=counts[0],
        ties=counts[-1],
        passed_over=[e for e in pool if e not in fit] if fit else [],
    )


def _criteria(objectives: Sequence[Objective]) -> list[str]:
    """The leading objective is the first that is not accuracy: the limit on accuracy is what constraints are for."""
    names = [o.metric for o in objectives]
    others = [name for name in names if name not in ACCURACY]
    order = others + [name for name in names if name in ACCURACY]
    order += [] if any(name in ACCURACY for name in names) else ["accuracy"]
    order += [] if any(name in (*SPEED, *SERVICE) for name in names) else ["speedup"]
    return order


def _is_contradicted(summary: Summary, evaluation: Evaluation) -> bool:
    """Whether the held-out data breaks a constraint, or, with no limit on accuracy, a loss of accuracy is certain."""
    member = summary.member(evaluation.candidate.id)
    if member is not None and (member.broken_on_holdout or _does_not_serve(member)):
        return True
    limited = any(c.metric in ACCURACY for c in summary.constraints)
    drop = drop_of(evaluation, summary.baseline_id)
    return not limited and drop is not None and drop.low > 0


def _does_not_serve(member: Member) -> bool:
    """Whether its confirmation found no service settings that work, though the search did."""
    confirmed = member.confirmation.measurement.service if member.confirmation is not None else None
    return confirmed is not None and confirmed.best is None


def _faster(summary: Summary, evaluation: Evaluation) -> bool:
    speedup = best_known_speedup(summary, evaluation)
    return speedup is not None and speedup.low > 1


# --- the words for it ----------------------------------------------------------------------------------------------


def _reason(summary: Summary, choice: _Choice) -> str:
    chosen, lead = choice.chosen, choice.criteria[0]
    if chosen.candidate.id == summary.baseline_id:
        beaten = "is faster beyond the noise" if lead in SPEED else "beats it"
        words = [f"Ship the float baseline as it is: no candidate that meets every constraint {beaten}."]
    else:
        words = [_merit(summary, choice), *_gain(summary, chosen)]
    words += [
        f"{other.candidate.short_id} looked better in {lead} and was passed over: {_why_not(summary, other)}."
        for other in choice.passed_over
        if other.candidate.id != summary.baseline_id
        and cost_of(other, lead, summary.baseline_id) < cost_of(chosen, lead, summary.baseline_id)
    ]
    return " ".join(words)


def _merit(summary: Summary, choice: _Choice) -> str:
    """What decided: the leading objective alone, a later one among equals, or simplicity."""
    lead, *later = choice.criteria
    best = {"minimize": "lowest", "maximize": "highest"}[METRICS[lead].direction]
    rank = "fastest" if lead in SPEED else f"{best} {lead}"
    noun = scored(summary.evaluations).noun
    kept = "meets every constraint" if summary.constraints else f"loses no {noun} for certain"
    if choice.ties > 1:
        among = f"among the {count_of(choice.ties, 'candidate')} that cannot be told apart from the best"
        return f"It {kept} and is the simplest {among} ({rank}, then {noun})."
    if choice.rivals > 1:
        then = ", then ".join(later)
        return f"It {kept}; {choice.rivals} cannot be told apart as the {rank}, and of these it is the best in {then}."
    return f"It is the {rank} that {kept}."


def _gain(summary: Summary, chosen: Evaluation) -> list[str]:
    speedup, drop = best_known_speedup(summary, chosen), best_known_drop(summary, chosen)
    if speedup is None:
        return []
    where = "held-out data" if chosen.candidate.id in summary.confirmations else "the validation split"
    how = "emulated" if summary.emulated else "measured"
    cost = f", with {scored(summary.evaluations).drop_words(drop)}" if drop is not None else ""
    words = [f"Against the float baseline it is {interval(speedup, 'x', 2)} as fast{cost}, {how} on {where}."]
    return words + _served(summary, chosen)


def _served(summary: Summary, chosen: Evaluation) -> list[str]:
    """What its service does, as far as that is known."""
    service = best_known_service(summary, chosen)
    if service is None or service.best is None:
        return []
    shown = service.confirmed or service.best
    how = "predicted from modelled times" if service.curve.clock == "modelled" else "predicted"
    how = "measured under real load" if service.confirmed is not None else how
    return [
        f"Served with {shown.settings}, it answers {shown.throughput_per_s.value:.0f} requests a second with a P99 of "
        f"{shown.p99_ms.value:.0f} ms under {shown.load}, {how}."
    ]


def _why_not(summary: Summary, evaluation: Evaluation) -> str:
    member = summary.member(evaluation.candidate.id)
    broken = member.broken_on_holdout if member is not None else {}
    if broken:
        return "on held-out data it breaks " + ", ".join(over(name, by) for name, by in broken.items())
    if member is not None and _does_not_serve(member):
        service = best_known_service(summary, evaluation)
        return service.note if service is not None and service.note else "its service keeps no limit on held-out data"
    noun = scored(summary.evaluations).noun
    return f"it certainly loses {noun}, and no constraint says how much may be lost"


def _warnings(summary: Summary, chosen: Evaluation) -> tuple[str, ...]:
    found = []
    latency = chosen.measurement.latency
    if summary.emulated:
        found.append("These numbers come from the emulator; they say nothing about a real device.")
    if latency is not None and not latency.quiet:
        found.append(f"Its timing was disturbed: {latency.verdict}.".replace("..", "."))
    found += _self_comparison(summary)
    member = summary.member(chosen.candidate.id)
    if member is not None and member.broken_on_holdout:
        broken = ", ".join(over(name, by) for name, by in member.broken_on_holdout.items())
        found.append(f"On held-out data it breaks {broken}, and so does every other candidate of the front.")
    drop = best_known_drop(summary, chosen)
    by = scored(summary.evaluations)
    limit = next((c.limit for c in summary.constraints if c.metric == by.drop_metric), None)
    if drop is not None and limit is not None and drop.value <= limit < drop.high:
        found.append(
            f"The limit of {limit:g} {by.drop_unit} lies inside the interval of its drop (up to {drop.high:+.2f} "
            f"{by.drop_unit}): {_more_samples(drop, limit)} would be needed to be sure of it."
        )
    if chosen.candidate.id not in summary.confirmations:
        found.append("It was not confirmed on held-out data.")
    return tuple(found)


def _more_samples(drop: Estimate, limit: float) -> str:
    """How many times as many samples narrow the upper end to the limit, the rest being as it is."""
    if limit <= drop.value:
        return "more samples"
    times = ((drop.high - drop.value) / (limit - drop.value)) ** 2
    return f"about {times:.1f} times as many samples" if times < 1000 else "very many more samples"


def _alternatives(summary: Summary, chosen: Evaluation, alike: Alike) -> dict[str, str]:
    return {m.id: _trade(summary, chosen, m, alike) for m in summary.front if m.id != chosen.candidate.id}


def _trade(summary: Summary, chosen: Evaluation, member: Member, alike: Alike) -> str:
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
        "as accurate within the noise" if same_accuracy else scored(summary.evaluations).change_words(step[1]),
    ]
    mine, its = summary.numbers(chosen), summary.numbers(other)
    for o in summary.objectives:
        if o.metric not in (*SPEED, *ACCURACY) and mine[o.metric] != its[o.metric]:
            words.append(f"{o.metric} {its[o.metric]:.4g} instead of {mine[o.metric]:.4g}")
    return ", ".join(words) + broken


def _steps(summary: Summary, chosen: Evaluation, alike: Alike) -> tuple[Step, ...]:
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
                feasible=summary.is_feasible(other),
            )
        )
    return tuple(sorted(found, key=lambda s: (s.parameter, str(s.after), s.candidate_id)))


def _difference(summary: Summary, chosen: Evaluation, other: Evaluation) -> tuple[float, float]:
    """(speed of the other over the chosen one, by how much the other is more accurate in pp or the metric's unit), both
    complete.

    Speed is calls per second at equal batch sizes, else samples per second.
    """
    mine, its = summary.numbers(chosen), summary.numbers(other)
    same_batch = chosen.candidate.serving.batch == other.candidate.serving.batch
    name = "speedup" if same_batch else "throughput_per_s"
    return its[name] / mine[name], scored([other]).scale * (its["accuracy"] - mine["accuracy"])


def _self_comparison(summary: Summary) -> list[str]:
    """The baseline is timed against itself; where its interval misses 1, intervals here cannot be trusted fully."""
    found = []
    for evaluation in (summary.baseline, summary.confirmations.get(summary.baseline_id)):
        latency = evaluation.measurement.latency if evaluation is not None else None
        if evaluation is not None and latency is not None and not latency.speedup.low <= 1 <= latency.speedup.high:
            speed = latency.speedup
            found.append(
                f"Timed against itself on {evaluation.split}, the float baseline came out at {speed.value:.2f}x "
                f"[{speed.low:.2f}, {speed.high:.2f}]: the machine disturbed even paired timing, so the intervals of "
                "this sweep are too narrow. Sweep again on a quieter machine before relying on small differences."
            )
    return found
