"""Times and throughput: against the old platform, against the float model of today, and where a speed-up comes from."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.report.factors import taken_apart
from workbench.report.summary import best_known_drop, best_known_service, best_known_speedup
from workbench.report.written.cells import figure, not_measured, text, unit_words
from workbench.report.written.criteria import criterion_name
from workbench.report.written.document import (
    Bar,
    BarChart,
    Block,
    Cell,
    Figure,
    Heading,
    Language,
    Paragraph,
    Point,
    PointKind,
    ScatterChart,
    Section,
    Table,
)
from workbench.report.written.material import Material
from workbench.report.written.modelled import on_the_model
from workbench.report.written.naming import GROUP, candidate_name, metric_name
from workbench.report.written.texts import Text
from workbench.shipping.acceptance import Criterion
from workbench.values.evidence import level_of, service_level
from workbench.values.metrics import intervals, metrics
from workbench.values.objectives import METRICS
from workbench.values.results import Evaluation

_TITLE = Text(zh="性能", en="Performance")
_OLD = Text(zh="与原平台对比", en="Against the old platform")
_NO_VERDICT = Text(
    zh="未提供验收结论文件（--verdict），与原平台的对比未测。",
    en="No verdict was given (--verdict): nothing was compared with the old platform.",
)
_OLD_SOURCE = Text(zh="原平台：{name}。数据来源：{source}。", en="Old platform: {name}. Source: {source}.")
_ANSWERS = Text(zh="原平台应答文件：{file}。", en="File of its answers: {file}.")
_OLD_HEADS = Text(zh="指标|原平台|新平台|新/原", en="figure|old platform|new platform|new over old")
_OLD_CHART = Text(zh="{name}：新平台与原平台", en="{name}: new and old platform")
_CHARTS = {
    "requests/s": Text(zh="吞吐", en="Throughput"),
    "ms": Text(zh="请求时延", en="Latency of a request"),
}
"""Unit → what is drawn of it."""
_NEW_BAR, _OLD_BAR = Text(zh="新平台", en="new"), Text(zh="原平台", en="old")
_LIMIT = Text(zh="目标值 {value}", en="limit {value}")
_CALLS = Text(zh="单次推理", en="One call")
_CALL_HEADS = Text(zh="指标|浮点基线（现行）|交付方案", en="figure|float baseline (today)|what ships")
_CALL_ONE = Text(zh="指标|交付方案（即浮点基线）", en="figure|what ships (the float baseline)")
_MORE = {
    "device_host_to_device_ms": Text(zh="输入拷贝到设备", en="copy to the device"),
    "device_execute_ms": Text(zh="设备执行", en="execution on the device"),
    "device_device_to_host_ms": Text(zh="输出拷贝到主机", en="copy to the host"),
    "device_memory_mb": Text(zh="设备内存", en="device memory"),
    "device_power_w": Text(zh="设备功耗", en="device power"),
    "device_utilization_percent": Text(zh="设备利用率", en="device utilization"),
    "device_temperature_c": Text(zh="设备温度", en="device temperature"),
}
_UNITS = {
    "device_host_to_device_ms": "ms",
    "device_execute_ms": "ms",
    "device_device_to_host_ms": "ms",
    "device_memory_mb": "MB",
    "device_power_w": "W",
    "device_utilization_percent": "%",
    "device_temperature_c": "°C",
}
_SHOWN = (
    *("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s", "speedup"),
    *("size_mb", "peak_memory_mb", "startup_s"),
)
_CALL_NOTE = Text(
    zh="batch {batch}，计时调用 {calls} 次，与浮点基线在同一进程内交替计时；加速比为逐轮配对的比值。{quiet}",
    en="Batch {batch}, {calls} timed calls, in turns with the float baseline in one process; the speed-up is paired by "
    "round. {quiet}",
)
_MODELLED = Text(
    zh="batch {batch}，时间由设备模型推算，未计时。",
    en="Batch {batch}. Times come from a model of the device; nothing was timed.",
)
_NOISY = Text(zh="计时受到干扰：绝对时延仅供参考。", en="The machine was disturbed: absolute times are a guide only.")
_QUIET = Text(zh="计时期间机器安静。", en="The machine was quiet.")
_APART = Text(zh="加速来源", en="Where the speed comes from")
_APART_HEADS = Text(zh="来源（依次叠加）|倍数 [95 % 区间]", en="from (each on top of those before)|factor [95 %]")
_TOTAL = Text(zh="合计", en="all together")
_TOGETHER = Text(zh="（合并，未分开测量）", en=" (together, not measured apart)")
_INT8 = Text(zh="INT8 量化", en="INT8")
_JOIN = Text(zh="、", en=", ")
_FRONT = Text(zh="帕累托前沿", en="The Pareto front")
_FRONT_HEADS = Text(
    zh="候选|方案|加速比|精度损失|服务吞吐（请求/s）|服务 P99（ms）",
    en="id|what|speed-up|drop|service /s|service P99 ms",
)
_FRONT_NOTE = Text(
    zh="各数值取现有证据中最强者；粗体为本报告所述方案。",
    en="Every figure by the strongest evidence on it; bold is what this report is about.",
)
_NO_FRONT = Text(
    zh="部署包不含搜索过程；前沿见对应实验的报告。",
    en="A bundle does not hold the search; see the report of its experiment.",
)
_NAMES: dict[PointKind, Text] = {
    "other": Text(zh="其他候选", en="other candidates"),
    "front": Text(zh="前沿", en="front"),
    "baseline": Text(zh="浮点基线", en="float baseline"),
    "chosen": Text(zh="交付方案", en="what ships"),
}
_SCATTER = Text(zh="候选方案分布", en="All candidates")
_FLOAT_MARK = Text(zh="（浮点基线）", en=" (float baseline)")


def performance(m: Material, language: Language, in_pictures: Language) -> Section:
    """Args: in_pictures: language of the words in pictures, for which this machine has letters."""
    blocks: list[Block] = [Heading(text=_OLD(language)), *_old_platform(m, language, in_pictures)]
    blocks += [Heading(text=_CALLS(language)), *_calls(m, language), *_apart(m, language)]
    blocks += [Heading(text=_FRONT(language)), *_front(m, language, in_pictures)]
    blocks += on_the_model(m.summary, m.source, language)
    return Section(title=_TITLE(language), blocks=tuple(blocks))


def _old_platform(m: Material, language: Language, in_pictures: Language) -> Iterator[Block]:
    if m.verdict is None:
        yield Paragraph(text=_NO_VERDICT(language))
        return
    yield Paragraph(text=_OLD_SOURCE(language, name=m.verdict.baseline, source=m.verdict.source))
    if m.verdict.answers:
        yield Paragraph(text=_ANSWERS(language, file=m.verdict.answers), kind="note")
    compared = [each for each in m.verdict.criteria if each.published is not None]
    if not compared:
        return
    yield Table(
        caption=_OLD(language),
        heads=tuple(_OLD_HEADS(language).split("|")),
        rows=tuple(_old_row(each, language) for each in compared),
    )
    for unit, name in _CHARTS.items():
        drawn = [each for each in compared if each.unit == unit and each.figure is not None]
        if drawn:
            yield _old_chart(name, drawn, language, in_pictures)


def _old_row(each: Criterion, language: Language) -> tuple[Cell, ...]:
    ratio = not_measured(language)
    if each.share_percent is not None:
        ratio = figure(each.share_percent, language, each.level, digits=1, unit="%")
    return (
        text(criterion_name(each, language)),
        figure(each.published, language, unit=each.unit),
        figure(each.figure, language, each.level, unit=each.unit),
        ratio,
    )


def _old_chart(name: Text, drawn: list[Criterion], language: Language, in_pictures: Language) -> Figure:
    """Criteria of one unit, theirs and ours below each other; the limit is drawn where there is one alone."""
    bars: list[Bar] = []
    for each in drawn:
        found, of = each.figure, f"{criterion_name(each, in_pictures)} " if len(drawn) > 1 else ""
        assert found is not None, "only measured figures are drawn"
        bars.append(Bar(label=of + _OLD_BAR(in_pictures), value=each.published or 0.0))
        new = of + _NEW_BAR(in_pictures)
        bars.append(Bar(label=new, value=found.value, low=found.low, high=found.high, evidence=each.level, strong=True))
    limits = [each.limit for each in drawn if each.limit is not None]
    unit = unit_words(drawn[0].unit, in_pictures)
    limit = (_LIMIT(in_pictures, value=f"{limits[0]:,.4g}"), limits[0]) if len(limits) == 1 == len(drawn) else None
    chart = BarChart(
        axis=f"{name(in_pictures)} ({unit})",
        bars=tuple(bars),
        digits=0 if max(bar.value for bar in bars) >= 100 else 2,
        limit=limit,
    )
    return Figure(caption=_OLD_CHART(language, name=name(language)), chart=chart)


def _calls(m: Material, language: Language) -> Iterator[Block]:
    evaluations = [m.best] if m.is_baseline or m.best_baseline is None else [m.best_baseline, m.best]
    sides = [(metrics(e), e) for e in evaluations]
    rows: list[tuple[Cell, ...]] = []
    for metric in (*_SHOWN, *_MORE):
        if metric in _MORE and all(metric not in numbers for numbers, _ in sides):
            continue  # of a target that computes on the host
        name = _MORE[metric](language) if metric in _MORE else metric_name(metric, language)
        rows.append((text(name), *(_number(metric, numbers, e, language) for numbers, e in sides)))
    heads = _CALL_HEADS if len(sides) == 2 else _CALL_ONE
    yield Table(
        caption=_CALLS(language),
        heads=tuple(heads(language).split("|")),
        rows=tuple(rows),
        note=_how_timed(m, language),
    )


def _number(metric: str, numbers: dict[str, float], evaluation: Evaluation, language: Language) -> Cell:
    unit = METRICS[metric].unit if metric in METRICS else _UNITS[metric]
    if metric not in numbers:
        return not_measured(language)
    known = level_of(evaluation, metric)
    found = intervals(evaluation).get(metric, numbers[metric])
    return figure(found, language, known, digits=2 if metric == "speedup" else None, unit=unit)


def _how_timed(m: Material, language: Language) -> str:
    latency = m.best.measurement.latency
    if latency is None:
        return ""
    if latency.clock == "modelled":
        return _MODELLED(language, batch=latency.batch)
    quiet = _QUIET if latency.quiet else _NOISY
    return _CALL_NOTE(language, batch=latency.batch, calls=latency.samples, quiet=quiet(language))


def _apart(m: Material, language: Language) -> Iterator[Block]:
    found = None if m.summary is None or m.named or m.none_fits else taken_apart(m.summary)
    if found is None:
        return
    known = level_of(m.chosen, "speedup")
    rows = [
        (
            text(
                _JOIN(language).join(
                    _INT8(language)
                    if group == "precision" and m.chosen.candidate.quantization.scheme != "none"
                    else GROUP[group](language)
                    for group in factor.groups
                )
                + (_TOGETHER(language) if len(factor.groups) > 1 else "")
            ),
            figure(factor.gain, language, known, digits=2, unit="x"),
        )
        for factor in found.factors
    ]
    rows.append((text(_TOTAL(language)), figure(found.total, language, known, digits=2, unit="x")))
    yield Table(
        caption=_APART(language),
        heads=tuple(_APART_HEADS(language).split("|")),
        rows=tuple(rows),
        strong=(len(rows) - 1,),
    )


def _front(m: Material, language: Language, in_pictures: Language) -> Iterator[Block]:
    if m.summary is None:
        yield Paragraph(text=_NO_FRONT(language))
        return
    shown = [member.evaluation for member in m.summary.front]
    if m.summary.baseline is not None and m.summary.baseline.status == "complete" and m.summary.baseline not in shown:
        shown.insert(0, m.summary.baseline)
    if all(e.candidate.id != m.chosen.candidate.id for e in shown):
        shown.append(m.chosen)
    yield Table(
        caption=_FRONT(language),
        heads=tuple(_FRONT_HEADS(language).split("|")),
        rows=tuple(_front_row(m, e, language) for e in shown),
        strong=tuple(i for i, e in enumerate(shown) if e.candidate.id == m.chosen.candidate.id),
        note=_FRONT_NOTE(language),
    )
    chart = _scatter(m, in_pictures)
    if chart is not None:
        yield Figure(caption=_SCATTER(language), chart=chart)


def _front_row(m: Material, evaluation: Evaluation, language: Language) -> tuple[Cell, ...]:
    summary = m.summary
    assert summary is not None, "asked before"
    known = summary.strongest(evaluation)
    is_baseline = evaluation.candidate.id == summary.baseline_id
    service = best_known_service(summary, evaluation)
    served = None if service is None else service.confirmed or service.best
    level = None if service is None else service_level(known, service)
    drop = None if is_baseline else best_known_drop(summary, evaluation)
    accuracy = known.measurement.accuracy
    unit = "pp" if accuracy is None else accuracy.unit or "pp"
    dash = Cell(text="–", figure=True)
    return (
        text(evaluation.candidate.short_id),
        text(candidate_name(evaluation.candidate, language) + (_FLOAT_MARK(language) if is_baseline else "")),
        figure(best_known_speedup(summary, evaluation), language, level_of(known, "speedup"), digits=2),
        dash if is_baseline else figure(drop, language, level_of(known, "accuracy"), signed=True, digits=2, unit=unit),
        figure(None if served is None else served.throughput_per_s.value, language, level),
        figure(None if served is None else served.p99_ms.value, language, level),
    )


def _scatter(m: Material, language: Language) -> ScatterChart | None:
    """The first two objectives, or the first and accuracy."""
    summary = m.summary
    assert summary is not None, "asked before"
    names = [o.metric for o in summary.objectives]
    x = names[0]
    y = names[1] if len(names) > 1 else "accuracy" if x != "accuracy" else "latency_p50_ms"
    points = []
    front = {member.id for member in summary.front}
    for evaluation in summary.evaluations:
        best = summary.strongest(evaluation)
        numbers = summary.numbers(best)
        if x not in numbers or y not in numbers:
            continue
        at = evaluation.candidate.id
        kinds: list[PointKind] = ["front" if at in front else "other"]
        kinds += ["baseline"] if at == summary.baseline_id else []
        kinds += ["chosen"] if at == m.chosen.candidate.id else []
        points += [Point(kind=kind, x=numbers[x], y=numbers[y]) for kind in kinds]
    if len({(p.x, p.y) for p in points}) < 2:
        return None
    return ScatterChart(
        x_axis=_axis(x, summary.emulated, language),
        y_axis=_axis(y, summary.emulated, language),
        points=tuple(points),
        names={kind: name(language) for kind, name in _NAMES.items()},
    )


_EMULATED = Text(zh="推算", en="modelled")


def _axis(metric: str, emulated: bool, language: Language) -> str:
    unit = unit_words(METRICS[metric].unit, language) if metric in METRICS else ""
    facts = [*([unit] if unit else []), *([_EMULATED(language)] if emulated else [])]
    return metric_name(metric, language) + (f" ({', '.join(facts)})" if facts else "")
