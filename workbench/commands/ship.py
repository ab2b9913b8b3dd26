"""What ships: `export` and `verify` of a bundle, `agreement` of its outputs, and the acceptance `report`."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from workbench.commands.console import note, out, print_json, say, tell
from workbench.commands.options import (
    ApiKeyEnv,
    AsJson,
    ExperimentFile,
    SigningKey,
    TrustedKeysFile,
    Workspace,
    command_line,
    existing_file,
    one_of,
    tell_damage_of_last,
)
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.yaml_reader import is_pipeline
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.exit_codes import FAILED
from workbench.values.measurement import Split
from workbench.values.system.files import write_json_atomically
from workbench.values.system.lifeline import run_tied
from workbench.values.system.steps import Steps


def export(
    experiment: ExperimentFile,
    to: Annotated[Path, typer.Option(help="folder to create")],
    candidate: Annotated[
        str | None, typer.Option(help="id, JSON file, or baseline; default: the recommended candidate")
    ] = None,
    allow_emulated: Annotated[bool, typer.Option(help="permit a result that was not measured on a device")] = False,
    register: Annotated[bool, typer.Option(help="make it a version in MLflow's Model Registry")] = True,
    sign: SigningKey = None,
    lock: Annotated[
        Path | None,
        typer.Option(help="requirements with hashes of the wheels that serving installs; default: the shipped ones"),
    ] = None,
    base_image: Annotated[str, typer.Option(help="that the Dockerfile starts from, by digest: NAME@sha256:…")] = "",
    workspace: Workspace = None,
) -> None:
    """Write the production bundle of the recommended candidate, or of the one named, and verify it."""
    from workbench.api.bundle import export as run
    from workbench.api.opening import read_experiment
    from workbench.bundle.opened import read_bundle
    from workbench.bundle.requirements import read_lock
    from workbench.bundle.signing import read_secret_key
    from workbench.shipping.deployment import DeploymentSettings, unpinned

    deployment = DeploymentSettings(lock=None if lock is None else read_lock(lock), base_image=base_image)
    secret = None if sign is None else read_secret_key(sign)  # a wrong file costs no work
    if is_pipeline(experiment):
        from workbench.commands import pipeline

        if candidate is not None or lock is not None or base_image:
            raise ConfigError("is for the experiment of one model.", key="--candidate, --lock, --base-image")
        pipeline.export(experiment, to, workspace, allow_emulated=allow_emulated, secret=secret)
        return
    question = read_experiment(experiment, workspace)
    tell_damage_of_last(question.workspace, question.name)
    done = run(
        question,
        to,
        candidate=candidate,
        allow_emulated=allow_emulated,
        secret=secret,
        settings=deployment,
        register=register,
    )
    say(f"{to}: {done.candidate.short_id}, verified: {done.report.summary}")
    manifest = read_bundle(to).manifest
    if manifest.unconfirmed:
        note("not confirmed", manifest.unconfirmed)
    for sentence in unpinned(manifest, deployment):
        note("note", f"{sentence}.", "bold")
    if done.version is not None:
        say(
            f"registered as {done.version.name} version {done.version.number}. To make it the champion: workbench "
            f"promote {to} --against champion (none for the first) --workspace {question.workspace}"
        )


def verify(
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`")],
    replay: Annotated[bool, typer.Option(help="load the model and replay the golden samples")] = True,
    trusted_keys: TrustedKeysFile = None,
    url: Annotated[
        str | None,
        typer.Option(help="of a language model: ask this server, which speaks OpenAI's API, instead of the processor"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="the server's name for it; default: the only one it has")] = None,
    api_key_env: ApiKeyEnv = "WORKBENCH_API_KEY",
) -> None:
    """Check a bundle: its signature where one is required, every byte, then its golden samples on this machine."""
    from workbench.bundle.pipeline import is_pipeline_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.bundle.verify import verify_bundle

    if url is None and model is not None:
        raise ConfigError("means something beside --url alone.", key="--model")
    if is_pipeline_bundle(bundle):
        from workbench.commands import pipeline

        pipeline.verify(bundle, trusted_keys_of(trusted_keys), replay=replay)
        return
    report = verify_bundle(bundle, replay=replay and url is None, trusted=trusted_keys_of(trusted_keys))
    for warning in report.warnings:
        note("warning", warning)
    say(f"{bundle}: {report.summary}")
    if url is not None:
        from workbench.api.llm import verify_served

        found = verify_served(bundle, url, model=model, api_key_env=api_key_env)
        say(f"{url}: {found.words}")
        for fault in found.faults:
            note("fault", fault, "bold red")
        if found.faults:
            raise SystemExit(FAILED)


def agreement(
    what: Annotated[
        Path,
        typer.Argument(metavar="EXPERIMENT|BUNDLE", help="experiment file, or folder of a bundle"),
    ],
    candidate: Annotated[
        str | None, typer.Option(help="id, JSON file, or baseline; default: the recommended candidate")
    ] = None,
    experiment: Annotated[
        Path | None, typer.Option(help="of a bundle: the file it comes from, for its model and data")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="file of the old platform's answers (NPZ; docs/agreement.md)")
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
    from workbench.api.opening import journal_of, named_candidate, opened, read_experiment, recommended_of, summary_of
    from workbench.bundle.golden import bundle_agreement
    from workbench.bundle.opened import read_bundle
    from workbench.evaluation.sweep_folders import exclusive
    from workbench.report.written.files import on_terminal
    from workbench.report.written.precision import agreement as written
    from workbench.shipping.agreement.compared import Asked
    from workbench.shipping.agreement.measure import agreement_of_bundle, agreement_of_candidate
    from workbench.shipping.handover import evaluations_of, service_settings

    chosen_split: Split = one_of(split, Split, "--split")
    is_bundle = what.is_dir()
    if experiment is not None and not is_bundle:
        raise ConfigError("belongs to a bundle.", key="--experiment", hint="Name the experiment alone.")
    if is_bundle and experiment is None:
        if reference is not None:
            hint = "Name the experiment that the bundle comes from: --experiment FILE."
            raise ConfigError("answers samples, which a bundle does not hold.", key="--reference", hint=hint)
        kept = bundle_agreement(read_bundle(what))
        if kept is None:
            rule = "says nothing of its agreement: nobody measured it before it was exported."
            hint = "Measure it now: workbench agreement BUNDLE --experiment FILE."
            raise ConfigError(rule, file=what, hint=hint)
        found = kept
    else:
        question = read_experiment(experiment or what, workspace)
        if candidate is None and not is_bundle:
            candidate = recommended_of(question, summary_of(question, journal_of(question))).id
        with Steps(tell) as steps, opened(question) as (_, bench):
            asked = Asked(split=chosen_split, samples=samples, answers=reference, checkpoint=checkpoint, report=steps)
            if is_bundle:
                found = replace(agreement_of_bundle(question, read_bundle(what), bench, asked), command=command_line())
            else:
                chosen = named_candidate(candidate or "", question)
                service = service_settings(chosen, evaluations_of(bench.journal, chosen))
                measured = agreement_of_candidate(question, chosen, bench, service, asked)
                found = replace(measured, command=command_line())
                if (evaluation := bench.journal.evaluation(found.candidate_id, chosen_split)) is not None:
                    try:
                        with exclusive(bench.journal):  # unless a sweep that runs holds the journal
                            bench.journal.write(replace(evaluation, agreement=found))
                        steps(f"kept in the evaluation on {chosen_split}")
                    except ToolchainError as error:
                        steps(f"not kept in the evaluation: {error}")
    if to is not None:
        write_json_atomically(to, found.to_json())
    if as_json:
        print_json(found.to_json())
        return
    out.print(on_terminal(written(found)), highlight=False)


def report(
    subject: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT|BUNDLE", help="experiment file that was swept, or folder of a bundle"),
    ],
    to: Annotated[Path, typer.Option(help="report.docx or .html")],
    lang: Annotated[Literal["zh", "en"], typer.Option(help="language of the report")] = "zh",
    form: Annotated[
        Literal["full", "briefing"], typer.Option(help="the whole report, or what is told in eight minutes")
    ] = "full",
    candidate: Annotated[str | None, typer.Option(help="id; default: the recommended candidate")] = None,
    baseline: Annotated[
        Path | None,
        existing_file(
            "of an EXPERIMENT: first export, agreement, load against these figures and plan-capacity, "
            "into a folder of TO-parts"
        ),
    ] = None,
    qps: Annotated[float | None, typer.Option(help="with --baseline: requests a second that a fleet is to stand")] = (
        None
    ),
    verdict: Annotated[Path | None, existing_file("verdict.json of `workbench load --baseline … --to`")] = None,
    agreement: Annotated[Path | None, existing_file("outputs of what ships, compared path by path (JSON)")] = None,
    load: Annotated[
        list[Path] | None, typer.Option(exists=True, help="result of `workbench load --to`, or its folder; repeat")
    ] = None,
    layers: Annotated[Path | None, existing_file("what `workbench compare … --json` printed")] = None,
    capacity: Annotated[Path | None, existing_file("what `workbench plan-capacity … --json` printed")] = None,
    workspace: Workspace = None,
) -> None:
    """Write the acceptance report of a sweep or a bundle: goals, precision, performance, cost, risks; zh or en.

    What nobody measured stands in it as not measured; emulated and predicted figures carry their mark.
    """
    from workbench.api.report import report as run
    from workbench.report.written.drawing import chinese_font

    if qps is not None and baseline is None:
        raise ConfigError("is for the parts that --baseline makes.", key="--qps", hint="Name the --baseline as well.")
    if baseline is not None:
        if Path(subject).is_dir() or verdict is not None or load:
            raise ConfigError("measures an experiment's winner anew.", key="--baseline", hint="Name the experiment.")
        parts = _measured_parts(subject, to.with_name(f"{to.stem}-parts"), baseline, qps, candidate, workspace)
        verdict, load = parts / "load" / "verdict.json", [parts / "load"]
        agreement = agreement or parts / "agreement.json"
        capacity = capacity or (parts / "capacity.json" if qps is not None else None)
    run(
        subject,
        to,
        language=lang,
        form=form,
        candidate=candidate,
        verdict=verdict,
        agreement=agreement,
        loads=load or (),
        layers=layers,
        capacity=capacity,
        command=command_line(),
        workspace=workspace,
    )
    if lang == "zh" and chinese_font() is None:
        tell(
            "this machine has no Chinese font: words in the pictures are English. Install one (fonts-noto-cjk).",
            style="yellow",
        )
    say(str(to))


def _measured_parts(
    experiment: str, to: Path, baseline: Path, qps: float | None, candidate: str | None, workspace: Path | None
) -> Path:
    """The folder, inside of `to`, of what a report is made of, by the commands that a user would type, in their order.

    What is there is kept: another winner, another sweep of it or other figures have a folder of their own.

    Raises:
        ToolchainError: a command failed; what it said is on the screen.
    """
    from workbench.api.opening import find_candidate, journal_of, read_experiment, recommended_of, summary_of

    question = read_experiment(Path(experiment), workspace)
    journal = journal_of(question)
    summary = summary_of(question, journal)
    winner = recommended_of(question, summary) if candidate is None else find_candidate(candidate, journal)
    measured = [one for one in (summary.find(winner.id), summary.confirmations.get(winner.id)) if one is not None]
    content = (winner.id, [one.started_at for one in measured], file_digest(baseline), qps)
    to = to / f"{winner.short_id}-{digest(content)[:8]}"
    place = [] if workspace is None else ["--workspace", str(workspace)]
    chosen = [] if candidate is None else ["--candidate", candidate]
    bundle, kept = str(to / "bundle"), str(to / "load")
    steps = {
        to / "bundle" / "manifest.json": ["export", experiment, "--to", bundle, "--allow-emulated", *chosen, *place],
        to / "agreement.json": ["agreement", experiment, "--to", str(to / "agreement.json"), *chosen, *place],
        to / "load" / "verdict.json": [
            *("load", bundle, "--experiment", experiment, "--baseline", str(baseline), "--to", kept)
        ],
    }
    if qps is not None:
        steps[to / "capacity.json"] = ["plan-capacity", experiment, "--qps", f"{qps:g}", "--json", *place]
    to.mkdir(parents=True, exist_ok=True)
    for made, command in steps.items():
        if made.exists():
            continue
        tell(shlex.join(["workbench", *command]))
        draft = made.with_name(f"{made.name}.part") if "--json" in command else None
        with contextlib.nullcontext() if draft is None else draft.open("w", encoding="utf-8") as output:
            code = run_tied([sys.executable, "-P", "-m", "workbench", *command], output=output)
        if draft is not None and code == 0:
            draft.replace(made)
        if not made.exists():  # a verdict that is not passed ends its command with 1
            raise ToolchainError(f"`workbench {command[0]}` ended with exit code {code}; what it said stands above.")
    return to
