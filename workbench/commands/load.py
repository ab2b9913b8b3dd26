"""`workbench load`: real requests at a service, or at a bundle that is served for as long as the load lasts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.commands.console import err, out
from workbench.commands.loading import (
    PREDICT,
    Batch,
    Data,
    ExperimentFile,
    HostAllowed,
    Length,
    MapInput,
    MetricsUrl,
    ModelName,
    ModelVersion,
    Protocol,
    TensorsForm,
    asking,
    facts_of,
    open_server,
    question,
)
from workbench.commands.options import AsJson
from workbench.commands.options import seconds as seconds_of
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED, INTERRUPTED

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.load import LoadPlan, LoadResult
    from workbench.shipping.acceptance import Baseline, Verdict
    from workbench.values.service import ServiceLoad

_WARMUP_SHARE = 0.1


def load(
    target: Annotated[
        str,
        typer.Argument(metavar="URL|BUNDLE", help="http://HOST:PORT, or the folder of a bundle", show_default=False),
    ],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="closed loop: clients that wait for their answers; default 100")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="open loop: Poisson arrivals per second")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="open loop: file of arrival times in seconds, one a line; the first counts as 0",
        ),
    ] = None,
    duration: Annotated[str, typer.Option(help="what counts, such as 30s or 10m")] = "30s",
    warmup: Annotated[
        str | None, typer.Option(help="before it; default: a tenth of it, 1 to 5 s; 0 for a trace")
    ] = None,
    max_requests: Annotated[int, typer.Option(min=1, help="end early after this many")] = 5_000_000,
    connections: Annotated[
        int | None, typer.Option(min=1, help="at most open at once; default: 256 (open loop)")
    ] = None,
    timeout: Annotated[str, typer.Option(help="for one answer")] = "30s",
    data: Data = None,
    experiment: ExperimentFile = None,
    protocol: Protocol = PREDICT,
    model: ModelName = "",
    model_version: ModelVersion = "",
    tensors: TensorsForm = "auto",
    map_input: MapInput = None,
    length: Length = None,
    batch: Batch = 1,
    metrics_url: MetricsUrl = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="another platform's figures to judge by; exit code 1 when failed"
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="of a BUNDLE, instead of its own setting")] = None,
    max_batch_size: Annotated[int | None, typer.Option(min=1, help="of a BUNDLE, the same")] = None,
    batch_timeout_ms: Annotated[float | None, typer.Option(min=0.0, help="of a BUNDLE, the same")] = None,
    api_key_env: Annotated[str, typer.Option(help="environment variable with the service's API key")] = (
        "WORKBENCH_API_KEY"
    ),
    host_allowed: HostAllowed = None,
    seed: Annotated[int, typer.Option(min=0, help="of arrival times and of the order of texts")] = 0,
    to: Annotated[Path | None, typer.Option(help="folder for results (JSON) and every request's times (NPZ)")] = None,
    as_json: AsJson = False,
) -> None:
    """Load a service with real requests: latency, throughput, errors, what the server did; and a verdict.

    A closed loop measures what so many waiting clients get. An open loop (--rate, --trace) sends on time whatever the
    server does and counts latency from the intended moment, so a stall is seen by every request it delays.
    """
    from workbench.load import LoadPlan, run_load
    from workbench.load.text import result_lines
    from workbench.shipping.acceptance import read_baseline
    from workbench.shipping.acceptance_text import verdict_lines

    asked = _load(concurrency, rate, trace)
    against = read_baseline(baseline) if baseline is not None else None
    seconds = seconds_of(duration, "--duration")
    warm_s = seconds_of(warmup, "--warmup") if warmup is not None else _warmup_s(asked, seconds)
    if trace is not None:  # its last request is still due within the window
        seconds = min(seconds, max(asked.trace_s[-1] - warm_s + 0.001, 0.1))
    settings = {"--workers": workers, "--max-batch-size": max_batch_size, "--batch-timeout-ms": batch_timeout_ms}
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    results: dict[str, LoadResult] = {}
    how = asking(protocol, model, model_version, tensors, map_input, length, batch, metrics_url)
    with open_server(target, settings, os.environ.get(api_key_env)) as server:
        asked_with = question(server, how, data, experiment)
        plans = [
            LoadPlan(
                url=server.url,
                **asked_with.of_plan,
                load=one,
                duration_s=seconds,
                warmup_s=warm_s,
                max_requests=max_requests,
                connections=connections,
                timeout_s=seconds_of(timeout, "--timeout"),
                seed=seed,
                allowed_hosts=tuple(host_allowed or ()),
            )
            for one in _loads(asked, against)
        ]
        facts = facts_of(server)
        for plan in plans:
            err.print(f"loading {plan.url}: {plan.load}, {warm_s:g} + {seconds:g} s", highlight=False, soft_wrap=True)
            times = f"times-{_name(plan)}.npz" if to is not None else None
            result = run_load(
                plan,
                asked_with.requests,
                api_key=server.api_key,
                server_pid=server.pid,
                times_to=to / times if to is not None and times is not None else None,
            )
            results[_name(plan)] = replace(result, times=times)
            if not as_json:
                out.print("\n".join(result_lines(result)), highlight=False, soft_wrap=True, markup=False)
            if result.interrupted:
                break
    verdict = _verdict(against, list(results.values()), facts) if against is not None else None
    _keep(to, results, verdict)
    emulated = bool(facts.get("emulated"))
    if emulated:
        err.print("the device is emulated: these times are the emulator's, not a device's", style="bold yellow")
    if as_json:
        body: dict[str, Any] = {"loads": [r.to_json() for r in results.values()], "emulated": emulated}
        print(json.dumps(body | ({"verdict": verdict.to_json()} if verdict is not None else {}), ensure_ascii=False))
    elif verdict is not None:
        out.print("\n".join(verdict_lines(verdict)), highlight=False, soft_wrap=True, markup=False)
    if any(r.interrupted for r in results.values()):
        raise SystemExit(INTERRUPTED)
    if verdict is not None and verdict.outcome == "failed":
        raise SystemExit(FAILED)


def _load(concurrency: int | None, rate: float | None, trace: Path | None) -> ServiceLoad:
    from workbench.space.service_reader import read_trace
    from workbench.values.service import ServiceLoad

    if [concurrency, rate, trace].count(None) < 2:
        raise ConfigError("more than one kind of load.", key="--concurrency, --rate, --trace", hint="Choose one.")
    if rate is not None:
        return ServiceLoad(arrivals="poisson", rate_per_s=rate)
    if trace is not None:
        return read_trace(trace)
    return ServiceLoad(concurrency=concurrency if concurrency is not None else 100)


def _warmup_s(asked: ServiceLoad, seconds: float) -> float:
    """A tenth of the window, 1 to 5 s; none for a trace, every request of which counts."""
    return 0.0 if asked.arrivals == "trace" else min(5.0, max(1.0, _WARMUP_SHARE * seconds))


def _loads(asked: ServiceLoad, against: Baseline | None) -> list[ServiceLoad]:
    """The load asked for, then those a baseline's figures were taken under, where it is not one of them."""
    from workbench.values.service import ServiceLoad

    loads = [asked]
    if against is not None:
        wanted = (against.latency_concurrency, against.throughput_concurrency)
        loads += [ServiceLoad(concurrency=count) for count in wanted]
    return list(dict.fromkeys(loads))


