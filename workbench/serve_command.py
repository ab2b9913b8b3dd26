"""`workbench serve`: a bundle behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.signing_command import TrustedKeysFile


def serve(
    bundle: Annotated[Path, typer.Argument(help="folder that `workbench export` wrote", show_default=False)],
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free one")] = 8000,
    workers: Annotated[
        int | None, typer.Option(help="processes with a model each, for each device; default: the bundle's")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="cards to use; default: all that this process sees")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="default: the bundle's")] = None,
    batch_timeout_ms: Annotated[
        float | None, typer.Option(help="how long a sample waits for company; default: the bundle's")
    ] = None,
    queue_limit: Annotated[int | None, typer.Option(help="samples that may wait; more are refused with 503")] = None,
    no_worker_timeout_s: Annotated[
        float | None,
        typer.Option(help="end with an error when no worker could answer for so many seconds; default: 60"),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="when this machine is not one the bundle was made for: warn or refuse")
    ] = "refuse",
    trusted_keys: TrustedKeysFile = None,
) -> None:
    """Serve a bundle over HTTP: POST /predict, and /docs for people.

    WORKBENCH_API_KEY in the environment is asked for as X-API-Key. SIGTERM answers what waits, then ends.
    """
    from workbench.serve.__main__ import start

    start(
        bundle,
        host=host,
        port=port,
        workers=workers,
        devices=devices,
        max_batch_size=max_batch_size,
        batch_timeout_ms=batch_timeout_ms,
        queue_limit=queue_limit,
        no_worker_timeout_s=no_worker_timeout_s,
        policy=policy,
        trusted_keys=trusted_keys,
    )
