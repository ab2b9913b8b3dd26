"""`workbench export`, `workbench verify` and `workbench lock`: writing a bundle, checking one, and pinning its wheels.

`cli` registers the commands; heavy libraries are imported inside them. Bundles themselves are `workbench.bundle`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.console import note, say, tell
from workbench.commands.options import ExperimentFile, Workspace
from workbench.commands.signing import SigningKey, TrustedKeysFile, opened_key
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED


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
        typer.Option(help="sums of the wheels that serving installs, by `workbench lock`; default: the shipped table"),
    ] = None,
    base_image: Annotated[
        str, typer.Option(help="that the Dockerfile starts from, by digest: NAME@sha256:…", show_default=False)
    ] = "",
    workspace: Workspace = None,
) -> None:
    """Write the production bundle of the recommended candidate, or of the one named, and verify it."""
    from workbench.api.bundle import export as run
    from workbench.api.opening import question_of
    from workbench.bundle import read_bundle
    from workbench.bundle.lock import read_lock
    from workbench.commands.opening import tell_damage_of_last
    from workbench.shipping.deployment import DeploymentSettings, unpinned

    deployment = DeploymentSettings(lock=None if lock is None else read_lock(lock), base_image=base_image)
    secret = None if sign is None else opened_key(sign)  # a wrong password costs no work
    question = question_of(experiment, workspace)
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
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`", show_default=False)],
    replay: Annotated[bool, typer.Option(help="load the model and replay the golden samples")] = True,
    trusted_keys: TrustedKeysFile = None,
    url: Annotated[
        str | None,
        typer.Option(help="of a language model: ask this server, which speaks OpenAI's API, instead of the processor"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="the server's name for it; default: the only one it has")] = None,
    api_key_env: Annotated[str, typer.Option(help="environment variable with the server's API key")] = (
        "WORKBENCH_API_KEY"
    ),
) -> None:
    """Check a bundle: its signature where one is required, every byte, then its golden samples on this machine."""
    from workbench.bundle import verify_bundle
    from workbench.bundle.signing import trusted_keys_of

    if url is None and model is not None:
        raise ConfigError("means something beside --url alone.", key="--model")
    report = verify_bundle(bundle, replay=replay and url is None, trusted=trusted_keys_of(trusted_keys))
    for warning in report.warnings:
        note("warning", warning)
    say(f"{bundle}: {report.summary}")
    if url is not None:
        from workbench.api.llm_bundle import verify_served

        found = verify_served(bundle, url, model=model, api_key_env=api_key_env)
        say(f"{url}: {found.words}")
        for fault in found.faults:
            note("fault", fault, "bold red")
        if found.faults:
            raise SystemExit(FAILED)


def lock(
    to: Annotated[Path, typer.Option(help="file to write, for `workbench export --lock`", show_default=False)],
) -> None:
    """Ask pip's index for the sums of the wheels that serving installs, at the versions installed here.

    For Python 3.11 on x86_64 and aarch64. Only needed where `export` says that its own table lacks a version.
    """
    from workbench.bundle.lock import make_lock
    from workbench.bundle.requirements import every_pin

    made = make_lock(every_pin(), to, tell)
    wheels = sum(len(found) for found in made.wheels.values())
    say(f"{to}: {len(made.wheels)} packages, {wheels} wheels")
