"""Arguments that several commands take, values that typer has no type for, and what several commands say."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.commands.console import tell
from workbench.values.documents.yaml_reader import parse_seconds
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.evaluation.journal import Journal
    from workbench.report import Summary

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file (YAML)", show_default=False)]

Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="folder of .workbench/ and mlruns/; default: beside experiments/")
]

Constants = Annotated[
    list[str] | None,
    typer.Option("--constant", help="NAME=VALUE: an input that is the same for all samples; repeat for several"),
]

AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output on stdout")]


def command_line() -> str:
    """Of this process, as it was typed, to be kept with what it makes."""
    return shlex.join(["workbench", *sys.argv[1:]])


def share(text: str, option: str) -> float:
    """'20%' or '0.2' as 0.2; '120%' as 1.2.

    A bare number above 1 is refused: 20 may mean 20 % as well as twenty times.

    Raises:
        ConfigError: not such a number, negative, or not finite.
    """
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (value > 1 and not text.endswith("%")):
        raise ConfigError(f"{text!r} is no share.", key=option, hint="Write 20% or 0.2.")
    return value / 100 if text.endswith("%") else value


def pairs(written: Iterable[str], option: str) -> dict[str, str]:
    """'sr=16000' as {'sr': '16000'}.

    Raises:
        ConfigError: no '=', or one name stands twice.
    """
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
    """'90s', '30m' or '2h' in seconds; a bare number is seconds.

    Raises:
        ConfigError: not a positive duration.
    """
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigError(f"{error}.", key=option, hint="Write a duration such as 90s, 30m or 2h.") from error


def tell_damage(journal: Journal | None) -> None:
    """One warning on stderr for each damaged file of a sweep, for commands that show no report."""
    if journal is None:
        return
    for damage in journal.damage():
        words = f"warning: damaged sweep {journal.root}: {damage.words()}."
        tell(words, style="yellow")


def tell_damage_of_last(workspace: Path, name: str) -> None:
    """The same of an experiment's last sweep, for commands that need none."""
    from workbench.evaluation.sweep_folders import current_journal

    with contextlib.suppress(ConfigError):  # one of another revision says nothing of damage
        tell_damage(current_journal(workspace, name))


def next_lines(experiment: Path, workspace: Path | None, summary: Summary) -> list[str]:
    """The commands that follow a sweep: see its pages, ship what it recommends (nothing, where it recommends none)."""
    given = [str(experiment)] if workspace is None else [str(experiment), "--workspace", str(workspace)]
    found = [f"to open them:    {shlex.join(['workbench', 'ui', *given])}"]
    if summary.recommended is not None:
        emulated = ["--allow-emulated"] if summary.emulated else []
        found.append(f"to ship it:      {shlex.join(['workbench', 'export', *given, '--to', 'bundle', *emulated])}")
    return found
