"""Loads of real servers that stream: LitServe's, with known gaps, and raw ones that do it wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.load.openai.lit_server import FIRST_S, GAP_S
from tests.load.openai.streams import (
    DONE,
    HEAD,
    chunk,
    delta,
    event,
    lit_server,
    refusing,
    streaming,
    text_events,
    whole,
)
from tests.load.servers import Handler, Server, answer, delayed, serving
from workbench.load import LoadPlan, LoadResult, run_load
from workbench.load.openai.asking import only_model, probed, requests_of
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.service import ServiceLoad

PATH = "/v1/chat/completions"


def bodies(*texts: str, tokens: int = 6) -> list[dict[str, Any]]:
    return requests_of([{"text": text} for text in texts], "m", "/v1", max_tokens=tokens)[0]


def loaded(url: str, *texts: str, load: ServiceLoad | None = None, **plan: Any) -> LoadResult:
    asked, _ = probed(url, PATH, bodies(*texts or ("hello",)), api_key=None, timeout_s=30)
    settings = {"duration_s": 120.0, "max_requests": 12, "warmup_s": 0.0, "timeout_s": 60.0, **plan}
    times_to = settings.pop("times_to", None)
    load = load or ServiceLoad(concurrency=2)
    return run_load(LoadPlan(url=url, path=PATH, wire="openai/chat", load=load, **settings), asked, times_to=times_to)


def test_litserves_stream_is_timed_token_by_token(tmp_path: Path) -> None:
    with lit_server(tmp_path / "log") as lit:
        result = loaded(lit, "a story", "pairs of words", times_to=tmp_path / "times.npz")

    tokens = result.tokens
    assert tokens is not None
    assert tokens.ttft_ms is not None
    assert tokens.tpot_ms is not None
    assert tokens.between_ms is not None
    assert result.statuses == {"200": result.answered}
    assert tokens.output_tokens == 6 * result.answered, "by usage: the second prompt's come in three chunks"
    assert (tokens.counted_by_usage, tokens.by_chunks) == (result.answered, 0)
    assert tokens.ttft_ms.p50.value >= 1000 * FIRST_S
    assert tokens.between_ms.p50.value >= 1000 * GAP_S - 1
    assert result.p50_ms is not None
    assert result.p50_ms.value >= 1000 * (FIRST_S + 4 * GAP_S) - 1
    with np.load(tmp_path / "times.npz") as kept:
        first = np.cumsum(kept["stream_chunks"]) - kept["stream_chunks"]
        waited = kept["chunk_s"][first] - kept["intended_s"][kept["stream_row"]]
    assert waited.min() >= FIRST_S
    assert any("holds 1.3" in note for note in result.notes)


def test_an_open_loop_counts_the_first_token_from_the_intended_moment() -> None:
    """One connection and answers of 60 ms: a hundred a second pile up, and every first token waits for its turn."""
    slow = streaming(text_events(3), 0.03, 0.005)
    with serving(slow) as server:
        load = ServiceLoad(arrivals="trace", trace_s=tuple(i / 100 for i in range(20)))
        result = loaded(server.url, load=load, connections=1, duration_s=1.0, max_requests=100)

    assert result.answered == 20
    assert result.tokens is not None
    assert result.tokens.ttft_ms is not None
    assert result.tokens.ttft_ms.p99.value > 19 * 45 - 190, "nineteen answers came before it"
    assert result.late_p99_ms is not None
    assert result.late_p99_ms > 500


async def drips(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD)
    for _ in range(200):
        writer.write(chunk(b": still here\n\n"))
        await asyncio.sleep(0.05)
    return False


CLOSED, GARBAGE = "connection closed before the answer was whole", "no HTTP answer"
TRUNCATED = "the stream ended before it was complete"
FAULTS: tuple[tuple[Handler, str], ...] = (
    (streaming([delta("a"), delta("b")], last=b""), CLOSED),
    (streaming([delta("a"), delta("b")]), TRUNCATED),
    (streaming([delta("a"), event({"error": {"message": "x"}})]), "an error in the middle of the stream"),
    (delayed(0), "an answer without a stream of events"),
    (streaming([b"data: what?\n\n"]), GARBAGE),
    (streaming([b"data: " + b"x" * (1 << 20)] * 3, last=b""), GARBAGE),
    (drips, "no answer in time"),
    (delayed(0, answer("429 Too Many Requests", b'{"error": {"message": "full"}}')), "429"),
)


def test_a_stream_that_goes_wrong_is_counted_by_kind() -> None:
    """Every second request, the first one whole: a probe and a load need an answer."""
    good, counter, kinds = streaming(text_events(3)), itertools.count(), Counter[str]()

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        number = next(counter)
        if number % 2 == 0:
            return await good(server, body, writer)
        bad, kind = FAULTS[number // 2 % len(FAULTS)]
        kinds[kind] += 1
        return await bad(server, body, writer)

    with serving(handle) as server:
        result = loaded(server.url, timeout_s=5.0, max_requests=2 * len(FAULTS))

    assert result.statuses == {"200": result.answered, "429": kinds.pop("429")}
    assert result.errors == kinds
    assert len(kinds) == 6
    assert result.answered > 0
    assert not result.reliable
    assert result.tokens is not None
    assert result.tokens.output_tokens == 3 * result.answered, "of whole answers alone"


def test_keep_alives_long_events_and_a_late_end_of_the_connection_are_no_faults() -> None:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            HEAD + chunk(b": ping\n\n") + chunk(delta("x" * 500_000)) + chunk(delta("b", "stop")) + chunk(DONE)
        )
        await asyncio.sleep(5.0)  # its reader has everything
        writer.write(b"0\r\n\r\n")
        return True

    with serving(handle) as server:
        result = loaded(server.url, max_requests=2)

    assert result.failed == 0
    assert result.p50_ms is not None
    assert result.p50_ms.value < 5000, "the answer ends with [DONE], not with its framing"


def test_a_server_that_refuses_stream_options_is_asked_without() -> None:
    handler = refusing(
        b"stream_options", "400 Bad Request", "unknown field stream_options", streaming([delta("a"), DONE])
    )
    with serving(handler) as server:
        sent, with_usage = probed(server.url, PATH, bodies("a", "b"), api_key=None, timeout_s=10)

    assert not with_usage
    assert not any("stream_options" in body for body in sent)
    assert len(sent) == 2


def test_what_is_wrong_with_a_server_is_said_before_the_load() -> None:
    refused: tuple[tuple[Handler, type[Exception], str], ...] = (
        (
            delayed(0, answer("404 Not Found", b'{"error": {"message": "no model m"}}')),
            ConfigError,
            r"404: no model m\.",
        ),
        (delayed(0, answer("400 Bad Request", b'{"detail": "ignore_eos"}')), ConfigError, r"status 400: ignore_eos\."),
        (delayed(0, answer(body=b'{"choices": []}')), MeasureError, "without a stream of events"),
        (delayed(0, whole([event({"error": {"message": "no card"}})])), MeasureError, r"no card"),
        (delayed(0, b"SSH-2.0-OpenSSH\r\n\r\n"), MeasureError, "no answer of this protocol"),
        (streaming([delta("a")], last=b""), MeasureError, "closed before"),
        (drips, MeasureError, "no whole answer within 0.5 s"),
    )
    for handler, error, words in refused:
        with serving(handler) as server, pytest.raises(error, match=words):
            probed(server.url, PATH, bodies("a"), api_key=None, timeout_s=0.5 if handler is drips else 20)
    with pytest.raises(ConfigError, match="cannot stand in a header"):
        probed("http://127.0.0.1:9", PATH, bodies("a"), api_key="a\r\nX: y", timeout_s=1)


def test_which_model_is_asked_must_be_known() -> None:
    with serving(delayed(0)) as server, pytest.raises(ConfigError, match="which model is asked"):
        only_model(server.url, "/v1", None)
    with pytest.raises(ConfigError, match="does not answer"):
        only_model("http://127.0.0.1:9", "/v1", None)
