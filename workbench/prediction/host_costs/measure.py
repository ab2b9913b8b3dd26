"""Serve a bundle without a model, load it, and read what its processes spent."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from workbench.evaluation.noise import OTHERS_CPUS
from workbench.evaluation.store import Store
from workbench.inputs.dataset import Dataset
from workbench.load import LoadPlan, bodies_of_dataset, run_load
from workbench.load.server import Samples, scrape
from workbench.load.service_process import RunningService, running_service
from workbench.prediction.host_costs.capacity import measure_capacity, processors
from workbench.prediction.host_costs.fit import (
    LoadedRun,
    Probe,
    Rehearsal,
    busy_ms,
    fit_costs,
    unexplained,
    with_front_ends,
    with_wait,
    with_waking,
)
from workbench.prediction.host_costs.probe import write_probe
from workbench.targets import REFERENCE, open_target
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import decode, digest, encode
from workbench.values.errors import BundleError, ToolchainError
from workbench.values.model import Model
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest

CLIENTS = (1, 3, 32)
"""One meets an idle service, batch by batch of one row; a few keep it busy with small batches, many fill batches."""
LOAD_S = 0.4
REPEATS = 2
"""Of every load, in turns. Whatever disturbs a machine only adds to processor times (a shared one may make them several
times as long for seconds), so of each load the cheapest repetition counts."""
WARMUP_S = 0.1
BODIES = 1000
_FEWEST_BODIES, _MOST_NUMBERS = 8, 4_000_000
_LONGER = (1, 4, 16)
"""Of the load's seconds: megabytes of JSON take long to read."""
LIMIT_S = 10.0
"""Of the whole: what does not fit is left out, and said so. A busy machine starts services slowly."""
_UNREPEATED = 0.2
"""Spread of costs of which no load could be repeated [inferred]."""
_WRITTEN_S, _READ_S = 1e-6, 0.4e-6
"""For each number of a request as JSON, roughly."""
_SETTINGS = ServiceSettings(max_batch_size=16)
_SELDOM_PER_S, _SELDOM_S = (60.0, 20.0), 1.2
"""Requests a second that leave a service asleep between them, and seconds of each such load, which comes once."""
_ASLEEP = 2.5
"""Times a lone request's latency, at least, between requests of such a load."""
_CROWD_CLIENTS, _CROWD_ROWS = 16, 2
_MOST_CROWDED = 4
"""Processors that a crowd of workers is measured on: as many workers of a large host are memory and time, and on it a
service rarely has a worker for every processor."""
_FRONT_ENDS, _FRONT_CLIENTS = 2, (2, 32)
"""Few clients fill small messages and batches, many fill large ones."""
_FRONT_REPEATS = 3
SEVERAL_S = 12.0
"""That front ends take which are processes of their own."""
_READY = re.compile(r'"event": "front_end_ready".*?"pid": (\d+)')
_LIBRARIES = ("uvicorn", "httptools", "uvloop", "tokenizers", "numpy")

_log = logging.getLogger(__name__)
_noisy: dict[str, HostCosts] = {}


def host_costs(
    model: Model,
    dataset: Dataset,
    store: Store,
    *,
    several: bool = False,
    report: Callable[[str], None] = _log.info,
) -> HostCosts:
    """What serving this model and data costs this host, from the user's cache or measured now (some 10 s).

    Args:
        store: keeps them where this user has no cache that can be written.
        several: also what front ends cost that are processes of their own, which is asked where cards compute.

    Depends on the model's inputs and outputs, the validation split's texts, this machine, and the code and libraries
    that serve. Costs measured while others kept the machine busy, or cut to the time, say so and are kept for this day:
    candidates of a sweep compare however often it is resumed, and a later one measures again.

    Raises:
        ToolchainError: the service cannot be started here, or failed under load.
    """
    toolchain, key = _key(model, dataset, several)
    with _of_user(store) as kept:
        known = _known(kept, key)
        if known is not None:
            return known
        report(f"measuring what serving costs this host beside the model (some {LIMIT_S:.0f} s)")
        costs, quiet = measure_host_costs(model, dataset, toolchain, several=several)
        kept.put_json("host_costs", key if quiet else _today(key), encode(costs))
    if not quiet:
        _noisy[digest(key)] = costs
    return costs


