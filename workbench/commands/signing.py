"""`workbench keygen` and `workbench sign`, and what other commands need to sign and to check signatures.

`cli` registers the commands. Keys and signatures are `workbench.bundle.signing`, what is signed is
`workbench.bundle`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.console import say

TrustedKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys",
        help="file of public keys: the bundle must be signed by one of them; default: WORKBENCH_TRUSTED_KEYS",
    ),
]
SigningKey = Annotated[Path | None, typer.Option("--sign", help="sign the bundle with this secret key (minisign's)")]


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
    from workbench.bundle.opened import read_bundle
    from workbench.bundle.signing import read_secret_key
    from workbench.bundle.verify import check_files
    from workbench.bundle.write import sign_bundle

    opened = read_bundle(bundle)
    check_files(opened)
    secret = read_secret_key(key)
    sign_bundle(bundle, opened.manifest.name, opened.manifest_sha256, secret)
    say(f"{bundle}: manifest {opened.manifest_sha256[:12]} signed by key {secret.public.name}")
