"""`workbench report`: what was found, written for those who accept it.

`cli` registers it; heavy libraries are imported inside the command.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.console import say, tell
from workbench.commands.options import Workspace, command_line


class _Language(StrEnum):
    zh = "zh"
    en = "en"


def report(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT|BUNDLE",
            help="experiment file that was swept, or folder of a bundle",
            show_default=False,
        ),
    ],
    to: Annotated[Path, typer.Option(help="report.docx, .html or .md", show_default=False)],
    lang: Annotated[_Language, typer.Option(help="language of the report")] = _Language.zh,
    candidate: Annotated[str | None, typer.Option(help="id; default: the recommended candidate")] = None,
    verdict: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="verdict.json of `workbench load --baseline … --to`"),
    ] = None,
    fidelity: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="outputs of what ships, compared path by path (JSON)"),
    ] = None,
    load: Annotated[
        list[Path] | None, typer.Option(exists=True, help="result of `workbench load --to`, or its folder; repeat")
    ] = None,
    layers: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="what `workbench compare … --json` printed")
    ] = None,
    capacity: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="what `workbench plan-capacity … --json` printed")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="prices (YAML) instead of those of --capacity")
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Write the acceptance report of a sweep or a bundle: goals, precision, performance, cost, risks; zh or en.

    What nobody measured stands in it as not measured; emulated and predicted figures carry their mark.
    """
    from workbench.api.report import Given
    from workbench.api.report import report as run
    from workbench.report.written.drawing import chinese_font

    given = Given(
        verdict=verdict,
        fidelity=fidelity,
        loads=tuple(load or ()),
        layers=layers,
        capacity=capacity,
        prices=prices,
        command=command_line(),
    )
    files = run(subject, to, language=lang.value, candidate=candidate, given=given, workspace=workspace)
    if lang is _Language.zh and chinese_font() is None:
        tell(
            "this machine has no Chinese font: words in the pictures are English. Install one (fonts-noto-cjk).",
            style="yellow",
        )
    more = f", with {len(files) - 1} pictures in {files[1].parent}" if len(files) > 1 else ""
    say(f"{files[0]}{more}")
