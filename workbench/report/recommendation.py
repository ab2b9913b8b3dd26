"""Which candidate to ship, why, and what speaks against relying on it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.report.alike import Alike
from workbench.report.rests_on import modelled_errors
from workbench.report.summary import BASES, Basis, Recommendation, Summary, common, failure_words
from workbench.report.words import (
    ACCURACY,
    SERVICE,
    SPEED,
    cost_of,
    count_of,
    interval,
    loss_of,
    scored,
    scored_by,
    speedup_of,
)
from workbench.values.candidate import Candidate
from workbench.values.evidence import level_for, sources_of
from workbench.values.measurement import Accuracy, AccuracyComparison
from workbench.values.metrics import METRICS
from workbench.values.results import Evaluation
from workbench.values.sequential import Decision

_MOST_NAMED = 3
_HELD = 0.8
"""Share of the time from which on who is busy so long holds up what is served; the busiest of two does."""
_MORE_SAMPLES = "more samples in validation and holdout"
_MORE = {
    **dict.fromkeys(SPEED, f"more timed calls (measure.calls) on a quiet machine, or {_MORE_SAMPLES}"),
    **dict.fromkeys(SERVICE, f"longer loads on each service (service.confirm), or {_MORE_SAMPLES}"),
}


def recommend(summary: Summary, alike: Alike) -> Recommendation | str:
    """The best in the first objective whose advantage is real; then the other criteria, then simplicity decide.

    Step by step, those stay who cannot be told apart from the best of the step. All are compared by the strongest
    evidence that there is on a candidate besides the baseline; who has less is not in question. First comes the leading
    objective, then the others, then accuracy if it was no objective, then what else is limited, then the time of a call
    if that was no objective, then whose figures were measured on itself, then the fewest settings. The rest is point
    values and, last, the id, so that equal input gives an equal answer.

    Needs at least one member of the front. The recommendation that `summary` may hold already is not read.

    Returns:
        in words why there is none, where confirmations hold something against all of them or the float baseline failed
        its own: nothing can be held against that then.
    """
    confirmed, baseline = summary.confirmations.get(summary.baseline_id), summary.baseline
    if confirmed is not None and confirmed.failure is not None:
        again = "Run the same sweep again" if confirmed.deserves_another else f"Run: {confirmed.failure.reproduce}"
        return (
            "the confirmation of the float baseline itself could not be run on held-out data, so no candidate can be "
            f"held against it ({failure_words(confirmed.failure)}). This is a fault in running or feeding the model, "
            f"and no loss of accuracy. {again}; its log: {confirmed.failure.log_path}."
        )
    pool = [m.evaluation for m in summary.front if not m.against]
    if baseline is not None and baseline not in pool and summary.may_ship(baseline):
        pool.append(baseline)
    if not pool:
        why = "; ".join(f"{m.evaluation.candidate.short_id}: {m.against}" for m in summary.front)
        return (
            f"held-out data speaks against every candidate that the search found to meet the constraints. {why}. "
            "Loosen that limit, use more samples, or widen the search space."
        )
    against = {e.candidate.id: _certain_loss(summary, e) for e in pool}
    fit = [e for e in pool if not against[e.candidate.id]] or pool
    basis = _basis(summary, fit)
    left = [views[basis] for e in fit if basis in (views := summary.views(e))]
    criteria = _criteria(summary, left)
    origin = next((e for e in left if e.candidate.id == summary.baseline_id), None)
    faster = (speedup_of(e).low > 1 for e in left if e is not origin)
    if criteria[0] in SPEED and origin is not None and not any(faster):
        left = [origin]
    counts = []
    for metric in criteria:
        best = min(left, key=lambda e: cost_of(e, metric, summary.baseline_id))
        left = [e for e in left if e is best or alike.in_metric(e, best, metric)]
        counts.append(len(left))
    plain = (origin or left[0]).candidate

    def simplest(e: Evaluation) -> tuple[object, ...]:
        costs = [cost_of(e, metric, summary.baseline_id) for metric in reversed(criteria)]
        return bool(sources_of(e)), complexity(e.candidate, plain), *costs, e.candidate.id

    chosen = min(left, key=simplest)
    searched = next(e for e in pool if e.candidate.id == chosen.candidate.id)
    among = _equals(summary, searched, criteria, alike, lossless=fit != pool)
    if searched.candidate.id == summary.baseline_id:
        reason = [_as_it_is(summary, searched, criteria[0])]
    else:
        merit = _merit(summary, criteria, rivals=counts[0], ties=counts[-1], equal=bool(among))
        reason = [merit, *_gain(summary, searched)]
    fallen = [(m.evaluation, m.against or "it is not feasible on held-out data") for m in summary.fallen]
    passed = [(e, why) for e in pool if (why := against[e.candidate.id]) and e is not searched and e not in fit]
    reason += [
        f"{other.candidate.short_id} looked better in {criteria[0]} and was passed over: {why}."
        for other, why in (*passed, *fallen)
        if _looked_better(summary, other, searched, criteria[0])
    ]
    settled_by: tuple[str, ...] = (_MORE.get(criteria[0], _MORE_SAMPLES),) if among else ()
    if summary.emulated:  # none of it was measured anywhere
        told = (one.about for one in modelled_errors(summary, searched)[:_MOST_NAMED])
        settled_by = (*told, "the same sweep on a real device")
    return Recommendation(
        candidate_id=chosen.candidate.id,
        reason=" ".join(reason),
        warnings=_warnings(summary, searched, criteria[0]),
        evidence=level_for(chosen, [o.metric for o in summary.objectives]),
        among=tuple(e.candidate.id for e in among),
        compared=tuple(criteria) if among else (),
        settled_by=settled_by,
    )


def headline(summary: Summary) -> str:
    """The first words on what to ship: the recommendation, or that the evidence carries none, or that there is none."""
    found = summary.recommended
    if found is None:
        return f"Nothing is recommended: {summary.why_none}"
    every = [e for i in (found.candidate_id, *found.among) if (e := summary.find(i)) is not None]
    named = [f"{e.candidate.short_id}  {summary.title(e.candidate)}" for e in every]
    if not found.among:
        return f"Recommended: {named[0]}"
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    together = f"Cannot be told apart: {' and '.join(named[:_MOST_NAMED])}{more}"
    # others may tell them apart: one is twice as fast a call, and as much is served
    by = f", by {', '.join(found.compared)}" if found.compared else ""
    return f"{together}{by}. Chosen among these equals: {found.candidate_id[:12]}"


def settling_sentence(found: Recommendation) -> str:
    """Nothing where a measured recommendation stands."""
    what = "tell them apart" if found.among else "bear it out"
    return f"What would {what}: {'; '.join(found.settled_by)}." if found.settled_by else ""


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


def _basis(summary: Summary, fit: Sequence[Evaluation]) -> Basis:
    """The strongest evidence on any candidate besides the baseline, or on the baseline where it is alone; of modelled
    times, of which a confirmation knows no more than the search, the strongest on all."""
    others = [e for e in fit if e.candidate.id != summary.baseline_id] or fit
    if summary.emulated:
        return next(basis for basis in BASES if all(basis in summary.views(e) for e in fit))
    return min((basis for e in others for basis in summary.views(e)), key=BASES.index)


def _criteria(summary: Summary, compared: Sequence[Evaluation]) -> list[str]:
    """The leading objective is the first that is not accuracy: the limit on accuracy is what constraints are for."""
    names = [o.metric for o in summary.objectives]
    others = [name for name in names if name not in ACCURACY]
    order = others + [name for name in names if name in ACCURACY]
    order += [] if any(name in ACCURACY for name in names) else ["accuracy"]
    limited = [c.metric for c in summary.constraints if c.metric in (*SPEED, *SERVICE)]
    further = [*limited, *(["service_p99_ms"] if summary.serves else [])]
    known = [name for name in further if all(name in summary.numbers(e) for e in compared)]
    # last, what a call takes: it is measured where a service may be predicted only, and tells apart who serves alike
    return list(dict.fromkeys((*order, *known, *([] if any(name in SPEED for name in names) else ["speedup"]))))


def _equals(
    summary: Summary, chosen: Evaluation, criteria: Sequence[str], alike: Alike, *, lossless: bool
) -> list[Evaluation]:
    """Who else may be recommended and cannot be told apart from the chosen one in any criterion, by the strongest
    evidence that both have: in the search point values decide who is on the front, and noise may have decided them.
    Without those that compute the same and answered the same: nothing could tell these apart."""

    def equal(other: Evaluation) -> bool:
        pair = common(summary.views(chosen), summary.views(other))
        known = [name for name in criteria if all(name in summary.numbers(e) for e in pair)]
        return not (
            alike.apart(*pair, known) or alike.by_content(*pair) or (lossless and _certain_loss(summary, other))
        )

    others = (e for e in summary.evaluations if e.candidate.id != chosen.candidate.id and summary.may_ship(e))
    return [other for other in others if equal(other)]


def _certain_loss(summary: Summary, evaluation: Evaluation) -> str:
    """That it certainly loses accuracy where no constraint says how much may be lost."""
    drop = loss_of(summary.strongest(evaluation), summary.baseline_id)
    if not any(c.metric in ACCURACY for c in summary.constraints) and drop is not None and drop.low > 0:
        return f"it certainly loses {scored(summary.evaluations).noun}, and no constraint says how much may be lost"
    return ""


def _looked_better(summary: Summary, other: Evaluation, chosen: Evaluation, metric: str) -> bool:
    costs = [cost_of(e, metric, summary.baseline_id) for e in (other, chosen) if metric in summary.numbers(e)]
    return other.candidate.id != summary.baseline_id and len(costs) == 2 and costs[0] < costs[1]


# --- the words for it ----------------------------------------------------------------------------------------------


def _as_it_is(summary: Summary, baseline: Evaluation, lead: str) -> str:
    latency = baseline.measurement.latency
    modelled = latency is not None and latency.modelled is not None
    beyond = "what is not known of the clock" if modelled else "the noise"
    because = "no candidate that meets every constraint "
    because += f"is faster beyond {beyond}" if lead in SPEED else "beats it"
    if not any(e.status == "complete" for e in summary.evaluations if e is not baseline):
        ended = [*(f"{n} stopped at {why}" for why, n in sorted(summary.stops.items()))]
        ended += [f"{n} failed at {why}" for why, n in sorted(summary.failures.items())]
        because = f"none of the others came through: {'; '.join(ended)}" if ended else "no other was evaluated"
    return f"Ship the float baseline as it is: {because}."


def _merit(summary: Summary, criteria: Sequence[str], *, rivals: int, ties: int, equal: bool) -> str:
    """What decided: the leading objective alone, a later one among equals, or simplicity.

    Args:
        rivals, ties: how many cannot be told apart from the best in the first criterion, and in all of them.
        equal: others may be recommended as well.
    """
    lead, *later = criteria
    best = {"minimize": "lowest", "maximize": "highest"}[METRICS[lead].direction]
    rank = "fastest" if lead in SPEED else f"{best} {lead}"
    noun = scored(summary.evaluations).noun
    kept = "meets every constraint" if summary.constraints else f"loses no {noun} for certain"
    if ties > 1:
        among = f"among the {count_of(ties, 'candidate')} that cannot be told apart from the best"
        return f"It {kept} and is the simplest {among} ({rank}, then {noun})."
    if equal:
        return f"It {kept} and is the {rank} by point values, which the intervals do not bear out."
    if rivals > 1:
        then = ", then ".join(later)
        return f"It {kept}; {rivals} cannot be told apart as the {rank}, and of these it is the best in {then}."
    return f"It is the {rank} that {kept}."


def _gain(summary: Summary, chosen: Evaluation) -> list[str]:
    speedup, drop = summary.speedup(chosen), summary.drop(chosen)
    if speedup is None:
        return []
    where = "held-out data" if summary.strongest(chosen).split == "holdout" else "the validation split"
    how = "emulated" if summary.emulated else "measured"
    cost = f", with {scored(summary.evaluations).loss_words(drop)}" if drop is not None else ""
    fast = f"{interval(speedup, 'x', 2)} as fast"
    if summary.strongest(chosen).measurement.language is not None:
        fast += " at decoding (modelled, measured nowhere)"
    words = [f"Against the float baseline it is {fast}{cost}, {how} on {where}."]
    words += [losses] if (losses := losses_sentence(summary, chosen)) else []
    return words + _served(summary, chosen)


def _served(summary: Summary, chosen: Evaluation) -> list[str]:
    """What its service does, as far as that is known."""
    service = summary.service(chosen)
    if service is None or service.best is None:
        return []
    shown = service.confirmed or service.best
    how = "predicted from modelled times" if service.curve.clock == "modelled" else "predicted"
    how = "measured under real load" if service.confirmed is not None else how
    return [
        f"Served with {shown.settings}, it answers {shown.throughput_per_s.value:.0f} requests a second with a P99 of "
        f"{shown.p99_ms.value:.0f} ms under {shown.load}, {how}."
    ]


def _slower(summary: Summary, chosen: Evaluation, lead: str) -> list[str]:
    speedup = summary.speedup(chosen)
    if speedup is None or speedup.high >= 1:
        return []
    why = "" if lead in SPEED else f" It leads in {lead}, the first objective beside accuracy."
    return [f"A call of it is slower than the float baseline's: {interval(speedup, 'x', 2)}.{why}"]


def _held_by_the_host(summary: Summary, chosen: Evaluation) -> list[str]:
    """Whether the front end, not the model, limits what is served: a faster model would gain little there."""
    service = summary.service(chosen)
    best = None if service is None else service.best
    if best is None or best.host is None or best.worker_busy is None:
        return []
    busy = best.host.front_end_busy(best.throughput_per_s.value, best.mean_batch)
    if busy < _HELD or busy < best.worker_busy:
        return []
    return [
        f"The host's front end, not the model, limits what is served: busy {min(busy, 1):.0%} of the time, workers "
        f"{best.worker_busy:.0%} (its costs: {best.host.origin})."
    ]


def _warnings(summary: Summary, chosen: Evaluation, lead: str) -> tuple[str, ...]:
    found = [*_slower(summary, chosen, lead), *_held_by_the_host(summary, chosen)]
    latency = summary.strongest(chosen).measurement.latency
    if summary.emulated:
        found.append("These numbers come from the emulator; they say nothing about a real device.")
    if latency is not None and not latency.quiet:
        found.append(f"Its timing was disturbed: {latency.verdict}.".replace("..", "."))
    baseline = summary.baseline
    for itself in (baseline, summary.confirmations.get(summary.baseline_id)):
        timed = None if itself is None else itself.measurement.latency
        if itself is not None and timed is not None and not timed.speedup.low <= 1 <= timed.speedup.high:
            found.append(
                f"Timed against itself on {itself.split}, the float baseline came out at "
                f"{interval(timed.speedup, 'x', 2)}: the machine disturbed even paired timing, so the intervals of "
                "this sweep are too narrow. Sweep again on a quieter machine before relying on small differences."
            )
    if baseline is not None and (accuracy := baseline.measurement.accuracy) is not None and accuracy.alike:
        found.append(accuracy.alike)
    decided = summary.decision(summary.strongest(chosen))
    if decided is not None and decided.outcome == "undecided":
        found.append(sentence(decided))
    if chosen.candidate.id not in summary.confirmations:
        found.append("It was not confirmed on held-out data.")
    return tuple(found)


def gate_sentence(summary: Summary) -> str:
    """What the gate on accuracy says of the recommended candidate; '' where it is undecided, which is a warning, and
    where there is none."""
    chosen = summary.chosen
    decided = None if chosen is None else summary.decision(summary.strongest(chosen))
    return "" if decided is None or decided.outcome == "undecided" else sentence(decided)


def sentence(decision: Decision) -> str:
    words = str(decision)
    return f"{words[0].upper()}{words[1:]}."


def losses_sentence(summary: Summary, evaluation: Evaluation) -> str:
    """'Against float32 …, the float baseline (force_fp16) loses …; beyond it, this one loses …', by the strongest
    evidence on both; '' where the baseline itself is float32."""
    baseline = summary.baseline
    own, ours = (None if e is None else summary.strongest(e).measurement.accuracy for e in (baseline, evaluation))
    if baseline is None or own is None or own.comparison is None or not own.reference:
        return ""
    mode = baseline.candidate.precision.mode
    found = f"Against {own.reference}, the float baseline as it runs today ({mode}) loses {_lost(own, own.comparison)}"
    if ours is not None and ours.against_baseline is not None:
        found += f"; beyond it this candidate loses {_lost(ours, ours.against_baseline)}"
    return f"{found} of {scored_by(own).noun}."


def _lost(accuracy: Accuracy, compared: AccuracyComparison) -> str:
    return interval(compared.drop_pp, f" {scored_by(accuracy).loss_unit}", 2, signed=True)
