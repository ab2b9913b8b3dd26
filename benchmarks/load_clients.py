"""Our load generator beside wrk, hey and ab, at one server of known delay, in one run.

    python -m benchmarks.load_clients [--delay-ms 20] [--connections 100] [--seconds 5] [--rounds 3]

The tools take turns, so a change of the machine's speed meets all of them; medians over the rounds are shown. Which
tools are installed decides who takes part (Debian: apt-get install wrk hey apache2-utils).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import psutil

from workbench.load import LoadPlan, run_load
from workbench.values.service import ServiceLoad

BODY = '{"text": "how do I pay my loan back early?"}'
ANSWER = b'{"label": "pay_back", "score": 0.98}'
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)


@dataclass(frozen=True, slots=True)
class Row:
    requests_per_s: float
    p50_ms: float
    p95_ms: float | None
    p99_ms: float


class Answering(asyncio.Protocol):
    """Answers each POST after the same delay, as cheaply as asyncio can."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s, self.buffer = delay_s, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: *(\d+)", self.buffer[:end].lower())
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < size:
                return
            # ab speaks HTTP/1.0 and must be told that the connection stays
            old = b"HTTP/1.0" in self.buffer[:end]
            self.buffer = self.buffer[size:]
            reply = REPLY.replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1) if old else REPLY
            asyncio.get_running_loop().call_later(self.delay_s, self.answer, reply)

    def answer(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(reply)  # type: ignore[attr-defined]  # a stream's transport


def serve(delay_s: float, port: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: Answering(delay_s), "127.0.0.1", 0, backlog=2048
        )
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextlib.contextmanager
def server(delay_s: float) -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(delay_s, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def our_client(url: str, connections: int, seconds: int) -> Row:
    plan = LoadPlan(url=url, load=ServiceLoad(concurrency=connections), duration_s=seconds, warmup_s=0.5)
    found = run_load(plan, [BODY])
    assert found.p50_ms is not None
    assert found.p95_ms is not None
    assert found.p99_ms is not None
    assert found.failed == 0
    return Row(found.throughput_per_s.value, found.p50_ms.value, found.p95_ms.value, found.p99_ms.value)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def milliseconds(text: str) -> float:
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]  # wrk's own format
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def wrk(url: str, connections: int, seconds: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        script.write_text(
            f"wrk.method = 'POST'\nwrk.body = '{BODY}'\nwrk.headers['Content-Type'] = 'application/json'\n"
            "done = function(s, l, r) io.write(string.format('P95 %f\\n', l:percentile(95) / 1000)) end\n"
        )
        text = output(
            "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), f"{url}/predict"
        )
    times = {share: milliseconds(value) for share, value in re.findall(r"(50|99)% +(\S+)", text)}
    rate = re.search(r"Requests/sec: +([\d.]+)", text)
    p95 = re.search(r"P95 ([\d.]+)", text)
    assert rate
    assert p95
    return Row(float(rate[1]), times["50"], float(p95[1]), times["99"])


def hey(url: str, connections: int, seconds: int) -> Row:
    text = output(
        *("hey", "-z", f"{seconds}s", "-c", str(connections), "-m", "POST", "-d", BODY),
        *("-T", "application/json", f"{url}/predict"),
    )
    times = {share: float(value) * 1000 for share, value in re.findall(r"(50|95|99)%% in ([\d.]+) secs", text)} or {
        share: float(value) * 1000 for share, value in re.findall(r"(50|95|99)% in ([\d.]+) secs", text)
    }
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate
    return Row(float(rate[1]), times["50"], times["95"], times["99"])


def ab(url: str, connections: int, seconds: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body.json"
        body.write_text(BODY)
        text = output(
            *("ab", "-q", "-k", "-t", str(seconds), "-n", "10000000", "-c", str(connections), "-p", str(body)),
            *("-T", "application/json", f"{url}/predict"),
        )
    times = {share: float(value) for share, value in re.findall(r"(50|95|99)% +(\d+)", text)}
    rate = re.search(r"Requests per second: +([\d.]+)", text)
    assert rate
    return Row(float(rate[1]), times["50"], times["95"], times["99"])


CLIENTS: dict[str, Callable[[str, int, int], Row]] = {"ours": our_client, "wrk": wrk, "hey": hey, "ab": ab}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = [name for name in CLIENTS if name == "ours" or shutil.which(name)]
    rows: dict[str, list[Row]] = {name: [] for name in names}
    with server(given.delay_ms / 1000) as url:
        for turn in range(given.rounds):
            for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
                rows[name].append(CLIENTS[name](url, given.connections, given.seconds))
    load = psutil.getloadavg()[0]
    print(
        f"{given.connections} connections at a server that answers after {given.delay_ms:g} ms; medians of "
        f"{given.rounds} rounds of {given.seconds} s; load average of the machine {load:.1f}"
    )
    print(f"{'client':<8}{'requests/s':>12}{'P50 ms':>10}{'P95 ms':>10}{'P99 ms':>10}")
    for name, found in rows.items():
        p95 = [r.p95_ms for r in found if r.p95_ms is not None]
        cells = (median(r.requests_per_s for r in found), median(r.p50_ms for r in found), median(p95))
        print(f"{name:<8}{cells[0]:>12.0f}{cells[1]:>10.1f}{cells[2]:>10.1f}{median(r.p99_ms for r in found):>10.1f}")


if __name__ == "__main__":
    main()
