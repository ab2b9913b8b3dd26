"""The service: what it is told, what was predicted of it, what real load showed; and what a demand needs and costs."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.load.result import LoadResult
from workbench.prediction.capacity import CapacityPlan, MemberPlan
from workbench.report.written.document import Block, Bullets, Cell, Section, Table
from workbench.report.written.goals import best_service
from workbench.report.written.material import Material
from workbench.report.written.wording import (
    DASH,
    Row,
    figure,
    heading,
    level_words,
    loaded_name,
    note_words,
    number,
    paragraph,
    say,
    section,
    table,
    translated,
)
from workbench.values.device_use import DeviceUse, Spread
from workbench.values.evidence import Evidence
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.service import ServiceSettings, bins_words

_SETTINGS, _UNTUNED, _LOADS = "Service settings", "untuned", "Load tests"
_ROWS = {
    "max_batch_size": "largest batch",
    "batch_timeout_ms": "waits for a batch (ms)",
    "workers": "workers",
    "sequence_bins": "bins of the service",
}


def serving(m: Material) -> Section:
    service = best_service(m)
    blocks: list[Block] = [heading(_SETTINGS)]
    if service is None:
        blocks.append(paragraph("The experiment asks for no service: its throughput and times are not measured."))
        if m.settings is not None:
            blocks.append(_settings(None, m.settings, _UNTUNED))
    else:
        before = "today" if service.untuned_is_today else _UNTUNED
        chosen = m.settings or (service.best or service.closest).settings
        blocks.append(_settings(service.untuned.settings, chosen, before))
        blocks += _figures(m, service, before)
    blocks += [heading(_LOADS), *_loads(m)]
    return section("Service settings and load", blocks)


def _settings(before: ServiceSettings | None, chosen: ServiceSettings, which: str) -> Table:
    def value(settings: ServiceSettings | None, name: str) -> str:
        if settings is None:
            return "–"
        found = getattr(settings, name)
        if name != "sequence_bins":
            return f"{found:g}"
        return translated(bins_words(found)) if found else say("as compiled")

    differing = [before is not None and getattr(before, name) != getattr(chosen, name) for name in _ROWS]
    return table(
        _SETTINGS,
        "setting|{before}|what ships",
        [(say(words), value(before, name), value(chosen, name)) for name, words in _ROWS.items()],
        strong=(i for i, differs in enumerate(differing) if differs),
        before=say(which),
    )


def _figures(m: Material, service: ServiceResult, before: str) -> Iterator[Block]:
    shown = service.best or service.closest
    modelled = m.emulated or service.curve.clock == "modelled"
    simulated: Evidence = "modelled" if modelled else "predicted"

    def row(name: str, found: ServiceFigures | None, known: Evidence) -> Row:
        if found is None:
            return (name, *(figure(None) for _ in range(5)))
        return (
            name,
            *(figure(each, known) for each in (found.throughput_per_s, found.p50_ms, found.p99_ms)),
            figure(f"{found.mean_batch:.1f}"),
            figure(f"{found.padding_share:.0%}"),
        )

    if service.best is None:
        yield paragraph("No settings keep the limit on P99; below are the closest.", kind="warning")
    yield table(
        "The service under {load}",
        "settings|requests/s|P50 ms|P99 ms|mean batch|padding",
        [
            *(
                row(say("{which}, {level}", which=say(which), level=level_words(simulated)), found, simulated)
                for which, found in ((before, service.untuned), ("what ships¦settings", shown))
            ),
            row(say("what ships, under real load"), service.confirmed, "modelled" if modelled else "measured held-out"),
        ],
        note="" if shown.host is None else say("Predicted with host costs {origin}.", origin=shown.host.origin),
        load=translated(str(shown.load)),
    )


def _loads(m: Material) -> Iterator[Block]:
    if not m.loads:
        yield paragraph(
            "No load tests were given (workbench load … --to, --load); what was not loaded is not measured."
        )
        return
    if m.loads_emulated:
        yield paragraph(
            "The service that was loaded computes on an emulator: these times are by this host's clock, not "
            "those of a device, and decide nothing.",
            kind="warning",
        )
    yield table(
        "Load tests (of an emulator, by the host's clock)" if m.loads_emulated else _LOADS,
        "load|s|answered|requests/s|P50 ms|P95 ms|P99 ms|reliable",
        [
            (
                loaded_name(one),
                figure(f"{one.window_s:.0f}"),
                figure(f"{number(one.answered)}/{number(one.requests)}"),
                *(figure(f, "measured") for f in (one.throughput_per_s, one.p50_ms, one.p95_ms, one.p99_ms)),
                Cell(text=say("yes" if one.reliable else "no"), state="plain" if one.reliable else "missed"),
            )
            for one in m.loads
        ],
    )
    served: list[Row] = []
    for one in (one for one in m.loads if one.server is not None or one.processes is not None):
        batch, queue, model, padding = (
            None if one.server is None else getattr(one.server, name)
            for name in ("mean_batch", "queue_ms", "model_ms", "padding_share")
        )
        share = None if padding is None else f"{padding:.0%}"
        peak = None if one.processes is None else one.processes.resident_peak_bytes / 1e6
        served.append((loaded_name(one), *map(figure, (batch, share, queue, model)), figure(peak, digits=0)))
    if served:
        heads = "load|mean batch|padding|queue ms|model ms|peak resident MB"
        yield table("The service's processes during load", heads, served)
    if cards := [_card_row(one, card) for one in m.loads for card in one.device]:
        yield table("Cards during load (median / peak)", "load|card|memory GB|power W|busy %|°C|told by", cards)
    notes = [say("{load}: {note}", load=loaded_name(one), note=note_words(n)) for one in m.loads for n in one.notes]
    if notes:
        yield Bullets(items=tuple(notes))


def _card_row(one: LoadResult, card: DeviceUse) -> Row:
    known: Evidence = "modelled" if card.emulated else "measured"

    def cell(spread: Spread | None, scale: float = 1.0) -> Cell:
        if spread is None:
            return figure(None)
        return figure(f"{number(spread.median * scale)} / {number(spread.peak * scale)}", known)

    uses = cell(card.memory_bytes, 1e-9), *map(cell, (card.power_w, card.utilization_percent, card.temperature_c))
    return loaded_name(one), card.card, *uses, note_words(card.source)


# --- cards and cost ------------------------------------------------------------------------------------------------


_TITLE = "Capacity and cost"
_UNITS = {"card": ("card", "cards"), "server process": ("process", "processes")}


def fleet(m: Material) -> Section:
    """What each candidate needs for a demand, what that costs, and on what all of it rests."""
    plan = m.capacity
    if plan is None:
        none = paragraph(
            "No plan of capacity was given (workbench plan-capacity … --json, --capacity): cards and cost "
            "are not known."
        )
        return section(_TITLE, (none,))
    demand = paragraph(
        "Demand: {rate} requests/s, P99 <= {p99} ms, {headroom} headroom.",
        rate=number(plan.demand.rate_per_s),
        p99=f"{plan.demand.p99_ms:g}",
        headroom=f"{plan.demand.headroom:.0%}",
    )
    unit, count = map(say, _UNITS[plan.unit])
    members = table(
        "Capacity by candidate",
        "id|what|highest rate of a {unit}|limited by|{count}|servers|N+1|P99 ms|cost a month",
        [_member_row(each, plan) for each in plan.members],
        unit=unit,
        count=count,
    )
    rests = Bullets(items=tuple(_assumptions(plan, unit)))
    return section(_TITLE, (demand, members, heading("What this rests on"), rests))


def _member_row(each: MemberPlan, plan: CapacityPlan) -> Row:
    level: Evidence = "modelled" if each.emulated else "predicted"
    if each.highest is None:
        none = Cell(text=say("no rate keeps the limit on P99"), state="missed")
        return (each.candidate_id[:12], each.what, none, *(DASH for _ in range(6)))
    cost = plan.cost_a_month(each)
    return (
        *(each.candidate_id[:12], each.what),
        figure(each.highest.load.rate_per_s or each.highest.throughput_per_s.value, level),
        say(each.limited_by) if each.limited_by is not None else "–",
        figure(each.cards),
        figure(each.servers) if plan.unit == "card" else DASH,
        figure(each.cards_to_lose_one),
        DASH if each.planned is None else figure(each.planned.p99_ms.value, level),
        DASH if cost is None else figure(cost, digits=0),
    )


def _assumptions(plan: CapacityPlan, unit: str) -> Iterator[str]:
    if plan.emulated:
        yield say("Times come from a model of the chip, not from a device; sizes are a rehearsal.")
    yield say(
        "The highest rate of one card (process) is simulated from its batch curve, arrivals are Poisson; "
        "no load was put on a fleet."
    )
    yield say("Cards scale linearly behind a balancer that spreads requests at random; its own time is not counted.")
    if plan.demand.price_per_hour is not None:
        price = f"{plan.demand.price_per_hour:g}"
        yield say("Cost: {price} an hour for each {unit}, which runs all the time.", price=price, unit=unit)
