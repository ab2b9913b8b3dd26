"""What this machine can do: one finding per fact, each with what to do about it.

    findings = examine(Path())
    exit_code(findings)         # 1 when something the workbench cannot do without is missing

Nothing is started or changed but a temporary file in each folder that must be writable. Facts are read in `examine`;
every other function judges what it is given.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from rich.table import Table
from rich.text import Text

from workbench.canonical import encode
from workbench.errors import ToolchainError
from workbench.targets import TARGETS, open_target
from workbench.targets.onnxruntime import Cpu, parse_cpu

Status = Literal["ok", "warn", "fail"]

ASCEND = "ascend910b3"
_CANN_WANTED, _DRIVER_WANTED = "8.5.0", "25.2.0"
_CANN_VERSION_FILES = (
    "share/info/ge-compiler/version.info",
    "share/info/runtime/version.info",
    "compiler/version.info",
    "opp/version.info",
)
"""Below ASCEND_HOME_PATH, the 8.5 layout first (runtime/scripts/package/common/sh/common_func_v2.inc of CANN 8.5.0)."""

_DRIVER_VERSION_FILE = Path("/usr/local/Ascend/driver/version.info")
_CGROUPS = Path("/sys/fs/cgroup")
_PYTHON_WANTED = (3, 11)
_GIB = 1 << 30
_NO_LIMIT = 1 << 60  # cgroup v1 writes a number near 2^63 where memory is not limited
_BUSY_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine.

    Attributes:
        status: 'fail' where the workbench cannot work, 'warn' where something is optional or will disturb.
        value: what was found.
        remedy: what to do, empty when all is well.
    """

    name: str
    status: Status
    value: str
    remedy: str = ""


def examine(workspace: Path) -> tuple[Finding, ...]:
    """Look at the machine and at the folder that is to hold `.workbench/` and `mlruns/`, which need not exist yet."""
    cpu, quota = _cpu(), cpu_quota(_CGROUPS)
    cores = usable_cores(cpu.cores, quota)
    memory = psutil.virtual_memory()
    return (
        python_finding(sys.version_info[:3]),
        Finding(name="CPU", status="ok", value=cpu.name),
        cores_finding(os.cpu_count() or 1, cpu.cores, quota),
        int8_finding(cpu),
        load_finding(psutil.getloadavg()[0], cores),
        memory_finding(memory.total, memory.available, memory_limit(_CGROUPS)),
        *target_findings(TARGETS),
        *workspace_findings(workspace),
        *extra_findings(("torch", "transformers", "safetensors"), installed_version),
        *ascend_findings(
            os.environ,
            which=shutil.which,
            has_module=lambda name: importlib.util.find_spec(name) is not None,
            driver_file=_DRIVER_VERSION_FILE,
            targets=TARGETS,
        ),
    )


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when the workbench can work here, 1 when something required fails."""
    return int(any(finding.status == "fail" for finding in findings))


def findings_table(findings: Iterable[Finding]) -> Table:
    """A table for the terminal, in the order of the findings."""
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table("", "what", "found", "what to do")
    for finding in findings:
        # Text, not str: a path or a remedy such as pip's `[export]` would be taken for markup
        table.add_row(
            Text(finding.status, colours[finding.status]),
            Text(finding.name),
            Text(finding.value, overflow="fold"),
            Text(finding.remedy, overflow="fold"),
        )
    return table


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"version": 1, "usable": true, "findings": [{"name", "status", "value", "remedy"}, …]}`."""
    return {"version": 1, "usable": exit_code(findings) == 0, "findings": [encode(finding) for finding in findings]}


# --- the processor -------------------------------------------------------------------------------------------------


def machine_cores() -> int:
    """Cores that this process can use at the same time on this machine."""
    return usable_cores(_cpu().cores, cpu_quota(_CGROUPS))


def usable_cores(affinity: int, quota: float | None) -> int:
    """Cores that can compute at the same time: what the process may run on, cut to the container's CPU time."""
    return affinity if quota is None else max(1, min(affinity, int(quota)))


