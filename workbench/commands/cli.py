"""The command line: each command is one door to one module; heavy libraries are imported inside the command."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from workbench import __version__
from workbench.api.opening import find_candidate, journal_of, named_candidate, open_store, opened, summary_of
from workbench.commands import bundle as bundle_commands
from workbench.commands import capacity as capacity_command
from workbench.commands import load as load_command
from workbench.commands import lock as lock_command
from workbench.commands import release as release_commands
from workbench.commands import releases as releases_command
from workbench.commands import serve as serve_command
from workbench.commands import signing as signing_command
from workbench.commands import study as commands
from workbench.commands.console import err, out
from workbench.commands.emulator import emulator
from workbench.commands.guard import GUARDED, guarded
from workbench.commands.opening import next_lines, tell_damage_of_last
from workbench.commands.options import seconds
from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import ConfigError, WorkbenchError
from workbench.values.exit_codes import FAILED, INTERRUPTED, exit_code_of
from workbench.values.system.lifeline import run_tied
from workbench.values.system.scratch import remove_abandoned
from workbench.values.system.stopping import ended_by_signals

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.evaluation.journal_entries import Damage
    from workbench.search.plan import Plan
    from workbench.search.sweep import SweepEnd
    from workbench.values.results import Evaluation, Split

PREPARE, SEARCH, SHIP, STUDY, AROUND = TASKS = ("Prepare", "Search", "Ship", "Study one model", "Around it")
"""What commands are for: the headings of `workbench --help`, in the order in which a user needs them."""

app = typer.Typer(
    name="workbench",
    help="Find the fastest INT8, fusion and serving settings of an ONNX model that keep its accuracy, and ship them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file (YAML)", show_default=False)]
Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="folder of .workbench/ and mlruns/; default: beside experiments/")
]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output on stdout")]


def main() -> None:
    """Run the command line; every error the workbench raises on purpose becomes one message and an exit code.

    The codes stand in `workbench.values.exit_codes`.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    with ended_by_signals():
        remove_abandoned()
        try:
            if len(sys.argv) > 1 and sys.argv[1] in GUARDED:
                guarded(sys.argv[1])
            app()
        except (WorkbenchError, DecodeError) as error:
            said = f"a stored file does not fit this version: {error}" if isinstance(error, DecodeError) else str(error)
            err.print(Text.assemble(("error: ", "bold red"), said), soft_wrap=True)
            raise SystemExit(exit_code_of(error)) from error


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


# --- the main job ------------------------------------------------------------------------------------------------


@app.command(rich_help_panel=SEARCH)
def sweep(
    experiment: ExperimentFile,
    trials: Annotated[int | None, typer.Option(min=1, help="candidates in all; default: the file's budget")] = None,
    timeout: Annotated[str | None, typer.Option(help="stop proposing after 90s, 30m, 2h; default: the file's")] = None,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="start over, or go on with the last sweep")] = False,
    workspace: Workspace = None,
) -> None:
    """Search the space, measure candidates, confirm the front on held-out data, log everything to MLflow."""
    from workbench.api.sweep import sweep as run
    from workbench.api.words import plan_lines
    from workbench.commands.progress import Progress
    from workbench.inputs.experiment import read_experiment
    from workbench.report import lines, table
    from workbench.search.front import is_feasible

    question = read_experiment(experiment, workspace)
    timeout_s = None if timeout is None else seconds(timeout, "--timeout")
    progress = Progress(question, trials or question.trials, out, lambda evaluation: is_feasible(question, evaluation))

    def planned(plan: Plan) -> None:
        out.print("\n".join(plan_lines(plan)), highlight=False, soft_wrap=True)
        progress.begin()

    def damaged(damage: Damage) -> None:
        err.print(f"damaged: {damage.words('this sweep')}", highlight=False, soft_wrap=True, markup=False)

    try:
        with progress:
            found = run(
                question,
                trials=trials,
                timeout_s=timeout_s,
                fresh=fresh,
                on_plan=planned,
                on_stage=progress.stage,
                on_evaluation=progress.evaluated,
                on_message=progress.say,
                on_damage=damaged,
            )
    except KeyboardInterrupt:
        out.print(f"\nStopped; everything measured is kept. Go on with: workbench sweep {experiment}")
        raise SystemExit(INTERRUPTED) from None
    if found.end is not None:
        out.print(_end_words(found.end), highlight=False, soft_wrap=True)
    summary = found.summary
    out.print(table(summary) if out.is_terminal else lines(summary), soft_wrap=not out.is_terminal, markup=False)
    said = [*([found.calibration] if found.calibration else []), *found.links]
    said += next_lines(experiment, workspace, summary)
    out.print("\n".join(said), highlight=False, soft_wrap=True, markup=False)


