"""`workbench serve`: a bundle behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.options import spelled_out
from workbench.serve.settings import Limits, ServeSettings


@spelled_out
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
