"""The tables of a report: columns of numbers, and in them the baseline and the front, the search's numbers above those
of the held-out data; and what each would serve and did serve, beside today's settings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.report.summary import Summary
from workbench.report.words import SERVICE, interval, p50_words, scored
from workbench.values.evidence import cell, level_for
from workbench.values.measurement import SAME_ANSWERS, Estimate, ServiceFigures, ServiceResult
from workbench.values.metrics import FLOAT_INDEX_LOSS, METRICS, asked_beside, intervals, metrics, shown_in
from workbench.values.results import Evaluation
from workbench.values.service import bins_words

WIDTH = 112
"""Of a report where no terminal is narrower."""
_INDENT = 2
_HARD_SPACE = "\N{NO-BREAK SPACE}"
"""Where a line must not break; printed as an ordinary space."""
_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. int8/float counts "
    "operators in integer kernels and matrix products left in float. held-out: data the search never saw, all anew."
)
_LANGUAGE_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. prefill, decode: "
    "modelled, measured nowhere, with what such times may be off by. int8/float counts linears. "
    "held-out: text the search never saw."
)

Line = tuple[str, str]
"""(text, rich style)."""


def laid_out(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The lines of each row, cells aligned to the right.

    All rows are broken at the same columns, so that a number stands below its head whatever the width; the lines after
    the first are indented by the first column.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = 2 if _INDENT + sum(size + 2 for size in sizes) <= width else 1
    parts: list[list[int]] = [[]]
    used = _INDENT
    for column, size in enumerate(sizes):
        if parts[-1] and used + gap + size > width:
            parts.append([])
            used = _INDENT + gap + sizes[0]
        parts[-1].append(column)
        used += gap + size

    def line(row: Sequence[str], part: Sequence[int]) -> str:
        lead = _INDENT + (gap + sizes[0] if part[0] else 0)
        return (" " * lead + "".join(f"{row[i]:>{gap + sizes[i]}}" for i in part)).rstrip()

    return [[line(row, part) for part in parts] for row in rows]


def wrapped(
    *sentences: str, style: str = "", indent: str = "  ", width: int = WIDTH, most: int | None = None
) -> list[Line]:
    """Each sentence in lines of a width, as many as there may be."""
    form: dict[str, Any] = {"subsequent_indent": indent, "placeholder": " …", "break_on_hyphens": False}
    parts = (part for text in sentences for part in textwrap.wrap(text, width, max_lines=most, **form))
    return [(part.replace(_HARD_SPACE, " "), style) for part in parts]


def shown(summary: Summary, *, fallen: bool = True) -> list[Evaluation]:
    """The front, what fell off it, and the baseline before them."""
    found = [member.evaluation for member in (*summary.front, *(summary.fallen if fallen else ()))]
    baseline = summary.baseline
    if baseline is not None and baseline not in found and baseline.status == "complete":
        found.insert(0, baseline)
    return found


def table_lines(summary: Summary, width: int) -> list[Line]:
    """Heads, rows and legend."""
    heads, baseline = _heads(summary), summary.baseline
    recipes = [e for one in summary.recipes if (e := summary.find(one.candidate_id)) is not None]
    every = {e.candidate.id: e for e in (*shown(summary), *recipes)}.values()
    rows: list[tuple[list[Line], list[tuple[list[str], str]]]] = []
    for e in every:
        style, confirmed = "bold green" if summary.chose(e) else "", summary.confirmations.get(e.candidate.id)
        numbers = [(_cells(e, heads), style)]
        if confirmed is not None and confirmed.status == "complete":
            numbers.append((_cells(confirmed, heads), style or "dim"))
        rows.append((_name(summary, e), numbers))
    cells = laid_out([["", *heads.values()], *(row for _, numbers in rows for row, _ in numbers)], width)
    broken = iter(cells)
    found: list[Line] = [(line, "bold") for line in next(broken)]
    for name, numbers in rows:
        found += name
        for _, style in numbers:
            found += [(line, style) for line in next(broken)]
    language = baseline is not None and baseline.measurement.language is not None
    legend = _LANGUAGE_LEGEND if language else _LEGEND
    return [*found, *((text, "dim") for text in textwrap.wrap(legend, WIDTH, break_on_hyphens=False))]


def named(summary: Summary, evaluation: Evaluation, facts: Iterable[str] = ()) -> list[Line]:
    """'> e5a9f2345a3b  RECOMMENDED  INT8 static', above its rows; in the search's style of the chosen one."""
    chosen = summary.chose(evaluation)
    words = f"{'>' if chosen else ' '} {evaluation.candidate.short_id}  " + "  ".join(fact for fact in facts if fact)
    return wrapped(words, style="bold green" if chosen else "bold", indent=" " * 16)