def _end_words(end: SweepEnd) -> str:
    from workbench.api.words import minutes

    words = {"budget": "the budget is spent", "timeout": "the time is up", "exhausted": "the space is exhausted"}
    return (
        f"{end.new} candidates evaluated, {end.reused} from before, in {minutes(end.search_s)} "
        f"({100 * end.overhead_s / max(end.search_s, 1e-9):.1f} % outside evaluations): {words[end.reason]}.\n"
    )


@app.command(rich_help_panel=SEARCH)
def plan(
    experiment: ExperimentFile,
    trials: Annotated[int | None, typer.Option(min=1, help="candidates in all; default: the file's budget")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Say how large the space is and what a sweep would cost, before any of it is done."""
    from workbench.api.words import plan_lines
    from workbench.search.plan import make_plan
    from workbench.values.documents.canonical import encode

    with opened(experiment, workspace) as (question, bench):
        made = make_plan(question, bench, trials=trials)
    if as_json:
        print(json.dumps(encode(made)))
    else:
        out.print("\n".join(plan_lines(made)), highlight=False, soft_wrap=True)


@app.command(rich_help_panel=SEARCH)
def show(
    experiment: ExperimentFile,
    candidate: Annotated[str | None, typer.Option(help="id (or its first digits): this one in full")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Show what the last sweep found: the front, its groups, the recommendation and why."""
    from workbench.inputs.experiment import read_experiment
    from workbench.report import detail, lines, table, to_json

    question = read_experiment(experiment, workspace)
    journal = journal_of(question)
    summary = summary_of(question, journal)
    if candidate is not None:
        chosen = find_candidate(candidate, journal)
        text = detail(summary, chosen.id)
        print(json.dumps(journal.evaluations()[chosen.id].to_json(), ensure_ascii=False) if as_json else text)
    elif as_json:
        print(json.dumps(to_json(summary), ensure_ascii=False))
    else:
        out.print(table(summary) if out.is_terminal else lines(summary), soft_wrap=not out.is_terminal, markup=False)


@app.command(rich_help_panel=SEARCH)
def evaluate(
    experiment: ExperimentFile,
    candidate: Annotated[str, typer.Option(help="id of a candidate of the last sweep, or a candidate JSON file")],
    holdout: Annotated[bool, typer.Option("--holdout", help="on the holdout split instead of validation")] = False,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate one candidate again, in full and with fresh timing; the sweep's own results stay as they are."""
    from workbench.commands.progress import outcome_words
    from workbench.search.executors import ChildProcess
    from workbench.search.ladder import failed_evaluation
    from workbench.values.errors import CrashError

    with opened(experiment, workspace, scratch=True) as (question, bench), ChildProcess(question, bench) as executor:
        chosen = named_candidate(candidate, question)
        split: Split = "holdout" if holdout else "validation"
        try:
            result = executor.evaluate(chosen, split=split, gates=False)
        except CrashError as crash:
            result = failed_evaluation(question, chosen, bench, split, crash)
        result = _with_kept_log(result, question.workspace)
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False))
    else:
        out.print(f"{chosen.short_id}: {outcome_words(result)}", highlight=False, soft_wrap=True, markup=False)
    if result.failure is not None:
        err.print(f"Its log: {result.failure.log_path}", highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(FAILED)


def _with_kept_log(result: Evaluation, workspace: Path) -> Evaluation:
    """Copies the log of what failed to where it stays: the journal it was written into is about to go away."""
    if result.failure is None or result.failure.log_path is None:
        return result
    kept = workspace / ".workbench" / "logs" / f"{result.candidate.id}.log"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(result.failure.log_path, kept)
    return replace(result, failure=replace(result.failure, log_path=str(kept)))


@app.command(rich_help_panel=SEARCH)
def ui(
    experiment: ExperimentFile,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1024, max=65535)] = 5000,
    workspace: Workspace = None,
) -> None:
    """Open MLflow's UI on this workspace's store; ends with Ctrl-C."""
    from workbench.inputs.experiment import read_experiment
    from workbench.tracking import links_of, ui_command

    question = read_experiment(experiment, workspace)
    command, environment = ui_command(question.workspace, host, port)
    tell_damage_of_last(question.workspace, question.name)
    out.print("\n".join(links_of(question.workspace, question.name, host, port)), highlight=False, soft_wrap=True)
    raise SystemExit(run_tied(command, {**os.environ, **environment}))


