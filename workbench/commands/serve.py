"""`workbench serve`: a bundle behind HTTP; the keys of those who may ask it, and of those who sign it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.console import say
from workbench.serve.settings import Limits, ServeSettings


def serve(
    bundle: Annotated[Path, typer.Argument(help="folder that `workbench export` wrote")],
    settings: ServeSettings,
    limits: Limits,
) -> None:
    """Serve a bundle over HTTP: POST /predict; /info says what it takes.

    X-API-Key must hold a key of --api-keys, which is read again when it changes, or WORKBENCH_API_KEY of
    the environment; beyond loopback one of the two must be there. SIGTERM answers what waits, then ends.
    """
    from workbench.serve.__main__ import start

    start(bundle, settings, limits)


def api_key(
    name: Annotated[str, typer.Argument(help="what the key is called in the file and the metrics")],
) -> None:
    """Draw a key for `serve --api-keys FILE`: the file's line on stdout, the key itself on stderr.

    workbench api-key mobile-app >> keys.txt
    """
    from workbench.serve.access import drawn_key

    secret, line = drawn_key(name)
    typer.echo(line)
    typer.echo(f"X-API-Key: {secret}", err=True)


def keygen(
    secret: Annotated[Path, typer.Argument(help="file to write the secret key to")],
    public: Annotated[Path | None, typer.Option(help="file of the public key; default: beside it, .pub")] = None,
) -> None:
    """Make a pair of keys to sign bundles with, in minisign's formats; `minisign -G -W` does the same.

    Whoever reads the secret key can sign. One with a password is minisign's to make and to sign with.
    """
    from workbench.bundle.signing import make_keys

    public_file = public if public is not None else secret.with_suffix(".pub")
    made = make_keys(secret, public_file)
    say(
        f"{secret}: the secret key; keep it off the machines that serve\n{public_file}: the public key\n\n"
        f"Its line for a file of trusted keys:\n{made.text} WHOSE IT IS"
    )


def sign(
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`")],
    key: Annotated[Path, typer.Option(help="secret key (minisign's)")],
) -> None:
    """Sign a bundle that was exported without --sign, or sign it again; every byte of it is checked first."""
    from workbench.bundle.opened import Bundle, read_bundle
    from workbench.bundle.pipeline import PipelineBundle, check_pipeline, is_pipeline_bundle, read_pipeline_bundle
    from workbench.bundle.signing import read_secret_key
    from workbench.bundle.verify import check_files
    from workbench.bundle.write import sign_bundle

    opened: Bundle | PipelineBundle
    if is_pipeline_bundle(bundle):
        opened = read_pipeline_bundle(bundle)
        check_pipeline(opened, None)
    else:
        opened = read_bundle(bundle)
        check_files(opened)
    secret = read_secret_key(key)
    sign_bundle(bundle, opened.manifest.name, opened.manifest_sha256, secret)
    say(f"{bundle}: manifest {opened.manifest_sha256[:12]} signed by key {secret.public.name}")
