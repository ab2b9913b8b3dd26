"""The service in a report: what each front member would serve and did serve, beside today's settings."""

from __future__ import annotations

import textwrap

from workbench.report.summary import Summary
from workbench.report.table import WIDTH, laid_out, named, shown
from workbench.report.words import interval
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.service import bins_words

_COLUMNS = ("", "batch <=", "wait ms", "workers", "per s", "P50 ms", "P99 ms", "rows", "padding")

_LEGEND = (
    "Intervals are 95 %, of where another measurement under this load would lie. rows: mean batch. padding: share of "
    "what is computed. "
)
_UNTUNED = {
    True: "today: predicted at what the space says that the service runs now.",
    False: "untuned: predicted at the first settings of the space, which has no `today:` to say what runs now.",
}


def service_lines(summary: Summary, width: int = WIDTH) -> list[tuple[str, str]]:
    """(text, style) lines; none where no service was searched for."""
    found: list[tuple[str, str]] = []
    results = {e.candidate.id: result for e in shown(summary) if (result := summary.service(e)) is not None}
    every = [[*_COLUMNS], *(cells for result in results.values() for cells, _, _ in _rows(result, ""))]
    broken = iter(laid_out(every, width))
    for evaluation in shown(summary):
        result = results.get(evaluation.candidate.id)
        if result is None:
            continue
        if not found:
            load = (result.best or result.closest).load
            found.append((f"Service under {load}:", "bold"))
            found += [(line, "bold") for line in next(broken)]
        found += named(summary, evaluation, [summary.title(evaluation.candidate)])
        style = "bold green" if summary.chose(evaluation) else ""
        for _, row_style, note in _rows(result, style):
            found += [(line, row_style) for line in next(broken)]
            found += [(f"    {line}", row_style) for line in textwrap.wrap(note, WIDTH - 4)]
        if result.confirmed is None and result.note:
            found += [(f"    {line}", "dim") for line in textwrap.wrap(f"not measured: {result.note}", WIDTH - 4)]
    return [*found, *_basis_lines(summary)] if found else []


def _basis_lines(summary: Summary) -> list[tuple[str, str]]:
    """What the predictions rest on: the host's costs, and how quiet the machine was."""
    results = [r for e in shown(summary) if (r := summary.service(e)) is not None]
    origins = {f.host.origin for r in results if (f := r.best or r.closest).host is not None}
    words = [
        _LEGEND + _UNTUNED[any(r.untuned_is_today for r in results)],
        *(f"Predicted with host costs {origin}." for origin in sorted(origins)),
    ]
    noisy = sum(not r.curve.quiet for r in results)
    if noisy:
        words.append(
            f"Batch curves timed on a noisy machine: {noisy} of {len(results)}; predictions inherit the noise."
        )
    if any(r.curve.clock == "modelled" for r in results):
        words.append("The device's times are modelled, not measured.")
    return [(f"  {line}", "dim") for text in words for line in textwrap.wrap(text, WIDTH - 2)]


def _rows(result: ServiceResult, style: str) -> list[tuple[list[str], str, str]]:
    """(cells, style, what must be said of them) of each row of a candidate."""
    known = "modelled" if result.curve.clock == "modelled" else "predicted"
    best = ("too slow", result.closest, "red") if result.best is None else (known, result.best, style)
    rows = [best, *([("measured", result.confirmed, style)] if result.confirmed is not None else [])]
    found = [(_cells(kind, f), s, _said_of(f)) for kind, f, s in rows]
    kind, missed = "today" if result.untuned_is_today else "untuned", result.untuned_missed
    said = [_said_of(result.untuned), f"{missed}; no factor over it is given" if missed else ""]
    return [*found, (_cells(kind, result.untuned), "red" if missed else "dim", "; ".join(filter(None, said)))]


def _said_of(figures: ServiceFigures) -> str:
    bins = figures.settings.sequence_bins
    parts = [bins_words(bins)] if bins else []
    return "; ".join(parts if figures.reliable else [*parts, f"UNRELIABLE: {figures.note}"])


def _cells(kind: str, figures: ServiceFigures) -> list[str]:
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
