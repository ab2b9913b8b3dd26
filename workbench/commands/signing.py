"""`workbench keygen` and `workbench sign`, and what other commands need to sign and to check signatures.

`cli` registers the commands. Keys and signatures are `workbench.bundle.signing`, what is signed is
`workbench.bundle.signed`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.commands.console import say
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: quick to start without them
    from workbench.bundle.signing import SecretKey

TrustedKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys",
        help="file of public keys: the bundle must be signed by one of them; default: WORKBENCH_TRUSTED_KEYS",
    ),
]
SigningKey = Annotated[Path | None, typer.Option("--sign", help="sign the bundle with this secret key (minisign's)")]
_MOST_PASSWORD_BYTES = 4096


def keygen(
    secret: Annotated[Path, typer.Argument(help="file to write the secret key to")],
    public: Annotated[Path | None, typer.Option(help="file of the public key; default: beside it, .pub")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="no password: whoever reads the file can sign; for a secret store")
    ] = False,
) -> None:
    """Make a pair of keys to sign bundles with, in minisign's formats; `minisign -G` does the same.

    The secret key is sealed by a password (WORKBENCH_SIGNING_PASSWORD_FILE names a file with it, else it is asked for).
    """
    from workbench.bundle.signing import make_keys

    public_file = public if public is not None else secret.with_suffix(".pub")
    made = make_keys(secret, public_file, None if plain else password(twice=True))
    say(
        f"{secret}: the secret key; keep it off the machines that serve\n{public_file}: the public key\n\n"
        f"Its line for a file of trusted keys:\n{made.text} WHOSE IT IS"
    )


def sign(
    bundle: Annotated[Path, typer.Argument(help="folder written by `workbench export`")],
    key: Annotated[Path, typer.Option(help="secret key (minisign's)")],
) -> None:
    """Sign a bundle that was exported without --sign, or sign it again; every byte of it is checked first."""
    from workbench.bundle import check_files, read_bundle, sign_bundle

    opened = read_bundle(bundle)
    check_files(opened)
    secret = opened_key(key)
    sign_bundle(bundle, opened.manifest.name, opened.manifest_sha256, secret)
    say(f"{bundle}: manifest {opened.manifest_sha256[:12]} signed by key {secret.public.name}")


def opened_key(file: Path) -> SecretKey:
    """A secret key, its password asked for where it has one."""
    from workbench.bundle.signing import read_secret_key

    return read_secret_key(file, password)


def password(*, twice: bool = False) -> str:
    """From the file that the environment names, else from the terminal."""
    from workbench.bundle.signing import PASSWORD_VARIABLE
    from workbench.values.documents.input_files import read_text

    if file := os.environ.get(PASSWORD_VARIABLE):
        lines = read_text(Path(file), limit_bytes=_MOST_PASSWORD_BYTES, key=PASSWORD_VARIABLE).splitlines()
        if len(lines) != 1 or not lines[0]:
            raise ConfigError("must hold the password on its one line.", file=file, key=PASSWORD_VARIABLE)
        return lines[0]
    if not sys.stdin.isatty():
        raise ConfigError(
            "the secret key has a password, and there is no terminal to ask for it.",
            key=PASSWORD_VARIABLE,
            hint="Name a file with the password in it, readable by you alone.",
        )
    again = "The same again" if twice else False
    typed: str = typer.prompt("Password of the secret key", hide_input=True, confirmation_prompt=again, err=True)
    return typed
