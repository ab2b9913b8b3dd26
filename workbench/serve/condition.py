"""How a service is, in words: what /health says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from workbench.serve.outage import Outage
from workbench.serve.workers import Worker, Workers


def condition(
    workers: Workers,
    *,
    draining: bool,
    waiting: int,
    front_ends: Sequence[dict[str, Any]] = (),
    front_ends_started: bool = True,
) -> tuple[int, dict[str, Any]]:
    """Status 200 when every worker has replayed the golden samples and one can answer; the body says how things are.

    Args:
        front_ends: how each is, with its `state`, where there are several processes of them.
        front_ends_started: all of them were ready at the same time, once.
    """
    states = [_state(worker) for worker in workers.all]
    ready, count = states.count("ready"), len(states)
    running = sum(front["state"] == "ready" for front in front_ends)
    if draining:
        status = "draining"
    elif not (workers.proved and front_ends_started):
        status = "starting"
    elif not ready or (front_ends and not running):
        status = "down"
    else:
        status = "ok" if ready == count and running == len(front_ends) else "degraded"
    return 200 if status in ("ok", "degraded") else 503, {
        "status": status,
        **_without(workers, states),
        "workers": [_worker(w, workers.card(w), state) for w, state in zip(workers.all, states, strict=True)],
        **({"front_ends": list(front_ends)} if front_ends else {}),
        **_outage(workers.outage),
        "waiting": waiting,
    }


def _state(worker: Worker) -> str:
    """`Worker.state`, or that a ready one was stopped."""
    return "stopped" if worker.state == "ready" and worker.stopped else worker.state


def _without(workers: Workers, states: Sequence[str]) -> dict[str, Any]:
    """The cards that nothing computes on now."""
    serving = {workers.card(w) for w, state in zip(workers.all, states, strict=True) if state == "ready"}
    names = dict.fromkeys(workers.card(worker) for worker in workers.all)
    idle = [name for name in names if name and name not in serving]
    return {"cards_out": idle} if idle else {}


def _worker(worker: Worker, card: str, state: str) -> dict[str, Any]:
    return {
        "worker": worker.number,
        **({"device": worker.facts["device"]} if "device" in worker.facts else {}),
        **({"card": card} if card else {}),
        "state": state,
        "restarts": worker.restarts,
        **({"failed_starts": worker.failed_starts} if worker.failed_starts else {}),
        **({"error": worker.error} if worker.error else {}),
    }


def _outage(outage: Outage) -> dict[str, Any]:
    if outage.since_s is None:
        return {}
    lasts_s = round(outage.lasts_s(time.monotonic()), 1)
    return {"no_worker": {"lasts_s": lasts_s, "gives_up_after_s": outage.limit_s}}
