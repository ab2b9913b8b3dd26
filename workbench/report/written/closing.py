"""What is open, what was changed when, and the commands that make everything again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from workbench.report.reading import drop_of
from workbench.report.written.cells import estimate_words, moment, number, text, unit_words
from workbench.report.written.criteria import about_words, criterion_name
from workbench.report.written.document import Cell, Commands, Language, Paragraph, Section, Table
from workbench.report.written.goals import best_service
from workbench.report.written.material import Act, Material
from workbench.report.written.naming import metric_name
from workbench.report.written.texts import Text
from workbench.values.metrics import drop_metric

_RISKS = Text(zh="风险与遗留问题", en="Risks and open points")
_RISK_HEADS = Text(zh="序号|风险或遗留问题|处理措施", en="no.|risk or open point|what to do about it")
_NO_RISKS = Text(zh="没有发现需要说明的风险。", en="Nothing was found that would have to be said.")
_Risk = tuple[Text, Text]
_EMULATED: _Risk = (
    Text(
        zh="全部时间、内存和功耗由仿真器推算，未在真实设备上测量；精度按仿真器的算术计算。",
        en="All times, memory and power are an emulator's, accuracy is by its arithmetic; no device took part.",
    ),
    Text(zh="在真实设备上重新执行搜索、压测和验收。", en="Sweep, load and judge again on a real device."),
)
_MISSED: _Risk = (
    Text(zh="指标“{name}”未达标。", en="The goal {name} is missed."),
    Text(zh="调整方案或与需求方确认目标值。", en="Change the settings, or agree on another limit."),
)
_OPEN: _Risk = (
    Text(zh="指标“{name}”尚无结论：{why}。", en="The goal {name} is open: {why}."),
    Text(zh="按说明补测后重新判定。", en="Measure as it says, and judge again."),
)
_NOT_MEASURED_WHY = Text(zh="未测", en="not measured")
_NO_VERDICT: _Risk = (
    Text(
        zh="未提供验收结论，与原平台的对比未测。",
        en="No verdict was given; nothing was compared with the old platform.",
    ),
    Text(
        zh="执行 workbench load … --baseline，并以 --verdict 提供。", en="workbench load … --baseline, then --verdict."
    ),
)
_NO_FIDELITY: _Risk = (
    Text(
        zh="编译产物与 PyTorch、ONNX Runtime 的输出比对未测。",
        en="Outputs of what ships were not compared with PyTorch and ONNX Runtime.",
    ),
    Text(zh="执行 workbench fidelity，并以 --fidelity 提供。", en="workbench fidelity, then --fidelity."),
)
_NOT_FINITE: _Risk = (
    Text(
        zh="输出中出现 NaN 或无穷大（见“精度比对”）。", en="Outputs hold NaN or infinity (see the precision compared)."
    ),
    Text(
        zh="逐层比对定位首个溢出算子，将其保留在高精度。",
        en="Find the first operator that overflows layer by layer, and keep its precision.",
    ),
)
_BAD_OPERATOR: _Risk = (
    Text(zh="设备上的首个异常算子：{operator}。", en="The first bad operator on the device is {operator}."),
    Text(
        zh="按“精度比对”中的处理办法修改后重新编译、比对。",
        en="Mend it as the precision compared says; compile and compare again.",
    ),
)
_UNCONFIRMED: _Risk = (
    Text(
        zh="交付方案未在留出集上复测，搜索指标可能偏乐观。",
        en="It was not confirmed on held-out data; the search may flatter it.",
    ),
    Text(zh="延长搜索时限后再次执行 sweep，使其完成复测。", en="Sweep again with more time, so that it is confirmed."),
)
_BROKEN: _Risk = (
    Text(zh="在留出集上不满足约束“{name}”。", en="On held-out data it breaks {name}."),
    Text(zh="不交付，或改选其他候选。", en="Do not ship it, or choose another candidate."),
)
_INSIDE: _Risk = (
    Text(
        zh="精度损失的限值 {limit} {unit} 落在其置信区间 {drop} 之内，样本数不足以确认达标。",
        en="The limit of {limit} {unit} lies inside the interval of the accuracy drop, {drop}: nothing proves it kept.",
    ),
    Text(zh="增加验证/留出样本后复测。", en="Confirm it on more samples."),
)
_NOISY: _Risk = (
    Text(
        zh="计时期间机器受到干扰，绝对时延不可靠。",
        en="The machine was disturbed while it was timed: absolute times are unreliable.",
    ),
    Text(zh="在空闲机器上重新计时。", en="Time it again on a free machine."),
)
_PREDICTED: _Risk = (
    Text(
        zh="服务吞吐与时延为仿真结果，未经实际压测。",
        en="The service's figures are simulated; no real load confirmed them.",
    ),
    Text(zh="执行 workbench load，并以 --load 提供结果。", en="workbench load, then --load."),
)
_NO_SETTINGS: _Risk = (
    Text(zh="没有任何服务配置满足 P99 限值。", en="No service settings keep the limit on P99."),
    Text(zh="缩短分桶、换用更快的候选，或放宽限值。", en="Use shorter bins or a faster candidate, or raise the limit."),
)
_NO_CAPACITY: _Risk = (
    Text(zh="未做容量规划，所需卡数与成本未知。", en="No capacity was planned: cards and cost are not known."),
    Text(zh="执行 workbench plan-capacity，并以 --capacity 提供。", en="workbench plan-capacity, then --capacity."),
)
_UNRELIABLE: _Risk = (
    Text(zh="部分压测结果不可信（见“服务配置与压测”）。", en="A load test is not to be relied on (see the service)."),
    Text(zh="按说明排除原因后重新压测。", en="Mend what it says, and load again."),
)
_DAMAGED: _Risk = (
    Text(
        zh="搜索记录中有 {n} 个文件损坏或缺失，其结果未计入。",
        en="{n} files of the sweep are damaged or gone; what they held is in nothing here.",
    ),
    Text(zh="再次执行 sweep 以修复。", en="Sweep again to mend it."),
)
_FAILED: _Risk = (
    Text(zh="{n} 个候选方案失败。", en="{n} candidates failed."),
    Text(zh="用 workbench show 查看原因。", en="See why: workbench show."),
)
_NOT_RECOMMENDED: _Risk = (
    Text(
        zh="交付方案由用户指定，不是搜索的推荐方案。",
        en="What ships was named by the user; the search recommends another.",
    ),
    Text(zh="确认选择理由并存档。", en="Keep the reason for the choice."),
)

_CHANGES = Text(zh="变更记录", en="Record of changes")
_CHANGE_HEADS = Text(zh="时间|事项|内容", en="at|what|about")
_ACTS: dict[Act, tuple[Text, Text]] = {
    "searched": (Text(zh="搜索", en="search"), Text(zh="共评估 {n} 个候选方案", en="{n} candidates evaluated")),
    "confirmed": (Text(zh="留出集复测", en="confirmation"), Text(zh="候选 {what}", en="candidate {what}")),
    "bundled": (Text(zh="导出部署包", en="bundle written"), Text(zh="候选 {what}", en="candidate {what}")),
    "export": (Text(zh="登记版本", en="export"), Text(zh="版本 {n}（{what}）", en="version {n} ({what})")),
    "registration": (Text(zh="登记版本", en="registration"), Text(zh="版本 {n}（{what}）", en="version {n} ({what})")),
    "promotion": (Text(zh="发布", en="promotion"), Text(zh="版本 {n}（{what}）", en="version {n} ({what})")),
    "rollback": (Text(zh="回退", en="rollback"), Text(zh="版本 {n}（{what}）", en="version {n} ({what})")),
    "recovery": (Text(zh="恢复", en="recovery"), Text(zh="版本 {n}（{what}）", en="version {n} ({what})")),
    "reported": (Text(zh="编制本报告", en="this report"), Text(zh="{what}", en="{what}")),
}
_COMMANDS = Text(zh="复现命令", en="Commands that make it again")
_COMMANDS_INTRO = Text(
    zh="以下命令在工作区目录执行；尖括号内为需按环境替换的内容。", en="Run in the workspace; fill in what stands in <>."
)


def risks(m: Material, language: Language) -> Section:
    found = list(_found(m, language))
    if not found:
        return Section(title=_RISKS(language), blocks=(Paragraph(text=_NO_RISKS(language)),))
    rows = tuple(
        (Cell(text=str(index), figure=True), text(what), text(do)) for index, (what, do) in enumerate(found, 1)
    )
    table = Table(caption=_RISKS(language), heads=tuple(_RISK_HEADS(language).split("|")), rows=rows)
    return Section(title=_RISKS(language), blocks=(table,))


def _found(m: Material, language: Language) -> Iterator[tuple[str, str]]:
    def said(risk: _Risk, **values: object) -> tuple[str, str]:
        return risk[0](language, **values), risk[1](language, **values)

    if m.emulated:
        yield said(_EMULATED)
    if m.verdict is None:
        yield said(_NO_VERDICT)
    else:
        for each in m.verdict.criteria:
            name = criterion_name(each, language)
            if each.limit is not None and each.outcome == "failed":
                yield said(_MISSED, name=name)
            elif each.limit is not None and each.outcome not in ("passed", "does not apply"):
                yield said(_OPEN, name=name, why=about_words(each, language) or _NOT_MEASURED_WHY(language))
    yield from _of_accuracy(m, language)
    yield from _of_times(m, language)
    summary = m.summary
    if summary is not None:
        recommended = None if summary.recommended is None else summary.recommended.candidate_id
        if m.named and recommended != m.chosen.candidate.id:
            yield said(_NOT_RECOMMENDED)
        if summary.damage:
            yield said(_DAMAGED, n=len(summary.damage))
        if failed := sum(summary.failures.values()):
            yield said(_FAILED, n=failed)
    if m.capacity is None:
        yield said(_NO_CAPACITY)


def _of_accuracy(m: Material, language: Language) -> Iterator[tuple[str, str]]:
    if m.fidelity is None:
        yield _NO_FIDELITY[0](language), _NO_FIDELITY[1](language)
    elif any(output.not_finite for a in m.fidelity.paths for output in a.outputs):
        yield _NOT_FINITE[0](language), _NOT_FINITE[1](language)
    device = None if m.comparison is None else m.comparison.device
    if device is not None and device.first_bad is not None:
        yield _BAD_OPERATOR[0](language, operator=device.first_bad.operator), _BAD_OPERATOR[1](language)
    if m.confirmed is None:
        yield _UNCONFIRMED[0](language), _UNCONFIRMED[1](language)
    if m.summary is None:
        return
    member = m.summary.member(m.chosen.candidate.id)
    for metric in () if member is None else member.broken_on_holdout:
        yield _BROKEN[0](language, name=metric_name(metric, language)), _BROKEN[1](language)
    accuracy, drop = m.best.measurement.accuracy, drop_of(m.best, m.summary.baseline_id)
    if accuracy is None or drop is None:
        return
    name = drop_metric(accuracy.unit)
    limit = next((c.limit for c in m.summary.constraints if c.metric == name), None)
    if limit is not None and drop.value <= limit < drop.high:
        unit = unit_words(accuracy.unit or "pp", language)
        words = estimate_words(drop, signed=True, digits=2)
        yield _INSIDE[0](language, limit=number(limit), unit=unit, drop=words), _INSIDE[1](language)


def _of_times(m: Material, language: Language) -> Iterator[tuple[str, str]]:
    latency, service = m.best.measurement.latency, best_service(m)
    if latency is not None and not latency.quiet and latency.clock != "modelled":
        yield _NOISY[0](language), _NOISY[1](language)
    if service is not None and service.best is None:
        yield _NO_SETTINGS[0](language), _NO_SETTINGS[1](language)
    elif service is not None and service.confirmed is None and not m.loads:
        yield _PREDICTED[0](language), _PREDICTED[1](language)
    if any(not one.reliable for one in m.loads):
        yield _UNRELIABLE[0](language), _UNRELIABLE[1](language)


def changes(m: Material, language: Language) -> Section:
    rows = []
    for one in m.changes:
        act, about = _ACTS[one.act]
        count = "–" if one.count is None else number(one.count)
        rows.append((text(moment(one.at)), text(act(language)), text(about(language, n=count, what=one.what))))
    table = Table(
        caption=_CHANGES(language),
        heads=tuple(_CHANGE_HEADS(language).split("|")),
        rows=tuple(rows),
    )
    return Section(title=_CHANGES(language), blocks=(table,))


def commands(m: Material, language: Language) -> Section:
    return Section(
        title=_COMMANDS(language),
        blocks=(Paragraph(text=_COMMANDS_INTRO(language)), Commands(lines=tuple(_lines(m, language)))),
    )


def _lines(m: Material, language: Language) -> Iterator[str]:
    source, at = shlex.quote(m.source), m.chosen.candidate.short_id
    bundle = source if m.is_bundle else {"zh": "<部署包目录>", "en": "<bundle>"}[language]
    baseline = {"zh": "<基线文件.yaml>", "en": "<baseline.yaml>"}[language]
    if not m.is_bundle:
        run = None if m.summary is None else m.summary.run
        yield (run.command if run is not None else "") or f"workbench sweep {source}"
        yield f"workbench show {source} --candidate {at}"
        yield f"workbench evaluate {source} --candidate {at}"
        emulated = " --allow-emulated" if m.emulated else ""
        yield f"workbench export {source} --candidate {at} --to {bundle}{emulated}"
    yield f"workbench verify {bundle}"
    asked = (m.fidelity, *m.loads, m.verdict, m.capacity)
    yield from dict.fromkeys(one.command for one in asked if one is not None and one.command)
    if not m.loads and m.verdict is None:
        yield f"workbench load {bundle} --baseline {baseline} --to load"
    named = f" --candidate {at}" if m.named and not m.is_bundle else ""
    yield m.command or f"workbench report {source}{named} --lang {language} --to report.docx"