def _name(summary: Summary, evaluation: Evaluation) -> list[Line]:
    m, member = evaluation.measurement, summary.member(evaluation.candidate.id)
    fallen = next((one for one in summary.fallen if one.id == evaluation.candidate.id), None)
    recipe = next((one for one in summary.recipes if one.candidate_id == evaluation.candidate.id), None)
    against = None if recipe is None else recipe.against_preset
    unit = "" if m.accuracy is None else f" {m.accuracy.unit}"
    mark = summary.recommended.mark if summary.recommended is not None and summary.chose(evaluation) else ""
    facts = [
        mark,
        summary.title(evaluation.candidate),
        f"int8/float{_HARD_SPACE}{m.int8_ops}/{m.float_matmuls_left}" if m.int8_ops is not None else "",
        f"[preset {recipe.preset!r}]" if recipe is not None and recipe.preset else "",
        f"{interval(against, unit, 2, signed=True)} against the best preset" if against is not None else "",
        "over a limit" if recipe is not None and evaluation.status == "stopped" else "",
        f"off the front: {fallen.against}" if fallen is not None else "",
        f"same: {member.letters}" if member is not None and member.letters else "",
    ]
    confirmed, lines = summary.confirmations.get(evaluation.candidate.id), named(summary, evaluation, facts)
    if confirmed is not None and confirmed.status != "complete":
        lines.append((f"    holdout: {confirmed.status} at {confirmed.stage_reached}", "red"))
    return lines


def _heads(summary: Summary) -> dict[str, str]:
    """Metric → head of its column: those of every report, and what else the experiment asks for."""
    by, baseline = scored(summary.evaluations), summary.baseline
    language = baseline is not None and baseline.measurement.language is not None
    own = {"accuracy": by.noun.rpartition(".")[2], "accuracy_loss_pp": f"loss {by.loss_unit}"} | (
        {"speedup": "decode x"} if language else {}
    )
    usual = shown_in("language table" if language else "table")
    if not any(FLOAT_INDEX_LOSS in metrics(e) for e in summary.evaluations):
        usual = tuple(name for name in usual if name != FLOAT_INDEX_LOSS)
    further = asked_beside(summary.asked, (*usual, *SERVICE, by.loss_metric))
    heads = {name: own.get(name) or METRICS[name].head or name for name in (*usual, *further)}
    return {by.loss_metric if name == "accuracy_loss_pp" else name: head for name, head in heads.items()}


def _cells(evaluation: Evaluation, heads: Iterable[str]) -> list[str]:
    m = evaluation.measurement
    level = level_for(evaluation, ("accuracy",) if m.language is not None else ("accuracy", "latency_p50_ms"))
    known = "" if level is None else cell(level, held_out=evaluation.split == "holdout")
    return [known, *(figure(evaluation, name) for name in heads)]


def figure(evaluation: Evaluation, name: str) -> str:
    """A metric of an evaluation as every table has it; empty where it was not measured."""
    m = evaluation.measurement
    if name == "accuracy" and m.accuracy is not None:
        return written(name, m.accuracy.values[m.accuracy.primary])
    if name == "latency_p50_ms" and m.latency is not None:
        return p50_words(m.latency)
    unit = "x" if METRICS[name].unit == "x" else ""
    return written(name, intervals(evaluation).get(name, metrics(evaluation).get(name)), unit)


def written(name: str, value: float | Estimate | None, unit: str = "") -> str:
    """'1.52x [1.48, 1.56]', '+0.40 pp [+0.10, +0.70]', '3.16 ms'; empty for None."""
    form, drop = METRICS[name].form, name.startswith("accuracy_loss")
    if value is None:
        return ""
    if not isinstance(value, Estimate):
        return f"{value:{form}}{unit}"
    if drop and value.low == value.high == 0:
        return SAME_ANSWERS
    if drop or value.high > value.low:
        return interval(value, unit, int(form[1:-1]) if form.endswith("f") else 2, signed=drop)
    return f"{value.value:{form}}{unit}"


