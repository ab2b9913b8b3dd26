"""`workbench serve`: a bundle behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.signing import TrustedKeysFile


def serve(
    bundle: Annotated[Path, typer.Argument(help="folder that `workbench export` wrote", show_default=False)],
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free one")] = 8000,
    workers: Annotated[
        int | None, typer.Option(help="processes with a model each, for each device; default: the bundle's")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="cards to use: all (default), a number of them, or names: 0,1,3 (one: 3,)")
    ] = None,
    front_ends: Annotated[
        str,
        typer.Option(
            help="processes that take requests in, for all cards together; auto: one for each card, at most half of "
            "the processors"
        ),
    ] = "auto",
    max_batch_size: Annotated[int | None, typer.Option(help="default: the bundle's")] = None,
    batch_timeout_ms: Annotated[
        float | None, typer.Option(help="how long a sample waits for company; default: the bundle's")
    ] = None,
    queue_limit: Annotated[int | None, typer.Option(help="samples that may wait; more are refused with 503")] = None,
    no_worker_timeout_s: Annotated[
        float | None,
        typer.Option(help="end with an error when no worker could answer for so many seconds; default: 60"),
    ] = None,
    max_connections: Annotated[int | None, typer.Option(help="open at a time; default: 2048")] = None,
    max_connections_per_address: Annotated[
        int | None, typer.Option(help="of one client's address; default: 1024")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="when this machine is not one the bundle was made for: warn or refuse")
    ] = "refuse",
    trusted_keys: TrustedKeysFile = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="that requests may name, beside loopback; again for more")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="file of keys, as `workbench api-key` prints their lines", show_default=False)
    ] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="listen beyond loopback and ask for no key")] = False,
    rate_limit: Annotated[float | None, typer.Option(help="requests a second of each key that states no limit")] = None,
    admin_host: Annotated[str, typer.Option(help="address of --admin-port")] = "127.0.0.1",
    admin_port: Annotated[
        int | None, typer.Option(help="liveness and readiness from a process of its own; 0 for any free port")
    ] = None,
    metrics: Annotated[str, typer.Option(help="/metrics: open, at the admin port alone, or off")] = "open",
    docs: Annotated[str, typer.Option(help="/docs and /openapi.json: open, at the admin port alone, or off")] = "open",
) -> None:
    """Serve a bundle over HTTP: POST /predict, and /docs for people.

    X-API-Key must hold a key of --api-keys, which is read again when it changes and on SIGHUP, or WORKBENCH_API_KEY of
    the environment; beyond loopback one of the two must be there. SIGTERM answers what waits, then ends.
    """
    from workbench.serve.__main__ import start

    start(
        bundle,
        host=host,
        port=port,
        workers=workers,
        devices=devices,
        front_ends=front_ends,
        max_batch_size=max_batch_size,
        batch_timeout_ms=batch_timeout_ms,
        queue_limit=queue_limit,
        no_worker_timeout_s=no_worker_timeout_s,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        policy=policy,
        trusted_keys=trusted_keys,
        allowed_hosts=allowed_host or (),
        api_keys=api_keys,
        no_key=no_key,
        rate_limit=rate_limit,
        admin_host=admin_host,
        admin_port=admin_port,
        metrics=metrics,
        docs=docs,
    )


def api_key(
    name: Annotated[str, typer.Argument(help="what the key is called in the file and the metrics", show_default=False)],
    rate: Annotated[float | None, typer.Option(help="requests a second that it may send")] = None,
) -> None:
    """Draw a key for `serve --api-keys FILE`: the file's line on stdout, the key itself on stderr.

    workbench api-key mobile-app >> keys.txt
    """
    from workbench.serve.keys import drawn_key

    secret, line = drawn_key(name, rate)
    typer.echo(line)
    typer.echo(f"X-API-Key: {secret}", err=True)
