"""Runs attacks against a service, with good requests in between, and watches what becomes of its processes."""

import asyncio
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.serve.attacks import SECRET, Attack, good

_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What must not grow, and what must not change."""

    files: int
    threads: int
    resident_bytes: int
    worker_pids: tuple[int, ...]
    worker_bytes: int


@dataclass(slots=True)
class Outcome:
    """What happened; `wrong` has a line for everything that should not have."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    good_answers: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        counted = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return f"{counted}; {self.good_answers} good requests right; {self.seconds:.1f} s"


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


def run_attacks(port: int, drawn: Iterable[Attack], *, clients: int = 8) -> Outcome:
    """Every attack once, over `clients` connections at a time, while one client sends good requests all along."""
    return asyncio.run(_run(port, drawn, clients))


async def _run(port: int, drawn: Iterable[Attack], clients: int) -> Outcome:
    outcome, waiting, began = Outcome(), iter(drawn), time.perf_counter()
    expected = await _ask(port)
    done = asyncio.Event()
    calm = asyncio.create_task(_good_client(port, expected, outcome, done))
    try:
        await asyncio.gather(*(_attacker(port, waiting, outcome) for _ in range(clients)))
    finally:
        done.set()
        await calm
    outcome.seconds = time.perf_counter() - began
    return outcome


async def _ask(port: int) -> dict[str, object]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(good())
        status, content, _ = await asyncio.wait_for(_answer(reader), _ANSWER_S)
        assert status == 200, content
        found: dict[str, object] = json.loads(content)
        return found
    finally:
        writer.close()


async def _good_client(port: int, expected: dict[str, object], outcome: Outcome, done: asyncio.Event) -> None:
    while not done.is_set():
        try:
            found = await _ask(port)
        except (AssertionError, OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            outcome.wrong.append(f"a good request: {type(error).__name__} {error}")
            return
        if not _same(found, expected):
            outcome.wrong.append(f"a good request got {found}, not {expected}")
        outcome.good_answers += 1
        await asyncio.sleep(0.01)


def _same(found: object, expected: object) -> bool:
    """Scores may differ by the batch they were computed in."""
    if isinstance(expected, float):
        return isinstance(found, float) and abs(found - expected) < 1e-4
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(_same(found[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(_same, found, expected))
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
    closed = False
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
        outcome.statuses["left"] += 1
        return False
    for allowed in attack.statuses:
        try:
            status, content, keeps = await _answer(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            outcome.statuses["closed"] += 1
            if not attack.may_close:
                outcome.wrong.append(f"{attack.name}: closed without an answer to {_shown(attack)}")
            return False
        outcome.statuses[str(status)] += 1
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
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        status = int(first.split(" ")[1])
        if status != 100:
            break
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    content = b""
    if "content-length" in headers:
        content = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return status, content, headers.get("connection", "").lower() != "close"


def _shown(attack: Attack) -> str:
    sent = b"".join(part for part in attack.parts if isinstance(part, bytes))
    return repr(sent[:160]) + (f" and {len(sent) - 160} bytes" if len(sent) > 160 else "")
