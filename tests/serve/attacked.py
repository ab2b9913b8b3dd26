"""Clients of a service: attacks one after the other, others in good conduct; and what becomes of its processes."""

import asyncio
import itertools
import json
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.serve.attacks import SECRET, Attack

_ANSWER_S = 60.0
Known = Sequence[tuple[bytes, Any]]
"""Requests and the bodies of their answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What must not grow, and what must not change."""

    files: int
    threads: int
    resident_bytes: int
    worker_pids: tuple[int, ...]
    worker_files: int
    worker_bytes: int


@dataclass(slots=True)
class Outcome:
    """What happened: answers to each kind of attack by status, those to good requests, and `wrong`, a line for
    everything that should not have been."""

    kinds: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)
    good: Counter[str] = field(default_factory=Counter)
    times_ms: list[float] = field(default_factory=list)


def vitals(pid: int) -> Vitals:
    process = psutil.Process(pid)
    workers = [
        child for child in process.children(recursive=True) if "resource_tracker" not in " ".join(child.cmdline())
    ]
    return Vitals(
        files=process.num_fds(),
        threads=process.num_threads(),
        resident_bytes=process.memory_info().rss,
        worker_pids=tuple(sorted(child.pid for child in workers)),
        worker_files=sum(child.num_fds() for child in workers),
        worker_bytes=sum(child.memory_info().rss for child in workers),
    )


def peak_bytes(pid: int) -> int:
    """The most resident memory a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def settled(pid: int, files: int, patience_s: float = 60.0) -> Vitals:
    """The vitals once connections that were closed here are closed there too, or patience ends."""
    until = time.monotonic() + patience_s
    while vitals(pid).files > files and time.monotonic() < until:
        time.sleep(0.05)
    return vitals(pid)


def run_attacks(port: int, drawn: Iterable[Attack], *, clients: int = 8, known: Known = ()) -> Outcome:
    """Every attack once, over `clients` connections at a time, while one client sends good requests all along."""
    outcome, waiting, over = Outcome(), iter(drawn), asyncio.Event()

    async def run() -> None:
        calm = asyncio.create_task(good_client(port, known, outcome, over.is_set))
        try:
            await asyncio.gather(*(_attacker(port, waiting, outcome) for _ in range(clients)))
        finally:
            over.set()
            await calm

    asyncio.run(run())
    return outcome


async def good_client(
    port: int, known: Known, outcome: Outcome, over: Callable[[], bool], *, first: int = 0, pause_s: float = 0.01
) -> None:
    """One request after the other, each answer held against the known one. A service may say that it has too much."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request, expected in itertools.islice(itertools.cycle(known), first, None):
        if over():
            break
        began = time.perf_counter()
        writer.write(request)
        try:
            status, content, _ = await asyncio.wait_for(_answer(reader), _ANSWER_S / 2)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            outcome.wrong.append(f"a good request: {type(error).__name__}")
            writer.transport.abort()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        if status == 200 and _same(json.loads(content), expected):
            outcome.good["right"] += 1
            outcome.times_ms.append((time.perf_counter() - began) * 1000)
        else:
            outcome.good["refused (503)" if status == 503 else "wrong"] += 1
            outcome.wrong += [] if status == 503 else [f"a good request got {status} {content[:200]!r}"]
        await asyncio.sleep(pause_s)
    writer.transport.abort()


def _same(found: object, expected: object) -> bool:
    """Scores may differ by the batch they were computed in."""
    if isinstance(expected, float):
        return isinstance(found, float) and abs(found - expected) < 1e-4
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(_same(found[key], value) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return found == expected


async def _attacker(port: int, waiting: Iterable[Attack], outcome: Outcome) -> None:
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for attack in waiting:
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        try:
            open_still = await asyncio.wait_for(_one(attack, reader, writer, outcome), _ANSWER_S)
        except TimeoutError:
            outcome.wrong.append(f"{attack.name}: no answer within {_ANSWER_S:g} s to {_shown(attack)}")
            open_still = False
        if not (open_still and attack.reuses):
            writer.close()
            connection = None
    if connection is not None:
        connection[1].close()


async def _one(attack: Attack, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outcome: Outcome) -> bool:
    """True while the connection can be used again."""
    closed, statuses = False, outcome.kinds[attack.name]
    try:
        for part in attack.parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                writer.write(part)
                await writer.drain()
    except (ConnectionError, OSError):
        closed = True  # the service had enough; what it answered may still be there to read
    if attack.leaves != "read":
        if attack.leaves == "reset":
            plain = writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        statuses["left"] += 1
        return False
    for allowed in attack.statuses:
        try:
            status, content, keeps = await _answer(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            statuses["closed"] += 1
            if not attack.may_close:
                outcome.wrong.append(f"{attack.name}: closed without an answer to {_shown(attack)}")
            return False
        statuses[str(status)] += 1
        if status not in allowed:
            outcome.wrong.append(f"{attack.name}: {status} {content[:200]!r} to {_shown(attack)}")
        _check(attack, status, content, outcome)
        if not keeps:
            return False
    return not closed


def _check(attack: Attack, status: int, content: bytes, outcome: Outcome) -> None:
    """Refusals of ours say kind and message, and quote nothing of the request."""
    if SECRET.encode() in content:
        outcome.wrong.append(f"{attack.name}: quotes the request: {content[:200]!r}")
    if status < 400 or not content.startswith(b"{"):
        return
    error = json.loads(content).get("error", {})
    if set(error) != {"kind", "message"} or len(error["message"]) > 300:
        outcome.wrong.append(f"{attack.name}: {content[:300]!r} is no refusal")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """(status, body, whether the connection stays open)."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(first.split(" ")[1]), content, headers.get("connection", "").lower() != "close"


def _shown(attack: Attack) -> str:
    sent = b"".join(part for part in attack.parts if isinstance(part, bytes))
    return repr(sent[:160]) + (f" and {len(sent) - 160} bytes" if len(sent) > 160 else "")
