"""30,000 hostile requests against a real service while others ask it in good conduct: does it keep its promises?

    python -m tests.serve.hostile_load [--count 30000] [--floods 100] [--drips 200] [--seed 0] [--keep LOG]

Normal load with known answers runs throughout. Beside it, each in a process of its own: malformed requests of every
kind of `tests.serve.attacks`, wrong and missing hosts and request smuggling, `--count` of them; `--floods` connections
that send 3 MB of requests each in one go, again and again; `--drips` connections that never end what they began.
Liveness is asked every 50 ms beside it.
Everything goes to 127.0.0.1. Run it alone on the machine: it measures times.

Exit code 1 where a promise breaks: a 5xx other than 503, a good answer that is wrong or missing, descriptors
that stay open, memory that grows, a worker or the front end that was started anew, a
line in the log that says defect or quotes a request.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.serve.attacked import Vitals, peak_bytes, settled, vitals
from tests.serve.attacks import SECRET
from tests.serve.hostile_clients import drips, floods, good, malformed, play, probe
from tests.serve.making import WORDS, Running, make_bundle, running
from workbench.values.service import ServiceSettings

GROWTH_BYTES = 20_000_000
_CONTEXT = multiprocessing.get_context("spawn")


class Player:
    """A role in a process of its own."""

    def __init__(self, role: Any, *arguments: Any) -> None:
        self._ours, theirs = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(target=play, args=(role, arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def done(self) -> bool:
        return self._ours.poll(0)

    def found(self, patience_s: float) -> dict[str, Any]:
        connection: Connection = self._ours
        if not connection.poll(patience_s):
            raise SystemExit(f"a client did not end within {patience_s:g} s")
        answer: dict[str, Any] = connection.recv()
        self.process.join(30)
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--floods", type=int, default=100, help="connections that send 3 MB at once")
    parser.add_argument("--drips", type=int, default=200, help="connections that never end what they began")
    parser.add_argument("--clients", type=int, default=4, help="of good conduct")
    parser.add_argument("--attackers", type=int, default=16, help="connections of malformed requests at a time")
    parser.add_argument("--flood-s", type=float, default=120.0, help="how long floods and drips go on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="copy the service's log here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=2)
        bundle = make_bundle(Path(folder), service=settings)
        with running(bundle, "--workers", "2") as service:
            wrong = _run(service, given)
            if given.keep:
                shutil.copy(service.log, given.keep)
    for line in wrong[:40]:
        print(f"BROKEN {line}")
    print("every promise kept" if not wrong else f"{len(wrong)} promises broken")
    raise SystemExit(bool(wrong))


def _run(service: Running, given: argparse.Namespace) -> list[str]:
    texts = [" ".join(WORDS[2 + (i * j) % (len(WORDS) - 2)] for j in range(1, 2 + i % 14)) for i in range(40)]
    known = [service.predict({"text": text}).body for text in texts]
    _warm_up(service, given)
    stop = _CONTEXT.Event()
    time.sleep(3.0)
    samples, began = [("before", vitals(service.process.pid))], time.monotonic()
    calm = Player(good, service.port, texts, known, given.clients, stop)
    live = Player(probe, service.port, "/health/live", 0.05, stop)
    hostile = [Player(malformed, service.port, given.seed + 1, given.count, given.attackers)]
    if given.floods:
        hostile.append(Player(floods, service.port, given.floods, given.flood_s))
    if given.drips:
        hostile.append(Player(drips, service.port, given.drips, given.flood_s))
    while not all(player.done for player in hostile):
        if service.process.poll() is not None:
            raise SystemExit(f"the service ended: {service.log.read_text()[-2000:]}")
        samples.append((f"{time.monotonic() - began:.0f} s", vitals(service.process.pid)))
        time.sleep(0.5)
    seconds = time.monotonic() - began
    found = [player.found(60) for player in hostile]
    stop.set()
    calm_found, live_found = (player.found(60) for player in (calm, live))
    samples.append(("after", settled(service.process.pid, samples[0][1].files, 20.0)))
    _show_liveness(live_found)
    return [
        *_show_hostile(found, seconds),
        *_show_good(calm_found),
        *_show_processes(samples, peak_bytes(service.process.pid)),
        *_log_problems(service),
    ]


def _warm_up(service: Running, given: argparse.Namespace) -> None:
    """Buffers, caches and allocators get their size before anything is compared."""
    Player(malformed, service.port, given.seed, 300, given.attackers).found(120)
    if given.floods:
        Player(floods, service.port, given.floods, 3.0).found(60)


def _show_hostile(found: list[dict[str, Any]], seconds: float) -> list[str]:
    kinds: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    for one in found:
        wrong += one["wrong"]
        for kind, statuses in one["kinds"].items():
            kinds.setdefault(kind, Counter()).update(statuses)
    columns = sorted({status for statuses in kinds.values() for status in statuses})
    print(f"hostile, {found[0]['sent']} requests and {sum(one.get('connections', 0) for one in found)} connections of ")
    print(f"floods and drips, in {seconds:.0f} s; answers by status, 'left' where the client did not wait:")
    print(f"{'kind':<28}" + "".join(f"{column:>9}" for column in columns))
    for kind, statuses in sorted(kinds.items()):
        print(f"{kind:<28}" + "".join(f"{statuses[column] or '':>9}" for column in columns))
    for kind, statuses in kinds.items():
        wrong += [f"{kind}: {n} answers {s}" for s, n in statuses.items() if s.startswith("5") and s != "503"]
    return wrong


def _show_good(found: dict[str, Any]) -> list[str]:
    times = sorted(found["times_ms"])
    counted = ", ".join(f"{count} {what}" for what, count in sorted(found["counted"].items()))
    print(f"good requests: {counted}; P50 {_percentile(times, 50):.1f} ms, P99 {_percentile(times, 99):.1f} ms")
    return [*found["wrong"], *([] if times else ["no good request was answered"])]


def _show_liveness(found: dict[str, Any]) -> None:
    times, statuses = sorted(found["times_ms"]), found["statuses"]
    said = json.dumps(dict(statuses))
    print(
        f"liveness: {len(times)} probes {said}; "
        f"P50 {_percentile(times, 50):.1f} ms, P99 {_percentile(times, 99):.1f} ms, max {times[-1]:.1f} ms"
    )


def _show_processes(samples: list[tuple[str, Vitals]], peak: int) -> list[str]:
    """One line for a twelfth of the time each; what must not have grown."""
    (_, before), (_, after) = samples[0], samples[-1]
    print(f"{'':>8}{'front end MB':>15}{'files':>8}{'workers MB':>15}{'files':>8}")
    for name, seen in [*samples[: -1 : max(1, len(samples) // 12)], samples[-1]]:
        own, theirs = seen.resident_bytes / 1e6, seen.worker_bytes / 1e6
        print(f"{name:>8}{own:>15.1f}{seen.files:>8}{theirs:>15.1f}{seen.worker_files:>8}")
    print(f"the front end's peak: {peak / 1e6:.1f} MB")
    wrong = []
    if after.worker_pids != before.worker_pids:
        wrong.append(f"processes were started anew: {before.worker_pids} became {after.worker_pids}")
    for name, slack in (
        ("files", 0),
        ("worker_files", 0),
        ("resident_bytes", GROWTH_BYTES),
        ("worker_bytes", GROWTH_BYTES),
    ):
        if getattr(after, name) > getattr(before, name) + slack:
            wrong.append(f"{name}: {getattr(before, name)} became {getattr(after, name)}")
    return wrong


def _log_problems(service: Running) -> list[str]:
    wrong = [f"in the log: {e}" for e in service.events() if e["event"] in ("defect", "library", "worker_lost")]
    if SECRET in service.log.read_text(encoding="utf-8"):
        wrong.append("the log quotes a request")
    return wrong


def _percentile(ascending: list[float], percent: int) -> float:
    """Nearest rank."""
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)] if ascending else float("nan")


if __name__ == "__main__":
    main()
