"""The first page, for those who decide: the conclusion, and every goal against what was reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.report.words import loss_of, numbers_of
from workbench.report.written.cells import (
    LEVEL,
    as_figure,
    estimate_words,
    figure,
    number,
    paragraph,
    say,
    section,
    table,
    text,
    unit_words,
)
from workbench.report.written.document import Block, Bullets, Cell, Paragraph, Section, State
from workbench.report.written.material import Material
from workbench.report.written.naming import (
    SPLIT,
    about_words,
    candidate_name,
    criterion_name,
    limit_words,
    metric_name,
    outcome_cell,
    settings_name,
    state_of,
)
from workbench.shipping.acceptance.verdict import Bound, decided
from workbench.values.evidence import Evidence, level_of, service_level
from workbench.values.measurement import Estimate, ServiceResult, Split
from workbench.values.metrics import intervals

_CONCLUSION: dict[str, str] = {
    "met": "Overall: PASSED. Every goal with a limit is met.",
    "missed": "Overall: FAILED. Missed: {which}.",
    "open": "Overall: NOT DECIDED. Without a conclusive measurement: {which}.",
    "none": "Overall: none. There is neither a verdict (--verdict) nor a limit of an experiment to judge by.",
}
_BASIS = "How each goal was judged"
_CHOSEN = (
    "Chosen among {n} candidates that cannot be told apart: {what} ({id}). The evidence carries no recommendation."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One row. Attributes: outcome: of `naming.outcome_cell`; limited: whether it has a limit, so that it counts."""

    name: str
    limit: str
    result: Cell
    published: str
    outcome: str
    limited: bool
    about: str


def judged(m: Material) -> list[Goal]:
    """Those of the verdict, then those of the experiment that are not among them."""
    found = list(_of_verdict(m))
    told = {(goal.name, goal.limit) for goal in found}
    return [*found, *(goal for goal in _of_experiment(m) if (goal.name, goal.limit) not in told)]


def goals(m: Material) -> Section:
    """One page; what each goal was judged by stands in `basis`."""
    found = judged(m)
    blocks: list[Block] = [_conclusion(m, found)]
    if m.none_fits and not _refused(m):
        blocks.append(
            paragraph(
                "No candidate of the search meets every constraint; this report is about the one that came "
                "closest, which is no recommendation.",
                kind="warning",
            )
        )
    blocks.append(Bullets(items=tuple(_findings(m))))
    if found:
        blocks.append(
            table(
                "Goals against results",
                "goal|limit|result|old platform|state",
                [(text(g.name), text(g.limit), g.result, as_figure(g.published), _state(g, m)) for g in found],
                note=say(
                    "In brackets: 95 % intervals. What was not measured is not met; figures marked modelled or "
                    "predicted are no measurements and decide nothing."
                ),
            )
        )
    return section("Conclusion, and goals against results", blocks)


def basis(m: Material) -> list[Section]:
    """Under what conditions each goal was measured, or why it was not; nothing without goals."""
    rows = [(text(goal.name), _state(goal, m), text(goal.about or "–")) for goal in judged(m)]
    return [section(_BASIS, [table(_BASIS, "goal|state|why", rows)])] if rows else []


def _state(goal: Goal, m: Material) -> Cell:
    return outcome_cell(goal.outcome, limited=goal.limited, emulated=m.emulated)


def _conclusion(m: Material, found: list[Goal]) -> Paragraph:
    """By every goal with a limit, those of the verdict and of the experiment alike; of what must not be recommended
    none counts as met."""
    if why := _refused(m):
        return Paragraph(text=say("Overall: NOT RECOMMENDED. {why}", why=why), kind="verdict", state="missed")
    states = [
        (goal.name, state_of(goal.outcome)) for goal in found if goal.limited and goal.outcome != "does not apply"
    ]
    there: set[State] = {state for _, state in states}
    worst: State = "missed" if "missed" in there else "open" if "open" in there or not there else "met"
    joined = say(", ¦list").join(dict.fromkeys(name for name, state in states if state == worst))
    words = say(_CONCLUSION[worst if there else "none"], which=joined)
    if m.emulated and states:
        words += say(" (A rehearsal on an emulator: nothing is accepted by it; measure again on a real device.)")
        worst = "missed" if worst == "missed" else "open"
    return Paragraph(text=words, kind="verdict", state=worst)


def _refused(m: Material) -> str:
    if m.summary is None:
        return ""
    return (m.summary.nothing_recommended if m.none_fits else "") or m.summary.refusal(m.chosen)


def _of_verdict(m: Material) -> Iterator[Goal]:
    for each in () if m.verdict is None else m.verdict.criteria:
        yield Goal(
            name=criterion_name(each),
            limit=limit_words(each),
            result=figure(each.figure, each.level, unit=each.unit),
            published="–" if each.published is None else number(each.published),
            outcome=each.outcome,
            limited=each.limit is not None,
            about=about_words(each),
        )


