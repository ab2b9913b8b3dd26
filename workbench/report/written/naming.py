"""What metrics, settings, candidates and the criteria of a verdict are called in each language.

A verdict's notes are sentences in English; `chinese.json` has each in Chinese. One that is not known there stands
as it is written, in quotation marks: better those words than none.
"""

from __future__ import annotations

import functools
import re

from workbench.load.result import LoadResult
from workbench.report.written.cells import chinese, number, say, spoken, unit_words
from workbench.report.written.document import Cell, State
from workbench.shipping.acceptance import Criterion
from workbench.shipping.acceptance.verdict import Key
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import encode
from workbench.values.fidelity import FidelityPath
from workbench.values.installed_targets import installed_target
from workbench.values.measurement import Split
from workbench.values.metrics import declared
from workbench.values.service import ServiceLoad, ServiceSettings
from workbench.values.setting_groups import Group, describe

SPLIT: dict[Split, str] = {
    "calibration": "calibration",
    "validation": "validation",
    "holdout": "held-out",
}
PATH: dict[FidelityPath, str] = {
    "pytorch": "PyTorch",
    "float32": "ONNX Runtime float32",
    "float32 compiled": "target, float32",
    "float16 compiled": "target, FP16 as today",
    "served": "what ships¦files",
    "old platform": "old platform",
}
GROUP: dict[Group, str] = {
    "engine": "engine",
    "lengths": "length bins",
    "precision": "precision",
    "graph": "graph settings",
    "threads": "threads",
    "batch": "batch",
}
_IN_FLOAT = {
    "layer": "{n} sensitive layers in float",
    "group": "{n} sensitive groups in float",
}


def metric_name(metric: str) -> str:
    """One of the model's own outputs goes by its own name."""
    known = declared(metric)
    if known is None or not known.label:
        return metric
    return known.label_zh if spoken() == "zh" else known.label


def candidate_name(candidate: Candidate) -> str:
    """One phrase: 'INT8 静态量化（ifmr，对称，注意力矩阵乘一并量化），分桶 32/80/128/256'."""
    if spoken() == "en":
        return describe(candidate)
    title = installed_target(candidate.target)
    words = [title.title] if title.named else []
    if numbers := candidate.compile.numbers(candidate):  # a language model's recipe, in the vendor's words
        return "，".join([*words, numbers, *candidate.compile.words(candidate)])
    words.append(_numbers(candidate.precision.mode, candidate.quantization))
    if bins := candidate.sequence_bins:
        words.append(bins_name(bins))
    usual = encode(type(candidate.compile)().shown())
    own = {
        name: value
        for name, value in candidate.parameters().items()
        if name.startswith("compile.")
        and name != "compile.sequence_bins"
        and value not in ("", usual.get(name.removeprefix("compile.")))
    }
    said = ((_COMPILE.get(name, f"{name.removeprefix('compile.')} ="), value) for name, value in own.items())
    return "，".join([*words, *(f"{name} {value}" for name, value in said)])


_COMPILE = {
    "compile.disabled_fusions": "关闭融合",
    "compile.enabled_fusions": "开启融合",
    "compile.graph_optimization": "图优化",
}


def _numbers(mode: str, q: Quantization) -> str:
    if q.scheme == "none":
        return f"{mode}（不量化）"
    scheme = {"dynamic": "动态", "static": "静态", "cfg": "按配置文件"}[q.scheme]
    facts = [] if q.operators == "all" else [{"matmul": "仅矩阵乘", "conv": "仅卷积"}[q.operators]]
    if q.elementwise is not None:
        facts.append("层间保持 8 位")
    if q.calibrator is not None:
        facts.append(f"标定器 {q.calibrator}")
    if q.algorithm is not None:
        facts.append(q.algorithm if q.percentile is None else f"{q.algorithm} {q.percentile:g}")
    if q.activation_symmetric is not None:
        facts.append("激活对称" if q.activation_symmetric else "激活非对称")
    if q.weight_granularity is not None:
        facts.append("权重逐通道" if q.weight_granularity == "channel" else "权重逐张量")
    if q.weight_algorithm not in (None, "minmax"):
        facts.append(f"权重 {q.weight_algorithm}")
    if q.attention_matmul:
        facts.append("注意力矩阵乘一并量化")
    if q.balance is not None:
        facts.append(f"均衡 {q.balance}")
    if q.bias_correction:
        facts.append("偏置校正")
    if q.keep_float:
        by = "" if q.sensitivity == "sqnr" else f"（按 {q.sensitivity} 排序）"
        facts.append(say(_IN_FLOAT[q.keep_float_unit or "layer"], n=q.keep_float) + by)
    return f"INT8 {scheme}量化" + (f"（{'，'.join(facts)}）" if facts else "")


