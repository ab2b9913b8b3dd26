"""The load generator against real servers whose delay and faults are known."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.load.servers import Handler, Server, answer, delayed, serving
from workbench.load import LoadPlan, LoadResult, bodies_of_texts, run_load
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad

BODIES = bodies_of_texts(["loan pay", "due", ["张", "三"]])


def loaded(server: Server, load: ServiceLoad, times_to: Path | None = None, **plan: float) -> LoadResult:
    settings = {"duration_s": 0.6, "warmup_s": 0.1, "timeout_s": 5.0, **plan}
    return run_load(LoadPlan(url=server.url, load=load, **settings), BODIES, times_to=times_to)  # type: ignore[arg-type]  # numbers only


def test_a_closed_loop_sees_the_servers_delay_and_no_more() -> None:
    spent: list[float] = []

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        began = time.perf_counter()
        await asyncio.sleep(0.02)
        writer.write(answer())
        spent.append(time.perf_counter() - began)
        return True

    for _ in range(4):  # a busy machine adds to what a client sees, and never takes away: one load of them is enough
        spent.clear()
        with serving(handle) as server:
            result = loaded(server, ServiceLoad(concurrency=10))
        assert result.p50_ms is not None
        truth_ms = float(np.median(spent)) * 1000
        assert result.p50_ms.value >= truth_ms
        if result.p50_ms.value <= truth_ms + 2:
            break
    else:
        pytest.fail(f"the client saw {result.p50_ms.value} ms of {truth_ms} ms in every load")

    assert result.throughput_per_s.value == pytest.approx(10_000 / result.mean_ms, rel=0.1)  # type: ignore[operator]  # checked above
    assert result.statuses == {"200": result.answered}
    assert result.requests == result.answered > 100
    # /metrics is read at the window's begin and end, and once for gauges of cards, which this server has none of
    assert server.connections == 10 + 3, "clients keep their connections"


def test_every_body_is_sent_before_any_is_sent_again() -> None:
    with serving(delayed(0)) as server:
        loaded(server, ServiceLoad(concurrency=1), max_requests=9, warmup_s=0)

    sent = [body.decode() for body in server.bodies]
    assert len(sent) == 9
    assert all(sorted(sent[i : i + 3]) == sorted(BODIES) for i in (0, 3, 6))


def test_an_open_loop_sends_when_it_is_due_whatever_the_server_does(tmp_path: Path) -> None:
    """200 ms of standstill must be seen by all requests that were due meanwhile, not by one for each connection."""
    stalled: list[float] = []

    def stall(server: Server) -> None:
        while server.requests < 300:
            time.sleep(0.01)
        stalled.append(time.perf_counter())
        server.stall(0.2)

    with serving(delayed(0.002)) as server:
        trouble = threading.Thread(target=stall, args=(server,))
        while_loading = ServiceLoad(arrivals="poisson", rate_per_s=400)
        trouble.start()
        result = loaded(server, while_loading, tmp_path / "times.npz", duration_s=1.4, warmup_s=0)
        trouble.join()

    with np.load(tmp_path / "times.npz") as stored:
        intended, done = stored["intended_s"] + stored["begin_s"], stored["done_s"] + stored["begin_s"]
    due = (intended > stalled[0] + 0.05) & (intended < stalled[0] + 0.19)
    assert due.sum() > 25
    assert (done[due] >= stalled[0] + 0.2).all()
    assert result.longest_ms is not None
    assert result.longest_ms > 150
    assert result.answered == result.requests


def test_poisson_arrivals_come_at_their_rate_and_are_counted_from_their_moment(tmp_path: Path) -> None:
    with serving(delayed(0.005)) as server:
        result = loaded(server, ServiceLoad(arrivals="poisson", rate_per_s=200), tmp_path / "times.npz", duration_s=1.0)

    with np.load(tmp_path / "times.npz") as stored:
        late_ms = 1000 * (stored["sent_s"] - stored["intended_s"])
        counted = stored["intended_s"] >= 0.1  # after the warm-up
        waited_ms = 1000 * (stored["done_s"] - stored["intended_s"])[counted]
    assert 150 < result.requests < 250
    assert result.failed == 0
    assert late_ms.min() >= 0
    assert waited_ms.min() >= 5
    assert result.p50_ms is not None
    assert result.p50_ms.value == pytest.approx(np.median(waited_ms), rel=0.05)


def test_a_trace_is_replayed_as_it_is() -> None:
    times = (0.0, 0.1, 0.1, 0.3)
    with serving(delayed(0)) as server:
        result = loaded(server, ServiceLoad(arrivals="trace", trace_s=times), duration_s=0.4, warmup_s=0)

    gaps = np.diff(server.arrived_s)
    assert result.requests == 4
    assert gaps == pytest.approx([0.1, 0.0, 0.2], abs=0.05)


def test_what_cannot_be_sent_is_counted() -> None:
    with serving(delayed(10)) as server:
        result = loaded_or_error(server, outstanding=10, connections=5)

    assert result.errors["not sent: too many outstanding"] > 20
    assert result.errors["no answer in time"] > 0
    assert result.requests == sum(result.errors.values()) + sum(result.statuses.values())
    assert not result.reliable


def loaded_or_error(server: Server, **plan: float) -> LoadResult:
    """A load of which hardly anything is answered: one quick answer comes first, or there would be no result."""
    first, slow = delayed(0), server.handler

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        return await (first if server.requests == 1 else slow)(server, body, writer)

    server.handler = handle
    return loaded(server, ServiceLoad(arrivals="poisson", rate_per_s=100), timeout_s=0.3, warmup_s=0, **plan)


def test_statuses_are_counted_and_only_successes_are_timed() -> None:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if server.requests % 4 == 0:
            await asyncio.sleep(0.1)
            writer.write(answer("503 Service Unavailable", b"", "Retry-After: 1\r\n"))
        else:
            await asyncio.sleep(0.01)
            writer.write(answer())
        return True

    with serving(handle) as server:
        result = loaded(server, ServiceLoad(concurrency=4))

    assert set(result.statuses) == {"200", "503"}
    assert result.statuses["200"] == result.answered
    assert result.statuses["503"] == pytest.approx(result.requests / 4, abs=2)
    assert result.p95_ms is not None
    assert result.p95_ms.value < 80
    assert not result.reliable
    assert "no successful answer" in result.notes[0]


async def close_midway(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(answer()[:-5])
    return False


async def close_at_once(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
    return False


async def never(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(60)
    return True


FAULTS = {
    "closes_midway": (close_midway, "connection closed before the answer was whole"),
    "closes_at_once": (close_at_once, "connection closed before the answer was whole"),
    "never_answers": (never, "no answer in time"),
    "garbage": (delayed(0, b"\x16\x03\x01\x02\x00 what?\r\n\r\n"), "no HTTP answer"),
    "no_number": (delayed(0, b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n"), "no HTTP answer"),
    "too_much": (delayed(0, answer() + b"more"), "no HTTP answer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_server_is_reported_by_kind(fault: str) -> None:
    broken, kind = FAULTS[fault]
    good = delayed(0.001)

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        chosen: Handler = broken if server.requests % 5 == 0 else good
        return await chosen(server, body, writer)

    with serving(handle) as server:
        result = loaded(server, ServiceLoad(concurrency=2), timeout_s=0.15, duration_s=0.4, warmup_s=0)

    assert set(result.errors) == {kind}
    assert result.answered + result.errors[kind] == result.requests
    assert result.answered > 0


def test_a_server_that_closes_after_every_answer_is_loaded_all_the_same() -> None:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer(headers="Connection: close\r\n"))
        return False

    async def without_length(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10_000)
        return False

    for handler in (handle, without_length):
        with serving(handler) as server:
            result = loaded(server, ServiceLoad(concurrency=4), duration_s=0.3, warmup_s=0)

        assert result.failed == 0
        assert result.answered > 20
        assert server.connections >= result.answered


def test_big_answers_are_whole_before_they_count() -> None:
    body = os.urandom(500_000)
    with serving(delayed(0.001, answer(body=body))) as server:
        result = loaded(server, ServiceLoad(concurrency=3), duration_s=0.5, warmup_s=0)

    assert result.answered > 10
    assert result.failed == 0


def test_nobody_at_the_address_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        plan = LoadPlan(url=f"http://127.0.0.1:{port}", load=ServiceLoad(concurrency=2), duration_s=0.3, warmup_s=0)
        with pytest.raises(ConfigError, match=r"gave no answer at all \(\d+ x no connection\)"):
            run_load(plan, BODIES)


def test_the_count_ends_a_run_early() -> None:
    for load in (ServiceLoad(concurrency=3), ServiceLoad(arrivals="poisson", rate_per_s=500)):
        with serving(delayed(0.001)) as server:
            result = loaded(server, load, max_requests=40, duration_s=20, warmup_s=0)

            assert server.requests == result.requests == 40
            assert result.window_s < 20, "the time it was given"


def test_an_api_key_is_sent_and_kept_out_of_files_and_arguments() -> None:
    with serving(delayed(0)) as server:
        plan = LoadPlan(url=server.url, load=ServiceLoad(concurrency=1), duration_s=0.2, warmup_s=0)
        run_load(plan, BODIES, api_key="open sesame")

    assert b"\r\nX-API-Key: open sesame\r\n" in server.heads[0]


def test_ctrl_c_ends_with_what_was_measured() -> None:
    code = (
        "import sys\n"
        "from workbench.load import LoadPlan, run_load\n"
        "from workbench.values.service import ServiceLoad\n"
        "plan = LoadPlan(url=sys.argv[1], load=ServiceLoad(concurrency=2), duration_s=60, warmup_s=0.1)\n"
        "result = run_load(plan, ['{}'])\n"
        "print(result.interrupted, result.answered > 0, result.window_s < 30)\n"
    )
    with serving(delayed(0.002)) as server:
        child = subprocess.Popen([sys.executable, "-c", code, server.url], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while server.requests < 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)

    assert output.split() == ["True", "True", "True"]
    assert child.returncode == 0


def test_clients_end_when_who_started_them_is_killed() -> None:
    code = (
        "import sys\n"
        "from workbench.load import LoadPlan, run_load\n"
        "from workbench.values.service import ServiceLoad\n"
        "run_load(LoadPlan(url=sys.argv[1], load=ServiceLoad(concurrency=2), duration_s=60), ['{}'])\n"
    )
    with serving(delayed(0.002)) as server:
        child = subprocess.Popen([sys.executable, "-c", code, server.url])
        deadline = time.monotonic() + 30
        while server.requests < 50 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.requests >= 50
        child.kill()
        child.wait()
        time.sleep(1.0)
        seen = server.requests
        time.sleep(0.5)

        assert server.requests == seen


def test_a_low_limit_of_open_files_is_raised_or_said() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(delayed(0.01)) as server:
        plan = LoadPlan(url=server.url, load=ServiceLoad(concurrency=150), duration_s=0.5, warmup_s=0.2)
        code = (
            "import json, resource, sys\n"
            "from workbench.values.documents.canonical import decode\n"
            "from workbench.load import LoadPlan, run_load\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (128, int(sys.argv[2])))\n"
            "print(run_load(decode(LoadPlan, json.loads(sys.argv[1])), ['{}']).failed)\n"
        )
        runs = [
            subprocess.run(
                [sys.executable, "-c", code, json.dumps(encode(plan)), str(limit)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            for limit in (hard, 128)
        ]

    assert soft > 200, "this test's own server needs them"
    assert runs[0].stdout == "0\n"
    assert "214 open files are needed and 128 allowed" in runs[1].stderr