def cpu_quota(cgroup: Path) -> float | None:
    """CPU seconds per second that the container may use; None without a limit.

    Args:
        cgroup: where the control groups are mounted; version 2 and version 1 are understood.
    """
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def memory_limit(cgroup: Path) -> int | None:
    """Bytes that the container may use; None without a limit."""
    text = _read(cgroup / "memory.max") or _read(cgroup / "memory/memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def _cpu() -> Cpu:
    return parse_cpu(_read(Path("/proc/cpuinfo")) or None)


def cores_finding(installed: int, affinity: int, quota: float | None) -> Finding:
    usable = usable_cores(affinity, quota)
    limits = []
    if affinity < installed:
        limits.append(f"this process may run on {affinity}")
    if quota is not None and quota < affinity:
        limits.append(f"the container may use the time of {quota:g}")
    value = f"{usable} of {installed} usable" + (f" ({', '.join(limits)})" if limits else "")
    if quota is not None and quota < affinity:
        return Finding(
            name="cores",
            status="warn",
            value=value,
            remedy=f"A thread beyond {usable} is stopped by the kernel in mid-call, which ruins P95 and P99: offer "
            f"serving.intra_op_threads up to {usable} only, or pin the container to cores instead.",
        )
    return Finding(name="cores", status="ok", value=value)


def int8_finding(cpu: Cpu) -> Finding:
    """What the CPU's instructions mean for INT8; measured speed is the sweep's to say."""
    flags = ", ".join(cpu.features)
    if not cpu.features and cpu.dot_product:
        return Finding(name="INT8", status="ok", value="this system does not tell the CPU's instructions")
    if "amx_int8" in cpu.features:
        return Finding(name="INT8", status="ok", value=f"AMX: 8-bit products in tiles; INT8 can gain most ({flags})")
    if cpu.dot_product:
        return Finding(
            name="INT8", status="ok", value=f"8-bit dot products in one instruction, summed without overflow ({flags})"
        )
    if cpu.saturates:
        return Finding(
            name="INT8",
            status="warn",
            value=f"no VNNI: pairs of 8-bit products are added in 16 bits, which can overflow ({flags})",
            remedy="Expect little speed-up and lost accuracy; sweep on the kind of machine that will serve.",
        )
    return Finding(
        name="INT8",
        status="warn",
        value=f"no 8-bit dot products ({flags or 'no known instruction'})",
        remedy="INT8 may be slower than float here; sweep on the kind of machine that will serve.",
    )


def load_finding(load: float, cores: int) -> Finding:
    """Args: load: runnable processes, averaged over the last minute."""
    value = f"{load:.1f} processes ready to run, {cores} cores"
    if load <= _BUSY_SHARE * cores:
        return Finding(name="load", status="ok", value=value)
    return Finding(
        name="load",
        status="warn",
        value=value,
        remedy="Timing will be noisy and its intervals wide: stop other work before a sweep.",
    )


def memory_finding(total_bytes: int, available_bytes: int, limit_bytes: int | None) -> Finding:
    room = min(available_bytes, limit_bytes or available_bytes)
    value = f"{available_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB available"
    if limit_bytes is not None and limit_bytes < total_bytes:
        value += f", the container may use {limit_bytes / _GIB:.1f} GiB"
    if room < 2 * _GIB:
        remedy = "Calibration holds the float model and its activations: free some for models beyond 100 MB."
        return Finding(name="memory", status="warn", value=value, remedy=remedy)
    return Finding(name="memory", status="ok", value=value)


# --- software ------------------------------------------------------------------------------------------------------


def python_finding(version: tuple[int, ...]) -> Finding:
    value = ".".join(map(str, version))
    if version < _PYTHON_WANTED:
        wanted = ".".join(map(str, _PYTHON_WANTED))
        return Finding(name="Python", status="fail", value=value, remedy=f"Install Python {wanted} or newer.")
    return Finding(name="Python", status="ok", value=f"{value} on {platform.system()} {platform.machine()}")


def target_findings(targets: Iterable[str]) -> tuple[Finding, ...]:
    """Which targets can be used. ONNX Runtime is required: it also runs the float model that all is compared with."""
    findings = []
    for name in targets:
        try:
            toolchain = open_target(name).toolchain()
        except ToolchainError as error:
            status: Status = "fail" if name == "onnxruntime" else "warn"
            findings.append(Finding(name=f"target {name}", status=status, value="not usable", remedy=str(error)))
        else:
            versions = (f"{part} {version}" for part, version in toolchain.components.items() if part != "platform")
            findings.append(Finding(name=f"target {name}", status="ok", value=f"usable: {', '.join(versions)}"))
    return tuple(findings)


def installed_version(package: str) -> str | None:
    """Version of an installed package, which is not imported; None when it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def extra_findings(packages: Iterable[str], version_of: Callable[[str], str | None]) -> tuple[Finding, ...]:
    """The packages of the extra `export`."""
    findings = []
    for package in packages:
        version = version_of(package)
        findings.append(
            Finding(name=package, status="ok", value=version)
            if version is not None
            else Finding(
                name=package,
                status="warn",
                value="not installed (optional)",
                remedy='Needed by `workbench convert` and `workbench example`: pip install "int8-workbench[export]".',
            )
        )
    return tuple(findings)


# --- the workspace -------------------------------------------------------------------------------------------------


def workspace_findings(workspace: Path) -> tuple[Finding, ...]:
    folder = workspace.resolve()
    if not folder.is_dir():
        remedy = f"Create it (mkdir -p {folder}), or name another with --workspace."
        return (Finding(name="workspace", status="fail", value=f"{folder} is not a folder", remedy=remedy),)
    return (
        disk_finding(shutil.disk_usage(folder).free),
        *(writable_finding(name, folder / name) for name in (".workbench", "mlruns")),
    )


def disk_finding(free_bytes: int) -> Finding:
    value = f"{free_bytes / _GIB:.1f} GiB free"
    remedy = "Free some (`workbench cache --prune`), or name a workspace on another disk with --workspace."
    if free_bytes < _GIB // 2:
        return Finding(name="disk", status="fail", value=value, remedy=remedy)
    if free_bytes < 5 * _GIB:
        return Finding(name="disk", status="warn", value=value, remedy=f"`workbench plan` says the need. {remedy}")
    return Finding(name="disk", status="ok", value=value)


def writable_finding(name: str, folder: Path) -> Finding:
    """Whether files can be made in a folder of the workspace; one that does not exist yet is asked of its parent."""
    exists = os.path.lexists(folder)
    try:
        with tempfile.TemporaryFile(dir=folder if exists else folder.parent):
            pass
    except OSError as error:
        remedy = f"Give yourself the right to write in {folder if exists else folder.parent}, or use --workspace."
        return Finding(name=name, status="fail", value=f"cannot be written: {error.strerror}", remedy=remedy)
    return Finding(name=name, status="ok", value="writable" if exists else "will be created")


# --- Ascend --------------------------------------------------------------------------------------------------------


def ascend_findings(
    environment: Mapping[str, str],
    *,
    which: Callable[[str], str | None],
    has_module: Callable[[str], bool],
    driver_file: Path,
    targets: Iterable[str],
) -> tuple[Finding, ...]:
    """What a sweep on Ascend 910B3 needs and whether it is there; all of it is optional, so nothing fails.

    Args:
        which: path of a program, None when it is not on PATH.
        has_module: whether Python finds a module.
        driver_file: `version.info` of the NPU driver.
        targets: names of the targets that this workbench has.
    """
    home = environment.get("ASCEND_HOME_PATH", "")
    source = f"source set_env.sh of CANN {_CANN_WANTED}"
    findings = []
    if ASCEND not in targets:
        findings.append(
            Finding(
                name=f"target {ASCEND}",
                status="warn",
                value="this version of the workbench has no Ascend target",
                remedy="Nothing to do: the findings below say whether the machine is ready for one.",
            )
        )
    findings += [
        _optional("ASCEND_HOME_PATH", home, "not set", f"Install the CANN {_CANN_WANTED} toolkit and {source}."),
        _version_finding(
            "CANN",
            next((v for file in _CANN_VERSION_FILES if home and (v := version_in(Path(home) / file))), ""),
            wanted=_CANN_WANTED,
            exact=True,
            remedy=f"Install the CANN {_CANN_WANTED} toolkit and the ops package of the 910B.",
        ),
        _optional("atc", which("atc") or "", "not on PATH", f"The model compiler; {source}."),
        _optional(
            "acl",
            "importable" if has_module("acl") else "",
            "no such Python module",
            f"pyACL, which runs compiled models; {source}, which sets PYTHONPATH.",
        ),
        _optional(
            "npu-smi", which("npu-smi") or "", "not on PATH", f"Install the NPU driver {_DRIVER_WANTED} or newer."
        ),
        _version_finding(
            "NPU driver",
            version_in(driver_file),
            wanted=_DRIVER_WANTED,
            exact=False,
            remedy=f"Install the NPU driver {_DRIVER_WANTED} or newer; only compiling needs none.",
        ),
    ]
    return tuple(findings)


def version_in(file: Path) -> str:
    """What the line `Version=…` of a vendor's version.info says; empty without one."""
    found = re.search(r"^\s*version\s*=\s*(\S+)\s*$", _read(file), re.MULTILINE | re.IGNORECASE)
    return found.group(1) if found else ""


def _optional(name: str, value: str, missing: str, remedy: str) -> Finding:
    if value:
        return Finding(name=name, status="ok", value=value)
    return Finding(name=name, status="warn", value=f"{missing} (optional)", remedy=remedy)


def _version_finding(name: str, found: str, *, wanted: str, exact: bool, remedy: str) -> Finding:
    if not found:
        return Finding(name=name, status="warn", value="no version found (optional)", remedy=remedy)
    numbers, limit = _numbers(found), _numbers(wanted)
    if numbers == limit or (numbers > limit and not exact):
        return Finding(name=name, status="ok", value=found)
    sign = "" if exact else " or newer"
    return Finding(name=name, status="warn", value=f"{found}, wanted {wanted}{sign}", remedy=remedy)


def _numbers(version: str) -> tuple[int, ...]:
    """(25, 3) of '25.3.rc1' and of '25.3.0': the leading numbers, by which Ascend's versions are ordered."""
    leading = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _read(file: Path) -> str:
    """The text of a file, empty when it cannot be read: absence is a finding here, not an error."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
