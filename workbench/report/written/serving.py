"""The service: what it is told, what was predicted of it, and what real load showed."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.load.result import LoadResult
from workbench.report.written.cells import figure, not_measured, number, text
from workbench.report.written.criteria import note_words
from workbench.report.written.document import Block, Bullets, Cell, Heading, Language, Paragraph, Section, Table
from workbench.report.written.goals import best_service
from workbench.report.written.marks import LEVEL
from workbench.report.written.material import Material
from workbench.report.written.naming import bins_name, load_name, loaded_name
from workbench.report.written.texts import Text
from workbench.values.device_use import DeviceUse, Spread
from workbench.values.evidence import Evidence
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.service import ServiceSettings

_TITLE = Text(zh="服务配置与压测", en="Service settings and load")
_SETTINGS = Text(zh="服务配置", en="Service settings")
_SETTING_HEADS = Text(zh="配置项|{before}|交付配置", en="setting|{before}|what ships")
_TODAY, _UNTUNED = Text(zh="现行配置", en="today"), Text(zh="未调优配置", en="untuned")
_ROWS = {
    "max_batch_size": Text(zh="最大 batch", en="largest batch"),
    "batch_timeout_ms": Text(zh="攒批等待（ms）", en="waits for a batch (ms)"),
    "workers": Text(zh="工作进程数", en="workers"),
    "sequence_bins": Text(zh="服务端分桶", en="bins of the service"),
}
_AS_COMPILED = Text(zh="同编译规格", en="as compiled")
_NO_SERVICE = Text(
    zh="实验未要求服务（无 service 配置），服务吞吐与时延未测。",
    en="The experiment asks for no service: its throughput and times are not measured.",
)
_FIGURES = Text(zh="服务性能（{load}）", en="The service under {load}")
_FIGURE_HEADS = Text(
    zh="配置|吞吐（请求/s）|P50（ms）|P99（ms）|平均 batch|填充占比",
    en="settings|requests/s|P50 ms|P99 ms|mean batch|padding",
)
_SIMULATED = Text(zh="{which}，{level}", en="{which}, {level}")
_SHIPS = Text(zh="交付配置", en="what ships")
_MEASURED = Text(zh="交付配置，实际压测", en="what ships, under real load")
_KEEPS_NONE = Text(
    zh="没有任何配置满足 P99 限值；下表为最接近的配置。", en="No settings keep the limit on P99; below are the closest."
)
_HOST = Text(zh="预测所用主机开销：{origin}。", en="Predicted with host costs {origin}.")
_LOADS = Text(zh="压测结果", en="Load tests")
_OF_EMULATOR = Text(zh="压测结果（仿真器，主机时钟）", en="Load tests (of an emulator, by the host's clock)")
_NO_LOADS = Text(
    zh="未提供压测结果（workbench load … --to，--load）；未做压测的部分视为未测。",
    en="No load tests were given (workbench load … --to, --load); what was not loaded is not measured.",
)
_LOAD_HEADS = Text(
    zh="负载|时长（s）|应答/请求|吞吐（请求/s）|P50（ms）|P95（ms）|P99（ms）|可信",
    en="load|s|answered|requests/s|P50 ms|P95 ms|P99 ms|reliable",
)
_YES, _NO = Text(zh="是", en="yes"), Text(zh="否", en="no")
_EMULATED_LOADS = Text(
    zh="压测对象运行在仿真器上：下列时间由主机时钟实测，不是真实设备的时间，不作为验收依据。",
    en="The service that was loaded computes on an emulator: these times are by this host's clock, not those of a "
    "device, and decide nothing.",
)
_DEVICE = Text(zh="压测期间的服务进程", en="The service's processes during load")
_CARDS = Text(zh="压测期间的卡（中位数 / 峰值）", en="Cards during load (median / peak)")
_CARD_HEADS = Text(
    zh="负载|卡|内存（GB）|功耗（W）|利用率（%）|温度（°C）|来源", en="load|card|memory GB|power W|busy %|°C|told by"
)
_SERVER_HEADS = Text(
    zh="负载|平均 batch|填充占比|排队（ms）|模型（ms）|进程内存峰值（MB）",
    en="load|mean batch|padding|queue ms|model ms|peak resident MB",
)
_NOTES = Text(zh="{load}：{note}", en="{load}: {note}")


def serving(m: Material, language: Language) -> Section:
    service = best_service(m)
    blocks: list[Block] = [Heading(text=_SETTINGS(language))]
    if service is None:
        blocks.append(Paragraph(text=_NO_SERVICE(language)))
        if m.settings is not None:
            blocks.append(_settings(None, m.settings, _UNTUNED, language))
    else:
        before = _TODAY if service.untuned_is_today else _UNTUNED
        chosen = m.settings or (service.best or service.closest).settings
        blocks.append(_settings(service.untuned.settings, chosen, before, language))
        blocks += _figures(m, service, before, language)
    blocks += [Heading(text=_LOADS(language)), *_loads(m, language)]
    return Section(title=_TITLE(language), blocks=tuple(blocks))


def _settings(before: ServiceSettings | None, chosen: ServiceSettings, which: Text, language: Language) -> Table:
    names = list(_ROWS)
    rows = [
        (
            text(_ROWS[name](language)),
            text("–" if before is None else _value(before, name, language)),
            text(_value(chosen, name, language)),
        )
        for name in names
    ]
    return Table(
        caption=_SETTINGS(language),
        heads=tuple(_SETTING_HEADS(language, before=which(language)).split("|")),
        rows=tuple(rows),
        strong=tuple(i for i, n in enumerate(names) if before is not None and getattr(before, n) != getattr(chosen, n)),
    )


def _value(settings: ServiceSettings, name: str, language: Language) -> str:
    value = getattr(settings, name)
    if name != "sequence_bins":
        return f"{value:g}"
    return bins_name(value, language) if value else _AS_COMPILED(language)


def _figures(m: Material, service: ServiceResult, before: Text, language: Language) -> list[Block]:
    shown = service.best or service.closest
    modelled = m.emulated or service.curve.clock == "modelled"
    simulated: Evidence = "modelled" if modelled else "predicted"
    level = LEVEL[simulated](language)
    rows = [
        _service_row(_SIMULATED(language, which=which(language), level=level), found, simulated, language)
        for which, found in ((before, service.untuned), (_SHIPS, shown))
    ]
    if service.confirmed is not None:
        measured: Evidence = "modelled" if modelled else "measured held-out"
        rows.append(_service_row(_MEASURED(language), service.confirmed, measured, language))
    else:
        rows.append((text(_MEASURED(language)), *(not_measured(language) for _ in range(5))))
    blocks: list[Block] = [] if service.best is not None else [Paragraph(text=_KEEPS_NONE(language), kind="warning")]
    host = shown.host
    blocks.append(
        Table(
            caption=_FIGURES(language, load=load_name(shown.load, language)),
            heads=tuple(_FIGURE_HEADS(language).split("|")),
            rows=tuple(rows),
            note="" if host is None else _HOST(language, origin=host.origin),
        )
    )
    return blocks


def _service_row(name: str, found: ServiceFigures, known: Evidence, language: Language) -> tuple[Cell, ...]:
    return (
        text(name),
        figure(found.throughput_per_s, language, known),
        figure(found.p50_ms, language, known),
        figure(found.p99_ms, language, known),
        Cell(text=f"{found.mean_batch:.1f}", figure=True),
        Cell(text=f"{found.padding_share:.0%}", figure=True),
    )


def _loads(m: Material, language: Language) -> Iterator[Block]:
    if not m.loads:
        yield Paragraph(text=_NO_LOADS(language))
        return
    if m.loads_emulated:
        yield Paragraph(text=_EMULATED_LOADS(language), kind="warning")
    yield Table(
        caption=(_OF_EMULATOR if m.loads_emulated else _LOADS)(language),
        heads=tuple(_LOAD_HEADS(language).split("|")),
        rows=tuple(_load_row(one, language) for one in m.loads),
    )
    served = [one for one in m.loads if one.server is not None or one.processes is not None]
    if served:
        yield Table(
            caption=_DEVICE(language),
            heads=tuple(_SERVER_HEADS(language).split("|")),
            rows=tuple(_server_row(one, language) for one in served),
        )
    cards = tuple(_card_row(one, card, language) for one in m.loads for card in one.device)
    if cards:
        yield Table(
            caption=_CARDS(language),
            heads=tuple(_CARD_HEADS(language).split("|")),
            rows=cards,
        )
    notes = [
        _NOTES(language, load=loaded_name(one, language), note=note_words(n, language))
        for one in m.loads
        for n in one.notes
    ]
    if notes:
        yield Bullets(items=tuple(notes))


def _load_row(one: LoadResult, language: Language) -> tuple[Cell, ...]:
    times = (figure(each, language, "measured") for each in (one.p50_ms, one.p95_ms, one.p99_ms))
    return (
        text(loaded_name(one, language)),
        Cell(text=f"{one.window_s:.0f}", figure=True),
        Cell(text=f"{number(one.answered)}/{number(one.requests)}", figure=True),
        figure(one.throughput_per_s, language, "measured"),
        *times,
        Cell(text=(_YES if one.reliable else _NO)(language), state="plain" if one.reliable else "missed"),
    )


def _server_row(one: LoadResult, language: Language) -> tuple[Cell, ...]:
    server = one.server
    padding = None if server is None else server.padding_share
    resident = None if one.processes is None else one.processes.resident_peak_bytes / 1e6
    return (
        text(loaded_name(one, language)),
        figure(None if server is None else server.mean_batch, language),
        not_measured(language) if padding is None else Cell(text=f"{padding:.0%}", figure=True),
        figure(None if server is None else server.queue_ms, language),
        figure(None if server is None else server.model_ms, language),
        figure(resident, language, digits=0),
    )


def _card_row(one: LoadResult, card: DeviceUse, language: Language) -> tuple[Cell, ...]:
    known: Evidence = "modelled" if card.emulated else "measured"

    def cell(spread: Spread | None, scale: float = 1.0) -> Cell:
        if spread is None:
            return not_measured(language)
        words = f"{number(spread.median * scale)} / {number(spread.peak * scale)}"
        return Cell(text=words, figure=True, evidence=known)

    return (
        text(loaded_name(one, language)),
        text(card.card),
        cell(card.memory_bytes, 1e-9),
        cell(card.power_w),
        cell(card.utilization_percent),
        cell(card.temperature_c),
        text(note_words(card.source, language)),
    )
