"""Load results as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.load.result import LoadResult, ServerFigures, TokenFigures
from workbench.values.device_use import DeviceUse
from workbench.values.measurement import Estimate


def result_lines(result: LoadResult) -> list[str]:
    """One load: what was asked, what came, what the server says."""
    kind = "closed loop" if result.load.arrivals == "closed" else "open loop, latency from the intended moment"
    what = str(result.load).removesuffix(", closed loop")
    lines = [f"{what}: {kind}; {result.window_s:.4g} s after {result.warmup_s:g} s of warm-up at {result.url}"]
    if result.wire != "predict" or result.batch > 1 or result.length is not None:
        lines.append(_line("requests of", _conditions(result)))
    if result.p50_ms is None or result.p95_ms is None or result.p99_ms is None:
        lines.append(_line("latency", "no successful answer"))
    else:
        each = f", {short(result.batch * result.throughput_per_s.value)} samples/s" if result.batch > 1 else ""
        lines.append(_line("throughput", f"{estimate_words(result.throughput_per_s)} answers/s{each}"))
        for name, value in (("P50", result.p50_ms), ("P95", result.p95_ms), ("P99", result.p99_ms)):
            lines.append(_line(f"latency {name}", f"{estimate_words(value)} ms"))
        lines[-1] += f"; longest {short(result.longest_ms)} ms"
    if result.tokens is not None:
        lines.extend(_tokens(result.tokens))
    ends = [f"status {s}: {n}" for s, n in result.statuses.items() if not s.startswith("2")]
    ends += [f"{kind}: {count}" for kind, count in result.errors.items()]
    due = f"{result.requests} due, {result.answered} answered"
    lines.append(_line("requests", "; ".join(filter(None, (due, ", ".join(ends))))))
    if result.late_p99_ms is not None:
        lines.append(_line("sent", f"P99 {short(result.late_p99_ms)} ms after the intended moment"))
    if result.server is not None:
        lines.extend(_server(result.server))
    if result.processes is not None:
        found = result.processes
        grown = f", {found.grown_bytes / 1e6:+.1f} MB while loaded" if found.grown_bytes is not None else ""
        used = f"{found.cores:.2f} cores, {found.resident_peak_bytes / 1e6:.0f} MB resident at most{grown}"
        lines.append(_line("server", f"{used} ({found.processes} processes)"))
    lines += [_line("card", device_words(use)) for use in result.device]
    lines.append(_line("client", f"{result.client_share:.0%} of a core ({result.event_loop})"))
    lines += [_line("note" if result.reliable else "doubtful", note) for note in result.notes]
    return lines


def _tokens(found: TokenFigures) -> Iterable[str]:
    """A stream by its tokens."""
    rows = (("first token", found.ttft_ms), ("per token", found.tpot_ms), ("between", found.between_ms))
    for name, spread in rows:
        if spread is not None:
            values = (("P50", spread.p50), ("P95", spread.p95), ("P99", spread.p99))
            yield _line(name, ", ".join(f"{what} {estimate_words(value)}" for what, value in values) + " ms")
    answers = max(1, found.counted_by_usage + found.by_chunks)
    counted = "by the server's usage" if not found.by_chunks else "by chunks"
    if found.by_chunks and found.counted_by_usage:
        counted = f"{found.counted_by_usage} answers by usage, {found.by_chunks} by chunks"
    mean = f"{short(found.output_tokens / answers)} an answer in the mean, counted {counted}"
    yield _line("output", f"{estimate_words(found.output_tokens_per_s)} tokens/s; {mean}")
    if found.prompts:
        yield _line("prompts", f"{short(found.prompt_tokens / found.prompts)} tokens in the mean")
    if found.goodput is not None:
        good = found.goodput
        kept = f"{100 * good.share.value:.1f} % ({100 * good.share.low:.1f} to {100 * good.share.high:.1f}) of requests"
        yield _line("goodput", f"{estimate_words(good.rate_per_s)} requests/s; {kept} keep {good.limits}")


def _conditions(result: LoadResult) -> str:
    if result.tokens is not None:
        return f"{result.wire}, model {result.model}; {result.tokens.prompts_known} prompts"
    length = "texts of their own lengths" if result.length is None else f"{result.length} tokens"
    samples = f"{result.batch} samples" if result.batch > 1 else "1 sample"
    model = f", model {result.model}" if result.model else ""
    return f"{samples}, {length}; {result.wire}{model}"


def _server(server: ServerFigures) -> Iterable[str]:
    parts = [f"{server.batches} of {short(server.mean_batch)} rows in the mean"]
    if server.padding_share is not None:
        parts.append(f"{server.padding_share:.1%} padding")
    if server.worker_busy is not None:
        parts.append(f"workers busy {server.worker_busy:.0%}")
    yield _line("batches", ", ".join(parts))
    if server.batch_rows:
        yield _line("batch sizes", _shares(server.batch_rows, "≤ "))
    if len(server.bin_rows) > 1:
        yield _line("length bins", _shares(server.bin_rows, ""))
    yield _line("in the server", f"{short(server.queue_ms)} ms in the queue, {short(server.model_ms)} ms in the model")
    if server.device_memory_bytes is not None:
        yield _line("device", f"{server.device_memory_bytes / 1e6:.1f} MB of its memory")


def _shares(counts: Mapping[str, int], mark: str) -> str:
    total = sum(counts.values())
    return ", ".join(f"{mark}{bound}: {count / total:.0%}" for bound, count in counts.items())


def device_words(use: DeviceUse) -> str:
    """A card while it was loaded: medians, and the peak where it is another."""
    shown = (
        (use.memory_bytes, 1e-9, "GB in use"),
        (use.power_w, 1.0, "W"),
        (use.utilization_percent, 1.0, "% busy"),
        (use.temperature_c, 1.0, "°C"),
    )
    parts = []
    for spread, factor, unit in shown:
        if spread is not None:
            peak = f" (at most {short(factor * spread.peak)})" if spread.peak > spread.median else ""
            parts.append(f"{short(factor * spread.median)} {unit}{peak}")
    told = max((s.samples for s, _, _ in shown if s is not None), default=0)
    marks = f"{'EMULATED, ' if use.emulated else ''}{told} samples, {use.source}"
    return f"{use.card}: {', '.join(parts) or 'nothing was told'} ({marks}{f'; {use.trouble}' if use.trouble else ''})"


def _line(name: str, text: str) -> str:
    return f"  {name:<14} {text}"


def estimate_words(value: Estimate) -> str:
    if value.low == value.high:
        return short(value.value)
    return f"{short(value.value)} ({short(value.low)} to {short(value.high)})"


def short(value: float | None) -> str:
    """Three or four digits, without an exponent."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
