"""What this machine can do, and what is missing for what it cannot: for people, and by its exit code for scripts."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper

from workbench import __version__
from workbench.candidate import Candidate, Quantization
from workbench.canonical import encode
from workbench.errors import WorkbenchError
from workbench.graph import read_model
from workbench.noise import UNSTEADY, read_counters, steadiness, suspects
from workbench.targets import TARGETS, open_target
from workbench.targets.onnxruntime import parse_cpu

if TYPE_CHECKING:  # a script that asks for JSON needs no terminal library
    from rich.table import Table

Status = Literal["ok", "warn", "fail"]

ENOUGH_DISK_BYTES, LITTLE_DISK_BYTES = 5_000_000_000, 500_000_000
"""60 candidates of a 30 MB model, lowered and compiled, take about 4 GB; below the second a sweep cannot begin."""
LITTLE_MEMORY_BYTES = 2_000_000_000
BASE_PACKAGES = ("numpy", "onnx", "onnxruntime", "optuna", "mlflow", "tokenizers", "plotly", "scipy")
EXPORT_PACKAGES = ("torch", "transformers", "safetensors")

_PROBE_ROUNDS, _PROBE_CALLS = 30, 8
_UNLIMITED_BYTES = 1 << 60  # control groups of version 1 write 2**63 less a page for "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine.

    Attributes:
        group: heading it is shown under.
        status: 'fail' when the workbench cannot work because of it; 'warn' when something is missing or hurts.
        remedy: what to do about it; empty when all is well.
    """

    group: str
    name: str
    status: Status
    value: str
    remedy: str = ""


def examine(workspace: Path) -> tuple[Finding, ...]:
    """Look at machine, targets, workspace and packages; takes about a second and writes nothing that stays."""
    return (
        *_packages(),
        *_processor(),
        *_memory(),
        *_quiet(),
        *_onnxruntime(),
        *_ascend(os.environ),
        *_workspace(workspace.resolve()),
    )


def exit_code(findings: tuple[Finding, ...]) -> int:
    """0 when the workbench can work here, 1 when something it requires fails."""
    return int(any(finding.status == "fail" for finding in findings))


def findings_json(findings: tuple[Finding, ...]) -> dict[str, Any]:
    return {"version": 1, "usable": exit_code(findings) == 0, "findings": encode(findings)}


