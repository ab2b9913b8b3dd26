"""The commands of a search: `sweep`, `plan`, `show`, `evaluate`, `ui`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import (
    AsJson,
    ExperimentFile,
    Verbose,
    Workspace,
    command_line,
    next_lines,
    seconds,
    tell_damage_of_last,
)
from workbench.values.documents.yaml_reader import is_pipeline
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED, INTERRUPTED
from workbench.values.system.files import write_text_atomically
from workbench.values.system.lifeline import run_tied
from workbench.values.system.steps import Steps

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.report import Summary
    from workbench.search.plan import Plan
    from workbench.search.sweep import SweepEnd
    from workbench.values.measurement import Split


def sweep(
    experiment: ExperimentFile,
    trials: Annotated[int | None, typer.Option(min=1, help="candidates in all; default: the file's budget")] = None,
    timeout: Annotated[
        str | None,
        typer.Option(help="for all of it, confirmation and loads included: 90s, 30m, 2h; default: the file's"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="start over, or go on with the last sweep")] = False,
    store: Annotated[
        str | None, typer.Option(help="folder or s3://bucket/prefix that several machines share; or WORKBENCH_STORE")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Ray cluster: HOST:PORT of its head, auto or a YAML file; default: this machine"),
    ] = None,
    verbose: Verbose = False,
    workspace: Workspace = None,
) -> None:
    """Search the space, measure candidates, confirm the front on held-out data, log everything to MLflow."""
    if is_pipeline(experiment):
        from workbench.commands import pipeline

        given = {"--trials": trials, "--store": store, "--cluster": cluster}
        _refuse_for_pipelines(experiment, given)
        limit_s = None if timeout is None else seconds(timeout, "--timeout")
        pipeline.sweep(experiment, workspace, limit_s, fresh=fresh)
        return
    from workbench.api.sweep import plan_lines, planned_words
    from workbench.api.sweep import sweep as run
    from workbench.commands.progress import Progress
    from workbench.inputs.experiment import read_experiment
    from workbench.search.plan import START_S

    question = read_experiment(experiment, workspace)
    timeout_s = None if timeout is None else seconds(timeout, "--timeout")
    progress = Progress(question, trials or question.trials, out, limit_s=timeout_s)

    def planned(plan: Plan) -> None:
        say("\n".join(plan_lines(plan)))
        progress.begin(plan.candidate_s, max(0.0, plan.whole_s - plan.total_s - START_S))

    try:
        with progress:
            found = run(
                question,
                trials=trials,
                timeout_s=timeout_s,
                fresh=fresh,
                store=store,
                cluster=cluster,
                command=command_line(),
                on_plan=planned,
                on_trying=progress.trying,
                on_look=progress.looked,
                on_stage=progress.stage,
                on_resume=progress.resumed,
                on_evaluation=progress.evaluated,
                on_message=progress.say,
                on_damage=lambda damage: tell(f"damaged: {damage.words('this sweep')}"),
            )
    except KeyboardInterrupt:
        flight = progress.in_flight()
        say("\nStopped; everything measured is kept." + (f" {flight}" if flight else ""))
        say(f"Go on with: workbench sweep {experiment}")
        raise SystemExit(INTERRUPTED) from None
    if found.end is not None:
        say(_end_words(found.end))
    summary = found.summary
    _print_report(summary, experiment, workspace, verbose=verbose)
    said = [found.calibration] if found.calibration else []
    if verbose:
        said += found.links
        if found.plan is not None and found.plan.whole_s:
            said.append(planned_words(found.plan, found.took_s))
        said += next_lines(experiment, workspace, summary)
    if said:
        say("\n".join(said))


def _refuse_for_pipelines(file: Path, given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            hint = f"Each stage's own sweep takes it: {file.stem}'s stages lie below .workbench/pipelines/."
            raise ConfigError("is for the experiment of one model.", key=option, hint=hint)


def _print_report(summary: Summary, experiment: Path, workspace: Path | None, *, verbose: bool) -> None:
    """The verdict, the front and what to type next; with -v everything that is known."""
    from workbench.report import report_lines
    from workbench.report.brief import brief_lines
    from workbench.report.table import WIDTH

    width = out.width if out.is_terminal else WIDTH
    brief = brief_lines(summary, next_lines(experiment, workspace, summary))
    for text, style in report_lines(summary, width) if verbose else brief:
        out.print(text, style=style or None, soft_wrap=not out.is_terminal, markup=False, highlight=False)


def _end_words(end: SweepEnd) -> str:
    from workbench.commands.progress import interrupted_words
    from workbench.values.system.steps import minutes

    words = {
        "budget": "the budget is spent",
        "timeout": "the search's time is up",
        "exhausted": "the space is exhausted",
    }
    flight = "" if end.interrupted is None else interrupted_words(end.interrupted.candidate, end.interrupted.stage)
    return (
        f"{end.new} candidates evaluated, {end.reused} from before, in {minutes(end.search_s)} "
        f"({100 * end.overhead_s / max(end.search_s, 1e-9):.1f} % outside evaluations): {words[end.reason]}. {flight}"
    ).rstrip() + "\n"


def plan(
    experiment: ExperimentFile,
    trials: Annotated[int | None, typer.Option(min=1, help="candidates in all; default: the file's budget")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Say how large the space is and what a sweep would cost, before any of it is done."""
    if is_pipeline(experiment):
        from workbench.commands import pipeline

        _refuse_for_pipelines(experiment, {"--trials": trials, "--json": as_json or None})
        pipeline.plan(experiment, workspace)
        return
    from workbench.api.opening import opened
    from workbench.api.sweep import plan_lines
    from workbench.search.executors.worker_pool import cards_of
    from workbench.search.plan import make_plan
    from workbench.values.documents.canonical import encode

    tell(f"reading {experiment} and its model, then timing the float model")
    with opened(experiment, workspace) as (question, bench):
        made = make_plan(question, bench, trials=trials, cards=max(1, len(cards_of(bench))))
    if as_json:
        print_json(encode(made))
    else:
        say("\n".join(plan_lines(made)))