def _of_experiment(m: Material) -> Iterator[Goal]:
    """Its constraints; a predicted figure meets none, and a modelled one only in a rehearsal."""
    if m.summary is None:
        return
    numbers = numbers_of(m.best, m.summary.baseline_id)
    for each in m.summary.constraints:
        sign = "≤" if each.known.direction == "minimize" else "≥"
        found, level = _estimate(m, each.metric, numbers.get(each.metric)), level_of(m.best, each.metric)
        bound: Bound = "at most" if each.known.direction == "minimize" else "at least"
        yield Goal(
            name=metric_name(each.metric),
            limit=f"{sign} {number(each.limit)} {unit_words(each.known.unit)}".rstrip(),
            result=figure(found, level, unit=each.known.unit),
            published="–",
            outcome="not measured" if found is None else _outcome(decided(found, bound, each.limit), level),
            limited=True,
            about=say("constraint of the experiment"),
        )


def _estimate(m: Material, metric: str, value: float | None) -> Estimate | None:
    """With its interval, where it has one: a limit inside of that is not proved to be kept."""
    if value is None:
        return None
    drop = loss_of(m.best, m.baseline.candidate.id if m.baseline is not None else "")
    if metric in ("accuracy_loss_pp", "accuracy_loss") and drop is not None:
        return drop
    return intervals(m.best).get(metric, Estimate(value=value, low=value, high=value))


def _outcome(outcome: str, level: Evidence | None) -> str:
    if level != "predicted" or outcome == "not provable":
        return outcome
    return "predicted, within" if outcome == "passed" else "predicted, beyond"


def _findings(m: Material) -> Iterator[str]:
    chosen = m.chosen.candidate
    what = candidate_name(chosen)
    recommended = m.summary is not None and m.summary.recommended is not None and not m.named and not m.none_fits
    equals = len(m.summary.recommended.among) if recommended else 0  # type: ignore[union-attr]  # it is there
    which = _CHOSEN if equals else "Recommended: {what} ({id})." if recommended else "What ships: {what} ({id})."
    yield say(which, what=what, id=chosen.short_id, n=equals + 1)
    if recommended and m.is_baseline:
        yield say("The float model stays as it runs today: no candidate that meets the constraints is better.")
    latency, timed = m.best.measurement.latency, level_of(m.best, "speedup")
    if latency is not None and timed is not None and not m.is_baseline:
        yield say(
            "One call is {x} times as fast as the float baseline ({level}).",
            x=estimate_words(latency.speedup, digits=2),
            level=say(LEVEL[timed]),
        )
    drop = loss_of(m.best, m.baseline.candidate.id if m.baseline is not None else "")
    accuracy, scored = m.best.measurement.accuracy, level_of(m.best, "accuracy")
    if drop is not None and accuracy is not None and scored is not None and not m.is_baseline:
        yield say(
            "Accuracy loss against float32: {drop} {unit} ({level}).",
            drop=estimate_words(drop, signed=True, digits=2),
            unit=unit_words(accuracy.unit or "pp"),
            level=_on(m.best.split, scored),
        )
    service = best_service(m)
    if service is not None and (shown := service.confirmed or service.best) is not None:
        known = service_level(m.best, service)
        loaded = service.confirmed is not None and known != "modelled"
        yield say(
            "With {settings} the service answers {rate} requests/s with a P99 of {p99} ms ({level}).",
            settings=settings_name(shown.settings),
            rate=estimate_words(shown.throughput_per_s),
            p99=estimate_words(shown.p99_ms),
            level=say("measured under real load" if loaded else LEVEL[known]),
        )
    yield from _cards(m)


def _on(split: Split, level: Evidence) -> str:
    """'measured on held-out data', 'validation, modelled'."""
    words = say(LEVEL[level])
    if level == "measured held-out":
        return words
    return say(SPLIT[split]) + say(", ") + words


def _cards(m: Material) -> Iterator[str]:
    plan = m.capacity
    members = () if plan is None else plan.members
    before = next((each for each in members if each.baseline), None)
    after = next((each for each in members if each.candidate_id == m.chosen.candidate.id and not each.baseline), None)
    if plan is None or before is None or after is None or before.cards is None or after.cards is None:
        return
    costs = plan.cost_a_month(before), plan.cost_a_month(after)
    money = ""
    if costs[0] is not None and costs[1] is not None:
        money = say(", {after} a month instead of {before}", before=number(costs[0]), after=number(costs[1]))
    level = say(LEVEL["modelled" if plan.emulated else "predicted"])
    cards = "Capacity: {after} cards instead of {before} ({level}){money}."
    processes = "Capacity: {after} server processes instead of {before} ({level}){money}."
    form = cards if plan.unit == "card" else processes
    yield say(form, before=number(before.cards), after=number(after.cards), level=level, money=money)


def best_service(m: Material) -> ServiceResult | None:
    """Of the held-out confirmation where there is one."""
    for one in (m.confirmed, m.chosen):
        if one is not None and one.measurement.service is not None:
            return one.measurement.service
    return None
