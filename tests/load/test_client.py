"""The load generator against real servers whose delay and faults are known."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.load.servers import Handler, Server, answer, delayed, serving
from workbench.load import LoadPlan, LoadResult, bodies_of_texts, run_load
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceLoad

PATIENT = {"duration_s": 120.0, "timeout_s": 60.0}
"""Of loads that end by a count of requests, however slow the machine is."""
BODIES = bodies_of_texts(["loan pay", "due", ["张", "三"]])


def loaded(server: Server, load: ServiceLoad, times_to: Path | None = None, **plan: float) -> LoadResult:
    settings = {"duration_s": 0.6, "warmup_s": 0.1, "timeout_s": 60.0, **plan}
    return run_load(LoadPlan(url=server.url, load=load, **settings), BODIES, times_to=times_to)  # type: ignore[arg-type]  # numbers only


def test_a_closed_loop_sees_the_servers_delay(tmp_path: Path) -> None:
    spent: list[float] = []

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        began = time.perf_counter()
        await asyncio.sleep(0.02)
        writer.write(answer())
        spent.append(time.perf_counter() - began)
        return True

    with serving(handle) as server:
        load = ServiceLoad(concurrency=10)
        result = loaded(server, load, tmp_path / "times.npz", max_requests=300, warmup_s=0, **PATIENT)

    with np.load(tmp_path / "times.npz") as stored:
        sent, done = np.sort(stored["sent_s"]), np.sort(stored["done_s"])
        seen = stored["done_s"] - stored["intended_s"]
    assert min(spent) <= seen.min()
    assert result.p50_ms is not None
    assert result.p50_ms.value == pytest.approx(1000 * float(np.median(seen)), rel=0.05)
    assert result.mean_ms == pytest.approx(1000 * float(seen.mean()))
    assert (sent[10:] >= done[:-10]).all(), "each client waits for its answer"
    assert result.throughput_per_s.value == pytest.approx((done < result.window_s).sum() / result.window_s)
    assert result.statuses == {"200": result.answered}
    assert result.requests == result.answered == 300
    # /metrics is read at the window's begin and end, and once for gauges of cards, which this server has none of
    assert server.connections == 10 + 3, "clients keep their connections"


def test_every_body_is_sent_before_any_is_sent_again_with_the_key() -> None:
    with serving(delayed(0)) as server:
        plan = LoadPlan(url=server.url, load=ServiceLoad(concurrency=1), max_requests=9, warmup_s=0)
        run_load(plan, BODIES, api_key="open sesame")

    sent = [body.decode() for body in server.bodies]
    assert len(sent) == 9
    assert all(sorted(sent[i : i + 3]) == sorted(BODIES) for i in (0, 3, 6))
    assert b"\r\nX-API-Key: open sesame\r\n" in server.heads[0]


def test_an_open_loop_sends_when_it_is_due_whatever_the_server_does(tmp_path: Path) -> None:
    """200 ms of standstill must be seen by all requests that were due meanwhile, not by one for each connection."""
    for _ in range(8):  # a machine that stands still itself may leave nothing due: then it is asked again

        def stall(server: Server) -> None:
            while server.requests < 300:
                time.sleep(0.01)
            server.stall(0.2)

        with serving(delayed(0.002)) as server:
            trouble = threading.Thread(target=stall, args=(server,))
            while_loading = ServiceLoad(arrivals="poisson", rate_per_s=400)
            trouble.start()
            result = loaded(server, while_loading, tmp_path / "times.npz", duration_s=1.4, warmup_s=0)
            trouble.join()

        ((began, ended),) = server.stalled_s
        with np.load(tmp_path / "times.npz") as stored:
            intended, done = stored["intended_s"] + stored["begin_s"], stored["done_s"] + stored["begin_s"]
        due = (intended > began) & (intended < ended)
        assert (done[due] >= ended).all()
        assert result.answered == result.requests
        if due.sum() > 25:
            break
    else:
        pytest.fail("hardly a request was due while the server stood still, eight times")
    assert result.longest_ms is not None
    assert result.longest_ms >= 1000 * (ended - intended[due].min()) - 0.001


def test_a_trace_is_replayed_as_it_is(tmp_path: Path) -> None:
    times = (0.0, 0.1, 0.1, 0.3)
    with serving(delayed(0)) as server:
        trace = ServiceLoad(arrivals="trace", trace_s=times)
        result = loaded(server, trace, tmp_path / "times.npz", duration_s=0.4, warmup_s=0)

    with np.load(tmp_path / "times.npz") as stored:
        intended, sent, begin = stored["intended_s"], stored["sent_s"], float(stored["begin_s"])
    assert result.requests == result.answered == 4
    assert intended == pytest.approx(times)
    assert (sent >= intended).all()
    assert (np.array(server.arrived_s) - begin >= sent).all()


def test_what_was_due_while_the_client_stood_still_is_sent_late_and_counted() -> None:
    found: list[LoadResult] = []
    trace = ServiceLoad(arrivals="trace", trace_s=(0.0, 0.5, 0.6))
    with serving(delayed(0)) as server:
        load = threading.Thread(target=lambda: found.append(loaded(server, trace, duration_s=0.7, warmup_s=0)))
        load.start()
        while not server.requests:
            time.sleep(0.005)
        clients = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # another test's, that has ended
                if "workbench.load" in process.cmdline():
                    process.suspend()
                    clients.append(process)
        time.sleep(1.2)  # until the window is over
        for process in clients:
            process.resume()
        load.join(100)

    assert clients
    (result,) = found
    assert result.requests == result.answered == 3


def test_what_cannot_be_sent_is_counted() -> None:
    first, slow = delayed(0), delayed(10)

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """One quick answer, or there would be no result."""
        return await (first if server.requests == 1 else slow)(server, body, writer)

    with serving(handle) as server:
        load = ServiceLoad(arrivals="poisson", rate_per_s=100)
        result = loaded(server, load, timeout_s=3, warmup_s=0, outstanding=10, connections=5)

    assert result.errors["not sent: too many outstanding"] > 20
    assert result.errors["no answer in time"] > 0
    assert result.requests == sum(result.errors.values()) + sum(result.statuses.values())
    assert not result.reliable


def test_statuses_are_counted_and_only_successes_are_timed() -> None:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if server.requests % 4:
            writer.write(answer("503 Service Unavailable", b"", "Retry-After: 1\r\n"))
        else:
            await asyncio.sleep(0.05)
            writer.write(answer())
        return True

    with serving(handle) as server:
        result = loaded(server, ServiceLoad(concurrency=4), max_requests=80, warmup_s=0, **PATIENT)

    assert result.statuses == {"200": 20, "503": 60}
    assert result.answered == 20
    assert result.p50_ms is not None
    assert result.p50_ms.value >= 50, "three of four answers came at once"
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


FAULTS = (
    *((handler, "connection closed before the answer was whole") for handler in (close_midway, close_at_once)),
    (never, "no answer in time"),
    (delayed(0, b"\x16\x03\x01\x02\x00 what?\r\n\r\n"), "no HTTP answer"),
    (delayed(0, b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n"), "no HTTP answer"),
    (delayed(0, answer() + b"more"), "no HTTP answer"),
)


def test_a_broken_server_is_reported_by_kind() -> None:
    good, kinds = delayed(0.001), Counter[str]()

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        chosen: Handler = good
        if server.requests % 5 == 0:
            chosen, kind = FAULTS[server.requests // 5 % len(FAULTS)]
            kinds[kind] += 1
        return await chosen(server, body, writer)

    with serving(handle) as server:
        plan = {**PATIENT, "timeout_s": 5.0}
        result = loaded(server, ServiceLoad(concurrency=2), max_requests=60, warmup_s=0, **plan)

    assert result.errors == kinds
    assert len(kinds) == 3
    assert result.answered + sum(kinds.values()) == result.requests


def test_a_server_that_closes_after_every_answer_is_loaded_all_the_same() -> None:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer(headers="Connection: close\r\n"))
        return False

    async def without_length(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10_000)
        return False

    for handler in (handle, without_length):
        with serving(handler) as server:
            result = loaded(server, ServiceLoad(concurrency=4), max_requests=40, warmup_s=0, **PATIENT)

        assert result.failed == 0
        assert result.answered == 40
        assert server.connections >= result.answered


def test_nobody_at_the_address_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        plan = LoadPlan(url=f"http://127.0.0.1:{port}", load=ServiceLoad(concurrency=2), duration_s=0.3, warmup_s=0)
        with pytest.raises(ConfigError, match=r"gave no answer at all \(\d+ x no connection\)"):
            run_load(plan, BODIES)


LOADING = """
import sys
from workbench.load import LoadPlan, run_load
from workbench.values.service import ServiceLoad
plan = LoadPlan(url=sys.argv[1], load=ServiceLoad(concurrency=2), duration_s=250, warmup_s=0.1)
result = run_load(plan, ['{}'])
print(result.interrupted, result.answered > 0, result.window_s < 240)
"""


def loading(server: Server) -> subprocess.Popen[str]:
    """A process that loads a server, of which many requests have come."""
    child = subprocess.Popen([sys.executable, "-c", LOADING, server.url], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while server.requests < 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return child


def test_ctrl_c_ends_with_what_was_measured() -> None:
    with serving(delayed(0.002)) as server:
        child = loading(server)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=300)

    assert output.split() == ["True", "True", "True"]
    assert child.returncode == 0


def test_clients_end_when_who_started_them_is_killed() -> None:
    with serving(delayed(0.002)) as server, loading(server) as child:
        clients = psutil.Process(child.pid).children(recursive=True)
        assert clients
        child.kill()
        child.wait()
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and any(map(alive, clients)):
            time.sleep(0.05)

        assert not any(map(alive, clients))


def alive(process: psutil.Process) -> bool:
    """Not where it has ended and nobody has asked how."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
                timeout=300,
            )
            for limit in (hard, 128)
        ]

    assert soft > 200, "this test's own server needs them"
    assert runs[0].stdout == "0\n"
    assert "214 open files are needed and 128 allowed" in runs[1].stderr