def findings_table(findings: tuple[Finding, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            table.add_row()
            table.add_row("", "", Text(group, style="bold"))
        mark = Text(finding.status, style=styles[finding.status])
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        table.add_row(mark, finding.name, Text(finding.value + remedy))
    return table


# --- the machine ---------------------------------------------------------------------------------------------------


def _packages(base: tuple[str, ...] = BASE_PACKAGES, export: tuple[str, ...] = EXPORT_PACKAGES) -> Iterator[Finding]:
    group = "packages"
    yield Finding(
        group=group, name="workbench", status="ok", value=f"{__version__}, Python {platform.python_version()}"
    )
    missing = [name for name in base if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "Install the workbench again: pip install int8-workbench"
        yield Finding(
            group=group, name="required", status="fail", value=f"missing: {', '.join(missing)}", remedy=remedy
        )
    else:
        yield Finding(group=group, name="required", status="ok", value=_versions(base))
    absent = [name for name in export if importlib.util.find_spec(name) is None]
    yield Finding(
        group=group,
        name="export",
        status="warn" if absent else "ok",
        value=f"missing: {', '.join(absent)}" if absent else _versions(export),
        remedy="Needed by convert and example only: pip install 'int8-workbench[export]'" if absent else "",
    )


def _versions(names: tuple[str, ...]) -> str:
    """Installed versions, without importing anything: mlflow and torch take seconds."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(name)  # a build of one's own, without metadata
    return ", ".join(found)


def _processor() -> Iterator[Finding]:
    group = "machine"
    cpuinfo = Path("/proc/cpuinfo")
    cpu = parse_cpu(cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else None)
    yield Finding(
        group=group,
        name="CPU",
        status="ok" if cpu.dot_product else "warn",
        value=f"{cpu.name}: {', '.join(cpu.features) or 'flags unknown'}",
        remedy="" if cpu.dot_product else "No VNNI, AMX or DotProd: INT8 gains little here. Use a newer CPU.",
    )
    limit, _ = control_group_limits()
    short = limit is not None and limit < cpu.cores
    yield Finding(
        group=group,
        name="cores",
        status="warn" if short else "ok",
        value=f"{cpu.cores}" + (f", limited to {limit:g} by the container" if limit is not None else ""),
        remedy="A quota below the number of cores stalls threads: pin cores instead (--cpuset-cpus)." if short else "",
    )


def _memory() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    _, limit = control_group_limits()
    free = memory.available if limit is None else min(memory.available, limit)
    little = free < LITTLE_MEMORY_BYTES
    yield Finding(
        group="machine",
        name="memory",
        status="warn" if little else "ok",
        value=f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"
        + (f", limited to {limit / 1e9:.1f} GB by the container" if limit is not None else ""),
        remedy="A BERT-base needs about 2 GB while it is quantized. Close programs, or raise the limit."
        if little
        else "",
    )


def _quiet() -> Iterator[Finding]:
    """Time the same work again and again: what varies is the machine."""
    work = bytes(100_000)
    times_ms = np.empty((_PROBE_ROUNDS, _PROBE_CALLS))
    before = read_counters()
    for index in np.ndindex(times_ms.shape):
        start = time.perf_counter()
        hashlib.sha256(work)
        times_ms[index] = (time.perf_counter() - start) * 1e3
    steady = steadiness(times_ms, np.zeros(times_ms.shape, dtype=np.int64))
    causes = suspects(before, read_counters())
    load = os.getloadavg()[0]
    noisy = steady.spread >= UNSTEADY or abs(steady.drift) >= UNSTEADY or bool(causes)
    yield Finding(
        group="machine",
        name="quiet",
        status="warn" if noisy else "ok",
        value="; ".join(
            [f"equal work varies by {max(steady.spread, abs(steady.drift)):.1%}, load {load:.1f}", *causes]
        ),
        remedy="Timing will be noisy: close other programs before a sweep." if noisy else "",
    )


def control_group_limits(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> tuple[float | None, int | None]:
    """(CPUs, bytes of memory) this process may use by its control groups, version 1 or 2; None without a limit."""
    cpus: list[float] = []
    memory: list[int] = []
    for folder in _control_groups(root, membership):
        quota = _words(folder / "cpu.max")
        if len(quota) < 2:
            quota = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
            cpus.append(int(quota[0]) / int(quota[1]))
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _words(folder / name)
            if words and words[0].isdigit() and int(words[0]) < _UNLIMITED_BYTES:
                memory.append(int(words[0]))
    return min(cpus, default=None), min(memory, default=None)


def _control_groups(root: Path, membership: Path) -> Iterator[Path]:
    """Folders of this process's groups and of all their parents; each of them may set a limit."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # no control groups on this system
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / controllers if controllers else root
        folder = base / path.strip("/")
        yield from (f for f in (folder, *folder.parents) if f.is_relative_to(base))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


# --- targets -------------------------------------------------------------------------------------------------------


def _onnxruntime() -> Iterator[Finding]:
    group = "target onnxruntime"
    try:
        version = open_target("onnxruntime").toolchain().components["onnxruntime"]
        kernels, seconds = _run_int8()
    except WorkbenchError as error:
        yield Finding(group=group, name="usable", status="fail", value="no", remedy=str(error))
        return
    yield Finding(
        group=group,
        name="usable",
        status="ok" if kernels else "fail",
        value=f"yes: {version}; a test layer was quantized, compiled and run in {seconds:.1f} s"
        if kernels
        else f"no: {version} left a quantized test layer in float",
        remedy="" if kernels else "Install the version the workbench pins: pip install int8-workbench",
    )


def _run_int8() -> tuple[int, float]:
    """Take one layer through the target; returns how many operators ran in integer kernels, and the time."""
    candidate = Candidate(quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))
    weight = np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    start = time.perf_counter()
    target = open_target("onnxruntime")
    with tempfile.TemporaryDirectory(prefix="workbench-doctor-") as folder:
        model, lowered, compiled = Path(folder) / "probe.onnx", Path(folder) / "lowered", Path(folder) / "compiled"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        lowered.mkdir()
        compiled.mkdir()
        artifact = target.compile(target.lower(read_model(model), candidate, None, lowered), candidate, compiled)
        session = target.open(artifact, compiled, candidate)
        session.run({"x": np.ones((2, 32), np.float32)})
        session.close()
    return artifact.int8_ops, time.perf_counter() - start


def _ascend(environment: Mapping[str, str]) -> Iterator[Finding]:
    """What of CANN is here. Missing parts are a warning: the other target works without them."""
    group = "target ascend910b3"
    if "ascend910b3" not in TARGETS:
        yield Finding(
            group=group,
            name="workbench",
            status="warn",
            value=f"workbench {__version__} has no Ascend target yet",
            remedy="`workbench inspect --target ascend910b3` already says what ATC would stumble over.",
        )
    home = environment.get("ASCEND_HOME_PATH", "")
    yield _part(
        group,
        "toolkit",
        f"CANN {_cann_version(Path(home))} at {home}" if home and Path(home).is_dir() else None,
        f"ASCEND_HOME_PATH names {home}, which is no folder" if home else "ASCEND_HOME_PATH is not set",
        "Install the CANN 8.5 toolkit and the ops package of the 910b, then: source <CANN>/set_env.sh",
    )
    path = environment.get("PATH", os.defpath)
    yield _part(
        group,
        "compiler",
        shutil.which("atc", path=path),
        "no atc",
        "It comes with the toolkit; compiling needs no NPU.",
    )
    acl = importlib.util.find_spec("acl")
    yield _part(
        group,
        "runtime",
        str(acl.origin or acl.name) if acl else None,
        "no Python module acl",
        "set_env.sh puts it on PYTHONPATH; it needs the driver.",
    )
    amct = importlib.util.find_spec("amct_onnx")
    yield _part(
        group,
        "AMCT",
        str(amct.origin or amct.name) if amct else None,
        "no Python module amct_onnx",
        "Optional. Of CANN 8.5 it wants onnx 1.14.0 with onnxruntime 1.16.0: give it a virtual environment of its own.",
    )
    smi = shutil.which("npu-smi", path=path)
    devices, trouble = _devices(smi) if smi else (None, "no npu-smi")
    yield _part(
        group,
        "device",
        devices,
        trouble,
        "Install the driver and firmware of the Atlas A2; in a container, mount /dev/davinci* and the driver's folder.",
    )


def _part(group: str, name: str, value: str | None, missing: str, remedy: str) -> Finding:
    if value is not None:
        return Finding(group=group, name=name, status="ok", value=value)
    return Finding(group=group, name=name, status="warn", value=missing, remedy=remedy)


def _cann_version(home: Path) -> str:
    """Of the first package that states one, in the order in which ATC is found (atc.md §7.1)."""
    places = ("share/info/ge-compiler", "share/info/runtime", "compiler", "opp")
    for file in (home / place / "version.info" for place in places):
        for word in _words(file):
            if word.startswith("Version="):
                return word.removeprefix("Version=")
    return "of unknown version"


def _devices(smi: str) -> tuple[str | None, str]:
    """(chips by name, '') or (None, why there are none), from `npu-smi info`.

    Its text differs between drivers, so it is read leniently: a device is a row `| 0     910B3 | OK | …`.
    """
    try:
        done = subprocess.run([smi, "info"], capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"npu-smi does not answer: {error}"
    cells = [line.split("|")[1].split() for line in done.stdout.splitlines() if line.count("|") >= 3]
    chips = [words[1] for words in cells if len(words) == 2 and words[0].isdigit() and not words[1].isdigit()]
    if done.returncode != 0 or not chips:
        return None, f"npu-smi lists no device (exit code {done.returncode})"
    return ", ".join(f"{chips.count(name)} × {name}" for name in dict.fromkeys(chips)), ""


# --- the workspace -------------------------------------------------------------------------------------------------


def _workspace(workspace: Path) -> Iterator[Finding]:
    group = f"workspace {workspace}"
    free_bytes = shutil.disk_usage(_existing(workspace)).free
    status: Status = "fail" if free_bytes < LITTLE_DISK_BYTES else "warn" if free_bytes < ENOUGH_DISK_BYTES else "ok"
    yield Finding(
        group=group,
        name="disk",
        status=status,
        value=f"{free_bytes / 1e9:.1f} GB free",
        remedy=""
        if status == "ok"
        else "Free some space; `workbench cache --prune` deletes what can be computed again.",
    )
    for name, use in ((".workbench", "cache and journals"), ("mlruns", "MLflow's store")):
        place = _existing(workspace / name)
        # os.access also knows a read-only mount, where permission bits say nothing
        writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
        yield Finding(
            group=group,
            name=name,
            status="ok" if writable else "fail",
            value=f"{use}: {'writable' if writable else f'{place} cannot be written'}",
            remedy="" if writable else "Make it writable for this user, or choose another folder with --workspace.",
        )


def _existing(path: Path) -> Path:
    """The path itself, or its nearest parent that exists."""
    return next(p for p in (path, *path.parents) if p.exists())
