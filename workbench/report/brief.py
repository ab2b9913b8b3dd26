"""A sweep in at most 25 lines and 100 columns: what to ship and why, the front, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.report.recommendation import gate_sentence, headline
from workbench.report.summary import Summary
from workbench.report.table import Line, laid_out, shown, wrapped, written
from workbench.report.text import damage_words, verdict_lines
from workbench.report.words import count_of, scored
from workbench.values.evidence import Evidence, level_of
from workbench.values.measurement import Estimate
from workbench.values.metrics import METRICS, asked_beside, intervals, shown_in
from workbench.values.results import Evaluation

WIDTH = 100
_ROWS = 6
"""Of the front: with what else is said they make 25 lines."""
_FIGURES = 6
_WARNINGS = 2


def brief_lines(summary: Summary, next_commands: Sequence[str] = ()) -> list[Line]:
    """The verdict first. What is left out stands in `lines`.

    Args:
        next_commands: what to type next, a line each.
    """
    found: list[Line] = []
    if summary.emulated:
        found.append(("EMULATED: nothing below was measured on a device; times are modelled.", "bold red"))
    if summary.damage:
        found += wrapped(f"DAMAGED: {damage_words(summary)}", style="bold red", width=WIDTH, most=2)
    recommended, chosen = summary.recommended, summary.chosen
    if recommended is None or chosen is None:
        said = " ".join(text.strip() for text, _ in verdict_lines(summary))
        found += wrapped(said, style="bold red", width=WIDTH, most=6)
    else:
        said, equals = headline(summary), len(recommended.among)
        if equals:  # the one to take is said before how many others are as good
            by = f", by {', '.join(recommended.compared)}" if recommended.compared else ""
            name = f"{chosen.candidate.short_id}  {summary.title(chosen.candidate)}"
            said = f"Cannot be told apart: {name} and {count_of(equals, 'other')}{by}"
        found += wrapped(said, style="bold yellow" if equals else "bold green", width=WIDTH, most=3)
        rows = figures(summary, chosen)
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
        found += [(f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip(), "") for a, b, c in rows]
        minded = (f"Mind: {warning}" for warning in recommended.warnings[:_WARNINGS])
        found += wrapped(gate_sentence(summary), width=WIDTH, most=2)
        found += wrapped(*minded, style="yellow", width=WIDTH, most=2)
        if len(recommended.warnings) > _WARNINGS:
            found.append((f"  and {len(recommended.warnings) - _WARNINGS} more to mind: -v", "yellow"))
    return [*found, *_front(summary), *((line, "") for line in next_commands)]


def figures(summary: Summary, chosen: Evaluation) -> list[tuple[str, str, str]]:
    """(name, value with interval, evidence and limit): the four that every answer has, then what else was asked for."""
    by, limits = scored(summary.evaluations), {c.metric: c for c in summary.constraints}
    usual = ["speedup", by.loss_metric, *_served(summary, chosen)]
    rows = []
    for name in (*usual, *asked_beside(summary.asked, (*usual, *shown_in("view"), "accuracy_loss")))[:_FIGURES]:
        value, level = _reading(summary, chosen, name)
        if value is not None:
            of_own = name == by.loss_metric and by.noun != "accuracy"
            words = f"loss of {by.noun}" if of_own else _WORDS.get(name, ("",))[0]
            limit = f"; limit {limits[name].limit:g}" if name in limits else ""
            rows.append(
                (words or METRICS[name].label, written(name, value, _unit(name, by.loss_unit)), f"{level or ''}{limit}")
            )
    return rows


_WORDS = {
    "speedup": ("speed-up", "speed-up"),
    "accuracy_loss_pp": ("accuracy loss", ""),
    "accuracy_loss": ("accuracy loss", ""),
    "service_throughput_per_s": ("throughput", "served /s"),
    "throughput_per_s": ("throughput of one session", "per s"),
    "service_p99_ms": ("P99", "P99 ms"),
    "latency_p50_ms": ("", "P50 ms"),
    "latency_p99_ms": ("", "P99 ms"),
    "prefill_ms": ("", "prefill"),
    "decode_ms": ("", "decode"),
}
"""Metric → what it is called, where that is not its label, and its head in the table of the front."""


def _served(summary: Summary, evaluation: Evaluation) -> tuple[str, ...]:
    """Of a service where there is one, of decoding where a language model was judged, else of single calls."""
    if summary.serves:
        return "service_throughput_per_s", "service_p99_ms"
    if evaluation.measurement.language is not None:
        return "prefill_ms", "decode_ms"
    latency = evaluation.measurement.latency
    few = latency is not None and latency.p99_ms is None  # too few calls were timed for a P99
    return "throughput_per_s", "latency_p50_ms" if few else "latency_p99_ms"


def _reading(summary: Summary, evaluation: Evaluation, name: str) -> tuple[float | Estimate | None, Evidence | None]:
    """By the strongest evidence that has it."""
    for known in (summary.strongest(evaluation), evaluation):
        value = intervals(known).get(name, summary.numbers(known).get(name))
        if value is not None:
            return value, level_of(known, name)
    return None, None


def _unit(name: str, loss_unit: str) -> str:
    unit = loss_unit if name.startswith("accuracy_loss") else METRICS[name].unit
    return f" {unit}" if unit and unit not in ("x", "/s") else unit


def _front(summary: Summary) -> list[Line]:
    """The baseline and the front, point values only; how well they are known stands beside them."""
    members, by = shown(summary, fallen=False), scored(summary.evaluations)
    if not members:
        return []
    names = ("speedup", by.loss_metric, *_served(summary, members[0]))
    heads = ["", "evidence", "speed-up", f"loss {by.loss_unit}", *(_WORDS[n][1] for n in names[2:])]
    rows = [heads, *(_row(summary, e, names) for e in members[:_ROWS])]
    found: list[Line] = []
    for (line,), evaluation in zip(laid_out(rows, 10 * WIDTH), [None, *members], strict=False):
        chosen = evaluation is not None and summary.chose(evaluation)
        what = "what" if evaluation is None else summary.title(evaluation.candidate)
        style = "bold" if evaluation is None else "bold green" if chosen else ""
        row = f"{'>' if chosen else ' '} {line[4:]}  {what}"
        found.append((row if len(row) <= WIDTH else f"{row[: WIDTH - 1]}…", style))
    more = len(members) - _ROWS
    return [*found, *([(f"  and {more} more: -v", "dim")] if more > 0 else [])]


def _row(summary: Summary, evaluation: Evaluation, names: Sequence[str]) -> list[str]:
    level = summary.evidence(evaluation)
    cells = [evaluation.candidate.short_id, {"measured held-out": "held-out"}.get(level or "", level or "")]
    for name in names:
        value, _ = _reading(summary, evaluation, name)
        value = value.value if isinstance(value, Estimate) else value
        sign = "+" if name.startswith("accuracy_loss") else ""
        cells.append("" if value is None else f"{value:{sign}{METRICS[name].form}}{'x' if name == 'speedup' else ''}")
    return cells