def bins_name(bins: tuple[int, ...]) -> str:
    joined = "/".join(map(str, bins))
    if spoken() == "en":
        return f"bins {joined}" if len(bins) > 1 else f"length {joined}"
    return f"分桶 {joined}" if len(bins) > 1 else f"定长 {joined}"


def settings_name(settings: ServiceSettings) -> str:
    """'最大 batch 16，等待 10 ms，2 个工作进程，分桶 32/64'."""
    if spoken() == "en":
        return str(settings)
    words = (
        f"最大 batch {settings.max_batch_size}，等待 {settings.batch_timeout_ms:g} ms，{settings.workers} 个工作进程"
    )
    return f"{words}，{bins_name(settings.sequence_bins)}" if settings.sequence_bins else words


def load_name(load: ServiceLoad) -> str:
    if spoken() == "en":
        return str(load)
    if load.arrivals == "closed":
        return f"闭环，并发 {load.concurrency}"
    if load.arrivals == "poisson":
        return f"开环，泊松到达 {load.rate_per_s:g} 请求/s"
    return f"回放 {len(load.trace_s)} 个请求的到达时间"


def loaded_name(one: LoadResult) -> str:
    """The load with what each request was: 'closed loop' alone compares nothing."""
    words = [load_name(one.load)]
    if one.length is not None:
        words.append(say("length {n}", n=one.length))
    if one.batch > 1:
        words.append(f"batch {one.batch}")
    return say(", ").join(words)


_NAMES: dict[Key, str] = {
    "throughput": "throughput",
    "p50": "P50 latency",
    "p95": "P95 latency",
    "p99": "P99 latency",
    "accuracy drop": "accuracy drop",
    "top-1 change": "top-1 change",
    "cosine": "cosine of the float path",
    "served cosine": "cosine of what ships",
    "max abs": "max abs error of the float path",
    "mae": "MAE of the float path",
    "int8 throughput": "INT8 throughput over float's",
    "memory": "memory",
    "power": "power",
}

_OUTCOMES: dict[str, tuple[str, State]] = {
    "passed": ("met", "met"),
    "failed": ("MISSED", "missed"),
    "not measured": ("not measured", "open"),
    "no limit": ("no limit", "plain"),
    "not provable": ("not provable with this much data", "open"),
    "does not apply": ("does not apply", "plain"),
    "predicted, within": ("not measured (predicted within)", "open"),
    "predicted, beyond": ("not measured (predicted beyond)", "open"),
}


def criterion_name(criterion: Criterion) -> str:
    """With the load, where there are several."""
    _, _, load = criterion.name.partition(" at ")
    return say(_NAMES[criterion.key]) + (say(" at {load}", load=note_words(load)) if load else "")


def about_words(criterion: Criterion) -> str:
    """Under what conditions it was measured or why it was not, and how much data would decide it."""
    words = (note_words(part) for part in (criterion.note, criterion.needed) if part)
    return say("; ").join(words)


def limit_words(criterion: Criterion) -> str:
    if criterion.limit is None:
        return "–"
    sign = "≤" if criterion.bound == "at most" else "≥"
    return f"{sign} {number(criterion.limit)} {unit_words(criterion.unit)}".rstrip()


_IN_REHEARSAL: dict[str, str] = {
    "passed": "met (emulated)",
    "failed": "MISSED (emulated)",
}


def outcome_cell(outcome: str, *, limited: bool, emulated: bool) -> Cell:
    """Args: limited: there is a limit to judge by; emulated: what is kept there is kept in a rehearsal."""
    known = _OUTCOMES.get(outcome)
    words = outcome if known is None else say(known[0])
    state = state_of(outcome) if limited else "plain"
    if emulated and outcome in _IN_REHEARSAL:
        return Cell(text=say(_IN_REHEARSAL[outcome]), state="open" if state == "met" else state)
    return Cell(text=words, state=state)


def state_of(outcome: str) -> State:
    """An outcome that is not known here is no met goal."""
    known = _OUTCOMES.get(outcome)
    return "open" if known is None else known[1]


@functools.cache
def _notes() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), said) for pattern, said in chinese()["notes"]]


def note_words(note: str) -> str:
    if spoken() == "en" or not note:
        return note
    return "；".join(_chinese(part.strip()) for part in re.split(r"[;,] ", note))


def _chinese(part: str) -> str:
    for pattern, form in _notes():
        if found := pattern.fullmatch(part):
            said = found.expand(form)
            for english, word in chinese()["words"]:
                said = said.replace(english, word)
            return said
    return f"“{part}”"
