"""The commands before a sweep: `doctor`, `inspect`, `space`, `init`, `convert`, `example`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, print_json, say
from workbench.commands.options import AsJson, Constants, existing_file, pairs
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED


def doctor(
    workspace: Annotated[Path, typer.Option(help="folder whose disk and stores are checked")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Say what this machine can do, and what is missing for the other targets; exit code 1 when it cannot work."""
    from workbench.commands.doctor import examine, exit_code, findings_json, findings_table

    findings = examine(workspace)
    if as_json:
        print_json(findings_json(findings))
    else:
        out.print(findings_table(findings))
    raise SystemExit(exit_code(findings))


def inspect(
    model: Annotated[Path, typer.Argument(help="ONNX file")],
    target: Annotated[
        str | None, typer.Option(help="a target, as `workbench doctor` lists them; default: all of them")
    ] = None,
    constant: Constants = None,
    data: Annotated[Path | None, typer.Option(help="dataset manifest whose inputs: and axes: are meant")] = None,
    as_json: AsJson = False,
) -> None:
    """Show inputs, operators, quantizable layers, and patterns that will hurt, each with what to do."""
    from workbench.study.inspection import inspect_model, inspection_table
    from workbench.values.documents.canonical import encode

    found = inspect_model(model, target, manifest=data, constants=constant or ())
    if as_json:
        print_json({"version": 1, **encode(found)})
    else:
        out.print(inspection_table(found))


def space(file: Annotated[Path, typer.Argument(help="search space (YAML)")]) -> None:
    """Explain every dimension of a search space: what it does, when it applies, what excludes it."""
    from workbench.space.reader import read_space
    from workbench.space.served_bins import to_service
    from workbench.space.space import BINS, explain, size

    read = read_space(file)
    say(f"{file}, for target {', '.join(read.targets)}\n")
    for name, choices, when, meaning, excludes, source in explain(read):
        out.print(f"[bold]{escape(name)}[/bold]  {escape(choices)}", highlight=False, soft_wrap=True)
        notes = [meaning, f"applies when {when}" if when != "always" else "", excludes and f"excludes: {excludes}"]
        for note in [*notes, source and f"source: {source}"]:
            if note:
                out.print(Padding(Text(note), (0, 0, 0, 4)))
    say("the first choice is the default\n")
    for rule in read.forbid:
        values = ", ".join(f"{name} in {list(choices)}" for name, choices in rule.values.items())
        say(f"never: {values} ({rule.reason})")
    counted = size(read)
    bound = "" if counted.exact else "at most "
    say(f"{bound}{counted.candidates} candidates, {counted.compiles} distinct compiles")
    served = to_service(read, ())
    if served is not read:
        say(
            f"where the experiment has a service, {BINS} is a choice of the service, and {bound}"
            f"{size(served).candidates} candidates are left: nothing is compiled for padded lengths"
        )


