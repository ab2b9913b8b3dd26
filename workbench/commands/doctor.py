"""What this machine can do, and what is missing for what it cannot: for people, and by its exit code for scripts.

    findings = examine(Path())
    exit_code(findings)         # 1 when the workbench cannot work here

Packages are looked at without importing one, whose absence is a finding and not an exception: what the other findings
need is imported inside of them. Each target looks at what it needs itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.finding import Finding, Status
from workbench.values.system.cpu import Cpu, control_group_limits, this_cpu
from workbench.values.versions import install_command

if TYPE_CHECKING:
    from rich.table import Table

    from workbench.targets.description import TargetDescription

_PACKAGES, _MACHINE = "packages", "machine"
_LOADED = ("psutil", "workbench.targets", "workbench.tracking.store", "workbench.quantization.observe")
"""What the findings about the machine import, and what every sweep runs the float model with."""
LITTLE_MEMORY_BYTES = 2_000_000_000
ENOUGH_DISK_BYTES, LITTLE_DISK_BYTES = 5_000_000_000, 500_000_000
"""60 candidates of a 30 MB model, lowered and compiled, take about 4 GB; below the second a sweep cannot begin."""


def examine(workspace: Path) -> tuple[Finding, ...]:
    """Look at packages, machine, targets and the folder that holds `.workbench/` and `mlruns/`, or is to hold them.

    Takes a few seconds, most of them for the INT8 layers, and writes nothing that stays. Where a required package is
    missing or cannot be loaded, only the findings about Python and its packages are given.
    """
    software = tuple(package_findings())
    return (*software, *(_beyond_packages(workspace) if exit_code(software) == 0 else ()))


def _beyond_packages(workspace: Path) -> Iterator[Finding]:
    try:
        for module in _LOADED:
            importlib.import_module(module)
    except ImportError as error:
        remedy = f"The package is there but damaged: {install_command()} --force-reinstall"
        yield judged(_PACKAGES, "loading", str(error), remedy, wrong=True, worse="fail")
        return
    yield from machine_findings()
    yield from target_findings(os.environ)
    yield from workspace_findings(workspace)
    yield from tracking_findings(workspace)


def judged(group: str, name: str, value: str, remedy: str = "", *, wrong: bool, worse: Status = "warn") -> Finding:
    """A finding that has a remedy only where something is wrong."""
    return Finding(group=group, name=name, status=worse if wrong else "ok", value=value, remedy=remedy if wrong else "")


def package_findings() -> Iterator[Finding]:
    """Python, and the packages that this workbench's metadata require: all of them, and those of the extra `export`."""
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding(group=_PACKAGES, name="Python", status="ok", value=version)
    yield Finding(group=_PACKAGES, name="workbench", status="ok", value=__version__)
    sets: dict[str, list[str]] = {"required": [], "export": []}
    for line in importlib.metadata.requires("int8-workbench") or ():
        package, extra = re.split(r"[^\w.-]", line)[0], re.search(r"extra == .(\w+)", line)
        sets.setdefault(extra[1] if extra else "required", []).append(package)
    again = f"Install the workbench again: {install_command()}"
    optional = f"Needed by convert and example only: {install_command('export')}"
    for name, remedy, worse in (("required", again, "fail"), ("export", optional, "warn")):
        found, missing = [], []
        for package in sets[name]:
            try:
                found.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                missing.append(package)
        value = f"missing: {', '.join(missing)}" if missing else ", ".join(found)
        yield judged(_PACKAGES, name, value, remedy, wrong=bool(missing), worse=worse)  # type: ignore[arg-type]  # both are


def machine_findings() -> Iterator[Finding]:
    import psutil

    cpu = this_cpu()
    cpu_quota, memory_limit_bytes = control_group_limits()
    memory = psutil.virtual_memory()
    yield judged(_MACHINE, "CPU", cpu.name, wrong=False)
    yield int8_finding(cpu)
    yield cores_finding(os.cpu_count() or 1, cpu.cores, cpu_quota)
    limited = memory_limit_bytes is not None and memory_limit_bytes < memory.total
    little = min(memory.available, memory_limit_bytes or memory.available) < LITTLE_MEMORY_BYTES
    value = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB available"
    value += (
        f", limited to {memory_limit_bytes / 1e9:.1f} GB by the container" if memory_limit_bytes and limited else ""
    )
    remedy = "A BERT-base needs about 2 GB while it is quantized: close programs, or raise the limit."
    yield judged(_MACHINE, "memory", value, remedy, wrong=little)