# --- before the sweep --------------------------------------------------------------------------------------------


@app.command(rich_help_panel=PREPARE)
def doctor(
    workspace: Annotated[Path, typer.Option(help="folder whose disk and stores are checked")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Say what this machine can do, and what is missing for the other targets; exit code 1 when it cannot work."""
    from workbench.commands.doctor import examine, exit_code, findings_json, findings_table

    findings = examine(workspace)
    if as_json:
        print(json.dumps(findings_json(findings), ensure_ascii=False))
    else:
        out.print(findings_table(findings))
    raise SystemExit(exit_code(findings))


@app.command(rich_help_panel=PREPARE)
def inspect(
    model: Annotated[Path, typer.Argument(help="ONNX file", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="onnxruntime, openvino or ascend910b3; default: all of them")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show inputs, operators, quantizable layers, and patterns that will hurt, each with what to do."""
    from workbench.study.inspection import inspect_model, inspection_json, inspection_table

    found = inspect_model(model, target)
    if as_json:
        print(json.dumps(inspection_json(found), ensure_ascii=False))
    else:
        out.print(inspection_table(found))


@app.command(rich_help_panel=PREPARE)
def space(
    file: Annotated[Path, typer.Argument(help="search space (YAML)", show_default=False)],
) -> None:
    """Explain every dimension of a search space: what it does, when it applies, what excludes it."""
    from workbench.space.reader import read_space
    from workbench.space.space import explain, size

    read = read_space(file)
    out.print(f"{file}, for target {', '.join(read.targets)}\n", highlight=False, markup=False)
    for name, choices, when, meaning, excludes, source in explain(read):
        out.print(f"[bold]{escape(name)}[/bold]  {escape(choices)}", highlight=False, soft_wrap=True)
        notes = [meaning, f"applies when {when}" if when != "always" else "", excludes and f"excludes: {excludes}"]
        for note in [*notes, source and f"source: {source}"]:
            if note:
                out.print(Padding(Text(note), (0, 0, 0, 4)))
    out.print("the first choice is the default\n")
    for rule in read.forbid:
        values = ", ".join(f"{name} in {list(choices)}" for name, choices in rule.values.items())
        out.print(f"never: {values} ({rule.reason})", highlight=False, markup=False)
    counted = size(read)
    bound = "" if counted.exact else "at most "
    out.print(f"{bound}{counted.candidates} candidates, {counted.compiles} distinct compiles", highlight=False)


@app.command(rich_help_panel=PREPARE)
def init(
    model: Annotated[Path, typer.Argument(help="ONNX file", show_default=False)],
    data: Annotated[list[Path], typer.Option(help="data files: CSV, JSONL or NPZ; repeat for several")],
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json of the model")] = None,
    labels: Annotated[Path | None, typer.Option(help="labels.json of the model")] = None,
    to: Annotated[Path, typer.Option(help="workspace to write into")] = Path(),
    name: Annotated[str | None, typer.Option(help="name of the experiment; default: the model's")] = None,
) -> None:
    """Write a commented experiment, dataset manifest and search space for a model; overwrites nothing."""
    from workbench.commands.init import initialize

    for written in initialize(model, data, to, tokenizer=tokenizer, labels=labels, name=name):
        out.print(f"wrote {written}", highlight=False, soft_wrap=True)


@app.command(rich_help_panel=PREPARE)
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="local transformers checkpoint folder", show_default=False)],
    to: Annotated[Path, typer.Option(help="ONNX file to write")],
    samples: Annotated[Path, typer.Option(help="CSV or JSONL with real texts for the proof")],
    task: Annotated[str, typer.Option(help="classification or ner")] = "classification",
    column: Annotated[str, typer.Option(help="column of the texts")] = "text",
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json; default: the checkpoint's")] = None,
    opset: Annotated[int, typer.Option(min=11, max=20)] = 17,
    max_length: Annotated[int, typer.Option(min=8)] = 128,
    cosine: Annotated[float, typer.Option(help="least cosine")] = 0.999,
    max_abs: Annotated[float, typer.Option(help="largest absolute error")] = 1e-3,
    mae: Annotated[float, typer.Option(help="largest mean absolute error")] = 1e-4,
    top1: Annotated[float, typer.Option(help="least share of equal answers")] = 1.0,
) -> None:
    """Convert PyTorch to ONNX and prove that both give the same answers; exit code 1 when they do not."""
    from workbench.graph.export import ExportLimits
    from workbench.graph.export import convert as run
    from workbench.inputs.dataset import read_column

    if task not in ("classification", "ner"):
        raise ConfigError(f"{task!r} is no task.", key="--task", hint="Use classification or ner.")
    report = run(
        checkpoint=checkpoint,
        task=task,  # type: ignore[arg-type]  # checked above
        to=to,
        texts=read_column(samples, column)[:48],
        tokenizer=tokenizer,
        max_length=max_length,
        opset=opset,
        limits=ExportLimits(cosine=cosine, max_abs_error=max_abs, mean_abs_error=mae, top1_agreement=top1),
    )
    table = Table("measure", "found", "limit", "")
    for verdict in report.verdicts:
        sign = ">=" if verdict.at_least else "<="
        table.add_row(
            verdict.name, f"{verdict.value:.3g}", f"{sign} {verdict.limit:g}", "ok" if verdict.passed else "FAILED"
        )
    out.print(table)
    out.print(f"{report.model} (opset {report.opset}), compared on {report.samples} samples", highlight=False)
    if not report.passed:
        raise SystemExit(FAILED)


