"""`workbench load`: real requests at a service, or at a bundle that is served for as long as the load lasts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.loading import OPENAI, Asking, Server, facts_of, metrics_of, open_server, run_loads
from workbench.commands.options import ApiKeyEnv, AsJson, command_line, existing_file
from workbench.commands.options import seconds as seconds_of
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED, INTERRUPTED
from workbench.values.system.files import write_json_atomically

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.commands.loading import Question
    from workbench.load import LoadResult
    from workbench.shipping.acceptance.baseline import Baseline, LoadFigures
    from workbench.shipping.acceptance.verdict import Verdict
    from workbench.values.service import ServiceLoad

_WARMUP_SHARE = 0.1
_AUTO = "auto"
_TIMEOUT_S, _TOKENS_TIMEOUT_S = 30.0, 300.0


@dataclass(frozen=True, kw_only=True)
class Loading(Asking):
    """The same with what servers that stream tokens are asked besides, and held to."""

    endpoint: Annotated[str, typer.Option(help="chat, completions, or auto: by what the prompts are")] = _AUTO
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="of prompts whose line does not say it; default: 128")
    ] = None
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="generate all of them (vLLM and others take it)")] = (
        False
    )
    ttft_ms: Annotated[float | None, typer.Option(help="limit of goodput: to the first token")] = None
    tpot_ms: Annotated[float | None, typer.Option(help="limit of goodput: per token after it")] = None
    latency_ms: Annotated[float | None, typer.Option(help="limit of goodput: to the end")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        own = [one for one in fields(self) if one.name not in {other.name for other in fields(Asking)}]
        if self.protocol != OPENAI and any(getattr(self, one.name) != one.default for one in own):
            keys = ", ".join(f"--{one.name.replace('_', '-')}" for one in own)
            raise ConfigError(f"is for --protocol {OPENAI}.", key=keys)

    def question(self, server: Server, common: Mapping[str, Any]) -> Question:
        """Of streams of tokens the prompts, after one of them was answered."""
        if self.protocol != OPENAI:
            return super().question(server, common)
        from workbench.load import bodies_of_dataset
        from workbench.load.openai.asking import (
            address_of,
            only_model,
            probed,
            prompts_of_bodies,
            prompts_of_file,
            requests_of,
            unsent_keys,
        )
        from workbench.load.plan import TokenLimits

        _, base, told = address_of(server.named)
        named: Any = told if self.endpoint == _AUTO else self.endpoint
        limits = TokenLimits(ttft_ms=self.ttft_ms, tpot_ms=self.tpot_ms, latency_ms=self.latency_ms)
        if (chosen := self.dataset) is not None:
            prompts = prompts_of_bodies(bodies_of_dataset(chosen[0], model=chosen[1]), chosen[0].path)
        elif self.data is not None:
            prompts = prompts_of_file(self.data)
        else:
            hint = (
                'Name a file of prompts: lines of {"messages": […], "max_tokens": 128}, of {"prompt": "…"}, or texts.'
            )
            raise ConfigError("a URL does not say what to ask.", key="--data", hint=hint)
        model = self.model or only_model(server.url, base, server.api_key)
        asking: dict[str, Any] = {"endpoint": named, "max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos}
        asked, path, endpoint = requests_of(prompts, model, base, **asking, seed=common["seed"])
        requests, with_usage = probed(server.url, path, asked, api_key=server.api_key, timeout_s=common["timeout_s"])
        tell(f"asking {model}: {len(requests)} prompts ready, {path}")
        if unsent := unsent_keys(prompts):
            tell(f"not sent: {', '.join(unsent)[:300]}", style="yellow")
        if not with_usage:
            tell("the server refuses stream_options, so usage is not asked for", style="yellow")
        wire = "openai/chat" if endpoint == "chat" else "openai/completions"
        plan = {"path": path, "wire": wire, "model": model, "limits": limits, "metrics": metrics_of(self)}
        return requests, plan, None


def load(
    target: Annotated[
        str,
        typer.Argument(metavar="URL|BUNDLE", help="http://HOST:PORT, or the folder of a bundle"),
    ],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="closed loop: clients that wait for their answers; default: 100")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="open loop: Poisson arrivals per second")] = None,
    trace: Annotated[
        Path | None, existing_file("open loop: file of arrival times in seconds, one a line; the first counts as 0")
    ] = None,
    duration: Annotated[str, typer.Option(help="what counts, such as 30s or 10m")] = "30s",
    warmup: Annotated[
        str | None, typer.Option(help="before it; default: a tenth of it, 1 to 5 s; 0 for a trace")
    ] = None,
    max_requests: Annotated[int, typer.Option(min=1, help="end early after this many")] = 5_000_000,
    connections: Annotated[
        int | None, typer.Option(min=1, help="at most open at once; default: 256 (open loop)")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help=f"for one answer; default: {_TIMEOUT_S:g}s, {OPENAI} {_TOKENS_TIMEOUT_S:g}s")
    ] = None,
    *,
    how: Loading,
    baseline: Annotated[
        Path | None, existing_file("another platform's figures to judge by; exit code 1 when failed")
    ] = None,
    agreement: Annotated[Path | None, existing_file("of `workbench agreement --to`; default: the bundle's own")] = None,
    float_bundle: Annotated[
        Path | None,
        typer.Option("--float", exists=True, file_okay=False, help="bundle of the float model, for what INT8 promises"),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="of a BUNDLE, instead of its own setting")] = None,
    max_batch_size: Annotated[int | None, typer.Option(min=1, help="of a BUNDLE, the same")] = None,
    batch_timeout_ms: Annotated[float | None, typer.Option(min=0.0, help="of a BUNDLE, the same")] = None,
    api_key_env: ApiKeyEnv = "WORKBENCH_API_KEY",
    seed: Annotated[int, typer.Option(min=0, help="of arrival times and of the order of texts")] = 0,
    to: Annotated[Path | None, typer.Option(help="folder for results (JSON) and every request's times (NPZ)")] = None,
    as_json: AsJson = False,
) -> None:
    """Load a service with real requests: latency, throughput, errors, what the server did; and a verdict.

    A closed loop measures what so many waiting clients get. An open loop (--rate, --trace) sends on time whatever the
    server does and counts latency from the intended moment, so a stall is seen by every request it delays. Of servers
    that stream tokens, times to the first token and between tokens, tokens per second and goodput besides.
    """
    from workbench.shipping.acceptance.baseline import of_load, read_baseline
    from workbench.shipping.acceptance.verdict import verdict_lines

    asked = _load(concurrency, rate, trace)
    if how.protocol == OPENAI and baseline is not None:
        raise ConfigError("a verdict is of a service that classifies, not of tokens.", key="--baseline, --protocol")
    against = read_baseline(baseline) if baseline is not None else None
    if against is None and (float_bundle is not None or agreement is not None):
        raise ConfigError("is for a verdict.", key="--float, --agreement", hint="Name the --baseline as well.")
    seconds = seconds_of(duration, "--duration")
    warm_s = seconds_of(warmup, "--warmup") if warmup is not None else 0.0
    if warmup is None and asked.arrivals != "trace":  # every request of a trace counts
        warm_s = min(5.0, max(1.0, _WARMUP_SHARE * seconds))
    if trace is not None:  # its last request is still due within the window
        seconds = min(seconds, max(asked.trace_s[-1] - warm_s + 0.001, 0.1))
    settings = {"--workers": workers, "--max-batch-size": max_batch_size, "--batch-timeout-ms": batch_timeout_ms}
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    usual_s = _TOKENS_TIMEOUT_S if how.protocol == OPENAI else _TIMEOUT_S
    common = {
        "duration_s": seconds,
        "warmup_s": warm_s,
        "max_requests": max_requests,
        "connections": connections,
        "timeout_s": usual_s if timeout is None else seconds_of(timeout, "--timeout"),
        "seed": seed,
    }
    key, command = os.environ.get(api_key_env), command_line()
    with open_server(target, settings, key, how) as server:
        facts = facts_of(server)
        emulated = bool(facts.get("emulated"))
        theirs = () if against is None or emulated else against.loads
        loads = run_loads(server, how, [asked], theirs, common, to=to, command=command, quiet=as_json)
        results = [result for _, result in loads]
    interrupted = any(result.interrupted for result in results)
    verdict = None
    if against is not None:
        floats: list[LoadFigures] = []
        if float_bundle is not None and not interrupted and not emulated:  # under the baseline's load of most clients
            known = [load for load in against.loads if load.throughput_per_s is not None]
            most = sorted(known, key=lambda load: load.concurrency)[-1:]
            with open_server(str(float_bundle), {}, key, how) as server_of_float:
                found = run_loads(server_of_float, how, (), most, common, quiet=as_json)
                floats = [figures for _, result in found if (figures := of_load(result)) is not None]
        verdict = replace(_verdict(against, results, floats, server, facts, agreement), command=command)
        if to is not None:
            write_json_atomically(to / "verdict.json", verdict.to_json())
    if emulated:
        tell("the device is emulated: these times are the emulator's, not a device's", style="bold yellow")
    if as_json:
        body: dict[str, Any] = {"loads": [result.to_json() for result in results], "emulated": emulated}
        print_json(body | ({"verdict": verdict.to_json()} if verdict is not None else {}))
    elif verdict is not None:
        say("\n".join(verdict_lines(verdict)))
    if interrupted:
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


def _verdict(
    against: Baseline,
    results: Sequence[LoadResult],
    floats: Sequence[LoadFigures],
    server: Server,
    facts: Mapping[str, Any],
    agreement: Path | None,
) -> Verdict:
    from workbench.bundle.golden import bundle_agreement
    from workbench.shipping.acceptance.baseline import of_load
    from workbench.shipping.acceptance.criteria import evaluate
    from workbench.values.agreement import read_agreement
    from workbench.values.measurement import Estimate

    known = None if server.bundle is None else bundle_agreement(server.bundle)
    figures = facts.get("figures") or {}
    split = "holdout" if "holdout" in figures else "validation"
    best = figures.get(split) or {}
    drop: list[Any] = [best.get(f"accuracy_loss_pp{end}") for end in ("", "_low", "_high")]
    scheme = ((facts.get("candidate") or {}).get("quantization") or {}).get("scheme")
    return evaluate(
        against,
        loads=[found for result in results if (found := of_load(result)) is not None],
        float_loads=floats,
        agreement=known if agreement is None else read_agreement(agreement),
        accuracy_loss_pp=None if None in drop else Estimate(value=drop[0], low=drop[1], high=drop[2]),
        accuracy_level="measured held-out" if split == "holdout" else "measured",
        accuracy_samples=int(best.get("accuracy_samples", 0)),
        int8=None if scheme is None else scheme != "none",
        emulated=bool(facts.get("emulated")),
    )
