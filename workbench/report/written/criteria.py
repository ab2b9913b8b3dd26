"""The criteria of a verdict in each language: names, limits, outcomes and notes.

A verdict's notes are sentences in English; `_NOTES` says each of them in Chinese. One that is not known there stands as
it is written, in quotation marks: better the words of the verdict than none.
"""

from __future__ import annotations

import re

from workbench.report.written.cells import number, unit_words
from workbench.report.written.document import Cell, Language, State
from workbench.report.written.texts import Text
from workbench.shipping.acceptance import Criterion
from workbench.shipping.acceptance.verdict import Key

_NAMES: dict[Key, Text] = {
    "throughput": Text(zh="吞吐", en="throughput"),
    "p50": Text(zh="P50 时延", en="P50 latency"),
    "p95": Text(zh="P95 时延", en="P95 latency"),
    "p99": Text(zh="P99 时延", en="P99 latency"),
    "accuracy drop": Text(zh="精度损失", en="accuracy drop"),
    "top-1 change": Text(zh="top-1 变化率", en="top-1 change"),
    "cosine": Text(zh="浮点路径余弦相似度", en="cosine of the float path"),
    "served cosine": Text(zh="交付产物余弦相似度", en="cosine of what ships"),
    "max abs": Text(zh="浮点路径最大绝对误差", en="max abs error of the float path"),
    "mae": Text(zh="浮点路径平均绝对误差（MAE）", en="MAE of the float path"),
    "int8 throughput": Text(zh="INT8 相对浮点的吞吐", en="INT8 throughput over float's"),
    "memory": Text(zh="内存", en="memory"),
    "power": Text(zh="功耗", en="power"),
}
_AT = Text(zh="（{load}）", en=" at {load}")
_OUTCOMES: dict[str, tuple[Text, State]] = {
    "passed": (Text(zh="达标", en="met"), "met"),
    "failed": (Text(zh="未达标", en="MISSED"), "missed"),
    "not measured": (Text(zh="未测", en="not measured"), "open"),
    "no limit": (Text(zh="不设目标值", en="no limit"), "plain"),
    "not provable": (Text(zh="数据不足，无法判定", en="not provable with this much data"), "open"),
    "does not apply": (Text(zh="不适用", en="does not apply"), "plain"),
    "predicted, within": (Text(zh="未测（预测值在限内）", en="not measured (predicted within)"), "open"),
    "predicted, beyond": (Text(zh="未测（预测值超限）", en="not measured (predicted beyond)"), "open"),
}


def criterion_name(criterion: Criterion, language: Language) -> str:
    """With the load, where there are several."""
    _, _, load = criterion.name.partition(" at ")
    return _NAMES[criterion.key](language) + (_AT(language, load=note_words(load, language)) if load else "")


def about_words(criterion: Criterion, language: Language) -> str:
    """Under what conditions it was measured or why it was not, and how much data would decide it."""
    words = (note_words(part, language) for part in (criterion.note, criterion.needed) if part)
    return ("；" if language == "zh" else "; ").join(words)


def limit_words(criterion: Criterion, language: Language) -> str:
    if criterion.limit is None:
        return "–"
    sign = "≤" if criterion.bound == "at most" else "≥"
    return f"{sign} {number(criterion.limit)} {unit_words(criterion.unit, language)}".rstrip()


_IN_REHEARSAL: dict[str, Text] = {
    "passed": Text(zh="达标（仿真）", en="met (emulated)"),
    "failed": Text(zh="未达标（仿真）", en="MISSED (emulated)"),
}


def outcome_cell(outcome: str, language: Language, *, limited: bool, emulated: bool) -> Cell:
    """Args: limited: there is a limit to judge by; emulated: what is kept there is kept in a rehearsal."""
    known = _OUTCOMES.get(outcome)
    words = outcome if known is None else known[0](language)
    state = state_of(outcome) if limited else "plain"
    if emulated and outcome in _IN_REHEARSAL:
        return Cell(text=_IN_REHEARSAL[outcome](language), state="open" if state == "met" else state)
    return Cell(text=words, state=state)


def state_of(outcome: str) -> State:
    """An outcome that is not known here is no met goal."""
    known = _OUTCOMES.get(outcome)
    return "open" if known is None else known[1]


