"""ATC's view into an OM: its graph as JSON (--mode=1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.targets.ascend.atc.atc import Run, run_atc
from workbench.targets.ascend.atc.command import argument_vector


def run_to_json(
    atc: Path, om: Path, directory: Path, *, log: Path, environment: Mapping[str, str], timeout_s: float
) -> tuple[Run, Path]:
    """Run ATC in `directory`, an empty folder with a path that ATC takes; returns (how it ended, the file it writes).

    Raises:
        ToolchainError: it cannot be started.
    """
    file = directory / "model.json"
    flags = {"mode": "1", "om": str(om), "json": str(file)}
    command = [str(atc), *argument_vector(flags)]
    return run_atc(command, directory=directory, log=log, environment=environment, timeout_s=timeout_s), file
