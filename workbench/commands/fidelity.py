"""`workbench fidelity`: how far the answers of what ships lie from those of other ways to compute the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from workbench.commands.console import print_json, say, tell
from workbench.commands.options import AsJson, Workspace, command_line
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.system.files import write_json_atomically
from workbench.values.system.steps import Steps


def fidelity(
    what: Annotated[
        Path,
        typer.Argument(metavar="EXPERIMENT|BUNDLE", help="experiment file, or folder of a bundle", show_default=False),
    ],
    candidate: Annotated[
        str | None, typer.Option(help="id, JSON file, or baseline; default: the recommended candidate")
    ] = None,
    experiment: Annotated[
        Path | None, typer.Option(help="of a bundle: the file it comes from, for its model and data")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="file of the old platform's answers (NPZ; docs/fidelity.md)")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="folder of the model in PyTorch; default: checkpoint/ beside the ONNX file")
    ] = None,
    split: Annotated[str, typer.Option(help="validation or holdout")] = "holdout",
    samples: Annotated[int | None, typer.Option(min=1, help="only the first so many; default: all")] = None,
    to: Annotated[Path | None, typer.Option(help="JSON file to write")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Compare what ships with float32, PyTorch, today's float model and the old platform, over the same samples."""
    from workbench.api.fidelity import fidelity_of, measure_fidelity
    from workbench.api.opening import journal_of, question_of, recommended_of, summary_of
    from workbench.report.fidelity_text import fidelity_text

    if split not in get_args(Split):
        raise ConfigError(f"{split!r} is no split.", key="--split", hint="Use validation or holdout.")
    is_bundle = what.is_dir()
    if experiment is not None and not is_bundle:
        raise ConfigError("belongs to a bundle.", key="--experiment", hint="Name the experiment alone.")
    if is_bundle and experiment is None:
        found = fidelity_of(what, answers=reference)
    else:
        question = question_of(experiment or what, workspace)
        chosen = ""
        if not is_bundle:
            chosen = candidate or recommended_of(question, summary_of(question, journal_of(question))).id
        with Steps(tell) as steps:
            found = measure_fidelity(
                question,
                chosen,
                bundle=what if is_bundle else None,
                answers=reference,
                checkpoint=checkpoint,
                split=split,  # type: ignore[arg-type]  # checked above
                samples=samples,
                report=steps,
                command=command_line(),
            )
    if to is not None:
        write_json_atomically(to, found.to_json())
    if as_json:
        print_json(found.to_json())
        return
    say(fidelity_text(found))
