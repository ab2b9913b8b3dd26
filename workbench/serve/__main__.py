"""`python -m workbench.serve BUNDLE`: what containers and the workbench's own subprocesses start.

Exit codes: 0 ended as told, 1 the bundle cannot be served, 2 the user's input, 3 the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.values.errors import WorkbenchError
from workbench.values.exit_codes import exit_code_of


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m workbench.serve", description="Serve a bundle over HTTP.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any free one")
    parser.add_argument(
        "--workers", type=int, help="processes with a model each, for each device; default: the bundle's"
    )
    parser.add_argument("--devices", help="all (default), a number of cards, or names: 0,1,3 (one: 3,)")
    parser.add_argument(
        "--front-ends",
        default="auto",
        help="processes that take requests in; auto: one for each card, at most half of the processors",
    )
    parser.add_argument("--max-batch-size", type=int, help="default: the bundle's")
    parser.add_argument("--batch-timeout-ms", type=float, help="default: the bundle's")
    parser.add_argument("--queue-limit", type=int, help="samples that may wait")
    parser.add_argument(
        "--no-worker-timeout-s", type=float, help="without a worker that answers for so long it ends with an error"
    )
    parser.add_argument("--max-connections", type=int, help="open at a time; default: 2048")
    parser.add_argument("--max-connections-per-address", type=int, help="of one client's address; default: 1024")
    parser.add_argument("--policy", choices=("warn", "refuse"), default="refuse")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        dest="allowed_hosts",
        help="that requests may name, beside loopback; again for more",
    )
    parser.add_argument("--api-keys", type=Path, help="file of keys, as `workbench api-key` prints their lines")
    parser.add_argument("--no-key", action="store_true", help="listen beyond loopback and ask for no key")
    parser.add_argument("--rate-limit", type=float, help="requests a second of each key that states no limit")
    parser.add_argument("--admin-host", default="127.0.0.1")
    parser.add_argument("--admin-port", type=int, help="liveness and readiness from a process of its own")
    parser.add_argument("--metrics", choices=("open", "admin", "off"), default="open")
    parser.add_argument("--docs", choices=("open", "admin", "off"), default="open")
    parser.add_argument(
        "--trusted-keys", type=Path, help="whose signature is required; default: WORKBENCH_TRUSTED_KEYS"
    )
    try:
        start(**vars(parser.parse_args()))
    except WorkbenchError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(exit_code_of(error)) from None


def start(
    bundle: Path,
    *,
    host: str,
    port: int,
    workers: int | None,
    devices: str | None = None,
    front_ends: str = "auto",
    max_batch_size: int | None,
    batch_timeout_ms: float | None,
    queue_limit: int | None,
    no_worker_timeout_s: float | None = None,
    max_connections: int | None = None,
    max_connections_per_address: int | None = None,
    policy: str,
    trusted_keys: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    api_keys: Path | None = None,
    no_key: bool = False,
    rate_limit: float | None = None,
    admin_host: str = "127.0.0.1",
    admin_port: int | None = None,
    metrics: str = "open",
    docs: str = "open",
) -> None:
    """Serve with what the command line says, and what the bundle was tuned to where it says nothing.

    Raises:
        WorkbenchError: see `workbench.serve.lifecycle.serve`.
    """
    from workbench.bundle import read_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.serve.lifecycle import serve
    from workbench.serve.settings import API_KEY_VARIABLE, Access, Limits, ServeSettings, front_ends_of

    opened = read_bundle(bundle)
    opened.check_served_here()
    tuned = opened.manifest.service
    service = replace(
        tuned,
        workers=tuned.workers if workers is None else workers,
        max_batch_size=tuned.max_batch_size if max_batch_size is None else max_batch_size,
        batch_timeout_ms=tuned.batch_timeout_ms if batch_timeout_ms is None else batch_timeout_ms,
    )
    bounds: dict[str, Any] = {
        "queue": queue_limit,
        "connections": max_connections,
        "connections_of_address": max_connections_per_address,
        "no_worker_s": no_worker_timeout_s,
    }
    access = Access(
        hosts=tuple(allowed_hosts),
        key_file=api_keys,
        api_key=os.environ.get(API_KEY_VARIABLE),
        keyless=no_key,
        rate_per_s=rate_limit,
        admin_host=admin_host,
        admin_port=admin_port,
        metrics=metrics,  # type: ignore[arg-type]  # Access checks it
        docs=docs,  # type: ignore[arg-type]  # the same
    )
    settings = ServeSettings(
        host=host,
        port=port,
        service=service,
        devices=devices,
        front_ends=front_ends_of(front_ends),
        limits=Limits(**{name: value for name, value in bounds.items() if value is not None}),
        policy=policy,  # type: ignore[arg-type]  # ServeSettings checks it
        access=access,
        trusted=trusted_keys_of(trusted_keys),
    )
    serve(opened, settings)


if __name__ == "__main__":
    main()
