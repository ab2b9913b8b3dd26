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
from workbench.values.agreement import AgreementPath
from workbench.values.candidate import Candidate
from workbench.values.measurement import Split
from workbench.values.metrics import declared
from workbench.values.service import ServiceLoad, ServiceSettings, bins_words
from workbench.values.setting_groups import Group, describe

SPLIT: dict[Split, str] = {
    "calibration": "calibration",
    "validation": "validation",
    "holdout": "held-out",
}
PATH: dict[AgreementPath, str] = {
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


def metric_name(metric: str) -> str:
    """One of the model's own outputs goes by its own name."""
    known = declared(metric)
    if known is None or not known.label:
        return metric
    return known.label_zh if spoken() == "zh" else known.label


def candidate_name(candidate: Candidate) -> str:
    """One phrase: 'INT8 静态量化，ifmr，激活对称，注意力矩阵乘一并量化，分桶 32 80 128 256'."""
    return _translated(describe(candidate))


def bins_name(bins: tuple[int, ...]) -> str:
    return _translated(bins_words(bins))


def settings_name(settings: ServiceSettings) -> str:
    """'batch 至多 16，等待 10 ms，2 个工作进程，分桶 32 64'."""
    return _translated(str(settings))


def load_name(load: ServiceLoad) -> str:
    return _translated(str(load))


def _translated(words: str) -> str:
    """What is not known in Chinese, such as the name of an algorithm, stands as it is."""
    return "，".join(_chinese(part) or part for part in words.split(", ")) if spoken() == "zh" else words


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
    "accuracy drop": "accuracy loss",
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


def outcome_cell(outcome: str, *, limited: bool, emulated: bool) -> Cell:
    """Args: limited: there is a limit to judge by; emulated: what is kept there is kept in a rehearsal."""
    known = _OUTCOMES.get(outcome)
    words = outcome if known is None else say(known[0])
    state = state_of(outcome) if limited else "plain"
    if emulated and outcome in ("passed", "failed"):
        words = say("met (emulated)") if outcome == "passed" else say("MISSED (emulated)")
        state = "open" if state == "met" else state
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
    return "；".join(_chinese(part) or f"“{part}”" for part in map(str.strip, re.split(r"[;,] ", note)))


def _chinese(part: str) -> str:
    for pattern, form in _notes():
        if found := pattern.fullmatch(part):
            said = found.expand(form)
            for english, word in chinese()["words"]:
                said = said.replace(english, word)
            return said
    return ""