_SERVICE = ("", "batch <=", "wait ms", "workers", "per s", "P50 ms", "P99 ms", "rows", "padding")

_SERVICE_LEGEND = (
    "Intervals are 95 %, of where another measurement under this load would lie. rows: mean batch. padding: share of "
    "what is computed. "
)
_UNTUNED = {
    True: "today: predicted at what the space says that the service runs now.",
    False: "untuned: predicted at the first settings of the space, which has no `today:` to say what runs now.",
}


def service_lines(summary: Summary, width: int = WIDTH) -> list[Line]:
    """(text, style) lines; none where no service was searched for."""
    results = [(e, result) for e in shown(summary) if (result := summary.service(e)) is not None]
    if not results:
        return []
    every = [[*_SERVICE], *(cells for _, result in results for cells, _, _ in _rows(result, ""))]
    broken = iter(laid_out(every, width))
    best = [result.best or result.closest for _, result in results]
    found = [(f"Service under {best[0].load}:", "bold"), *((line, "bold") for line in next(broken))]
    for evaluation, result in results:
        found += named(summary, evaluation, [summary.title(evaluation.candidate)])
        for _, style, note in _rows(result, "bold green" if summary.chose(evaluation) else ""):
            found += [(line, style) for line in next(broken)]
            found += [(f"    {line}", style) for line in textwrap.wrap(note, WIDTH - 4)]
        if result.confirmed is None and result.note:
            found += [(f"    {line}", "dim") for line in textwrap.wrap(f"not measured: {result.note}", WIDTH - 4)]
    # what the predictions rest on: the host's costs, and how quiet the machine was
    origins = sorted({figures.host.origin for figures in best if figures.host is not None})
    words = [_SERVICE_LEGEND + _UNTUNED[any(r.untuned_is_today for _, r in results)]]
    words += [f"Predicted with host costs {origin}." for origin in origins]
    if noisy := sum(not r.curve.quiet for _, r in results):
        words.append(
            f"Batch curves timed on a noisy machine: {noisy} of {len(results)}; predictions inherit the noise."
        )
    if any(r.curve.clock == "modelled" for _, r in results):
        words.append("The device's times are modelled, not measured.")
    return found + [(f"  {line}", "dim") for text in words for line in textwrap.wrap(text, WIDTH - 2)]


def _rows(result: ServiceResult, style: str) -> list[tuple[list[str], str, str]]:
    """(cells, style, what must be said of them) of each row of a candidate."""
    known = "modelled" if result.curve.clock == "modelled" else "predicted"
    best = ("too slow", result.closest, "red") if result.best is None else (known, result.best, style)
    rows = [best, *([("measured", result.confirmed, style)] if result.confirmed is not None else [])]
    found = [(_service_cells(kind, f), s, _said_of(f)) for kind, f, s in rows]
    kind, missed = "today" if result.untuned_is_today else "untuned", result.untuned_missed
    said = [_said_of(result.untuned), f"{missed}; no factor over it is given" if missed else ""]
    return [*found, (_service_cells(kind, result.untuned), "red" if missed else "dim", "; ".join(filter(None, said)))]


def _said_of(figures: ServiceFigures) -> str:
    bins = figures.settings.sequence_bins
    parts = [bins_words(bins)] if bins else []
    return "; ".join(parts if figures.reliable else [*parts, f"UNRELIABLE: {figures.note}"])


def _service_cells(kind: str, figures: ServiceFigures) -> list[str]:
    settings = figures.settings
    return [
        kind,
        f"{settings.max_batch_size}",
        f"{settings.batch_timeout_ms:g}",
        f"{settings.workers}",
        interval(figures.throughput_per_s, "", 0),
        interval(figures.p50_ms, "", 1),
        interval(figures.p99_ms, "", 1),
        f"{figures.mean_batch:.1f}",
        f"{100 * figures.padding_share:.0f} %",
    ]