def int8_finding(cpu: Cpu) -> Finding:
    """What the CPU's instructions mean for INT8; how much is gained is the sweep's to measure."""
    flags = ", ".join(cpu.features) or "no known instruction"
    value = f"{cpu.kind}: 8-bit products are added without overflow ({flags})"
    if cpu.saturates:
        value = f"{cpu.kind}: pairs of 8-bit products may be added in 16 bits, which overflow ({flags})"
    remedy = "INT8 takes operands that are exact here and gains less; sweep on the kind of machine that will serve."
    return judged(_MACHINE, "INT8", value, remedy, wrong=cpu.saturates)


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
    return judged(_MACHINE, "cores", value, remedy, wrong=throttled)


def target_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Those that compute on the host first. A target that cannot be loaded is a warning and disturbs no other.

    Args:
        environment: what targets read to find their vendor's software.
    """
    from workbench.targets import described, target_names

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


def workspace_findings(workspace: Path) -> Iterator[Finding]:
    folder = Path(os.path.realpath(workspace))
    group = f"workspace {folder}"
    cache = Path(os.path.realpath(folder / ".workbench"))  # perhaps a link to another disk
    free_bytes = shutil.disk_usage(_nearest(cache)).free
    remedy = (
        "`workbench plan` says the need. Free some space (`workbench cache --prune` deletes what can be computed "
        "again), or name a workspace on another disk with --workspace."
    )
    worse: Status = "fail" if free_bytes < LITTLE_DISK_BYTES else "warn"
    little = free_bytes < ENOUGH_DISK_BYTES
    yield judged(group, "disk", f"{free_bytes / 1e9:.1f} GB free", remedy, wrong=little, worse=worse)
    for name, use in ((".workbench", "cache and journals"), ("mlruns", "MLflow's store")):
        place = _nearest(folder / name)
        # os.access also knows a read-only mount, where permission bits say nothing
        wrong = not place.is_dir() or not os.access(place, os.W_OK | os.X_OK)
        found = "writable" if place == folder / name else "will be created"
        said = f"{use}: {f'{place} cannot be written' if wrong else found}"
        remedy = "Make it a folder that this user can write into, or choose another place with --workspace."
        yield judged(group, name, said, remedy, wrong=wrong, worse="fail")


def _nearest(path: Path) -> Path:
    """The path itself, or its nearest parent that exists; a link to nowhere is in the way, so it exists."""
    return next(p for p in (path, *path.parents) if os.path.lexists(p))


def tracking_findings(workspace: Path) -> Iterator[Finding]:
    """None without a server: runs are then kept in the workspace."""
    from workbench.tracking.store import check_server

    try:
        said = check_server(workspace)
    except (ConfigError, ToolchainError) as error:
        fact, _, remedy = str(error).partition(". ")
        # a sweep goes on without its server, so that is no reason for doctor to fail
        yield judged("MLflow", "server", fact, remedy, wrong=True)
        return
    if said:
        yield judged("MLflow", "server", said, wrong=False)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when the workbench can work here, 1 when something it requires fails."""
    return int(any(finding.status == "fail" for finding in findings))


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"version": 1, "usable": true, "findings": [{"group", "name", "status", "value", "remedy"}, …]}`."""
    return {"version": 1, "usable": exit_code(findings) == 0, "findings": [encode(finding) for finding in findings]}


def findings_table(findings: Iterable[Finding]) -> Table:
    """A table for the terminal: groups as headings, a remedy below what was found."""
    from rich.table import Table  # not at the top: a required package, so a missing one is to be a finding
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    group = None
    for finding in findings:
        # Text, not str: a path or pip's `[export]` would be taken for markup
        if finding.group != group:
            if group is not None:
                table.add_row()
            group = finding.group
            table.add_row("", "", Text(group, "bold", overflow="fold"))
        status, name = Text(finding.status, colours[finding.status]), Text(finding.name)
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        table.add_row(status, name, Text(finding.value + remedy, overflow="fold"))
    return table
