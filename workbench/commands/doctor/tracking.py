"""The team's MLflow server, where the environment names one: does it answer, and to these credentials?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.tracking.store import check_server
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.finding import Finding


def tracking_findings(workspace: Path) -> Iterator[Finding]:
    """None without a server: runs are then kept in the workspace."""
    group, name = "MLflow", "server"
    try:
        said = check_server(workspace)
    except (ConfigError, ToolchainError) as error:
        fact, _, remedy = str(error).partition(". ")
        # a sweep goes on without its server, so that is no reason for doctor to fail
        yield Finding(group=group, name=name, status="warn", value=fact, remedy=remedy)
        return
    if said:
        yield Finding(group=group, name=name, status="ok", value=said)
