"""Arguments that several commands take, and values that typer has no type for: shares and durations, by one rule."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from workbench.values.documents.yaml_reader import parse_seconds
from workbench.values.errors import ConfigError

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
