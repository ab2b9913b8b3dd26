"""From times of streams to figures, with answers counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.load import LoadPlan
from workbench.load.openai.figures import token_doubts, token_figures
from workbench.load.plan import TokenLimits
from workbench.load.result import TokenFigures
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad

END = {"end_s": 11.0, "woken_late_p99_s": 0.001, "full": False, "server_error": ""}


def plan(**limits: float) -> LoadPlan:
    return LoadPlan(
        url="http://127.0.0.1:1",
        wire="openai/chat",
        load=ServiceLoad(concurrency=1),
        duration_s=10,
        warmup_s=1,
        limits=TokenLimits(**limits),
    )


def stored(*streams: tuple[float, int, list[float], int]) -> dict[str, Any]:
    """(intended, outcome, times of chunks after it, tokens by usage); the last chunk ends the answer."""
    chunks = [list(times) for _, _, times, _ in streams]
    return {
        "intended_s": np.array([at for at, _, _, _ in streams]),
        "done_s": np.array([at + (times[-1] if times else 0.5) for at, _, times, _ in streams]),
        "outcome": np.array([outcome for _, outcome, _, _ in streams], dtype=np.int16),
        "stream_row": np.arange(len(streams)),
        "stream_chunks": np.array([len(times) for times in chunks]),
        "stream_tokens": np.array([tokens for _, _, _, tokens in streams]),
        "stream_prompt_tokens": np.full(len(streams), 7),
        "chunk_s": np.array([at + t for (at, _, _, _), times in zip(streams, chunks, strict=True) for t in times]),
    }


def figures(*streams: tuple[float, int, list[float], int], **limits: float) -> TokenFigures:
    return token_figures(stored(*streams), plan(**limits), END, prompts=3)


def test_times_by_token_are_those_of_the_definition() -> None:
    found = figures((2.0, 200, [0.1, 0.2, 0.3, 0.4], 7), (3.0, 200, [0.3, 0.5], 2), (0.5, 200, [0.9, 0.95], 2))

    assert found.ttft_ms is not None
    assert found.tpot_ms is not None
    assert found.between_ms is not None
    assert found.ttft_ms.p50.value == pytest.approx(100), "nearest rank of 100 and 300; the third came too early"
    assert found.ttft_ms.p99.value == pytest.approx(300)
    assert found.tpot_ms.p50.value == pytest.approx(300 / 6)
    assert found.tpot_ms.p99.value == pytest.approx(200)
    assert (found.gaps, found.chunks, found.output_tokens, found.prompt_tokens, found.prompts) == (4, 6, 9, 14, 2)
    assert found.between_ms.p50.value == pytest.approx(100)
    assert found.between_ms.p99.value == pytest.approx(200)
    assert found.output_tokens_per_s.value == pytest.approx((7 + 2 + 2) / 10), "all that arrived in the window"

    failed = figures((2.0, 200, [0.1, 0.2], 2), (3.0, -6, [9.0, 9.5], 50), (4.0, -7, [8.0], -1))
    assert failed.output_tokens_per_s.value == pytest.approx(0.2), "of whole answers alone"
    assert failed.ttft_ms is not None
    assert failed.ttft_ms.p99.value == pytest.approx(100)


def test_without_usage_chunks_are_counted_and_that_is_said() -> None:
    found = figures((2.0, 200, [0.1, 0.2, 0.3], -1), (3.0, 200, [0.1, 0.2], 0), (4.0, 200, [0.1, 0.2], 2))
    _, notes = token_doubts(found, plan(), END, 10.0, 3, 200.0)

    assert (found.counted_by_usage, found.by_chunks, found.output_tokens) == (1, 2, 7)
    assert any("2 answers told no usage: each chunk counts as one token" in note for note in notes)


def test_goodput_asks_for_every_limit_of_every_request_that_was_due() -> None:
    streams = (
        (2.0, 200, [0.1, 0.2], 2),  # keeps all
        (3.0, 200, [0.4, 0.5], 2),  # first token too late
        (4.0, 200, [0.1, 0.9], 2),  # too slow between
        (5.0, 200, [0.1], 1),  # one token: nothing to wait for
        (6.0, 200, [], 3),  # no text, so no first token
        (7.0, -2, [0.1, 0.2], 2),  # failed
        (8.0, 503, [], -1),
    )
    found = figures(*streams, ttft_ms=200, tpot_ms=150)
    assert found.goodput is not None
    assert found.goodput.share.value == pytest.approx(2 / 7)
    assert found.goodput.share.low < 2 / 7 < found.goodput.share.high
    assert found.goodput.rate_per_s.value == pytest.approx(0.2)
    assert found.empty == 1

    by_latency = figures(*streams, latency_ms=450).goodput
    assert by_latency is not None
    assert by_latency.share.value == pytest.approx(2 / 7), "the one without text ended after 500 ms"
    assert figures(*streams).goodput is None


def test_doubts_are_said() -> None:
    late = {**END, "woken_late_p99_s": 0.04, "full": True, "server_error": "out of memory"}
    found = token_figures(stored((2.0, 200, [0.1, 0.2], 10), (3.0, 200, [0.1], 1)), plan(), late, prompts=1)
    reasons, notes = token_doubts(found, plan(), late, 10.0, 2, 2000.0)

    assert reasons == ["the load generator's own loop came 40 ms (P99) late: that is in the times between tokens"]
    for words in ("a chunk holds 3.67", "5 answers long", "shorter than an answer", "sent 2 times", "out of memory"):
        assert any(words in note for note in notes), (words, notes)
    assert any("more chunks came than times" in note for note in notes)


def test_a_limit_is_a_time() -> None:
    for limit in (
        0.0,
        -1.0,
        float("nan"),
        float("inf"),
    ):
        with pytest.raises(ConfigError, match="is no limit"):
            TokenLimits(tpot_ms=limit)
