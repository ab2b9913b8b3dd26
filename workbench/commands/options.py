"""Arguments that several commands take, values that typer has no type for, and what several commands say."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from workbench.commands.console import tell
from workbench.serve.settings import options_of
from workbench.values.documents.yaml_reader import parse_seconds
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.report import Summary

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file (YAML)")]

Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="folder of .workbench/ and mlruns/; default: beside experiments/")
]

Constants = Annotated[
    list[str] | None,
    typer.Option("--constant", help="NAME=VALUE: an input that is the same for all samples; repeat for several"),
]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="everything that is known")]
ApiKeyEnv = Annotated[str, typer.Option(help="environment variable with the server's API key")]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output on stdout")]
TrustedKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys",
        help="file of public keys: the bundle must be signed by one of them; default: WORKBENCH_TRUSTED_KEYS",
    ),
]
SigningKey = Annotated[Path | None, typer.Option("--sign", help="sign the bundle with this secret key (minisign's)")]


def existing_file(help: str) -> Any:
    """An option that names a file, which must be there."""
    return typer.Option(exists=True, dir_okay=False, help=help)


_PANELS: dict[str, str] = {
    "Service": "workers devices front_ends max_batch_size batch_timeout_ms",
    "Server": "protocol model model_version map_input metrics_url host_allowed api_key_env",
    "Streams of tokens (--protocol openai)": "endpoint max_tokens ignore_eos ttft_ms tpot_ms latency_ms",
    "Who may ask": "allowed_host api_keys no_key",
    "Trust": "trusted_keys policy",
    "Pages": "metrics",
    "Limits": "max_requests timeout connections connections_of_address queue no_worker_s max_loss_pp "
    "max_loss require_proof zone max_p99_increase min_throughput max_size_increase cosine max_abs mae compare.error",
    "Load of the comparison": "promote.load promote.concurrency promote.load_seconds promote.rounds",
    "Output": "as_json verbose to html workspace seed",
}
"""Below which heading options stand in the help of a command that has more than `_FEW` of them, by parameter."""
_FEW = 12


def arranged(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer, its help in order: few options below the first heading, defaults in one style.

    A parameter that is a dataclass stands as the options that its fields are, so that options are declared once, with
    what is checked of them, for all commands that take them: fields that are `Annotated`, and those of the service,
    which knows no typer. A help text that ends in "default: …" gives what typer shows of a default.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    fields = {name: list(_options(kind)) for name, kind in groups.items()}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        single = one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += fields.get(one.name, [single])
    options: dict[str, Any] = {}
    for one in parameters:
        info = next((x for x in getattr(one.annotation, "__metadata__", ()) if isinstance(x, OptionInfo)), None)
        if info is not None:
            options[one.name] = info
            text, found, default = (info.help or "").rpartition("default: ")
            if found:
                info.help, info.show_default = text.rstrip("; "), default
            if get_origin(inner := one.annotation.__origin__) is types.UnionType:
                inner = next(kind for kind in get_args(inner) if kind is not type(None))
            if get_origin(inner) is list and info.metavar is None:
                info.metavar = f"{get_args(inner)[0].__name__.lower()} …"
    for panel, names in _PANELS.items() if len(options) > _FEW else ():
        for name in names.split():
            of, _, plain = name.rpartition(".")
            if plain in options and of in ("", command.__name__) and options[plain].rich_help_panel is None:
                options[plain].rich_help_panel = panel

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{option.name: given.pop(option.name) for option in fields[name]})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {}
    called.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.__doc__ or "")) or None
    return called


def _options(kind: Any) -> Iterable[inspect.Parameter]:
    plain = {name: Annotated[hint, typer.Option(flag, help=text)] for name, flag, hint, _, text in options_of(kind)}
    hints = plain or get_type_hints(kind, include_extras=True)
    for one in dataclasses.fields(kind):
        if get_origin(hint := hints.get(one.name)) is Annotated:
            yield inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hint)


def command_line() -> str:
    """Of this process, as it was typed, to be kept with what it makes."""
    return shlex.join(["workbench", *sys.argv[1:]])


def one_of(value: str, kind: Any, option: str) -> Any:
    """One of a Literal's words."""
    if value not in get_args(kind):
        raise ConfigError(f"{value!r} is none of {', '.join(get_args(kind))}.", key=option)
    return value


def share(text: str, option: str) -> float:
    """'20%' or '0.2' as 0.2; '120%' as 1.2.

    A bare number above 1 is refused: 20 may mean 20 % as well as twenty times.
    """
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (value > 1 and not text.endswith("%")):
        raise ConfigError(f"{text!r} is no share.", key=option, hint="Write 20% or 0.2.")
    return value / 100 if text.endswith("%") else value


def pairs(written: Iterable[str], option: str) -> dict[str, str]:
    """'sr=16000' as {'sr': '16000'}."""
    found: dict[str, str] = {}
    for text in written:
        name, equal, value = text.partition("=")
        if not (equal and name.strip() and value.strip()):
            raise ConfigError(f"{text!r} is not NAME=VALUE.", key=option)
        if name.strip() in found:
            raise ConfigError(f"{name.strip()!r} stands twice.", key=option)
        found[name.strip()] = value.strip()
    return found


def seconds(text: str, option: str) -> float:
    """'90s', '30m' or '2h' in seconds; a bare number is seconds."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigError(f"{error}.", key=option, hint="Write a duration such as 90s, 30m or 2h.") from error


def tell_damage_of_last(workspace: Path, name: str) -> None:
    """One warning on stderr for each damaged file of an experiment's last sweep, for commands that show no report."""
    from workbench.evaluation.sweep_folders import current_journal

    with contextlib.suppress(ConfigError):  # one of another revision says nothing of damage
        journal = current_journal(workspace, name)
        if journal is None:
            return
        for damage in journal.damage():
            tell(f"warning: damaged sweep {journal.root}: {damage.words()}.", style="yellow")


def next_lines(experiment: Path, workspace: Path | None, summary: Summary) -> list[str]:
    """The commands that follow a sweep: see its pages, ship what it recommends (nothing, where it recommends none)."""
    given = [str(experiment)] if workspace is None else [str(experiment), "--workspace", str(workspace)]
    found = [
        f"all of it:       {shlex.join(['workbench', 'show', *given, '-v'])}",
        f"as a page:       {shlex.join(['workbench', 'show', *given, '--html', 'front.html'])}",
        f"to open them:    {shlex.join(['workbench', 'ui', *given])}",
    ]
    if summary.recommended is not None:
        emulated = ["--allow-emulated"] if summary.emulated else []
        found.append(f"to ship it:      {shlex.join(['workbench', 'export', *given, '--to', 'bundle', *emulated])}")
    return found