def init(
    model: Annotated[Path, typer.Argument(help="ONNX file, or the folder of a language model")],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="data files: CSV, JSONL, NPZ, prompts and texts; repeat for several; or loader.py:function"),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json of the model")] = None,
    labels: Annotated[Path | None, typer.Option(help="labels.json of the model")] = None,
    to: Annotated[Path, typer.Option(help="workspace to write into")] = Path(),
    name: Annotated[str | None, typer.Option(help="name of the experiment; default: the model's")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="what is to execute it: one, several (a,b), or all; default: ONNX Runtime")
    ] = None,
    constant: Annotated[
        list[str] | None, typer.Option(help="INPUT=NUMBER for an input that is always the same; repeat for several")
    ] = None,
    output: Annotated[
        list[str] | None, typer.Option(help="OUTPUT=MEANING where it cannot be inferred; repeat for several")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="file.py:function, or NAME:OPTION=VALUE,… of a library; decides the accuracy")
    ] = None,
    cfg: Annotated[
        list[Path] | None,
        existing_file("configuration of the target's quantizer (.cfg) to try as a candidate; repeat for several"),
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="the next model of a pipeline that begins with MODEL; repeat"),
    ] = None,
    loader_template: Annotated[
        Path | None, typer.Option(help="write a loader.py to be filled in for data of any other kind, and nothing else")
    ] = None,
) -> None:
    """Write a commented experiment, dataset manifest and search space for a model; overwrites nothing."""
    if loader_template is not None:
        from workbench.commands.init.files import write_template
        from workbench.graph.door import open_foreign

        write_template(open_foreign(model), loader_template)
        say(f"wrote {loader_template}\nfill it in, then:")
        say(f"  workbench init {model} --data {loader_template}:load")
        return
    if not data:
        hint = "Give --data train.npz --data valid.npz; or --loader-template loader.py for a loader to be filled in."
        raise ConfigError("nothing to calibrate and judge with.", key="--data", hint=hint)
    if pipeline:
        from workbench.commands.init.pipeline import initialize_pipeline

        given = {"--tokenizer": tokenizer, "--labels": labels, "--metric": metric, "--constant": constant}
        for key, value in {**given, "--output": output, "--cfg": cfg}.items():
            if value:
                raise ConfigError("is for one model.", key=key, hint="Write it into the pipeline's files.")
        started = initialize_pipeline([model, *pipeline], data, to, name=name, targets=target or ())
    elif model.is_dir():
        from workbench.commands.init.language import initialize_language

        given = {"--tokenizer": tokenizer, "--labels": labels, "--metric": metric}
        for key, value in {**given, "--constant": constant, "--output": output, "--cfg": cfg}.items():
            if value:
                raise ConfigError("means nothing for a language model.", key=key, hint="Leave it out.")
        started = initialize_language(model, data, to, name=name, targets=target or ())
    else:
        from workbench.commands.init.files import initialize

        started = initialize(
            model,
            data,
            to,
            name=name,
            targets=target or (),
            tokenizer=tokenizer,
            labels=labels,
            constants=pairs(constant or (), "--constant"),
            outputs=pairs(output or (), "--output"),
            metric=metric,
            cfg=tuple(cfg or ()),
        )
    written = [f"wrote {file}" for file in started.files]
    say("\n".join([*started.notes, *written, "next:", *(f"  {command}" for command in started.commands)]))


def convert(
    checkpoint: Annotated[Path, typer.Argument(help="local transformers checkpoint folder")],
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
    from workbench.graph.export import convert as run
    from workbench.graph.export import is_error
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
        limits={"cosine": cosine, "max_abs_error": max_abs, "mean_abs_error": mae, "top1_agreement": top1},
    )
    table = Table("measure", "found", "limit", "")
    for name, value in report.measured.items():
        limit = f"{'<=' if is_error(name) else '>='} {report.limits[name]:g}"
        table.add_row(name, f"{value:.3g}", limit, "FAILED" if name in report.failed else "ok")
    out.print(table)
    say(f"{report.model} (opset {report.opset}), compared on {report.samples} samples")
    if report.failed:
        raise SystemExit(FAILED)


def example(
    name: Annotated[str, typer.Argument(help="loan-intent-mini, loan-ner-mini, loan-intent-small or loan-ner-small")],
    workspace: Annotated[Path, typer.Option(help="folder of .workbench/")] = Path(),
) -> None:
    """Build an example: texts, tokenizer and a BERT trained on this machine, under .workbench/examples/NAME."""
    from workbench.commands.example.build import build_example

    folder = (workspace / ".workbench" / "examples" / name).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    build_example(name, folder, say)
    if not (workspace / "experiments" / f"{name}.yaml").exists():  # it stands in the repository
        data = sorted(folder.glob("calibration.*")) + sorted(folder.glob("validation.*"))
        given = [f"--data {file}" for file in data] + [f"--{n} {folder / n}.json" for n in ("tokenizer", "labels")]
        say(f"next:\n  workbench init {folder / 'model.onnx'} {' '.join(given)} --to {workspace}")
