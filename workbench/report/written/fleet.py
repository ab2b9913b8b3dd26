"""Capacity and cost: what each change leaves of a fleet, what that costs, who is served with a server lost, and on what
all of it rests."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.prediction.capacity import CapacityPlan, MemberPlan
from workbench.prediction.fleet_cost import Capacity, StepCost
from workbench.prediction.levers import Finding, FleetPlan, FleetStep, Lever, Step
from workbench.report.written.cells import figure, not_measured, number, text
from workbench.report.written.document import (
    Bar,
    BarChart,
    Block,
    Bullets,
    Cell,
    Figure,
    Heading,
    Language,
    Paragraph,
    Section,
    Table,
)
from workbench.report.written.material import Material
from workbench.report.written.naming import GROUP, settings_name
from workbench.report.written.texts import Text
from workbench.values.evidence import Evidence

_TITLE = Text(zh="容量与成本", en="Capacity and cost")
_NONE = Text(
    zh="未做容量规划（workbench plan-capacity … --json，--capacity），卡数、功耗与成本未测。",
    en="No plan of capacity was given (workbench plan-capacity … --json, --capacity): cards and cost are not known.",
)
_LEVERS = Text(zh="各项措施的效果", en="What each change brings")
_LEVER: dict[Lever | str, Text] = {
    "as run": Text(zh="现网规模（用户提供）", en="as it runs, by its owner's word"),
    "today": Text(zh="现行配置", en="today's settings"),
    "bins": Text(zh="序列分桶", en="length bins"),
    "batching": Text(zh="攒批与工作进程", en="batching and workers"),
    "model": Text(zh="INT8 量化", en="INT8"),
    "front ends": Text(zh="多前端进程", en="front ends"),
}
_FINDING: dict[Finding, Text] = {
    "": Text(zh="", en=""),
    "not timed": Text(
        zh="未测：该组合未经计时，其效果并入下一步", en="not measured: not timed; what it brings is in the next step"
    ),
    "keeps no limit": Text(zh="任何速率都不满足 P99 限值", en="no rate keeps the limit on P99"),
    "already so": Text(zh="现行即如此，无变化", en="so already: nothing changes"),
    "not chosen": Text(zh="交付方案即浮点基线，无此项", en="what ships is the float baseline"),
    "not measured": Text(zh="未测：多前端的主机开销未测量", en="not measured: what several front ends cost the host"),
}
_AND, _PLUS = Text(zh="、", en=" and "), Text(zh="+ ", en="+ ")
_FRONT_ENDS = Text(zh="，{n} 个前端进程", en=", {n} front ends")
_STEP_HEADS = Text(
    zh="措施（依次叠加）|单{unit}最高速率（请求/s）|提升|服务配置|{streams}{unit_count}|服务器",
    en="step (on top of those before)|highest rate of a {unit}, requests/s|gain|service settings|"
    "{streams}{unit_count}|servers",
)
_STREAMS = Text(zh="单卡路数|", en="streams a card|")
_CARD, _CARDS = Text(zh="卡", en="card"), Text(zh="卡数", en="cards")
_PROCESS, _PROCESSES = Text(zh="进程", en="process"), Text(zh="进程数", en="processes")
_RATE_BASIS = Text(
    zh="需求：{rate} 请求/s，P99 ≤ {p99} ms，突发余量 {headroom}。",
    en="Demand: {rate} requests/s, P99 <= {p99} ms, {headroom} headroom.",
)
_TODAY_BASIS = Text(
    zh="需求：现网 {cards} 张卡所承载的负载{streams}，P99 ≤ {p99} ms；"
    "各步卡数按单卡最高速率之比折算，现网原有的余量保持不变。",
    en="Demand: what {cards} cards carry today{streams}, P99 <= {p99} ms; cards are in proportion to the highest rate "
    "of one, and today's reserve stays as it is.",
)
_OF_STREAMS = Text(zh="（每卡 {each} 路，共 {all} 路）", en=" ({each} streams a card, {all} in all)")
_COSTS = Text(zh="功耗与月成本", en="Power and cost a month")
_COST_HEADS = Text(
    zh="措施|卡数|服务器|功耗（kW）|卡（{c}）|服务器（{c}）|电费（{c}）|月成本（{c}）",
    en="step|cards|servers|kW|cards, {c}|servers, {c}|energy, {c}|a month, {c}",
)
_POWER_HEADS = Text(zh="措施|卡数|服务器|功耗（kW）", en="step|cards|servers|kW")
_NO_PRICES = Text(
    zh="未提供价格文件（--prices），成本未计算。", en="No prices were given (--prices): no cost was worked out."
)
_ASSUMED = Text(zh="（假定）", en=" (assumed)")
_WITHOUT = Text(zh="（不含电费）", en=" (without energy)")
_LOST = Text(zh="损失一台服务器", en="One server lost")
_LOST_PROCESS = Text(zh="损失一个服务进程", en="One server process lost")
_LOST_HEADS = Text(zh="措施|含备用（N+1 台）", en="step|with one to spare")
_SERVED = Text(zh="{name}（{share}）仍可服务", en="{name} ({share}) still served")
_ALL = Text(zh="全部请求", en="all requests")
_CHART = Text(zh="各步所需{what}", en="{what} after each step")
_MEMBERS = Text(zh="各候选方案的容量", en="Capacity by candidate")
_MEMBER_HEADS = Text(
    zh="候选|方案|单{unit}最高速率（请求/s）|瓶颈|{count}|服务器|N+1|失一{unit}时 P99（ms）",
    en="id|what|highest rate of a {unit}|limited by|{count}|servers|N+1|P99 with one {unit} lost, ms",
)
_LIMITED: dict[str, Text] = {
    "the model": Text(zh="模型", en="the model"),
    "the front end": Text(zh="前端进程", en="the front end"),
    "the limit on P99": Text(zh="P99 限值", en="the limit on P99"),
}
_OVER = Text(zh="过载", en="overloaded")
_ASSUMPTIONS = Text(zh="前提与假设", en="What this rests on")
_EMULATED = Text(
    zh="时间由芯片模型推算，不是设备实测；规模仅供预演。",
    en="Times come from a model of the chip, not from a device; sizes are a rehearsal.",
)
_SIMULATED = Text(
    zh="单卡（单进程）的最高速率由其 batch 时延曲线仿真得到，请求按泊松到达；未对整个集群加压。",
    en="The highest rate of one card (process) is simulated from its batch curve, arrivals are Poisson; no load was "
    "put on a fleet.",
)
_LINEAR = Text(
    zh="卡数线性扩展，均衡器随机分发；均衡器和网络的额外时延未计入。",
    en="Cards scale linearly behind a balancer that spreads requests at random; its own time is not counted.",
)
_ORDER = Text(
    zh="各措施依次叠加；改变次序，单项的效果会不同。",
    en="Steps are on top of each other; in another order each would bring something else.",
)
_CLASSES = Text(
    zh="服务自身没有优先级；由上游按优先级限流，损失一台服务器时先保证靠前的类别。",
    en="The service has no priorities: whoever spreads the requests holds classes apart, and serves the first ones "
    "whole before the next.",
)
_PRICES = Text(
    zh="价格来源：{source}；按月平摊，不计利息。", en="Prices: {source}; spread evenly over months, no interest."
)
_NO_POWER = Text(
    zh="单卡功耗未知，功耗与电费未计入。", en="The power of a card is not known: kW and energy are in no figure."
)
_POWER = Text(zh="单卡功耗取连续推理时的读数，为上限。", en="A card's power is that of calls back to back, so at most.")
_POWER_ASSUMED = Text(zh="单卡功耗为假定值，未测量。", en="The power of a card is assumed, not measured.")


def fleet(m: Material, language: Language, in_pictures: Language) -> Section:
    if m.capacity is None:
        return Section(title=_TITLE(language), blocks=(Paragraph(text=_NONE(language)),))
    blocks: list[Block] = []
    plan = m.capacity.fleet
    if plan is not None:
        blocks += _steps(m.capacity, plan, language, in_pictures)
    if m.capacity.plan is not None:
        blocks += [Heading(text=_MEMBERS(language)), _members(m.capacity.plan, language)]
    blocks += [Heading(text=_ASSUMPTIONS(language)), Bullets(items=tuple(_assumptions(m.capacity, language)))]
    return Section(title=_TITLE(language), blocks=tuple(blocks))


def _steps(found: Capacity, plan: FleetPlan, language: Language, in_pictures: Language) -> Iterator[Block]:
    yield Paragraph(text=_demand(plan, language))
    yield Heading(text=_LEVERS(language))
    yield _step_table(plan, language)
    bars = [each for each in plan.steps if each.cards is not None]
    if len(bars) > 1:
        yield _chart(plan, bars, language, in_pictures)
    yield Heading(text=_COSTS(language))
    if found.prices is None:
        yield Paragraph(text=_NO_PRICES(language))
    if found.costs:
        yield _costs(found, language)
    yield Heading(text=(_LOST if plan.unit == "card" else _LOST_PROCESS)(language))
    yield _lost(plan, language)


def _demand(plan: FleetPlan, language: Language) -> str:
    p99 = f"{plan.p99_ms:g}"
    if plan.rate_per_s is not None:
        headroom = f"{plan.headroom or 0:.0%}"
        return _RATE_BASIS(language, rate=number(plan.rate_per_s), p99=p99, headroom=headroom)
    streams = ""
    if plan.fleet.streams is not None and plan.fleet.streams_per_card is not None:
        streams = _OF_STREAMS(language, each=number(plan.fleet.streams_per_card), all=number(plan.fleet.streams))
    return _TODAY_BASIS(language, cards=number(plan.fleet.cards or 0), streams=streams, p99=p99)


def lever_name(step: Step, language: Language) -> str:
    names = [*(_LEVER[lever](language) for lever in step.held), *_changes(step, language)]
    return ("" if step.lever == "today" else _PLUS(language)) + _AND(language).join(names)


def _changes(step: Step, language: Language) -> list[str]:
    if step.lever != "model" or not step.groups:
        return [_LEVER[step.lever](language)]
    first = [_LEVER["model"](language)] if step.quantized else [GROUP["precision"](language)]
    rest = [GROUP[group](language) for group in step.groups if group != "precision"]
    return [*(first if "precision" in step.groups else []), *rest]


def _step_table(plan: FleetPlan, language: Language) -> Table:
    with_streams = plan.fleet.streams_per_card is not None and plan.unit == "card"
    card = plan.unit == "card"
    heads = _STEP_HEADS(
        language,
        unit=(_CARD if card else _PROCESS)(language),
        unit_count=(_CARDS if card else _PROCESSES)(language),
        streams=_STREAMS(language) if with_streams else "",
    ).split("|")
    rows = [_step_row(each, plan, with_streams, language) for each in plan.steps]
    return Table(caption=_LEVERS(language), heads=tuple(heads), rows=tuple(rows))


def _step_row(each: FleetStep, plan: FleetPlan, with_streams: bool, language: Language) -> tuple[Cell, ...]:
    step, dash = each.step, Cell(text="–", figure=True)
    name = text(lever_name(step, language))
    if step.rate_per_s is None:
        found = Cell(text=_FINDING[step.finding](language), state="open" if "not " in step.finding else "plain")
        return (name, dash, dash, found, *((dash,) if with_streams else ()), dash, dash)
    settings = "" if step.settings is None else settings_name(step.settings, language)
    settings += _FRONT_ENDS(language, n=step.front_ends) if step.front_ends > 1 else ""
    streams = (figure(each.streams_per_card, language, digits=1),) if with_streams else ()
    return (
        name,
        figure(step.rate_per_s, language, step.evidence),
        dash if each.gain is None else Cell(text=f"{each.gain:.2f}", figure=True),
        text(settings),
        *streams,
        Cell(text=number(each.cards or 0), figure=True),
        Cell(text=number(each.servers or 0), figure=True),
    )


def _chart(plan: FleetPlan, steps: list[FleetStep], language: Language, in_pictures: Language) -> Figure:
    level: Evidence = "modelled" if plan.emulated else "predicted"
    what = _CARDS if plan.unit == "card" else _PROCESSES
    bars = tuple(
        Bar(label=lever_name(each.step, in_pictures), value=each.cards or 0, evidence=level, strong=True)
        for each in steps
    )
    return Figure(caption=_CHART(language, what=what(language)), chart=BarChart(axis=what(in_pictures), bars=bars))


def _costs(found: Capacity, language: Language) -> Table:
    plan = found.fleet
    assert plan is not None, "there are costs of a fleet alone"
    names: dict[str, str] = {each.step.lever: lever_name(each.step, language) for each in plan.steps}
    money = found.prices.currency if found.prices is not None else ""
    heads = (_POWER_HEADS if found.prices is None else _COST_HEADS)(language, c=money).split("|")
    rows = [_cost_row(cost, names.get(cost.lever, _LEVER["as run"](language)), language) for cost in found.costs]
    return Table(caption=_COSTS(language), heads=tuple(heads), rows=tuple(rows))


def _cost_row(cost: StepCost, name: str, language: Language) -> tuple[Cell, ...]:
    kw = not_measured(language)
    if cost.kw is not None:
        assumed = _ASSUMED(language) if cost.power_basis == "assumed" else ""
        kw = Cell(text=f"≤ {cost.kw:,.1f}{assumed}", figure=True)
    row = (text(name), Cell(text=number(cost.cards), figure=True), Cell(text=number(cost.servers), figure=True), kw)
    if cost.monthly is None:
        return row
    month = cost.monthly
    energy = not_measured(language) if month.energy is None else figure(month.energy, language, digits=0)
    total = f"{month.total:,.0f}" + (_WITHOUT(language) if month.energy is None else "")
    amounts = (figure(amount, language, digits=0) for amount in (month.cards, month.servers))
    return (*row, *amounts, energy, Cell(text=total, figure=True))


def _lost(plan: FleetPlan, language: Language) -> Table:
    classes = [(one.name, one.name, f"{one.share:.0%}") for one in plan.classes]
    heads = [_SERVED(language, name=name, share=share) for _, name, share in classes]
    heads = heads or [_SERVED(language, name=_ALL(language), share="100%")]
    names = [key for key, _, _ in classes] or ["all"]
    rows = [
        (
            text(lever_name(each.step, language)),
            Cell(text=number(each.cards_with_spare_server or 0), figure=True),
            *(_served(each, name, language) for name in names),
        )
        for each in plan.steps
        if each.cards is not None
    ]
    return Table(
        caption=(_LOST if plan.unit == "card" else _LOST_PROCESS)(language),
        heads=(*_LOST_HEADS(language).split("|"), *heads),
        rows=tuple(rows),
    )


def _served(each: FleetStep, name: str, language: Language) -> Cell:
    share = each.served_with_lost_server.get(name)
    return not_measured(language) if share is None else Cell(text=f"{share:.0%}", figure=True)


def _members(plan: CapacityPlan, language: Language) -> Table:
    card = plan.unit == "card"
    unit, count = (_CARD if card else _PROCESS)(language), (_CARDS if card else _PROCESSES)(language)
    return Table(
        caption=_MEMBERS(language),
        heads=tuple(_MEMBER_HEADS(language, unit=unit, count=count).split("|")),
        rows=tuple(_member_row(each, plan, language) for each in plan.members),
    )


def _member_row(each: MemberPlan, plan: CapacityPlan, language: Language) -> tuple[Cell, ...]:
    dash = Cell(text="–", figure=True)
    head = (text(each.candidate_id[:12]), text(each.what))
    level: Evidence = "modelled" if each.emulated else "predicted"
    if each.highest is None:
        none = Cell(text=_FINDING["keeps no limit"](language), state="missed")
        return (*head, none, *(dash for _ in range(5)))
    rate = each.highest.load.rate_per_s or each.highest.throughput_per_s.value
    lost = each.one_lost
    after = dash if lost is None else Cell(text=_OVER(language), state="missed", figure=True)
    if lost is not None and lost.reliable:
        after = Cell(
            text=number(lost.p99_ms.value), figure=True, state="plain" if lost.keeps else "missed", evidence=level
        )
    return (
        *head,
        figure(rate, language, level),
        text(_LIMITED[each.limited_by](language) if each.limited_by is not None else "–"),
        figure(each.cards, language),
        figure(each.servers, language) if plan.unit == "card" else dash,
        figure(each.cards_to_lose_one, language),
        after,
    )


def _assumptions(found: Capacity, language: Language) -> Iterator[str]:
    if found.emulated:
        yield _EMULATED(language)
    yield _SIMULATED(language)
    yield _LINEAR(language)
    if found.fleet is not None:
        yield _ORDER(language)
        if found.fleet.classes:
            yield _CLASSES(language)
    if found.prices is not None:
        yield _PRICES(language, source=found.prices.source)
    bases = {cost.power_basis for cost in found.costs}
    said = {"not known": _NO_POWER, "device": _POWER, "assumed": _POWER_ASSUMED}
    for basis, sentence in said.items():
        if basis in bases:
            yield sentence(language)
