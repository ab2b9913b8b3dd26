"""The folder that holds `.workbench/` and `mlruns/`, or is to hold them: room and the right to write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from workbench.values.finding import Finding, Status

ENOUGH_DISK_BYTES, LITTLE_DISK_BYTES = 5_000_000_000, 500_000_000
"""60 candidates of a 30 MB model, lowered and compiled, take about 4 GB; below the second a sweep cannot begin."""


def workspace_findings(workspace: Path) -> Iterator[Finding]:
    folder = Path(os.path.realpath(workspace))
    group = f"workspace {folder}"
    cache = Path(os.path.realpath(folder / ".workbench"))  # perhaps a link to another disk
    yield disk_finding(group, shutil.disk_usage(_nearest(cache)).free)
    for name, use in ((".workbench", "cache and journals"), ("mlruns", "MLflow's store")):
        yield _writable(group, folder / name, use)


def disk_finding(group: str, free_bytes: int) -> Finding:
    status: Status = "fail" if free_bytes < LITTLE_DISK_BYTES else "warn" if free_bytes < ENOUGH_DISK_BYTES else "ok"
    return Finding(
        group=group,
        name="disk",
        status=status,
        value=f"{free_bytes / 1e9:.1f} GB free",
        remedy=""
        if status == "ok"
        else "`workbench plan` says the need. Free some space (`workbench cache --prune` deletes what can be computed "
        "again), or name a workspace on another disk with --workspace.",
    )


def _writable(group: str, folder: Path, use: str) -> Finding:
    place = _nearest(folder)
    # os.access also knows a read-only mount, where permission bits say nothing
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        value = f"{use}: {place} cannot be written"
        remedy = "Make it a folder that this user can write into, or choose another place with --workspace."
        return Finding(group=group, name=folder.name, status="fail", value=value, remedy=remedy)
    found = "writable" if place == folder else "will be created"
    return Finding(group=group, name=folder.name, status="ok", value=f"{use}: {found}")


def _nearest(path: Path) -> Path:
    """The path itself, or its nearest parent that exists; a link to nowhere is in the way, so it exists."""
    return next(p for p in (path, *path.parents) if os.path.lexists(p))
