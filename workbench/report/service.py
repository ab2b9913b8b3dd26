"""The service in a report: what each front member would serve and did serve, and what searching jointly was worth."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workbench.report.summary import Summary, best_known_service
from workbench.report.table import WIDTH, laid_out
from workbench.values.measurement import Estimate, ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import bins_words

_COLUMNS = (
    ("", 11),
    ("batch <=", 9),
    ("wait ms", 8),
    ("workers", 8),
    ("per s", 22),
    ("P50 ms", 22),
    ("P99 ms", 26),
    ("rows", 7),
    ("padding", 9),
)

_LEGEND = (
    "Intervals are 95 %, of where another measurement under this load would lie. rows: mean batch. padding: share of "
    "what is computed. "
)
_UNTUNED = {
    True: "today: predicted at what the space says that the service runs now.",
    False: "untuned: predicted at the first settings of the space, which has no `today:` to say what runs now.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JointGain:
    """What the joint search found beyond what searching one thing at a time finds, all predicted for the same load.

    Attributes:
        recommended: the recommended candidate at its best settings.
        tuned_float: the best float candidate at its best settings: what tuning the service alone gives.
        untuned_int8: the best quantized candidate at the settings that nobody tuned: what quantizing alone gives; None
            where nobody quantized keeps the constraints.
        untuned: those settings, in words.
        lengths: what its padded lengths bring, in a sentence; empty where they are no choice of the service.
    """

    recommended: float
    tuned_float: float | None
    tuned_float_id: str | None
    untuned_int8: float | None
    untuned_int8_id: str | None
    untuned: str
    lengths: str = ""


def joint_gain(summary: Summary) -> JointGain | None:
    """Of the search's own predictions (validation); None without a recommended candidate or a service."""
    chosen = summary.find(summary.recommended.candidate_id) if summary.recommended is not None else None
    service = chosen.measurement.service if chosen is not None else None
    if service is None or service.best is None:
        return None
    able = [e for e in summary.evaluations if summary.is_feasible(e) and e.measurement.service is not None]
    tuned = _best((e, _tuned(e)) for e in able if e.candidate.quantization.scheme == "none")
    untuned = _best((e, _untuned(e)) for e in able if e.candidate.quantization.scheme != "none")
    return JointGain(
        recommended=service.best.throughput_per_s.value,
        tuned_float=tuned[1] if tuned else None,
        tuned_float_id=tuned[0].candidate.id if tuned else None,
        untuned_int8=untuned[1] if untuned else None,
        untuned_int8_id=untuned[0].candidate.id if untuned else None,
        untuned=f"{'today' if service.untuned_is_today else 'untuned'}: {service.untuned.settings}",
        lengths=_lengths(service.best, service.at_untuned_bins),
    )


def _lengths(best: ServiceFigures, before: ServiceFigures | None) -> str:
    """The factor of the lengths in a service's throughput, on top of all else."""
    if before is None or before.settings == best.settings:
        return ""
    ours, theirs = best.throughput_per_s.value, before.throughput_per_s.value
    return (
        f"Of what the recommended one is predicted to serve (validation), {ours:.0f}/s, its lengths bring a factor of "
        f"{ours / theirs:.2f}: with {bins_words(before.settings.sequence_bins)} and all else the same it is "
        f"{theirs:.0f}/s."
    )


def service_lines(summary: Summary, width: int = WIDTH) -> list[tuple[str, str]]:
    """(text, style) lines; none where no service was searched for."""
    found: list[tuple[str, str]] = []
    shown = [e for e in _shown(summary) if best_known_service(summary, e) is not None]
    results = {e.candidate.id: result for e in shown if (result := best_known_service(summary, e)) is not None}
    heads = [name for name, _ in _COLUMNS]
    every = [heads, *(cells for result in results.values() for cells, _, _ in _rows(result, ""))]
    broken = iter(laid_out(every, [least for _, least in _COLUMNS], width))
    for evaluation in shown:
        result = results[evaluation.candidate.id]
        if not found:
            load = (result.best or result.closest).load
            found.append((f"Service under {load}:", "bold"))
            found += [(line, "bold") for line in next(broken)]
        chosen = summary.recommended is not None and summary.recommended.candidate_id == evaluation.candidate.id
        style = "bold green" if chosen else ""
        name = f"{'>' if chosen else ' '} {evaluation.candidate.short_id}  {summary.title(evaluation.candidate)}"
        parts = textwrap.wrap(name, WIDTH, subsequent_indent=" " * 16, break_on_hyphens=False, drop_whitespace=True)
        found += [(line, style or "bold") for line in parts]
        for _, row_style, note in _rows(result, style):
            found += [(line, row_style) for line in next(broken)]
            found += [(f"    {line}", row_style) for line in textwrap.wrap(note, WIDTH - 4)]
        if result.confirmed is None and result.note:
            found += [(f"    {line}", "dim") for line in textwrap.wrap(f"not measured: {result.note}", WIDTH - 4)]
    return [*found, *_basis_lines(summary), *_gain_lines(summary)] if found else []


def _basis_lines(summary: Summary) -> list[tuple[str, str]]:
    """What the predictions rest on: the host's costs, and how quiet the machine was."""
    results = [r for e in _shown(summary) if (r := best_known_service(summary, e)) is not None]
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


def _gain_lines(summary: Summary) -> list[tuple[str, str]]:
    gain = joint_gain(summary)
    if gain is None:
        return []
    found = [gain.lengths] if gain.lengths else []
    if gain.tuned_float is not None and gain.tuned_float_id is not None:
        more = f"{gain.recommended / gain.tuned_float:.2f}x"
        found.append(
            "By the search's own predictions (validation), tuning the service of a float model alone gives "
            f"{gain.tuned_float:.0f}/s at best ({gain.tuned_float_id[:12]}); the recommended one "
            f"{gain.recommended:.0f}/s, {more} of it."
        )
    if gain.untuned_int8 is not None and gain.untuned_int8_id is not None:
        more = f"{gain.recommended / gain.untuned_int8:.2f}x"
        found.append(
            f"Quantizing alone ({gain.untuned}) gives {gain.untuned_int8:.0f}/s by them at best "
            f"({gain.untuned_int8_id[:12]}); the recommended one {gain.recommended:.0f}/s, {more} of it."
        )
    return [(f"  {line}", "") for text in found for line in textwrap.wrap(text, WIDTH - 2, subsequent_indent="  ")]


def _shown(summary: Summary) -> Iterator[Evaluation]:
    baseline = summary.baseline
    if baseline is not None and summary.member(summary.baseline_id) is None and baseline.status == "complete":
        yield baseline
    for member in (*summary.front, *summary.fallen):
        yield member.evaluation


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
        _interval(figures.throughput_per_s, 0),
        _interval(figures.p50_ms, 1),
        _interval(figures.p99_ms, 1),
        f"{figures.mean_batch:.1f}",
        f"{100 * figures.padding_share:.0f} %",
    ]


def _interval(estimate: Estimate, digits: int) -> str:
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _best(found: Iterable[tuple[Evaluation, float | None]]) -> tuple[Evaluation, float] | None:
    known = [(evaluation, value) for evaluation, value in found if value is not None]
    return max(known, key=lambda pair: (pair[1], pair[0].candidate.id)) if known else None


def _tuned(evaluation: Evaluation) -> float | None:
    service = evaluation.measurement.service
    return service.best.throughput_per_s.value if service is not None and service.best is not None else None


def _untuned(evaluation: Evaluation) -> float | None:
    service = evaluation.measurement.service
    return service.untuned.throughput_per_s.value if service is not None and not service.untuned_missed else None
