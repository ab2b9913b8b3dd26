"""The processor, its limits, the memory, and whether the machine is quiet enough to time anything."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import psutil

from workbench.evaluation.noise import UNSTEADY, Steadiness, read_counters, steadiness, suspects
from workbench.values.finding import Finding
from workbench.values.system.control_groups import control_group_limits as control_group_limits
from workbench.values.system.cpu import Cpu, this_cpu

LITTLE_MEMORY_BYTES = 2_000_000_000
_PROBE_ROUNDS, _PROBE_CALLS = 30, 8
_GROUP = "machine"


def machine_findings() -> Iterator[Finding]:
    cpu = this_cpu()
    cpu_quota, memory_limit_bytes = control_group_limits()
    memory = psutil.virtual_memory()
    yield Finding(group=_GROUP, name="CPU", status="ok", value=cpu.name)
    yield int8_finding(cpu)
    yield cores_finding(os.cpu_count() or 1, cpu.cores, cpu_quota)
    yield memory_finding(memory.total, memory.available, memory_limit_bytes)
    steady, causes = probe_quiet()
    yield quiet_finding(steady, causes, psutil.getloadavg()[0])


# --- the processor -------------------------------------------------------------------------------------------------


def int8_finding(cpu: Cpu) -> Finding:
    """What the CPU's instructions mean for INT8; how much is gained is the sweep's to measure."""
    flags = ", ".join(cpu.features) or "no known instruction"
    if cpu.saturates:
        value = f"{cpu.kind}: pairs of 8-bit products may be added in 16 bits, which overflow ({flags})"
        remedy = "INT8 takes operands that are exact here and gains less; sweep on the kind of machine that will serve."
    else:
        value, remedy = f"{cpu.kind}: 8-bit products are added without overflow ({flags})", ""
    return Finding(group=_GROUP, name="INT8", status="warn" if remedy else "ok", value=value, remedy=remedy)


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
    return Finding(
        group=_GROUP,
        name="cores",
        status="warn" if throttled else "ok",
        value=f"{usable} of {installed} usable" + (f" ({', '.join(limits)})" if limits else ""),
        remedy=f"A thread beyond {usable} is stopped by the kernel in mid-call, which ruins P95 and P99: pin the "
        f"container to cores (--cpuset-cpus), or offer serving.intra_op_threads up to {usable} only."
        if throttled
        else "",
    )


# --- memory --------------------------------------------------------------------------------------------------------


def memory_finding(total_bytes: int, available_bytes: int, limit_bytes: int | None) -> Finding:
    """Args: limit_bytes: what the control groups allow, None without a limit."""
    limited = limit_bytes is not None and limit_bytes < total_bytes
    little = min(available_bytes, limit_bytes or available_bytes) < LITTLE_MEMORY_BYTES
    return Finding(
        group=_GROUP,
        name="memory",
        status="warn" if little else "ok",
        value=f"{available_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB available"
        + (f", limited to {limit_bytes / 1e9:.1f} GB by the container" if limit_bytes and limited else ""),
        remedy="A BERT-base needs about 2 GB while it is quantized: close programs, or raise the limit."
        if little
        else "",
    )


# --- quiet ---------------------------------------------------------------------------------------------------------


def probe_quiet() -> tuple[Steadiness, list[str]]:
    """Time the same work again and again, for about 0.1 s: what varies is the machine. With the suspected causes."""
    work = bytes(100_000)
    times_ms = np.empty((_PROBE_ROUNDS, _PROBE_CALLS))
    before = read_counters()
    for index in np.ndindex(times_ms.shape):
        start = time.perf_counter()
        hashlib.sha256(work)
        times_ms[index] = (time.perf_counter() - start) * 1e3
    causes = suspects(before, read_counters())
    return steadiness(times_ms, np.zeros(times_ms.shape, dtype=np.int64)), causes


def quiet_finding(steady: Steadiness, causes: Sequence[str], load: float) -> Finding:
    """Args: load: processes ready to run, averaged over the last minute; shown, not judged."""
    change = max(steady.spread, abs(steady.drift))
    noisy = change >= UNSTEADY or bool(causes)
    return Finding(
        group=_GROUP,
        name="quiet",
        status="warn" if noisy else "ok",
        value="; ".join([f"equal work varies by {change:.1%}, load {load:.1f}", *causes]),
        remedy="Timing will be noisy and its intervals wide: close other programs before a sweep." if noisy else "",
    )