def _verdict(against: Baseline, results: list[LoadResult], facts: dict[str, Any]) -> Verdict:
    from workbench.shipping.acceptance import judge
    from workbench.values.measurement import Estimate

    figures = facts.get("figures") or {}
    best = figures.get("holdout") or figures.get("validation") or {}
    names = ("accuracy_drop_pp", "accuracy_drop_pp_low", "accuracy_drop_pp_high")
    drop = None
    if all(name in best for name in names):
        drop = Estimate(value=best[names[0]], low=best[names[1]], high=best[names[2]])
    return judge(
        against,
        loads=results,
        accuracy_drop_pp=drop,
        power_w=best.get("device_power_w"),
        emulated=bool(facts.get("emulated")),
    )


def _name(plan: LoadPlan) -> str:
    load = plan.load
    detail = {
        "closed": f"-{load.concurrency}",
        "poisson": f"-{load.rate_per_s:g}" if load.rate_per_s else "",
        "trace": "",
    }
    return f"{load.arrivals}{detail[load.arrivals]}"


def _keep(to: Path | None, kept: dict[str, LoadResult], verdict: Verdict | None) -> None:
    from workbench.values.system.files import write_text_atomically

    if to is None:
        return
    for name, result in kept.items():
        text = json.dumps(result.to_json(), indent=1, ensure_ascii=False)
        write_text_atomically(to / f"load-{name}.json", text + "\n")
    if verdict is not None:
        text = json.dumps(verdict.to_json(), indent=1, ensure_ascii=False)
        write_text_atomically(to / "verdict.json", text + "\n")
