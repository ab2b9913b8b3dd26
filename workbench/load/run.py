"""One run: the load generator in a process of its own, the server watched beside it, one result.

In the caller's process a garbage collection or a busy thread would be in the latencies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from workbench.load.http1 import ERROR_KINDS, encode_request
from workbench.load.intervals import percentiles, throughput
from workbench.load.openai.figures import token_doubts, token_figures
from workbench.load.plan import LoadPlan
from workbench.load.requests import Request
from workbench.load.result import CLIENT_LIMIT, P99_ANSWERS, LoadResult
from workbench.load.server import DeviceReaders, ServerWatch, listener, scrape
from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.service import is_loopback
from workbench.values.system.files import temporary_beside
from workbench.values.system.lifeline import tied
from workbench.values.system.scratch import scratch_folder

TIMES, END = "times.npz", "end.json"
_ERROR_SHARE = 0.01
_SLACK_S = 30.0


def run_load(
    plan: LoadPlan,
    bodies: Sequence[str | Request],
    *,
    api_key: str | None = None,
    server_pid: int | None = None,
    times_to: Path | None = None,
    devices: DeviceReaders | None = None,
) -> LoadResult:
    """Load a server as the plan says and give back what its clients saw.

    Ctrl-C ends the load and gives back what was measured until then (`interrupted`).

    Args:
        bodies: JSON texts, or requests of another protocol; each is one request, drawn from `plan.seed` so that none
            comes twice before all came.
        server_pid: first process of the server, watched with all below it; None to look for who listens on the port
            of this machine.
        times_to: file (npz) that receives every request's times: `intended_s`, `sent_s`, `done_s` from the load's
            begin (its warm-up included), `outcome` (a status, or a code of `workbench.load.http1`), and `begin_s`
            by the host's monotonic clock; of streams those of `StreamConnection` besides. None to keep none.
        devices: the server's cards, where they are in this machine; None to look for their gauges in its /metrics.

    Raises:
        ConfigError: no body, or nobody answers at the address.
        ToolchainError: the load generator itself failed.
    """
    if not bodies:
        raise ConfigError("no requests to send.", key="data", hint="Name a file or an experiment with texts.")
    host, port = plan.address
    local = is_loopback(host)
    pid = server_pid if server_pid is not None or not local else listener(port)
    with scratch_folder("load") as folder:
        watch = ServerWatch(lambda: scrape(*(plan.metrics or plan.address), api_key), pid, devices)
        _run_child(folder, plan, _encoded(plan, bodies, api_key), watch)
        end = json.loads((folder / END).read_text(encoding="utf-8"))
        distinct = len({body if isinstance(body, str) else body.body for body in bodies})
        result = _result(folder, plan, end, watch, distinct)
        if times_to is not None:
            with temporary_beside(times_to) as draft:
                shutil.copyfile(folder / TIMES, draft)
    return result


def _encoded(plan: LoadPlan, bodies: Sequence[str | Request], api_key: str | None) -> list[bytes]:
    """The bytes of every request."""
    name, value = ("Authorization", f"Bearer {api_key}") if plan.streams else ("X-API-Key", api_key)
    keyed = ({name: value} if api_key and value else {}) | ({"Accept": "text/event-stream"} if plan.streams else {})
    requests = (Request(body=body.encode()) if isinstance(body, str) else body for body in bodies)
    try:
        host = urlsplit(plan.url).netloc
        return [encode_request(plan.path, host, one.body, {**keyed, **one.headers}) for one in requests]
    except ValueError as error:  # also UnicodeEncodeError
        raise ConfigError("the key cannot stand in a header of HTTP.", key="--api-key-env") from error


def _run_child(folder: Path, plan: LoadPlan, requests: list[bytes], watch: ServerWatch) -> None:
    """Start the clients' process, follow its phases, and see to its end in every case."""
    limit_s = plan.warmup_s + plan.duration_s + 2 * plan.timeout_s + _SLACK_S
    log = folder / "stderr.log"
    with log.open("w", encoding="utf-8") as errors:
        child = subprocess.Popen(
            tied([sys.executable, "-P", "-m", "workbench.load", str(folder)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C comes to us, and we tell it
        )
    late = threading.Timer(limit_s, child.kill)
    late.start()
    try:
        assert child.stdin is not None  # piped
        with contextlib.suppress(BrokenPipeError), child.stdin as told:  # why it ended, its exit code says
            lengths = [len(request) for request in requests]
            told.write(canonical_json({"plan": plan, "lengths": lengths}).encode() + b"\n")
            told.writelines(requests)
        while child.poll() is None:
            try:
                for line in child.stdout or ():
                    (watch.begin if json.loads(line)["phase"] == "measuring" else watch.end)()
                child.wait()
            except KeyboardInterrupt:  # said twice, it does not wait for answers that are still out
                child.send_signal(signal.SIGINT)
    finally:
        overdue = late.finished.is_set()  # it has come to that
        late.cancel()
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
    watch.end()
    if overdue:
        raise ToolchainError(f"The load generator did not end within {limit_s:g} s.")
    if child.returncode != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["it wrote nothing"]
        raise ToolchainError(f"The load generator ended with code {child.returncode}: {tail[0]}")


def _result(folder: Path, plan: LoadPlan, end: dict[str, Any], watch: ServerWatch, prompts: int) -> LoadResult:
    with np.load(folder / TIMES, allow_pickle=False) as found:
        stored = dict(found)
    intended, sent, done, outcome = (stored[n] for n in ("intended_s", "sent_s", "done_s", "outcome"))
    window_s = float(end["end_s"]) - plan.warmup_s
    if window_s <= 0:
        raise ConfigError(
            f"the load ended {-window_s:.3g} s before its warm-up did; nothing was measured.",
            key="--warmup",
            hint="Load longer, or warm up less.",
        )
    within = (intended >= plan.warmup_s) & (intended < end["end_s"])
    good = (outcome >= 200) & (outcome < 300)
    if not (outcome > 0).any():
        kinds = ", ".join(f"{count} x {kind}" for kind, count in _errors(outcome).items()) or "nothing was sent"
        raise ConfigError(
            f"{plan.url} gave no answer at all ({kinds}).", key="url", hint="Is the service there? Try /health."
        )
    chosen = within & good
    completed = good & (done >= plan.warmup_s) & (done < end["end_s"])
    rate, per_second = throughput(done[completed] - plan.warmup_s, window_s)
    p50 = p95 = p99 = mean = longest = None
    if chosen.any():
        latency_ms = (done[chosen] - intended[chosen]) * 1000
        at_s = intended[chosen] - plan.warmup_s
        p50, p95, p99 = percentiles(at_s, latency_ms, window_s, (0.5, 0.95, 0.99), seed=plan.seed)
        mean, longest = float(latency_ms.mean()), float(latency_ms.max())
    late = (sent - intended)[within & np.isfinite(sent)]
    open_loop = plan.load.arrivals != "closed"
    share = float(end["cpu_s"]) / window_s
    requests, answered = int(within.sum()), int(chosen.sum())
    reasons, notes = _doubts(requests, answered, share, end)
    tokens = None
    if plan.streams:
        tokens = token_figures(stored, plan, end, prompts)
        doubts = token_doubts(tokens, plan, end, window_s, answered, p50.value if p50 is not None else None)
        reasons, notes = reasons + doubts[0], notes + doubts[1]
    return LoadResult(
        url=plan.url,
        wire=plan.wire,
        model=plan.model,
        batch=plan.batch,
        length=plan.length,
        load=plan.load,
        seed=plan.seed,
        began_at=datetime.fromtimestamp(end["began_at"], UTC).isoformat(timespec="seconds"),
        warmup_s=plan.warmup_s,
        window_s=window_s,
        requests=requests,
        answered=answered,
        statuses={str(s): int(n) for s, n in sorted(Counter(outcome[within & (outcome > 0)].tolist()).items())},
        errors=_errors(outcome[within]),
        throughput_per_s=rate,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        mean_ms=mean,
        longest_ms=longest,
        late_p99_ms=float(np.quantile(late, 0.99) * 1000) if open_loop and len(late) else None,
        per_second=per_second,
        client_share=share,
        event_loop=end["loop"],
        interrupted=bool(end["interrupted"]),
        reliable=not reasons,
        notes=(*reasons, *notes),
        server=watch.server,
        processes=watch.processes,
        device=watch.device,
        tokens=tokens,
    )


def _errors(outcome: npt.NDArray[np.int16]) -> dict[str, int]:
    counts = Counter(outcome[outcome < 0].tolist())
    return {ERROR_KINDS[code]: count for code, count in sorted(counts.items(), reverse=True)}


def _doubts(requests: int, answered: int, share: float, end: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(why the figures must not be relied on, what else should be known)."""
    reasons, notes = [], []
    if share > CLIENT_LIMIT:
        reasons.append(f"the load generator used {share:.0%} of a core: its own queueing is in the latencies")
    if requests - answered > _ERROR_SHARE * requests:
        reasons.append(f"{requests - answered} of {requests} requests had no successful answer")
    if end["interrupted"]:
        notes.append("interrupted: shorter than asked")
    if 0 < answered < P99_ANSWERS:
        notes.append(f"P99 of {answered} answers is a guess; it takes {P99_ANSWERS}")
    if end["failed_connections"]:
        notes.append(f"{end['failed_connections']} connections could not be opened")
    return reasons, notes