@app.command(rich_help_panel=PREPARE)
def example(
    name: Annotated[str, typer.Argument(help="loan-intent-mini, loan-ner-mini, loan-intent-small or loan-ner-small")],
    workspace: Annotated[Path, typer.Option(help="folder of .workbench/")] = Path(),
) -> None:
    """Build an example: texts, tokenizer and a BERT trained on this machine, under .workbench/examples/NAME."""
    from workbench.commands.example.build import build_example

    folder = (workspace / ".workbench" / "examples" / name).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    build_example(name, folder, lambda line: out.print(line, highlight=False, soft_wrap=True))  # type: ignore[arg-type]  # checked there


@app.command(rich_help_panel=AROUND)
def cache(
    workspace: Annotated[Path, typer.Option(help="folder of .workbench/")] = Path(),
    prune: Annotated[bool, typer.Option("--prune", help="delete entries, least recently used first")] = False,
    keep: Annotated[float, typer.Option(min=0, help="with --prune: keep at most so many GB")] = 0.0,
    older_than: Annotated[str | None, typer.Option(help="with --prune: only what was unused for 12h, 90m")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="with --prune: only this kind; repeat for several")] = None,
) -> None:
    """Show what the store holds, and prune it. Sweeps (journals) are never touched."""
    with open_store(workspace) as store:
        if prune:
            age = None if older_than is None else seconds(older_than, "--older-than")
            done = store.prune(keep_bytes=int(keep * 1e9), older_than_s=age, kinds=kind)
            busy = f"; {done.in_use} in use were left" if done.in_use else ""
            out.print(f"removed {done.removed} entries, {done.freed_bytes / 1e6:.1f} MB{busy}", highlight=False)
        table = Table("kind", "entries", "MB")
        for usage in store.usage():
            table.add_row(usage.kind, str(usage.entries), f"{usage.size_bytes / 1e6:.1f}")
    out.print(table)


# --- the commands that stand in modules of their own ------------------------------------------------------------------

for task, command in (
    (STUDY, commands.calibrate),
    (STUDY, commands.sensitivity),
    (STUDY, commands.compare),
    (STUDY, commands.profile),
    (SHIP, bundle_commands.export),
    (SHIP, bundle_commands.verify),
    (SHIP, serve_command.serve),
    (SHIP, serve_command.api_key),
    (SHIP, load_command.load),
    (SHIP, capacity_command.plan_capacity),
    (SHIP, release_commands.promote),
    (SHIP, release_commands.rollback),
    (SHIP, releases_command.releases),
    (SHIP, signing_command.sign),
    (SHIP, signing_command.keygen),
    (SHIP, lock_command.lock),
):
    app.command(rich_help_panel=task)(command)
app.add_typer(emulator, rich_help_panel=AROUND)
app.registered_commands.sort(key=lambda known: TASKS.index(known.rich_help_panel or AROUND))
