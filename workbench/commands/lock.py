"""`workbench lock`: which wheels serving installs, with their sums. `cli` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.console import err, out


def lock(
    to: Annotated[Path, typer.Option(help="file to write, for `workbench export --lock`", show_default=False)],
) -> None:
    """Ask pip's index for the sums of the wheels that serving installs, at the versions installed here.

    For Python 3.11 on x86_64 and aarch64. Only needed where `export` says that its own table lacks a version.
    """
    from workbench.bundle.lock import make_lock
    from workbench.bundle.requirements import every_pin

    made = make_lock(every_pin(), to, lambda line: err.print(line, highlight=False))
    wheels = sum(len(found) for found in made.wheels.values())
    out.print(f"{to}: {len(made.wheels)} packages, {wheels} wheels", highlight=False, soft_wrap=True, markup=False)
