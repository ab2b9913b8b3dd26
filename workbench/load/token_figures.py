"""What a load of streams gave, by token: times, rates, and the share of requests that keep limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.values.errors import ConfigError
from workbench.values.measurement import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What a request keeps that counts as good; None for no limit. Milliseconds.

    Attributes:
        ttft_ms: to the first token. `tpot_ms`: per output token after it. `latency_ms`: to the end of the answer.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms", "latency_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{value:g} ms is no limit.", key=f"--{name.replace('_', '-')}")

    def __bool__(self) -> bool:
        return (self.ttft_ms, self.tpot_ms, self.latency_ms) != (None, None, None)

    def __str__(self) -> str:
        limits = (("TTFT", self.ttft_ms), ("TPOT", self.tpot_ms), ("latency", self.latency_ms))
        return ", ".join(f"{name} ≤ {value:g} ms" for name, value in limits if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Milliseconds."""

    p50: Estimate
    p95: Estimate
    p99: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Attributes:
    share: of requests due in the window that were answered and keep every limit.
    rate_per_s: of such answers that were complete in the window.
    """

    limits: TokenLimits
    share: Estimate
    rate_per_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFigures:
    """Of successful answers to requests that were due in the window; measured, like everything of a load.

    Attributes:
        ttft_ms: from the moment a request was intended to its first chunk with text.
        tpot_ms: of each answer with two chunks or more, the time from its first chunk to its last by its tokens less
            one, as vLLM's and NVIDIA's benchmarks define it.
        between_ms: from chunk to chunk within an answer; between tokens where each chunk holds one.
        gaps: how many of them there were. Of more than two million as many are drawn, evenly by the seed.
        output_tokens_per_s: tokens of successful answers that arrived in the window; a chunk's are its answer's in
            equal parts.
        output_tokens, chunks: of all answers. `prompt_tokens`: of those whose usage told it, `prompts`.
        counted_by_usage: answers whose tokens the server's usage told; of the others, `by_chunks`, each chunk counts
            as one.
        empty: answers without text.
        woken_late_p99_ms: how late the load generator's own event loop came.
        prompts_known: distinct requests that were sent.
    """

    ttft_ms: Percentiles | None
    tpot_ms: Percentiles | None
    between_ms: Percentiles | None
    gaps: int
    output_tokens_per_s: Estimate
    output_tokens: int
    chunks: int
    prompt_tokens: int
    prompts: int
    counted_by_usage: int
    by_chunks: int
    empty: int
    woken_late_p99_ms: float
    prompts_known: int
    goodput: Goodput | None = None

    @property
    def tokens_per_chunk(self) -> float | None:
        return self.output_tokens / self.chunks if self.chunks else None