def show(
    experiment: ExperimentFile,
    candidate: Annotated[str | None, typer.Option(help="id (or its first digits): this one in full")] = None,
    html: Annotated[Path | None, typer.Option(help="also draw the front into this page, one file", dir_okay=False)] = (
        None
    ),
    verbose: Verbose = False,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Show what the last sweep found: what is recommended, with its figures, and the front; -v tells why."""
    if is_pipeline(experiment):
        from workbench.commands import pipeline

        _refuse_for_pipelines(experiment, {"--candidate": candidate, "--html": html})
        pipeline.show(experiment, workspace, as_json=as_json)
        return
    from workbench.api.opening import advice_of, find_candidate, journal_of, summary_of
    from workbench.graph.structure import layers_inside
    from workbench.inputs.experiment import read_experiment
    from workbench.report import detail, to_json

    question = read_experiment(experiment, workspace)
    journal = journal_of(question)
    summary = summary_of(question, journal)
    if candidate is not None:
        chosen = find_candidate(candidate, journal)
        text = detail(summary, chosen.id)
        print(json.dumps(journal.evaluations()[chosen.id].to_json(), ensure_ascii=False) if as_json else text)
    elif as_json:
        print_json(to_json(summary) | {"advice": advice_of(question, summary, journal)})
    else:
        _print_report(summary, experiment, workspace, verbose=verbose)
        if html is not None:
            from workbench.report.page import pareto_html

            write_text_atomically(html, pareto_html(summary))
            say(f"wrote {html}")
        if not verbose:
            return
        said = advice_of(question, summary, journal)
        say("\n".join(["", "On the search space:", *(f"  {one}" for one in said)]))
        if not question.model.is_language_model and (inside := layers_inside(question.model)):
            say(f"Mind: {inside}")


def evaluate(
    experiment: ExperimentFile,
    candidate: Annotated[str, typer.Option(help="id of a candidate of the last sweep, or a candidate JSON file")],
    holdout: Annotated[bool, typer.Option("--holdout", help="on the holdout split instead of validation")] = False,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate one candidate again, in full and with fresh timing; the sweep's own results stay as they are."""
    from workbench.api.opening import named_candidate, opened
    from workbench.commands.progress import outcome_words
    from workbench.search.executors.child import ChildProcess
    from workbench.search.pipeline import failed_evaluation
    from workbench.search.stages.request import Task
    from workbench.values.errors import CrashError

    with (
        Steps(tell) as steps,
        opened(experiment, workspace, scratch=True, report=lambda _, stage: steps(stage)) as (question, bench),
        ChildProcess(question, bench) as executor,
    ):
        chosen = named_candidate(candidate, question)
        split: Split = "holdout" if holdout else "validation"
        try:
            result = executor.evaluate(Task(candidate=chosen, split=split, gates=False))
        except CrashError as crash:
            result = failed_evaluation(question, chosen, bench, split, crash)
        if result.failure is not None and result.failure.log_path is not None:
            # to where it stays: the journal it was written into is about to go away
            kept = question.workspace / ".workbench" / "logs" / f"{result.candidate.id}.log"
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(result.failure.log_path, kept)
            result = replace(result, failure=replace(result.failure, log_path=str(kept)))
    if as_json:
        print_json(result.to_json())
    else:
        say(f"{chosen.short_id}: {outcome_words(result)}")
    if result.failure is not None:
        tell(f"Its log: {result.failure.log_path}")
        raise SystemExit(FAILED)


def log(experiment: ExperimentFile, workspace: Workspace = None) -> None:
    """Write into MLflow what it lacks of the last sweep, from the journal: after a server was away, or to a new one.

    Nothing is measured, and nothing is written twice.
    """
    from workbench.api.sweep import log as run

    say("\n".join(run(experiment, workspace=workspace)))


def ui(
    experiment: ExperimentFile,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1024, max=65535)] = 5000,
    workspace: Workspace = None,
) -> None:
    """Open MLflow's UI on this workspace's store, until Ctrl-C; of a team's server (MLFLOW_TRACKING_URI), its links."""
    from workbench.inputs.experiment import read_experiment
    from workbench.tracking import links_of, place_of, ui_command

    question = read_experiment(experiment, workspace)
    tell_damage_of_last(question.workspace, question.name)
    place = place_of(question.workspace)
    if place.server:
        found = links_of(question.workspace, question.name) or [f"nothing of {question.name} was logged yet"]
        said = [f"MLflow's UI is the server's own: {place.name}", *found]
        say("\n".join(said))
        return
    command, environment = ui_command(question.workspace, host, port)
    say("\n".join(links_of(question.workspace, question.name, host, port)))
    raise SystemExit(run_tied(command, {**os.environ, **environment}))