_NOTES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), chinese)
    for pattern, chinese in (
        (r"the device is emulated: its times are no figures", "设备为仿真器，其时间不作为指标"),
        (r"needs a load with (--.*)", r"需补做压测：\1"),
        (r"load with (--.*)", r"需按 \1 压测"),
        (r"not comparable: ours with (\d+) clients?", r"条件不同，不可比：我方并发 \1"),
        (r"theirs with (\d+) clients?", r"原平台并发 \1"),
        (r"texts of their own lengths", "请求为数据自身长度"),
        (r"length (\d+)", r"长度 \1"),
        (r"batch (\d+)", r"batch \1"),
        (r"(\d+) clients?", r"并发 \1"),
        (r"(\d+) answers give no (\S+)( at .*)?", r"仅 \1 个应答，无法给出 \2"),
        (r"it takes (\d+): load longer", r"至少需要 \1 个，请延长压测"),
        (r"against the float model", "相对浮点模型"),
        (r"against float32", "相对 float32"),
        (r"(\d+) samples of validation of (.*)", r"\2 验证集的 \1 个样本"),
        (r"(\d+) samples of holdout of (.*)", r"\2 留出集的 \1 个样本"),
        (r"(\d+) golden samples of the bundle", r"部署包的 \1 个黄金样本"),
        (r"(\d+) samples", r"\1 个样本"),
        (r"mean cosine ([\d.]+)", r"平均余弦 \1"),
        (
            r"(pytorch|float32|float32 compiled|float16 compiled|served|old platform)"
            r" against (pytorch|float32|float32 compiled|float16 compiled|served|old platform)",
            r"\1 对比 \2",
        ),
        (r"(\d+) values are not finite", r"\1 个数值为 NaN 或无穷大"),
        (r"the bundle has no comparison of accuracy", "部署包中没有精度对比"),
        (r"its outputs are no classes", "输出不是分类结果"),
        (r"workbench fidelity measures it", "由 workbench fidelity 测量"),
        (r"with --reference (.*) for the other platform's answers", r"原平台应答：--reference \1"),
        (r"what ships is not quantized", "交付方案未量化"),
        (
            r"needs the float model's service under the same load: --float BUNDLE of the float candidate",
            "需在相同负载下压测浮点方案的服务（--float）",
        ),
        (r"([\d.e+]+) against ([\d.e+]+) requests/s of the float model", r"\1 对浮点模型的 \2 请求/s"),
        (r"of (the whole card|the service on its card|the service's processes)", r"对象：\1"),
        (r"not comparable: the baseline does not say what its memory is of", "不可比：基线未说明内存的对象"),
        (r"say it \(of: device", "请在基线中注明 of（device"),
        (r"service or host\)", "service 或 host）"),
        (r"not comparable: theirs is of (.*)", r"不可比：原平台为 \1"),
        (r"ours is known of (.*)", r"我方已知 \1"),
        (r"nothing told the card's power during the load", "压测期间没有功耗读数"),
        (r"the baseline has no load with a throughput", "基线中没有带吞吐的负载"),
        (r"about ([\d.]+) times as much data would decide it", r"约需 \1 倍数据方可判定"),
        (r"more than (\d+) times as much data would be needed", r"需 \1 倍以上的数据"),
        (r"no amount of data decides it: the figure is the limit itself", "数值等于目标值，增加数据也无法判定"),
        (r"(\d+) samples instead of (\d+)", r"需 \1 个样本（现有 \2 个）"),
        (r"(\d+) s of (?:each )?load instead of ([\d.]+)", r"需压测 \1 s（现为 \2 s）"),
        (r"theirs is as uncertain: record the baseline longer too", "基线同样不确定，也需延长录制"),
        (r"`workbench fidelity` measures it", "由 workbench fidelity 给出"),
        (r"the float model runs in float32 here", "该平台上浮点模型即以 float32 执行"),
        (r"no file of its answers was given: --reference answers.npz", "未提供其应答文件（--reference answers.npz）"),
        (r"no checkpoint is known(: .*)?", "没有可用的检查点"),
        (r"name it with --checkpoint", "可用 --checkpoint 指定"),
        (r"P99 of (\d+) answers is a guess", r"\1 个应答得出的 P99 仅供参考"),
        (r"it takes (\d+)", r"至少需要 \1 个应答"),
        (
            r"the load generator used ([\d.]+)% of a core: its own queueing is in the latencies",
            r"压测端占用单核 \1%，其自身排队计入了时延",
        ),
        (r"(\d+) connections could not be opened", r"有 \1 个连接未能建立"),
        (r"(\d+) of (\d+) requests had no successful answer", r"\2 个请求中有 \1 个没有成功应答"),
        (r"the vendor's tool", "厂商工具"),
        (r"gauges of /metrics", "/metrics 指标"),
        (r"as served", "按服务方式"),
        (r"batch <= (\d+)", r"batch ≤ \1"),
        (r"(float(?:32)?) in (.*)", r"\2 \1"),
        (r"the float baseline|浮点基线", "浮点基线"),
        (r"interrupted: shorter than asked", "压测被中断，时长短于要求"),
        (r"(\d+) connections could not be opened", r"有 \1 个连接未能建立"),
    )
)


_WORDS = (
    ("float32 compiled", "目标平台 float32"),
    ("float16 compiled", "目标平台 FP16"),
    ("served", "交付产物"),
    ("old platform", "原平台"),
    ("pytorch", "PyTorch"),
    ("the service on its card", "服务占用的卡内存"),
    ("the service's processes", "服务进程"),
    ("the whole card", "整卡"),
)
"""What notes name, the longer first."""


def note_words(note: str, language: Language) -> str:
    if language == "en" or not note:
        return note
    return "；".join(_chinese(part.strip()) for part in re.split(r"[;,] ", note))


def _chinese(part: str) -> str:
    for pattern, chinese in _NOTES:
        if found := pattern.fullmatch(part):
            said = found.expand(chinese)
            for english, word in _WORDS:
                said = said.replace(english, word)
            return said
    return f"“{part}”"
