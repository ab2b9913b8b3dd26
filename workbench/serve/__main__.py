"""`python -m workbench.serve BUNDLE`: what containers and the workbench's own subprocesses start.

Exit codes: 0 ended as told, 1 the bundle cannot be served, 2 the user's input, 3 the machine.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from workbench.serve.settings import Limits, ServeSettings, options_of
from workbench.values.errors import ConfigError, WorkbenchError
from workbench.values.exit_codes import exit_code_of


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m workbench.serve", description="Serve a bundle over HTTP.")
    parser.add_argument("bundle", type=Path)
    for kind in (ServeSettings, Limits):
        for name, flag, hint, default, help_text in options_of(kind):
            parser.add_argument(flag, dest=name, default=default, help=help_text, **_as_parsed(hint))
    given = vars(parser.parse_args())
    bundle, limits = given.pop("bundle"), {name: given.pop(name) for name, *_ in options_of(Limits)}
    try:
        start(bundle, ServeSettings(**given), Limits(**limits))
    except WorkbenchError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(exit_code_of(error)) from None


def _as_parsed(hint: Any) -> dict[str, Any]:
    if hint is bool:
        return {"action": "store_true"}
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    kind = next(iter(get_args(hint)), hint)  # of a type or None
    return {"action": "append"} if get_origin(kind) is list else {"type": kind}


def start(bundle: Path, settings: ServeSettings, limits: Limits) -> None:
    """Serve with what the command line says, and what the bundle was tuned to where it says nothing.

    Raises:
        WorkbenchError: see `workbench.serve.lifecycle.serve`.
    """
    from workbench.bundle.opened import read_bundle
    from workbench.bundle.pipeline import is_pipeline_bundle, read_pipeline_bundle
    from workbench.bundle.signing import trusted_keys_of
    from workbench.serve.lifecycle import serve

    settings = replace(settings, limits=limits, trusted=trusted_keys_of(settings.trusted_keys))
    given = {name: getattr(settings, name) for name in ("workers", "max_batch_size", "batch_timeout_ms")}
    given = {name: value for name, value in given.items() if value is not None}
    if is_pipeline_bundle(bundle):
        of_one_model = {
            **given,
            **({} if settings.front_ends in ("auto", "1") else {"front_ends": settings.front_ends}),
        }
        if of_one_model:
            key = "--" + next(iter(of_one_model)).replace("_", "-")
            hint = "A pipeline has one front end, and each stage the settings that the sweep chose."
            raise ConfigError("is for the service of one model.", key=key, hint=hint)
        serve(read_pipeline_bundle(bundle), settings)
        return
    opened = read_bundle(bundle)
    opened.check_served_here()
    serve(opened, replace(settings, service=replace(opened.manifest.service, **given)))


if __name__ == "__main__":
    main()
