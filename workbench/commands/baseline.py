"""`workbench baseline record`: another platform's figures and answers, from its server into a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.loading import (
    KSERVE,
    OPENAI,
    Asking,
    Protocol,
    facts_of,
    open_server,
    run_loads,
)
from workbench.commands.options import ApiKeyEnv, AsJson, arranged, existing_file, one_of
from workbench.commands.options import seconds as seconds_of
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import INTERRUPTED

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.load import LoadResult
    from workbench.load.kserve.served import ServedModel
    from workbench.values.measurement import Split

baseline = typer.Typer(name="baseline", help="Another platform's figures, to judge a bundle by.", no_args_is_help=True)


@baseline.callback()
def _group() -> None:
    """Keeps `record` a command of its own, although it is the only one."""


@dataclass(frozen=True, kw_only=True)
class Recorded(Asking):
    """The same of another platform, whose outputs may have other names than ours."""

    protocol: Protocol = KSERVE
    map_output: Annotated[
        list[str] | None, typer.Option(help="SERVER=OURS: which of our outputs the server's is; repeat")
    ] = None


@baseline.command()
@arranged
def record(
    url: Annotated[str, typer.Argument(help="http://HOST:PORT of its server")],
    to: Annotated[Path, typer.Option(dir_okay=False, help="baseline file (YAML); answers go beside it, .npz")],
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="clients of a closed loop; repeat; default: 1 and 100")
    ] = None,
    duration: Annotated[str, typer.Option(help="of each load, such as 30s or 10m")] = "60s",
    warmup: Annotated[str, typer.Option(help="before each")] = "5s",
    *,
    how: Recorded,
    answers: Annotated[int, typer.Option(min=0, help="samples whose answers are kept; 0 for none")] = 1000,
    split: Annotated[str, typer.Option(help="of the experiment, whose samples are answered")] = "holdout",
    name: Annotated[str, typer.Option(help="of the platform; default: what its server calls itself")] = "",
    about: Annotated[str, typer.Option(help="what should be known of it, such as card, driver and precision")] = "",
    limits_of: Annotated[Path | None, existing_file("baseline file whose limits to take over")] = None,
    api_key_env: ApiKeyEnv = "WORKBENCH_API_KEY",
    timeout: Annotated[str, typer.Option(help="for one answer")] = "30s",
    seed: Annotated[int, typer.Option(min=0, help="of the order of texts")] = 0,
    as_json: AsJson = False,
) -> None:
    """Load a server and keep its figures with their conditions and intervals, memory and power where they can be read,
    and its answers for `agreement --reference`."""
    from workbench.shipping.acceptance.baseline import USUAL_LIMITS, read_baseline, recorded, write_baseline
    from workbench.values.service import ServiceLoad

    if "://" not in url:
        raise ConfigError(f"{url!r} is no URL of a running server.", key="url", hint="Write http://HOST:PORT.")
    answered: Split = one_of(split, Literal["validation", "holdout"], "--split")
    if how.protocol == OPENAI:
        raise ConfigError(f"{OPENAI} is for `workbench load`: a baseline is of a classifier.", key="--protocol")
    limits = read_baseline(limits_of).limits if limits_of is not None else USUAL_LIMITS
    common = {
        "duration_s": seconds_of(duration, "--duration"),
        "warmup_s": seconds_of(warmup, "--warmup"),
        "timeout_s": seconds_of(timeout, "--timeout"),
        "seed": seed,
    }
    own = [ServiceLoad(concurrency=clients) for clients in concurrency or (1, 100)]
    with open_server(url, {}, os.environ.get(api_key_env), how) as server:
        if facts_of(server).get("emulated"):
            raise ConfigError(f"{url} serves an emulated device: its times are no figures.", key="url")
        loads = list(run_loads(server, how, own, (), common, quiet=as_json))
        results = [result for _, result in loads]
        if any(result.interrupted for result in results):
            raise SystemExit(INTERRUPTED)
        served = loads[0][0][2]
        kept = None
        if answers:
            kept = _answers(how, served, results[0], to.with_suffix(".npz"), answered, answers)
    found, lacks = recorded(
        results,
        name=name or (url if served is None else str(served)),
        about=about,
        source=_source(results, served),
        limits=limits,
        answers=kept,
    )
    write_baseline(found, to)
    if as_json:
        print_json({"baseline": str(to), "answers": None if kept is None else str(kept), "lacks": list(lacks)})
        return
    for sentence in lacks:
        tell(sentence, style="yellow")
    for what, resource, unit in (("memory", found.memory, "GB"), ("power", found.power, "W")):
        if resource is not None:
            say(f"{what}: {resource.value:.4g} {unit}, {resource.source}")
    also = f" and {kept}" if kept is not None else ""
    say(f"wrote {to}{also}: `workbench load BUNDLE --baseline {to}` judges by it")


def _answers(
    how: Asking, served: ServedModel | None, result: LoadResult, to: Path, split: Split, most: int
) -> Path | None:
    """Ask the samples of a split, each once, and keep what the server says; None where it cannot be asked so."""
    from workbench.inputs.answers import write_answers
    from workbench.load.kserve.asking import ask, samples_of

    chosen = how.dataset
    if served is None or chosen is None:
        tell(f"no answers are kept: they take --protocol {KSERVE} and an --experiment", style="yellow")
        return None
    found = []
    for one in samples_of(chosen[0], split, served, batch=how.batch, most=most, last=True):
        outputs = ask(served, one)
        for place, digest in enumerate(one.digests):
            row = one.rows[place] if one.rows else None
            found.append((digest, row, {n: a[place] for n, a in outputs.items()}))
    source = f"{served} at {result.url}, {result.wire}, {datetime.now(UTC).isoformat(timespec='seconds')}"
    write_answers(to, found, source=source, split=split)
    tell(f"kept the answers to {len(found)} samples of the {split} split")
    return to


def _source(results: list[LoadResult], served: ServedModel | None) -> str:
    from workbench import __version__

    first = results[0]
    backend = f" (platform {served.platform})" if served is not None and served.platform else ""
    loops = ", ".join(str(result.load.concurrency) for result in results)
    return (
        f"recorded by workbench {__version__} on {first.began_at} at {first.url}{backend}: closed loops of {loops} "
        f"clients, {first.window_s:.4g} s each after {first.warmup_s:g} s, seed {first.seed}; 95 % intervals"
    )
