"""The first page, for those who decide: the conclusion, and every goal against what was reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.report.words import loss_of, numbers_of
from workbench.report.written.document import Block, Bullets, Cell, Paragraph, Section, State
from workbench.report.written.material import Material
from workbench.report.written.wording import (
    SPLIT,
    about_words,
    candidate_name,
    criterion_name,
    estimate_words,
    figure,
    level_words,
    metric_name,
    note_words,
    number,
    outcome_cell,
    paragraph,
    say,
    section,
    state_of,
    table,
    translated,
    unit_words,
)
from workbench.shipping.acceptance.verdict import Bound, Outcome, decided, exact
from workbench.values.evidence import level_of, service_level
from workbench.values.measurement import ServiceResult
from workbench.values.metrics import intervals
from workbench.values.sequential import GateOutcome

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
    """One row. Attributes: limit: '–' for none, and the goal does not count; outcome: of `wording.outcome_cell`."""

    name: str
    limit: str = "–"
    result: Cell
    published: str = "–"
    outcome: str
    about: str

    @property
    def limited(self) -> bool:
        return self.limit != "–"

    def state(self, m: Material) -> Cell:
        return outcome_cell(self.outcome, limited=self.limited, emulated=m.emulated)


def judged(m: Material) -> list[Goal]:
    """Those of the verdict, then those of the experiment that are not among them."""
    found = [
        Goal(
            name=criterion_name(each),
            limit=_limit(each.bound, each.limit, each.unit),
            result=figure(each.figure, each.level, unit=each.unit),
            published="–" if each.published is None else number(each.published),
            outcome=each.outcome,
            about=about_words(each),
        )
        for each in (() if m.verdict is None else m.verdict.criteria)
    ]
    told = {(goal.name, goal.limit) for goal in found}
    return [*found, *(goal for goal in _of_experiment(m) if (goal.name, goal.limit) not in told)]


def _of_experiment(m: Material) -> Iterator[Goal]:
    """Its constraints; a predicted figure meets none, and a modelled one only in a rehearsal."""
    if m.summary is None:
        return
    numbers, estimates = numbers_of(m.best, m.summary.baseline_id), intervals(m.best)
    for each in m.summary.constraints:
        bound: Bound = "at most" if each.known.direction == "minimize" else "at least"
        gate = None if each.gate is None else m.summary.decision(m.best)
        level, value, outcome = level_of(m.best, each.metric), numbers.get(each.metric), "not measured"
        # with its interval, where it has one: a limit inside of that is not proved to be kept
        found = None if value is None else estimates.get(each.metric, exact(value))
        if found is not None:
            outcome = decided(found, bound, each.limit) if gate is None else _OF_GATE[gate.outcome]
            if level == "predicted" and outcome != "not provable":
                outcome = "predicted, within" if outcome == "passed" else "predicted, beyond"
        yield Goal(
            name=metric_name(each.metric),
            limit=_limit(bound, each.limit, each.known.unit),
            result=figure(found, level, unit=each.known.unit),
            outcome=outcome,
            about=say("; ").join(
                [say("constraint of the experiment"), *([] if gate is None else [note_words(f"{gate}")])]
            ),
        )


_OF_GATE: dict[GateOutcome, Outcome] = {"passed": "passed", "failed": "failed", "undecided": "not provable"}


def _limit(bound: Bound, limit: float | None, unit: str) -> str:
    sign = "≤" if bound == "at most" else "≥"
    return "–" if limit is None else f"{sign} {number(limit)} {unit_words(unit)}".rstrip()


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
                [(g.name, g.limit, g.result, figure(g.published), g.state(m)) for g in found],
                note=say(
                    "In brackets: 95 % intervals. A figure with an interval meets or misses its limit where all of it "
                    "does, so false pass and false alarm are at most 2.5 % each; of an accuracy loss they are at most "
                    "5 % each beyond its zone. What was not measured is not met; figures marked modelled or "
                    "predicted are no measurements and decide nothing."
                ),
            )
        )
    return section("Conclusion, and goals against results", blocks)


def basis(m: Material) -> list[Section]:
    """Under what conditions each goal was measured, or why it was not; nothing without goals."""
    rows = [(goal.name, goal.state(m), goal.about or "–") for goal in judged(m)]
    return [section(_BASIS, [table(_BASIS, "goal|state|why", rows)])] if rows else []


def _conclusion(m: Material, found: Sequence[Goal]) -> Paragraph:
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


def _findings(m: Material) -> Iterator[str]:
    chosen = m.chosen.candidate
    best = None if m.summary is None or m.named or m.none_fits else m.summary.recommended
    equals = 0 if best is None else len(best.among)
    which = _CHOSEN if equals else "What ships: {what} ({id})." if best is None else "Recommended: {what} ({id})."
    yield say(which, what=candidate_name(chosen), id=chosen.short_id, n=equals + 1)
    if best is not None and m.is_baseline:
        yield say("The float model stays as it runs today: no candidate that meets the constraints is better.")
    latency, timed = m.best.measurement.latency, level_of(m.best, "speedup")
    if latency is not None and timed is not None and not m.is_baseline:
        yield say(
            "One call is {x} times as fast as the float baseline ({level}).",
            x=estimate_words(latency.speedup, digits=2),
            level=level_words(timed),
        )
    drop = loss_of(m.best, m.baseline.candidate.id if m.baseline is not None else "")
    accuracy, scored = m.best.measurement.accuracy, level_of(m.best, "accuracy")
    if drop is not None and accuracy is not None and scored is not None and not m.is_baseline:
        split = "" if scored == "measured held-out" else say(SPLIT[m.best.split]) + say(", ")
        yield say(
            "Accuracy loss against float32: {drop} {unit} ({level}).",
            drop=estimate_words(drop, signed=True, digits=2),
            unit=unit_words(accuracy.unit or "pp"),
            level=split + level_words(scored),
        )
    service = best_service(m)
    if service is not None and (shown := service.confirmed or service.best) is not None:
        known = service_level(m.best, service)
        loaded = service.confirmed is not None and known != "modelled"
        yield say(
            "With {settings} the service answers {rate} requests/s with a P99 of {p99} ms ({level}).",
            settings=translated(str(shown.settings)),
            rate=estimate_words(shown.throughput_per_s),
            p99=estimate_words(shown.p99_ms),
            level=say("measured under real load") if loaded else level_words(known),
        )
    yield from _cards(m)


def _cards(m: Material) -> Iterator[str]:
    plan = m.capacity
    if plan is None:
        return
    before = next((each for each in plan.members if each.baseline), None)
    after = next(
        (each for each in plan.members if each.candidate_id == m.chosen.candidate.id and not each.baseline), None
    )
    if before is None or after is None or before.cards is None or after.cards is None:
        return
    costs, money = (plan.cost_a_month(before), plan.cost_a_month(after)), ""
    if costs[0] is not None and costs[1] is not None:
        money = say(", {after} a month instead of {before}", before=number(costs[0]), after=number(costs[1]))
    cards = "Capacity: {after} cards instead of {before} ({level}){money}."
    processes = "Capacity: {after} server processes instead of {before} ({level}){money}."
    yield say(
        cards if plan.unit == "card" else processes,
        before=number(before.cards),
        after=number(after.cards),
        level=level_words("modelled" if plan.emulated else "predicted"),
        money=money,
    )


def best_service(m: Material) -> ServiceResult | None:
    """Of the held-out confirmation where there is one."""
    found = (one.measurement.service for one in (m.confirmed, m.chosen) if one is not None)
    return next((service for service in found if service is not None), None)
