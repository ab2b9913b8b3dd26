"""`workbench releases`: the log of a model's exports, promotions and rollbacks, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.options import AsJson
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED

_SHORT = 12


def releases(
    name: Annotated[str, typer.Argument(help="name of the experiment whose releases are meant", show_default=False)],
    workspace: Annotated[Path, typer.Option("--workspace", help="folder of mlruns/")] = Path(),
    contains: Annotated[
        str | None, typer.Option(help="sha256 of a line, kept elsewhere: the log must still hold that line")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Who released what and when, and whether the log is as it was written; exit code 1 when it is not.

    Keep the digest of the last line elsewhere (a ticket, a mail): with --contains it proves later that nothing up to
    there was changed, not even by someone who can write to log and registry.
    """
    from workbench.tracking.champion import open_versions
    from workbench.tracking.releases import shown

    with open_versions(workspace, name, create=False, finish=False) as versions:
        log, file = versions.releases(), versions.log_name
    problems = list(log.problems)
    if contains is not None:
        wanted = contains.strip().lower()
        if len(wanted) != 64 or not all(character in "0123456789abcdef" for character in wanted):
            raise ConfigError(f"{contains!r} is no sha256.", key="--contains", hint="Write its 64 hexadecimal digits.")
        if all(line.sha256 != wanted for line in log.lines):
            problems.append(f"no line has sha256 {wanted}: it was changed or removed")
    if as_json:
        body = {
            "version": 1,
            "name": name,
            "file": file,
            "whole": not problems,
            "problems": problems,
            "unmarked": log.unmarked,
            "overtaken": log.overtaken,
        }
        print_json({**body, "lines": shown(log.lines)})
    else:
        if log.lines:
            say("\n".join(_rows(shown(log.lines))))
        end = f"sha256 of the last line: {log.lines[-1].sha256}" if log.lines else f"{name}: nothing was released yet"
        say(end)
        if log.unmarked == 1 and not problems:
            tell("the last line is not in the registry yet: a command was killed, or somebody added it")
        for problem in problems:
            tell(f"DAMAGED  {file}: {problem}", style="bold red")
    if problems:
        raise SystemExit(FAILED)


def _rows(lines: list[dict[str, Any]]) -> list[str]:
    """One line each, in columns; no column is ever cut, so a narrow terminal folds the lines."""
    rows = [["line", "when (UTC)", "what", "version", "champion", "manifest", "who", "verdict"]]
    for line in lines:
        said = line.get("release", {})
        before, after = said.get("champion_before"), said.get("champion_after")
        rows.append(
            [
                *(_plain(line.get("number")), _plain(line.get("at"))[:19], _plain(said.get("act"))),
                _number(said.get("version")),
                f"{_number(before)} -> {_number(after)}" if before != after else _number(after),
                *(_plain(said.get("manifest_sha256"))[:_SHORT], _plain(line.get("by"))),
                _plain(" ".join(filter(None, (said.get("verdict"), said.get("reason"))))),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _number(value: object) -> str:
    return "none" if value is None else _plain(value)


def _plain(value: object) -> str:
    """A line may have been written by anybody: nothing in it may command the terminal."""
    return "".join(c if c.isprintable() else "?" for c in str("" if value is None else value))
