"""The service: what it is told, what was predicted of it, and what real load showed."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.load.result import LoadResult
from workbench.report.written.cells import (
    LEVEL,
    as_figure,
    figure,
    heading,
    label,
    not_measured,
    number,
    paragraph,
    say,
    section,
    table,
    text,
)
from workbench.report.written.document import Block, Bullets, Cell, Section, Table
from workbench.report.written.goals import best_service
from workbench.report.written.material import Material
from workbench.report.written.naming import bins_name, load_name, loaded_name, note_words
from workbench.values.device_use import DeviceUse, Spread
from workbench.values.evidence import Evidence
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.service import ServiceSettings

_SETTINGS, _UNTUNED, _LOADS = "Service settings", "untuned", "Load tests"
_MEASURED = "what ships, under real load"
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
    def value(settings: ServiceSettings | None, name: str) -> Cell:
        if settings is None:
            return text("–")
        found = getattr(settings, name)
        if name != "sequence_bins":
            return text(f"{found:g}")
        return text(bins_name(found)) if found else label("as compiled")

    differing = [before is not None and getattr(before, name) != getattr(chosen, name) for name in _ROWS]
    return table(
        _SETTINGS,
        "setting|{before}|what ships",
        [(label(words), value(before, name), value(chosen, name)) for name, words in _ROWS.items()],
        strong=tuple(i for i, differs in enumerate(differing) if differs),
        before=say(which),
    )


def _figures(m: Material, service: ServiceResult, before: str) -> Iterator[Block]:
    shown = service.best or service.closest
    modelled = m.emulated or service.curve.clock == "modelled"
    simulated: Evidence = "modelled" if modelled else "predicted"
    rows = [
        _service_row(say("{which}, {level}", which=say(which), level=say(LEVEL[simulated])), found, simulated)
        for which, found in ((before, service.untuned), ("what ships¦settings", shown))
    ]
    rows.append((label(_MEASURED), *(not_measured() for _ in range(5))))
    if service.confirmed is not None:
        rows[-1] = _service_row(say(_MEASURED), service.confirmed, "modelled" if modelled else "measured held-out")
    if service.best is None:
        yield paragraph("No settings keep the limit on P99; below are the closest.", kind="warning")
    yield table(
        "The service under {load}",
        "settings|requests/s|P50 ms|P99 ms|mean batch|padding",
        rows,
        note="" if shown.host is None else say("Predicted with host costs {origin}.", origin=shown.host.origin),
        load=load_name(shown.load),
    )


def _service_row(name: str, found: ServiceFigures, known: Evidence) -> tuple[Cell, ...]:
    return (
        text(name),
        *(figure(each, known) for each in (found.throughput_per_s, found.p50_ms, found.p99_ms)),
        as_figure(f"{found.mean_batch:.1f}"),
        as_figure(f"{found.padding_share:.0%}"),
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
                text(loaded_name(one)),
                as_figure(f"{one.window_s:.0f}"),
                as_figure(f"{number(one.answered)}/{number(one.requests)}"),
                *(figure(f, "measured") for f in (one.throughput_per_s, one.p50_ms, one.p95_ms, one.p99_ms)),
                Cell(text=say("yes" if one.reliable else "no"), state="plain" if one.reliable else "missed"),
            )
            for one in m.loads
        ],
    )
    if served := [_server_row(one) for one in m.loads if one.server is not None or one.processes is not None]:
        yield table(
            "The service's processes during load",
            "load|mean batch|padding|queue ms|model ms|peak resident MB",
            served,
        )
    cards = tuple(_card_row(one, card) for one in m.loads for card in one.device)
    if cards:
        yield table("Cards during load (median / peak)", "load|card|memory GB|power W|busy %|°C|told by", cards)
    notes = [say("{load}: {note}", load=loaded_name(one), note=note_words(n)) for one in m.loads for n in one.notes]
    if notes:
        yield Bullets(items=tuple(notes))


def _server_row(one: LoadResult) -> tuple[Cell, ...]:
    server = one.server
    batch, queue, model, padding = (
        None if server is None else getattr(server, name)
        for name in ("mean_batch", "queue_ms", "model_ms", "padding_share")
    )
    return (
        text(loaded_name(one)),
        figure(batch),
        not_measured() if padding is None else as_figure(f"{padding:.0%}"),
        *(figure(queue), figure(model)),
        figure(None if one.processes is None else one.processes.resident_peak_bytes / 1e6, digits=0),
    )


def _card_row(one: LoadResult, card: DeviceUse) -> tuple[Cell, ...]:
    known: Evidence = "modelled" if card.emulated else "measured"

    def cell(spread: Spread | None, scale: float = 1.0) -> Cell:
        if spread is None:
            return not_measured()
        return as_figure(f"{number(spread.median * scale)} / {number(spread.peak * scale)}", known)

    return (
        text(loaded_name(one)),
        text(card.card),
        cell(card.memory_bytes, 1e-9),
        cell(card.power_w),
        cell(card.utilization_percent),
        cell(card.temperature_c),
        text(note_words(card.source)),
    )
