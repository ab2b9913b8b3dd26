"""The clients of `hostile_load`, each in a process of its own so that none measures another's work.

They speak to 127.0.0.1 only. Every hostile request that gets a whole answer is counted by kind and status; a client
that sends no whole request is counted as connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.serve import attacks
from tests.serve.attacked import Outcome, good_client, run_attacks
from tests.serve.attacks import CHUNKED, HOST, JSON_TYPE, TWO_READINGS, Attack, posted

FLOOD_BYTES = 3_000_000
_LINE = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


def wrong_hosts(rng: random.Random) -> Attack:
    """Hosts that are not allowed, two hosts, none; over HTTP/1.1 and 1.0."""
    host, status = rng.choice(
        [
            (b"Host: evil.example\r\n", 421),
            (b"Host: 127.0.0.1.evil.example:80\r\n", 421),
            (b"Host: 10.0.0.1\r\n", 421),
            (b"Host: localhost:80@evil\r\n", 400),
            (b"Host: \r\n", 400),
            (b"", 400),
            (HOST * 2, 400),
            (HOST + b"Host: evil.example\r\n", 400),
        ]
    )
    path = rng.choice([b"/predict", b"/health", b"/metrics", b"/info"])
    version = rng.choice([b"1.1", b"1.0"])
    sent = b"POST " + path + b" HTTP/" + version + b"\r\n" + host + JSON_TYPE + b"Content-Length: 2\r\n\r\n{}"
    return Attack(name="wrong hosts", parts=(sent,), statuses=(frozenset({status}),), may_close=False)


def smuggled(rng: random.Random) -> Attack:
    """Requests of which two servers could see different ones; what is behind them must never be answered."""
    padded = [
        CHUNKED + b"\r\n2;" + b"x" * rng.randint(300, 100_000) + b"\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"\r\n" + b"0" * rng.randint(300, 100_000) + b"2\r\n{}\r\n0\r\n\r\n",
    ]
    sent = rng.choice([*TWO_READINGS, *padded])
    # a chunk may say its size at length, within what is bounded of a body; its `{}` has no field then
    statuses = frozenset({400, 422} if sent in padded else {400})
    return Attack(
        name="smuggling", parts=(sent + posted(b"{}"),), statuses=(statuses, frozenset({400})), may_close=True
    )


def mixed(seed: int, count: int) -> Iterator[Attack]:
    """Malformed requests of every kind of `tests.serve.attacks`, and among ten one wrong host and one smuggled."""
    rng = random.Random(seed)
    for number, attack in enumerate(attacks.attacks(seed, count)):
        yield wrong_hosts(rng) if number % 10 == 3 else smuggled(rng) if number % 10 == 7 else attack


def malformed(port: int, seed: int, count: int, clients: int) -> dict[str, Any]:
    """`count` requests of `mixed` over `clients` connections at a time."""
    outcome = run_attacks(port, mixed(seed, count), clients=clients)
    return {"kinds": dict(outcome.kinds), "wrong": outcome.wrong, "sent": count}


def floods(port: int, connections: int, seconds: float) -> dict[str, Any]:
    """3 MB of requests at once on each connection; those that closed are opened again. Answers are read and counted."""
    one = [
        b"GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n",
        posted(b"{"),
        posted(b'{"text": "anna paid in paris"}'),
        b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n",
    ]
    answered: Counter[str] = Counter()
    opened = 0

    async def flood(number: int, until_s: float) -> None:
        nonlocal opened
        request = one[number % len(one)]
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened += 1
                try:
                    writer.write(request * (FLOOD_BYTES // len(request)))
                    await _count_answers(reader, answered, until_s)
                finally:
                    writer.transport.abort()

    async def run() -> None:
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(flood(number, until_s) for number in range(connections)))

    asyncio.run(run())
    return {"kinds": {"pipelining floods": answered}, "wrong": [], "sent": opened, "connections": opened}


async def _count_answers(reader: asyncio.StreamReader, answered: Counter[str], until_s: float) -> None:
    rest = b""
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            data = await asyncio.wait_for(reader.read(65_536), left_s)
        except TimeoutError:
            return
        if not data:
            return
        rest += data
        answered.update(found.decode() for found in _LINE.findall(rest))
        rest = rest[-12:] if not _LINE.search(rest[-13:]) else b""


def drips(port: int, connections: int, seconds: float) -> dict[str, Any]:
    """Heads, bodies and silence that never end, a byte every half second; closed ones are opened again."""
    head = b"POST /predict HTTP/1.1\r\n" + HOST + JSON_TYPE
    begins = [b"", head, head + b"Content-Length: 500\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n"]
    begins.append(b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n")
    ended: Counter[str] = Counter()
    opened = 0

    async def drip(number: int, until_s: float) -> None:
        nonlocal opened
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened += 1
                writer.write(begins[number % len(begins)])
                said = asyncio.create_task(reader.read(4096))
                try:
                    while time.monotonic() < until_s and not (said.done() and reader.at_eof()):
                        await asyncio.sleep(0.5)
                        writer.write(b"x" if number % len(begins) else b"")
                finally:
                    said.cancel()
                    with contextlib.suppress(asyncio.CancelledError, OSError):
                        content = await said
                        found = _LINE.match(content)
                        ended[found[1].decode() if found else "closed"] += 1
                    writer.transport.abort()

    async def run() -> None:
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(drip(number, until_s) for number in range(connections)))

    asyncio.run(run())
    return {"kinds": {"slow heads and bodies": ended}, "wrong": [], "sent": opened, "connections": opened}


def good(port: int, texts: list[str], known: list[Any], clients: int, stop: Any) -> dict[str, Any]:
    """Clients in good conduct: one request after the other, each answer held against the known one."""
    outcome = Outcome()
    pairs = [(attacks.good(text), answer) for text, answer in zip(texts, known, strict=True)]

    async def run() -> None:
        each = (good_client(port, pairs, outcome, stop.is_set, first=n, pause_s=0.005) for n in range(clients))
        await asyncio.gather(*each)

    asyncio.run(run())
    return {"counted": outcome.good, "times_ms": outcome.times_ms, "wrong": outcome.wrong}


def probe(port: int, path: str, every_s: float, stop: Any) -> dict[str, Any]:
    """One probe after the other on a connection of its own, as a kubelet does; milliseconds from connecting on.

    Before all other clients where the system allows it: what is measured is the service, and not who of those that
    attack it from the same machine has a processor.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    times_ms: list[float] = []
    statuses: Counter[str] = Counter()
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    due_s = time.perf_counter()
    while not stop.is_set():
        due_s = max(due_s + every_s, time.perf_counter() - every_s)
        time.sleep(max(0.0, due_s - time.perf_counter()))
        began = time.perf_counter()
        content = b""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(request)
                while data := client.recv(4096):
                    content += data
        except OSError as error:
            content = content or type(error).__name__.encode()
        times_ms.append((time.perf_counter() - began) * 1000)
        found = _LINE.match(content)
        statuses[found[1].decode() if found else content[:40].decode("latin-1") or "no answer"] += 1
    return {"times_ms": times_ms, "statuses": statuses}


Role = Callable[..., Awaitable[Any] | dict[str, Any]]


def play(role: Role, arguments: tuple[Any, ...], answer: Any) -> None:
    """Run a role in this process and send what it found."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that was closed here
    answer.send(role(*arguments))
