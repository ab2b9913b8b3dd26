"""The table of a report: baseline and front, the search's numbers above those of the held-out data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from workbench.report.columns import WIDTH, laid_out
from workbench.report.factors import float_alike, taken_apart
from workbench.report.scored import scored
from workbench.report.summary import Summary
from workbench.report.words import drop_cell, interval, p50_words
from workbench.values.candidate import Candidate
from workbench.values.evidence import cell, level_for
from workbench.values.measurement import Estimate, Latency
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

_COLUMNS = (
    ("", 13),
    ("accuracy", 9),
    ("drop pp", 21),
    ("P50 ms", 8),
    ("P95", 8),
    ("P99", 8),
    ("speed-up", 19),
    ("per s", 8),
    ("MB", 7),
    ("mem MB", 7),
)
_LANGUAGE = (
    ("", 13),
    ("accuracy", 9),
    ("drop pp", 21),
    ("KL nats", 8),
    ("top-1", 7),
    ("prefill ms", 11),
    ("decode ms", 20),
    ("decode x", 19),
    ("MB", 7),
)
"""Of language models: decode is one step, a token for each row; its times, and prefill's, are modelled."""
_LANGUAGE_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. prefill, decode: "
    "modelled by a roofline, measured nowhere, with what such times may be off by. int8/float counts linears. "
    "held-out: text the search never saw."
)
_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. int8/float counts "
    "operators in integer kernels and matrix products left in float. held-out: data the search never saw, all anew."
)
_HARD_SPACE = "\N{NO-BREAK SPACE}"
"""Where a line must not break; printed as an ordinary space."""

_P50 = [name for name, _ in _COLUMNS].index("P50 ms")

Line = tuple[str, str]
"""(text, rich style)."""
_Cells = tuple[list[str], str]


def wrapped(text: str, style: str = "", indent: str = "  ") -> list[Line]:
    """A sentence in lines of at most `WIDTH`."""
    parts: Sequence[str] = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return [(part.replace(_HARD_SPACE, " "), style) for part in parts]


def table_lines(summary: Summary, width: int) -> list[Line]:
    """Heads, rows and legend."""
    chosen = summary.recommended.candidate_id if summary.recommended is not None else None
    rows: list[tuple[list[Line], list[_Cells]]] = []
    baseline = summary.baseline
    if baseline is not None and summary.member(summary.baseline_id) is None and baseline.status == "complete":
        rows.append(_row(summary, baseline, "", marked=summary.baseline_id == chosen))
    rows += _float_alike(summary)
    for member in summary.front:
        rows.append(_row(summary, member.evaluation, member.letters, marked=member.id == chosen))
    for member in summary.fallen:
        rows.append(_row(summary, member.evaluation, "", marked=False, note=f"off the front: {member.against}"))
    by = scored(summary.evaluations)
    named = {"accuracy": by.column, "drop pp": f"drop {by.drop_unit}"}
    language = baseline is not None and baseline.measurement.language is not None
    columns = _LANGUAGE if language else _COLUMNS
    heads = [named.get(name, name) for name, _ in columns]
    every = [heads, *(cells for _, numbers in rows for cells, _ in numbers)]
    broken = iter(laid_out(every, [least for _, least in columns], width))
    found: list[Line] = [(line, "bold") for line in next(broken)]
    for name, numbers in rows:
        found += name
        for _, style in numbers:
            found += [(line, style) for line in next(broken)]
    legend = _LANGUAGE_LEGEND if language else _LEGEND
    return [*found, *((text, "dim") for text in textwrap.wrap(legend, WIDTH, break_on_hyphens=False))]


def _row(
    summary: Summary, evaluation: Evaluation, marks: str, *, marked: bool, note: str = ""
) -> tuple[list[Line], list[_Cells]]:
    m = evaluation.measurement
    ops = f"int8/float{_HARD_SPACE}{m.int8_ops}/{m.float_matmuls_left}" if m.int8_ops is not None else ""
    mark = summary.recommended.mark if marked and summary.recommended is not None else ""
    facts = [mark, summary.title(evaluation.candidate), ops, note]
    if marks:
        facts.append(f"same: {marks}")
    style = "bold green" if marked else ""
    name = _name(evaluation.candidate, facts, style or "bold", marked=marked)
    numbers = [(_cells(evaluation), style)]
    confirmed = summary.confirmations.get(evaluation.candidate.id)
    if confirmed is not None and confirmed.status == "complete":
        numbers.append((_cells(confirmed), style or "dim"))
    elif confirmed is not None:
        name.append((f"    holdout: {confirmed.status} at {confirmed.stage_reached}", "red"))
    return name, numbers


