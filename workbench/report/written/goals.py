"""The first page, for those who decide: the conclusion, and every goal against what was reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.report.reading import drop_of, numbers_of
from workbench.report.written.cells import estimate_words, figure, number, text, unit_words
from workbench.report.written.criteria import about_words, criterion_name, limit_words, outcome_cell, state_of
from workbench.report.written.document import Block, Bullets, Cell, Language, Paragraph, Section, State, Table
from workbench.report.written.marks import LEVEL
from workbench.report.written.material import Material
from workbench.report.written.naming import SPLIT, candidate_name, metric_name, settings_name
from workbench.report.written.texts import Text
from workbench.shipping.acceptance.verdict import Bound, decided
from workbench.values.evidence import Evidence, level_of, service_level
from workbench.values.measurement import Estimate, ServiceResult, Split
from workbench.values.metrics import intervals

_TITLE = Text(zh="结论与指标达成情况", en="Conclusion, and goals against results")
_CONCLUSION: dict[str, Text] = {
    "passed": Text(
        zh="总体结论：通过。全部设有目标值的指标均已达标。", en="Overall: PASSED. Every goal with a limit is met."
    ),
    "failed": Text(zh="总体结论：不通过。未达标指标：{which}。", en="Overall: FAILED. Missed: {which}."),
    "not decided": Text(
        zh="总体结论：暂不能判定。尚无有效实测结论的指标：{which}。",
        en="Overall: NOT DECIDED. Without a conclusive measurement: {which}.",
    ),
    "no goals": Text(
        zh="总体结论：未给出。没有验收结论文件（--verdict），也没有实验约束可供判定。",
        en="Overall: none. There is neither a verdict (--verdict) nor a limit of an experiment to judge by.",
    ),
}
_REHEARSAL = Text(
    zh="（仿真预演，不能作为验收结论，须在真实设备上复测。）",
    en=" (A rehearsal on an emulator: nothing is accepted by it; measure again on a real device.)",
)
_NONE_FITS = Text(
    zh="搜索中没有候选方案满足全部约束；本报告所述为最接近约束的方案，不作为推荐。",
    en="No candidate of the search meets every constraint; this report is about the one that came closest, which is no "
    "recommendation.",
)
_REFUSED = Text(zh="总体结论：不作推荐。{why}", en="Overall: NOT RECOMMENDED. {why}")
_WHAT = Text(zh="交付方案：{what}（{id}）。", en="What ships: {what} ({id}).")
_RECOMMENDED = Text(zh="推荐方案：{what}（{id}）。", en="Recommended: {what} ({id}).")
_CHOSEN = Text(
    zh="在无法区分的 {n} 个候选中选定：{what}（{id}）；现有数据不足以作出推荐。",
    en="Chosen among {n} candidates that cannot be told apart: {what} ({id}). The evidence carries no recommendation.",
)
_BASELINE = Text(
    zh="推荐保持现行浮点方案：满足约束的候选方案中没有优于它的。",
    en="The float model stays as it runs today: no candidate that meets the constraints is better.",
)
_SPEED = Text(
    zh="单次推理速度为浮点基线的 {x} 倍（{level}）。",
    en="One call is {x} times as fast as the float baseline ({level}).",
)
_DROP = Text(
    zh="相对 float32 的精度损失 {drop} {unit}（{level}）。",
    en="Accuracy drop against float32: {drop} {unit} ({level}).",
)
_SERVICE = Text(
    zh="服务在“{settings}”下吞吐 {rate} 请求/s，P99 时延 {p99} ms（{level}）。",
    en="With {settings} the service answers {rate} requests/s with a P99 of {p99} ms ({level}).",
)
_CARDS = Text(
    zh="容量：由 {before} 张卡降至 {after} 张卡（{level}）{money}。",
    en="Capacity: {after} cards instead of {before} ({level}){money}.",
)
_PROCESSES = Text(
    zh="容量：由 {before} 个服务进程降至 {after} 个（{level}）{money}。",
    en="Capacity: {after} server processes instead of {before} ({level}){money}.",
)
_MONEY = Text(zh="，月成本由 {before} 降至 {after} {currency}", en=", {after} {currency} a month instead of {before}")
_LOADED = Text(zh="实际压测", en="measured under real load")
_GOALS = Text(zh="指标达成情况", en="Goals against results")
_HEADS = Text(zh="指标|目标值|结果|原平台|结论", en="goal|limit|result|old platform|state")
_BASIS = Text(zh="判定依据", en="How each goal was judged")
_BASIS_HEADS = Text(zh="指标|结论|依据", en="goal|state|why")
_NOTE = Text(
    zh="方括号内为 95 % 置信区间。未测的指标不视为达标；带〔推算〕〔预测〕字样的数值不是实测值，不作为达标依据。",
    en="In brackets: 95 % intervals. What was not measured is not met; figures marked modelled or predicted are no "
    "measurements and decide nothing.",
)
_OWN_LIMIT = Text(zh="实验约束", en="constraint of the experiment")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    """One row. Attributes: outcome: of `criteria.outcome_cell`; limited: whether it has a limit, so that it counts."""

    name: str
    limit: str
    result: Cell
    published: str
    outcome: str
    limited: bool
    about: str


def _goals(m: Material, language: Language) -> list[_Goal]:
    judged = list(_of_verdict(m, language))
    told = {(goal.name, goal.limit) for goal in judged}
    return [*judged, *(goal for goal in _of_experiment(m, language) if (goal.name, goal.limit) not in told)]


def goals(m: Material, language: Language) -> Section:
    """One page; what each goal was judged by stands in `basis`."""
    found = _goals(m, language)
    blocks: list[Block] = [_conclusion(m, found, language)]
    if m.none_fits and not _refused(m):
        blocks.append(Paragraph(text=_NONE_FITS(language), kind="warning"))
    blocks.append(Bullets(items=tuple(_findings(m, language))))
    if found:
        blocks.append(
            Table(
                caption=_GOALS(language),
                heads=tuple(_HEADS(language).split("|")),
                rows=tuple(_row(goal, m, language) for goal in found),
                note=_NOTE(language),
            )
        )
    return Section(title=_TITLE(language), blocks=tuple(blocks))


def _row(goal: _Goal, m: Material, language: Language) -> tuple[Cell, ...]:
    outcome = outcome_cell(goal.outcome, language, limited=goal.limited, emulated=m.emulated)
    return (
        text(goal.name),
        text(goal.limit),
        goal.result,
        Cell(text=goal.published, figure=True),
        outcome,
    )


def basis(m: Material, language: Language) -> Section | None:
    """Under what conditions each goal was measured, or why it was not; None without goals."""
    found = _goals(m, language)
    if not found:
        return None
    rows = tuple(
        (text(goal.name), outcome_cell(goal.outcome, language, limited=goal.limited, emulated=m.emulated), text(why))
        for goal in found
        if (why := goal.about or "–")
    )
    table = Table(
        caption=_BASIS(language),
        heads=tuple(_BASIS_HEADS(language).split("|")),
        rows=rows,
    )
    return Section(title=_BASIS(language), blocks=(table,))


def _conclusion(m: Material, found: list[_Goal], language: Language) -> Paragraph:
    """By every goal with a limit, those of the verdict and of the experiment alike; of what must not be recommended
    none counts as met."""
    if why := _refused(m):
        return Paragraph(text=_REFUSED(language, why=why), kind="verdict", state="missed")
    states = [
        (goal.name, state_of(goal.outcome)) for goal in found if goal.limited and goal.outcome != "does not apply"
    ]
    kind, wanted, frame = _overall([state for _, state in states])
    joined = ("、" if language == "zh" else ", ").join(dict.fromkeys(name for name, state in states if state == wanted))
    words = _CONCLUSION[kind](language, which=joined)
    if m.emulated and states:
        words, frame = words + _REHEARSAL(language), "missed" if kind == "failed" else "open"
    return Paragraph(text=words, kind="verdict", state=frame)


def _refused(m: Material) -> str:
    if m.summary is None:
        return ""
    return (m.summary.nothing_recommended if m.none_fits else "") or m.summary.refusal(m.chosen)


def _overall(states: list[State]) -> tuple[str, State, State]:
    """(conclusion, state of the goals that it names, its own)."""
    if not states:
        return "no goals", "open", "open"
    if "missed" in states:
        return "failed", "missed", "missed"
    return ("not decided", "open", "open") if "open" in states else ("passed", "met", "met")


def _of_verdict(m: Material, language: Language) -> Iterator[_Goal]:
    for each in () if m.verdict is None else m.verdict.criteria:
        yield _Goal(
            name=criterion_name(each, language),
            limit=limit_words(each, language),
            result=figure(each.figure, language, each.level, unit=each.unit),
            published="–" if each.published is None else number(each.published),
            outcome=each.outcome,
            limited=each.limit is not None,
            about=about_words(each, language),
        )


def _of_experiment(m: Material, language: Language) -> Iterator[_Goal]:
    """Its constraints; a predicted figure meets none, and a modelled one only in a rehearsal."""
    if m.summary is None:
        return
    numbers = numbers_of(m.best, m.summary.baseline_id)
    for each in m.summary.constraints:
        sign = "≤" if each.known.direction == "minimize" else "≥"
        found, level = _estimate(m, each.metric, numbers.get(each.metric)), level_of(m.best, each.metric)
        bound: Bound = "at most" if each.known.direction == "minimize" else "at least"
        yield _Goal(
            name=metric_name(each.metric, language),
            limit=f"{sign} {number(each.limit)} {unit_words(each.known.unit, language)}".rstrip(),
            result=figure(found, language, level, unit=each.known.unit),
            published="–",
            outcome="not measured" if found is None else _outcome(decided(found, bound, each.limit), level),
            limited=True,
            about=_OWN_LIMIT(language),
        )


def _estimate(m: Material, metric: str, value: float | None) -> Estimate | None:
    """With its interval, where it has one: a limit inside of that is not proved to be kept."""
    if value is None:
        return None
    drop = drop_of(m.best, m.baseline.candidate.id if m.baseline is not None else "")
    if metric in ("accuracy_drop_pp", "accuracy_drop") and drop is not None:
        return drop
    return intervals(m.best).get(metric, Estimate(value=value, low=value, high=value))


def _outcome(outcome: str, level: Evidence | None) -> str:
    if level != "predicted" or outcome == "not provable":
        return outcome
    return "predicted, within" if outcome == "passed" else "predicted, beyond"


def _findings(m: Material, language: Language) -> Iterator[str]:
    chosen = m.chosen.candidate
    what = candidate_name(chosen, language)
    recommended = m.summary is not None and m.summary.recommended is not None and not m.named and not m.none_fits
    equals = len(m.summary.recommended.among) if recommended else 0  # type: ignore[union-attr]  # it is there
    which = _CHOSEN if equals else _RECOMMENDED if recommended else _WHAT
    yield which(language, what=what, id=chosen.short_id, n=equals + 1)
    if recommended and m.is_baseline:
        yield _BASELINE(language)
    latency, timed = m.best.measurement.latency, level_of(m.best, "speedup")
    if latency is not None and timed is not None and not m.is_baseline:
        yield _SPEED(language, x=estimate_words(latency.speedup, digits=2), level=LEVEL[timed](language))
    drop = drop_of(m.best, m.baseline.candidate.id if m.baseline is not None else "")
    accuracy, scored = m.best.measurement.accuracy, level_of(m.best, "accuracy")
    if drop is not None and accuracy is not None and scored is not None and not m.is_baseline:
        yield _DROP(
            language,
            drop=estimate_words(drop, signed=True, digits=2),
            unit=unit_words(accuracy.unit or "pp", language),
            level=_on(m.best.split, scored, language),
        )
    service = best_service(m)
    if service is not None and (shown := service.confirmed or service.best) is not None:
        known = service_level(m.best, service)
        loaded = service.confirmed is not None and known != "modelled"
        yield _SERVICE(
            language,
            settings=settings_name(shown.settings, language),
            rate=number(shown.throughput_per_s.value),
            p99=number(shown.p99_ms.value),
            level=(_LOADED if loaded else LEVEL[known])(language),
        )
    yield from _cards(m, language)


def _on(split: Split, level: Evidence, language: Language) -> str:
    """'measured on held-out data', 'validation, modelled'."""
    words = LEVEL[level](language)
    if level == "measured held-out":
        return words
    return SPLIT[split](language) + ("，" if language == "zh" else ", ") + words


def _cards(m: Material, language: Language) -> Iterator[str]:
    fleet = None if m.capacity is None else m.capacity.fleet
    if m.capacity is None or fleet is None:
        return
    costs = [cost for cost in m.capacity.costs if cost.lever != "as run"]
    if len(costs) < 2:
        return
    first, last = costs[0], costs[-1]
    money = ""
    if first.monthly is not None and last.monthly is not None and m.capacity.prices is not None:
        money = _MONEY(
            language,
            before=number(first.monthly.total),
            after=number(last.monthly.total),
            currency=m.capacity.prices.currency,
        )
    level = LEVEL["modelled" if fleet.emulated else "predicted"](language)
    form = _CARDS if fleet.unit == "card" else _PROCESSES
    yield form(language, before=number(first.cards), after=number(last.cards), level=level, money=money)


def best_service(m: Material) -> ServiceResult | None:
    """Of the held-out confirmation where there is one."""
    for one in (m.confirmed, m.chosen):
        if one is not None and one.measurement.service is not None:
            return one.measurement.service
    return None
