"""The processor, its limits and memory; the targets, the workspace, the team's server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from workbench.commands.doctor import judged
from workbench.targets import described, target_names
from workbench.targets.description import TargetDescription
from workbench.tracking.store import check_server
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.finding import Finding, Status
from workbench.values.system.cpu import Cpu, control_group_limits, this_cpu

LITTLE_MEMORY_BYTES = 2_000_000_000
_GROUP = "machine"


def machine_findings() -> Iterator[Finding]:
    cpu = this_cpu()
    cpu_quota, memory_limit_bytes = control_group_limits()
    memory = psutil.virtual_memory()
    yield judged(_GROUP, "CPU", cpu.name, wrong=False)
    yield int8_finding(cpu)
    yield cores_finding(os.cpu_count() or 1, cpu.cores, cpu_quota)
    yield memory_finding(memory.total, memory.available, memory_limit_bytes)


def int8_finding(cpu: Cpu) -> Finding:
    """What the CPU's instructions mean for INT8; how much is gained is the sweep's to measure."""
    flags = ", ".join(cpu.features) or "no known instruction"
    value = f"{cpu.kind}: 8-bit products are added without overflow ({flags})"
    if cpu.saturates:
        value = f"{cpu.kind}: pairs of 8-bit products may be added in 16 bits, which overflow ({flags})"
    remedy = "INT8 takes operands that are exact here and gains less; sweep on the kind of machine that will serve."
    return judged(_GROUP, "INT8", value, remedy, wrong=cpu.saturates)


def cores_finding(installed: int, affinity: int, quota: float | None) -> Finding:
    """How many cores can compute at the same time.

    Args:
        affinity: cores that this process may run on.
        quota: CPU seconds per second that its control groups allow, None without a limit.
    """
    throttled = quota is not None and quota < affinity
    usable = max(1, int(quota)) if quota is not None and throttled else affinity
    limits = []
    if affinity < installed:
        limits.append(f"this process may run on {affinity}")
    if throttled:
        limits.append(f"the container may use the time of {quota:g}")
    value = f"{usable} of {installed} usable" + (f" ({', '.join(limits)})" if limits else "")
    remedy = (
        f"A thread beyond {usable} is stopped by the kernel in mid-call, which ruins P95 and P99: pin the container to "
        f"cores (--cpuset-cpus), or offer serving.intra_op_threads up to {usable} only."
    )
    return judged(_GROUP, "cores", value, remedy, wrong=throttled)


def memory_finding(total_bytes: int, available_bytes: int, limit_bytes: int | None) -> Finding:
    """Args: limit_bytes: what the control groups allow, None without a limit."""
    limited = limit_bytes is not None and limit_bytes < total_bytes
    little = min(available_bytes, limit_bytes or available_bytes) < LITTLE_MEMORY_BYTES
    value = f"{available_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB available"
    value += f", limited to {limit_bytes / 1e9:.1f} GB by the container" if limit_bytes and limited else ""
    remedy = "A BERT-base needs about 2 GB while it is quantized: close programs, or raise the limit."
    return judged(_GROUP, "memory", value, remedy, wrong=little)


def target_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Those that compute on the host first. A target that cannot be loaded is a warning and disturbs no other.

    Args:
        environment: what targets read to find their vendor's software.
    """
    found: list[TargetDescription] = []
    broken: list[Finding] = []
    for name in target_names():
        try:
            found.append(described(name))
        except (ConfigError, ToolchainError) as error:
            remedy = "Repair or uninstall it; the other targets are not concerned."
            broken.append(judged(f"target {name}", "loading", str(error), remedy, wrong=True))
    for target in sorted(found, key=lambda target: not target.on_host):
        if target.findings is not None:
            yield from target.findings(environment)
            continue
        try:
            known = target.make().toolchain().components  # all that is known of one that says nothing of its own
            said, missing = f"yes: {', '.join(f'{name} {version}' for name, version in known.items())}", False
        except ToolchainError as error:
            said, missing = f"no: {error}", True
        remedy = "Optional: without it this target cannot be swept; the others are not concerned."
        yield judged(f"target {target.name}", "usable", said, remedy, wrong=missing)
    yield from broken


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
    remedy = (
        "`workbench plan` says the need. Free some space (`workbench cache --prune` deletes what can be computed "
        "again), or name a workspace on another disk with --workspace."
    )
    worse: Status = "fail" if free_bytes < LITTLE_DISK_BYTES else "warn"
    value = f"{free_bytes / 1e9:.1f} GB free"
    return judged(group, "disk", value, remedy, wrong=free_bytes < ENOUGH_DISK_BYTES, worse=worse)


def _writable(group: str, folder: Path, use: str) -> Finding:
    place = _nearest(folder)
    # os.access also knows a read-only mount, where permission bits say nothing
    wrong = not place.is_dir() or not os.access(place, os.W_OK | os.X_OK)
    found = f"{place} cannot be written" if wrong else "writable" if place == folder else "will be created"
    remedy = "Make it a folder that this user can write into, or choose another place with --workspace."
    return judged(group, folder.name, f"{use}: {found}", remedy, wrong=wrong, worse="fail")


def _nearest(path: Path) -> Path:
    """The path itself, or its nearest parent that exists; a link to nowhere is in the way, so it exists."""
    return next(p for p in (path, *path.parents) if os.path.lexists(p))


def tracking_findings(workspace: Path) -> Iterator[Finding]:
    """None without a server: runs are then kept in the workspace."""
    try:
        said = check_server(workspace)
    except (ConfigError, ToolchainError) as error:
        fact, _, remedy = str(error).partition(". ")
        # a sweep goes on without its server, so that is no reason for doctor to fail
        yield judged("MLflow", "server", fact, remedy, wrong=True)
        return
    if said:
        yield judged("MLflow", "server", said, wrong=False)