@contextlib.contextmanager
def _of_user(store: Store) -> Iterator[Store]:
    """The store in this user's cache: a host is the same for all workspaces. `store` where there is none."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        opened = Store(home / "workbench" / "hosts")
    except (OSError, RuntimeError, ToolchainError):  # a read-only home, or none
        yield store
    else:
        with contextlib.closing(opened):
            yield opened


def _known(store: Store, key: dict[str, object]) -> HostCosts | None:
    found = store.get_json("host_costs", key)
    if found is None and digest(key) not in _noisy and (found := store.get_json("host_costs", _today(key))) is not None:
        _noisy[digest(key)] = decode(HostCosts, found, "host_costs")
    return _noisy.get(digest(key)) if found is None else decode(HostCosts, found, "host_costs")


def _today(key: dict[str, object]) -> dict[str, object]:
    return {**key, "noisy": datetime.now(UTC).date().isoformat()}


def assumed_costs(model: Model, dataset: Dataset) -> HostCosts:
    """Of a host in front of a modelled device: none is here to be measured, and what keeps this machine busy is no
    part of it."""
    return HostCosts(
        request_ms=0.15 + 1000 * _READ_S * _numbers(dataset, model),
        batch_ms=0.2,
        worker_batch_ms=0.1,
        worker_row_ms=0.01,
        capacity=tuple(map(float, range(1, 17))),
        origin="assumed, as the device is modelled: state service.host of the experiment",
    )


def measuring_s(model: Model, dataset: Dataset, store: Store, *, several: bool = False) -> float:
    """Roughly what `host_costs` would take now; 0 where they are known."""
    _, key = _key(model, dataset, several)
    with _of_user(store) as kept:
        if _known(kept, key) is not None:
            return 0.0
    numbers = _numbers(dataset, model)
    written_s = _how_many(numbers) * numbers * _WRITTEN_S
    read_s = max(CLIENTS) * numbers * _READ_S
    longer_s = sum(LOAD_S * longer for before, longer in pairwise(_LONGER) if read_s > LOAD_S * before)
    return LIMIT_S + written_s + REPEATS * longer_s + (SEVERAL_S if several else 0.0)


def _key(model: Model, dataset: Dataset, several: bool) -> tuple[Toolchain, dict[str, object]]:
    reference = open_target(REFERENCE)
    toolchain = reference.toolchain()
    key: dict[str, object] = {
        "inputs": model.inputs,
        "outputs": model.outputs,
        "data": dataset.digest("validation"),
        "toolchain": toolchain,
        "machine": [platform.release(), platform.python_version(), processors()],
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "code": closure_digest(
            *("workbench.serve", "workbench.load", "workbench.prediction.host_costs", type(reference).__module__)
        ),
        **({"front ends": "several"} if several else {}),
    }
    return toolchain, key


def measure_host_costs(
    model: Model,
    dataset: Dataset,
    toolchain: Toolchain,
    *,
    clients: Sequence[int] = CLIENTS,
    load_s: float = LOAD_S,
    several: bool = False,
    limit_s: float = LIMIT_S,
) -> tuple[HostCosts, bool]:
    """The costs, and whether they are whole and the machine was quiet meanwhile.

    The first loads are made in any case, then as many of the others as fit into `limit_s`, which bounds all but the
    front ends.

    Args:
        toolchain: of this machine, named as the origin.
        clients: of the closed loops that load it, the first 1.
        limit_s: seconds.

    Raises:
        ToolchainError: the service cannot be started here, or failed under load.
    """
    began = time.perf_counter()

    def fits(wanted_s: float) -> bool:
        return time.perf_counter() - began + wanted_s <= limit_s

    capacity = measure_capacity()
    bodies = bodies_of_dataset(dataset, most=_how_many(_numbers(dataset, model)), model=model)
    with scratch_folder("host") as folder:
        bundle = write_probe(folder, model, dataset, _SETTINGS)
        starting = time.perf_counter()
        try:
            with running_service(bundle, log=folder / "service.log", more=("--policy", "warn"), own=True) as service:
                loading = time.perf_counter()
                closed = [ServiceLoad(concurrency=count) for count in clients]
                seen = [[_load(service, bodies, load, load_s)] for load in closed]
                a_load_s = (time.perf_counter() - loading) / len(closed)
                for runs, load in [*zip(seen, closed, strict=True)] * (REPEATS - 1):
                    if fits(a_load_s):
                        runs.append(_load(service, bodies, load, load_s))
                rare = _seldom_loads(median(run.p50_ms for run, _ in seen[0]))
                seldom = [
                    _load(service, bodies, load, _SELDOM_S) for load in rare if fits(a_load_s - load_s + _SELDOM_S)
                ]
            crowd = []
            if fits(loading - starting + REPEATS * a_load_s):
                crowd = _crowd(bundle, folder / "crowd.log", bodies, load_s)
            fronts = _with_front_ends(bundle, folder / "several.log", bodies, load_s) if several else []
        except BundleError as error:
            raise ToolchainError(f"what serving costs this host cannot be measured: {error}") from error
    best = [min(runs, key=lambda run: busy_ms(run[0])) for runs in seen]
    others = max(others for _, others in (*best, *crowd, *seldom))
    quiet = others < OTHERS_CPUS
    count = processors()
    words = f"measured on {toolchain.device}, {count} processor{'s' if count > 1 else ''}"
    if not quiet:
        words += f", while others (processes, or guests of the same host) kept {others:.1f} of them: too high by that"
    cut = len(seldom) < len(rare) or any(len(runs) < REPEATS for runs in seen) or (not crowd and _crowded())
    if cut:
        words += f", cut to {limit_s:g} s"
    fitted = fit_costs(
        [run for run, _ in best],
        capacity.together,
        words,
        spread=_spread([[run for run, _ in runs] for runs in seen]),
        capacity_spread=capacity.spread,
    )

    lengths, text = dataset.lengths("validation"), dataset.preprocessor
    repeated = [_rehearsal(_SETTINGS, runs) for runs in seen]
    probe = Probe(
        call_ms=1000 * median(run.model_s / run.batches for run in repeated[0].runs),
        lengths=np.zeros(1, dtype=np.int64) if lengths is None else lengths,
        bins=() if text is None or lengths is None else text.bins,
    )
    idle = [_rehearsal(_SETTINGS, [run]) for run in seldom]
    crowded = [_rehearsal(_crowd_settings(), crowd)] if crowd else []
    costs = with_waking(fitted, idle, probe)
    for one in crowded:
        costs = with_wait(costs, one, probe)
    costs = replace(costs, unexplained=unexplained(costs, [*repeated, *idle, *crowded], probe))
    return with_front_ends(costs, fronts) if fronts else costs, quiet and not cut


def _rehearsal(settings: ServiceSettings, runs: Sequence[tuple[LoadedRun, float]]) -> Rehearsal:
    return Rehearsal(settings=settings, runs=tuple(run for run, _ in runs))


def _with_front_ends(bundle: Path, log: Path, bodies: Sequence[str], load_s: float) -> list[LoadedRun]:
    """The cheapest repetition of each load of a service whose front ends are processes of their own."""
    more = ("--policy", "warn", "--front-ends", str(_FRONT_ENDS))
    closed, served = [ServiceLoad(concurrency=count) for count in _FRONT_CLIENTS], f" with {_FRONT_ENDS} front ends and"
    with running_service(bundle, log=log, more=more, own=True) as service:
        runs = [[_load(service, bodies, load, 2 * load_s, served)[0] for load in closed] for _ in range(_FRONT_REPEATS)]
    return [min(found, key=busy_ms) for found in zip(*runs, strict=True)]


def _seldom_loads(alone_ms: float) -> tuple[ServiceLoad, ...]:
    """At rates that keep a service idle most of the time, whatever a request takes.

    Args:
        alone_ms: latency of a client that is alone.
    """
    highest_per_s = 1000 / (_ASLEEP * alone_ms)
    scale = min(1.0, highest_per_s / max(_SELDOM_PER_S))
    return tuple(ServiceLoad(arrivals="poisson", rate_per_s=rate * scale) for rate in _SELDOM_PER_S)


def _crowd_settings() -> ServiceSettings:
    return ServiceSettings(max_batch_size=_CROWD_ROWS, workers=processors())


def _crowded() -> bool:
    """Whether workers of this host are measured together."""
    return 1 < processors() <= _MOST_CROWDED


def _crowd(bundle: Path, log: Path, bodies: Sequence[str], load_s: float) -> list[tuple[LoadedRun, float]]:
    """Loads that keep a worker on every processor busy, beside the front end and the load generator."""
    if not _crowded():
        return []
    with running_service(bundle, log=log, settings=_crowd_settings(), more=("--policy", "warn"), own=True) as service:
        return [_load(service, bodies, ServiceLoad(concurrency=_CROWD_CLIENTS), load_s) for _ in range(REPEATS)]


def _spread(repeated: Sequence[Sequence[LoadedRun]]) -> float:
    """Relative standard deviation of the costs, over loads: how far the middle repetition lies above its cheapest one,
    in processor time or in latency, whichever is more.

    The cheapest counts, and what disturbs others disturbs a measurement too.
    """

    def above(costs: Sequence[float]) -> float:
        return median(costs) / min(costs) - 1

    spreads = [
        max(above([busy_ms(run) for run in runs]), above([run.p50_ms for run in runs]))
        for runs in repeated
        if len(runs) > 1
    ]
    return median(spreads) if spreads else _UNREPEATED


def _numbers(dataset: Dataset, model: Model) -> int:
    """In one request."""
    fixed = next((spec.shape[0] for spec in model.inputs if spec.shape), 1)
    rows = fixed if isinstance(fixed, int) else 1
    first = next(iter(dataset.batches("validation", rows, stop=rows)))
    return sum(array.size for array in first.feeds.values())


def _how_many(numbers: int) -> int:
    """Bodies to send: fewer where one is a picture of megabytes."""
    return min(BODIES, max(_FEWEST_BODIES, _MOST_NUMBERS // max(1, numbers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """Counters at one moment: seconds of processors, and what the service counted.

    Attributes:
        own_s: of this process and its ended children, the load generator among them.
    """

    at_s: float
    queues_s: float
    front_s: float
    workers_s: float
    everybody_s: float
    own_s: float
    metrics: Samples


def _load(
    service: RunningService, bodies: Sequence[str], load: ServiceLoad, load_s: float, served: str = ""
) -> tuple[LoadedRun, float]:
    """One run, and the processors that others kept busy meanwhile; a longer one where nothing is answered in time."""
    for longer in _LONGER:
        plan = LoadPlan(url=service.url, load=load, duration_s=longer * load_s, warmup_s=WARMUP_S)
        before = _spent(service)
        result = run_load(plan, bodies, api_key=service.api_key, server_pid=service.pid)
        after = _spent(service)
        if result.failed:
            raise ToolchainError(
                f"the service{served} without a model failed {result.failed} of {result.requests} requests: "
                f"{dict(result.statuses)} {dict(result.errors)}"
            )
        if result.p50_ms is not None:
            break
    else:
        raise ToolchainError(
            f"the service{served} without a model answered nothing under {load} in {_LONGER[-1] * load_s:.0f} s. A "
            f"request has {len(bodies[0]) / 1e6:.1f} MB. Take `service:` out of the experiment to do without a service."
        )
    requests = _gained(before, after, "workbench_batch_rows_sum")
    window_s = result.window_s * requests / max(result.answered, 1)
    run = LoadedRun(
        clients=load.concurrency or 0,
        rate_per_s=load.rate_per_s,
        window_s=window_s,
        requests=round(requests),
        batches=round(_gained(before, after, "workbench_batch_rows_count")),
        front_s=after.front_s - before.front_s,
        queues_s=after.queues_s - before.queues_s,
        workers_s=after.workers_s - before.workers_s,
        client_s=result.client_share * window_s,
        model_s=_gained(before, after, "workbench_model_duration_seconds_sum"),
        p50_ms=result.p50_ms.value,
        p99_ms=(result.p99_ms or result.p50_ms).value,
    )
    spent_s = run.front_s + run.workers_s + (after.own_s - before.own_s)
    others = (after.everybody_s - before.everybody_s - spent_s) / (after.at_s - before.at_s)
    return run, max(others, 0.0)


def _spent(service: RunningService) -> _Spent:
    metrics = scrape(*LoadPlan(url=service.url, load=ServiceLoad(concurrency=1)).address, service.api_key)
    if metrics is None:
        raise ToolchainError("the service without a model gives no metrics.")
    first = psutil.Process(service.pid)
    fronts = {int(pid) for pid in _READY.findall(service.log.read_text(encoding="utf-8"))}
    seconds = {child.pid: _cpu_s(child) for child in first.children(recursive=True)}
    queues_s = _cpu_s(first)
    return _Spent(
        at_s=time.perf_counter(),
        queues_s=queues_s,
        front_s=queues_s + sum(spent_s for pid, spent_s in seconds.items() if pid in fronts),
        workers_s=sum(spent_s for pid, spent_s in seconds.items() if pid not in fronts),
        everybody_s=taken_s(psutil.cpu_times()),
        own_s=sum(os.times()[:4]),
        metrics=metrics,
    )


def taken_s(times: object) -> float:
    """Seconds of all processors that somebody had: processes here, or the hypervisor for its other guests (steal).

    Args:
        times: as `psutil.cpu_times` gives them; platforms leave some out.
    """
    return sum(float(getattr(times, part, 0.0)) for part in ("user", "nice", "system", "irq", "softirq", "steal"))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _gained(before: _Spent, after: _Spent, name: str) -> float:
    return sum(after.metrics.get(name, {}).values()) - sum(before.metrics.get(name, {}).values())