def _float_alike(summary: Summary) -> list[tuple[list[Line], list[_Cells]]]:
    """`float_alike`, or what was timed of it beside the search."""
    factors = taken_apart(summary)
    alike = factors.float_alike if factors is not None else None
    if alike is None or summary.member(alike) is not None:
        return []
    note = "for comparison: float at the same lengths"
    evaluation = float_alike(summary)
    if evaluation is not None:
        return [_row(summary, evaluation, "", marked=False, note=note)]
    timed = next((n for n in summary.neighbours if n.candidate.id == alike), None)
    if timed is None:
        return []
    name = _name(timed.candidate, [summary.title(timed.candidate), note], "bold", marked=False)
    return [(name, [(_time_cells(timed.latency), "")])]


def _name(candidate: Candidate, facts: Sequence[str], style: str, *, marked: bool) -> list[Line]:
    words = f"{'>' if marked else ' '} {candidate.short_id}  " + "  ".join(fact for fact in facts if fact)
    return wrapped(words, style, indent=" " * 16)


def _cells(evaluation: Evaluation) -> list[str]:
    numbers, m = metrics(evaluation), evaluation.measurement
    drop = m.accuracy.comparison.drop_pp if m.accuracy is not None and m.accuracy.comparison is not None else None
    numbers |= {"accuracy": m.accuracy.values[m.accuracy.primary]} if m.accuracy is not None else {}
    level = level_for(evaluation, ("accuracy", "latency_p50_ms"))
    known = "" if level is None else cell(level, held_out=evaluation.split == "holdout")
    if m.language is not None:
        return _language_cells(evaluation, numbers, drop)
    found = _written(known, numbers, drop, m.latency.speedup if m.latency is not None else None)
    if m.latency is not None:
        found[_P50] = p50_words(m.latency)
    return found


def _language_cells(evaluation: Evaluation, numbers: Mapping[str, float], drop: Estimate | None) -> list[str]:
    m = evaluation.measurement
    assert m.language is not None  # the caller has looked
    level = level_for(evaluation, ("accuracy",))
    return [
        "" if level is None else cell(level, held_out=evaluation.split == "holdout"),
        _number(numbers, "accuracy", ".3f"),
        drop_cell(drop) if drop is not None else "",
        _number(numbers, "kl", ".4f"),
        _number(numbers, "top1_agreement", ".4f"),
        _number(numbers, "prefill_ms", ".2f"),
        interval(m.language.decode_ms, "", 2),
        interval(m.latency.speedup, "x", 2) if m.latency is not None else "",
        _number(numbers, "size_mb", ".1f"),
    ]


def _time_cells(latency: Latency) -> list[str]:
    numbers = {
        "latency_p50_ms": latency.p50_ms.value / latency.drift,
        "latency_p95_ms": latency.p95_ms / latency.drift,
        "throughput_per_s": latency.throughput_per_s * latency.drift,
    }
    return _written("times only", numbers, None, latency.speedup)


def _written(known: str, numbers: Mapping[str, float], drop: Estimate | None, speedup: Estimate | None) -> list[str]:
    return [
        known,
        _number(numbers, "accuracy", ".4f"),
        drop_cell(drop) if drop is not None else "",
        _number(numbers, "latency_p50_ms", ".2f"),
        _number(numbers, "latency_p95_ms", ".2f"),
        _number(numbers, "latency_p99_ms", ".2f"),
        interval(speedup, "x", 2) if speedup is not None else "",
        _number(numbers, "throughput_per_s", ".0f"),
        _number(numbers, "size_mb", ".1f"),
        _number(numbers, "peak_memory_mb", ".0f"),
    ]


def _number(numbers: Mapping[str, float], name: str, form: str) -> str:
    return f"{numbers[name]:{form}}" if name in numbers else ""
