"""From the times of streams to times per token, rates and goodput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.load.intervals import Floats, percentiles, share, throughput
from workbench.load.plan import LoadPlan
from workbench.load.result import Goodput, Percentiles, TokenFigures

MOST_GAPS = 2_000_000
_SEVERAL = 1.05
"""Tokens in a chunk, in the mean, from which on a chunk is not called a token; an end without text counts as one."""
_WINDOW_LATENCIES = 10
_LATE_SHARE = 0.25
_LATE_MS = 2.0  # asyncio rounds its timers to milliseconds
_PROBABILITIES = (0.5, 0.95, 0.99)


def token_figures(
    stored: Mapping[str, npt.NDArray[Any]], plan: LoadPlan, end: Mapping[str, Any], prompts: int
) -> TokenFigures:
    """Figures of a load whose answers are streams.

    Args:
        stored: arrays of the file of times.
        end: what the clients' process wrote at its end.
        prompts: distinct requests.
    """
    window_s = float(end["end_s"]) - plan.warmup_s
    intended, done, outcome = stored["intended_s"], stored["done_s"], stored["outcome"]
    row, chunks, chunk_s = stored["stream_row"], stored["stream_chunks"], stored["chunk_s"]
    good = (outcome >= 200) & (outcome < 300)
    within = (intended >= plan.warmup_s) & (intended < end["end_s"])
    latency_ms = (done - intended) * 1000
    span_ms = float(np.median(latency_ms[within & good])) if (within & good).any() else 0.0

    told = stored["stream_tokens"] > 0  # servers that count nothing write 0
    tokens = np.where(told, stored["stream_tokens"], chunks)
    first, last = _ends(chunk_s, chunks)
    ttft_ms = (first - intended[row]) * 1000
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_ms = np.where((chunks > 1) & (tokens > 1), (last - first) * 1000 / (tokens - 1), np.nan)

    chosen = (within & good)[row]
    owner = np.repeat(np.arange(len(row)), chunks)
    between = np.flatnonzero((owner[1:] == owner[:-1]) & chosen[owner[1:]]) if len(owner) else np.zeros(0, np.int64)
    drawn = between
    if len(between) > MOST_GAPS:
        drawn = np.sort(np.random.default_rng(plan.seed).choice(between, MOST_GAPS, replace=False))
    gap_ms = (chunk_s[drawn + 1] - chunk_s[drawn]) * 1000

    def spread(values: Floats, of_row: npt.NDArray[np.int64]) -> Percentiles | None:
        known = np.isfinite(values)
        if not known.any():
            return None
        at_s = intended[of_row[known]] - plan.warmup_s
        found = percentiles(at_s, values[known], window_s, _PROBABILITIES, seed=plan.seed, span_ms=span_ms)
        return Percentiles(p50=found[0], p95=found[1], p99=found[2])

    def goodput() -> Goodput:
        limits = plan.limits
        kept = good & (latency_ms <= (np.inf if limits.latency_ms is None else limits.latency_ms))
        if limits.ttft_ms is not None:
            in_time = np.zeros(len(good), dtype=np.bool_)
            in_time[row] = ttft_ms <= limits.ttft_ms  # without text there is no first token: False
            kept &= in_time
        if limits.tpot_ms is not None:
            slow = np.zeros(len(good), dtype=np.bool_)
            slow[row] = tpot_ms > limits.tpot_ms  # without a second token there is nothing to wait for: False
            kept &= ~slow
        completed = kept & (done >= plan.warmup_s) & (done < plan.warmup_s + window_s)
        at_s = intended[within] - plan.warmup_s
        return Goodput(
            limits=limits,
            share=share(at_s, kept[within], window_s, span_ms=span_ms, seed=plan.seed),
            rate_per_s=throughput(done[completed] - plan.warmup_s, window_s)[0],
        )

    arrived = good[row][owner] & (chunk_s >= plan.warmup_s) & (chunk_s < end["end_s"])
    weights = (tokens / np.maximum(chunks, 1))[owner]
    rate, _ = throughput(chunk_s[arrived] - plan.warmup_s, window_s, weights[arrived])
    of_prompts = stored["stream_prompt_tokens"][chosen]
    return TokenFigures(
        ttft_ms=spread(ttft_ms[chosen], row[chosen]),
        tpot_ms=spread(tpot_ms[chosen], row[chosen]),
        between_ms=spread(gap_ms, row[owner[drawn]]),
        gaps=len(between),
        output_tokens_per_s=rate,
        output_tokens=int(tokens[chosen].sum()),
        chunks=int(chunks[chosen].sum()),
        prompt_tokens=int(of_prompts[of_prompts > 0].sum()),
        prompts=int((of_prompts > 0).sum()),
        counted_by_usage=int((told & chosen).sum()),
        by_chunks=int((~told & chosen & (chunks > 0)).sum()),
        empty=int((within & good).sum()) - int((chosen & (chunks > 0)).sum()),
        woken_late_p99_ms=1000 * float(end["woken_late_p99_s"]),
        prompts_known=prompts,
        goodput=goodput() if plan.limits and within.any() else None,
    )


def _ends(chunk_s: Floats, chunks: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """When the first and the last chunk of each stream came; NaN where there was none."""
    first, last = (np.full(len(chunks), np.nan) for _ in range(2))
    some = chunks > 0
    after = np.cumsum(chunks)
    first[some], last[some] = chunk_s[(after - chunks)[some]], chunk_s[after[some] - 1]
    return first, last


def token_doubts(
    found: TokenFigures, plan: LoadPlan, end: Mapping[str, Any], window_s: float, answered: int, p50_ms: float | None
) -> tuple[list[str], list[str]]:
    """(why the figures must not be relied on, what else should be known).

    Args:
        p50_ms: of the latency.
    """
    reasons, notes = [], []
    between = found.between_ms
    if between is not None and found.woken_late_p99_ms > max(_LATE_MS, _LATE_SHARE * between.p99.value):
        late = f"{found.woken_late_p99_ms:.3g} ms (P99)"
        reasons.append(f"the load generator's own loop came {late} late: that is in the times between tokens")
    if found.by_chunks:
        notes.append(
            f"{found.by_chunks} answers told no usage: each chunk counts as one token there, though it may hold several"
        )
    each = found.output_tokens / found.chunks if found.chunks else 1.0
    if each > _SEVERAL:
        notes.append(f"a chunk holds {each:.3g} tokens in the mean: times between tokens are times between chunks")
    elif each < 1:
        notes.append(f"usage tells fewer tokens ({found.output_tokens}) than chunks with text came ({found.chunks})")
    if found.empty:
        notes.append(f"{found.empty} answers had no text, so no first token")
    if answered and found.tpot_ms is None:
        notes.append("no answer came in more than one chunk, so there is no time per output token")
    if p50_ms is not None and window_s * 1000 < _WINDOW_LATENCIES * p50_ms:
        notes.append(f"the window is {window_s * 1000 / p50_ms:.2g} answers long (P50): a longer one tells more")
    if p50_ms is not None and plan.load.arrivals != "trace" and plan.warmup_s * 1000 < p50_ms:
        notes.append(f"the warm-up of {plan.warmup_s:g} s is shorter than an answer: the load was still building up")
    if answered > found.prompts_known:
        repeats = answered / found.prompts_known
        notes.append(f"each prompt was sent {repeats:.3g} times: a server that caches prefixes answers sooner")
    if end["full"]:
        notes.append("ended early: more chunks came than times are kept of")
    if end["server_error"]:
        notes.append(f"the server said in a stream: {end['server_error']}")
    return reasons, notes
