"""`workbench load --protocol openai`: what servers that stream tokens are asked, and held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.commands.console import tell
from workbench.commands.loading import OPENAI, Asking, Question, Server, dataset_of, metrics_of
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from typing import Any

AUTO = "auto"
TIMEOUT_S, TOKENS_TIMEOUT_S = 30.0, 300.0
_PANEL = "Streams of tokens (--protocol openai)"

EndpointName = Annotated[
    str,
    typer.Option("--endpoint", help="chat, completions, or auto: by what the prompts are", rich_help_panel=_PANEL),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="of prompts whose line does not say it; default 128", rich_help_panel=_PANEL),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", help="generate all of them (vLLM and others take it)", rich_help_panel=_PANEL),
]
TtftMs = Annotated[float | None, typer.Option(help="limit of goodput: to the first token", rich_help_panel=_PANEL)]
TpotMs = Annotated[float | None, typer.Option(help="limit of goodput: per token after it", rich_help_panel=_PANEL)]
LatencyMs = Annotated[float | None, typer.Option(help="limit of goodput: to the end", rich_help_panel=_PANEL)]


def asking_tokens(
    target: str,
    how: Asking,
    endpoint: str,
    max_tokens: int | None,
    ignore_eos: bool,
    limits: tuple[float | None, float | None, float | None],
    *,
    seed: int,
    timeout_s: float,
) -> tuple[str, Asking]:
    """(address, how it is asked): the same as given where another protocol is spoken.

    Args:
        limits: milliseconds to the first token, per token, to the end.

    Raises:
        ConfigError: options that belong to another protocol.
    """
    if how.protocol != OPENAI:
        if endpoint != AUTO or max_tokens is not None or ignore_eos or limits != (None, None, None):
            raise ConfigError(
                f"is for --protocol {OPENAI}.",
                key="--endpoint, --max-tokens, --ignore-eos, --ttft-ms, --tpot-ms, --latency-ms",
            )
        return target, how
    from workbench.load.openai.asking import address_of
    from workbench.load.openai.prompts import Generation
    from workbench.load.token_figures import TokenLimits

    if "://" not in target:
        raise ConfigError("a bundle is served by our own service.", key="--protocol", hint="Name the URL of a server.")
    address, base, told = address_of(target)
    named: Any = told if endpoint == AUTO else endpoint
    generation = Generation(endpoint=named, max_tokens=max_tokens, ignore_eos=ignore_eos, seed=seed)
    kept = TokenLimits(ttft_ms=limits[0], tpot_ms=limits[1], latency_ms=limits[2])
    return address, replace(how, generation=generation, limits=kept, base=base, timeout_s=timeout_s)


def question_of_tokens(server: Server, how: Asking, data: Path | None, experiment: Path | None) -> Question:
    """The prompts, after one of them was answered."""
    from workbench.load import bodies_of_dataset
    from workbench.load.openai.asking import only_model, probed
    from workbench.load.openai.prompts import prompts_of_bodies, prompts_of_file, requests_of, unsent_keys

    assert how.generation is not None  # `asking_tokens` gave it
    if data is not None and experiment is not None:
        raise ConfigError("two sources of prompts.", key="--data, --experiment", hint="Name one.")
    if data is None and experiment is None:
        raise ConfigError(
            "a URL does not say what to ask.",
            key="--data",
            hint='Name a file of prompts: lines of {"messages": […], "max_tokens": 128}, of {"prompt": "…"}, or texts.',
        )
    chosen = dataset_of(data, experiment)
    if chosen is not None:
        prompts = prompts_of_bodies(bodies_of_dataset(chosen[0], model=chosen[1]), chosen[0].path)
    else:
        assert data is not None  # there is no dataset without either
        prompts = prompts_of_file(data)
    model = how.model or only_model(server.url, how.base, server.api_key)
    asked, path, endpoint = requests_of(prompts, how.generation, model, how.base)
    requests, with_usage = probed(server.url, path, asked, api_key=server.api_key, timeout_s=how.timeout_s)
    tell(f"asking {model}: {len(requests)} prompts ready, {path}")
    if unsent := unsent_keys(prompts):
        tell(f"not sent: {', '.join(unsent)[:300]}", style="yellow")
    if not with_usage:
        tell("the server refuses stream_options, so usage is not asked for", style="yellow")
    return Question(
        requests=requests,
        path=path,
        wire="openai/chat" if endpoint == "chat" else "openai/completions",
        metrics=metrics_of(how),
        asking=how,
        model=model,
    )
