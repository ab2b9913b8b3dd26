"""What this processor does with 8-bit products; kernels, operands and hints follow from it.

x86 without VNNI multiplies unsigned by signed bytes and adds two such products in 16 bits: 2 · 255 · 127 = 64,770
becomes 32,767. Two forms are exact on every processor: unsigned by unsigned bytes where a library has a kernel that
widens them first (`quantization/exact_operands`), and weights within ±64, since 2 · 255 · 64 = 32,640 fits. A processor
of no known class is treated as one that saturates.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60  # control groups of version 1 write 2**63 less a page for "no limit"
_KIB = 1024


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that can be had before the machine swaps; None where the system does not say.

    A control group's limit counts as it is: what the group holds by now is mostly this process.
    """
    found: int | None = None
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) * _KIB
    limit = control_group_limits()[1]
    known = [value for value in (found, limit) if value is not None]
    return min(known, default=None)


def control_group_limits(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> tuple[float | None, int | None]:
    """(CPUs, bytes of memory) this process may use by its control groups, version 1 or 2; None without a limit."""
    cpus: list[float] = []
    memory: list[int] = []
    for folder in _control_groups(root, membership):
        quota = _text(folder / "cpu.max").split()
        if len(quota) < 2:
            quota = [word for name in ("quota", "period") for word in _text(folder / f"cpu.cfs_{name}_us").split()]
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
            cpus.append(int(quota[0]) / int(quota[1]))
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _text(folder / name).split()
            if words and words[0].isdigit() and int(words[0]) < _UNLIMITED_BYTES:
                memory.append(int(words[0]))
    return min(cpus, default=None), min(memory, default=None)


def _control_groups(root: Path, membership: Path) -> Iterator[Path]:
    """Folders of this process's groups and of all their parents; each of them may set a limit."""
    for line in _text(membership).splitlines():  # none where the system has no control groups
        _, controllers, path = line.split(":", 2)
        # Controllers mounted together (`cpu,cpuacct`) are found under that name, or in some containers under their own
        for mounted in dict.fromkeys((controllers, *controllers.split(","))):
            base = root / mounted
            folder = base / path.strip("/")
            yield from (f for f in (folder, *folder.parents) if f.is_relative_to(base))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


_FLAGS = {
    "amx_int8": ("AMX", (1, 3, 25)),
    "avx512_vnni": ("AVX-512 VNNI", (1, 2, 11)),
    "avx_vnni": ("AVX-VNNI", (6, 0, 4)),
    "i8mm": ("Arm i8mm", (26, 13)),
    "asimddp": ("Arm dot product", (16, 20)),
    "avx512f": ("AVX-512 without VNNI", (1, 1, 16)),
    "avx2": ("AVX2 without VNNI", (1, 1, 5)),
    "sve": ("Arm SVE without dot product", (16, 22)),
}
"""Flag, as Linux spells it → (class, where the C library tells it: (leaf, register, bit) of <sys/platform/x86.h>, or
(entry, bit) of the auxiliary vector). The first flag that a processor has is that of its class."""

_SUMS_IN_32_BITS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """What decides about INT8 on a CPU.

    Attributes:
        features: the flags of `_FLAGS` it has, sorted; empty where the system does not tell.
        kind: its class, in words.
        saturates: it adds pairs of products of unsigned with signed bytes in 16 bits, or may.
    """

    name: str
    features: tuple[str, ...]
    cores: int
    kind: str
    saturates: bool


def cpu_of(flags: Collection[str], name: str) -> Cpu:
    """The CPU with these flags and this name."""
    return Cpu(
        name=name,
        features=tuple(sorted(flag for flag in _FLAGS if flag in flags)),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        kind=next((kind for flag, (kind, _) in _FLAGS.items() if flag in flags), "of no known class"),
        saturates=not any(flag in flags for flag in _SUMS_IN_32_BITS),
    )


@functools.cache
def this_cpu() -> Cpu:
    """The one that runs this process."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    told = _told_by_library()
    name = _field(text, "model name|Hardware") or platform.processor() or platform.machine()
    return cpu_of(_field(text, "flags|Features").split() if told is None else told, name)


def _told_by_library() -> list[str] | None:
    """Flags by the C library, which asks the processor: an emulator's /proc/cpuinfo shows the flags of the host.

    None where it cannot tell: another one than glibc, or on x86 one before 2.33.
    """
    library = ctypes.CDLL(None)
    places = [(flag, place) for flag, (_, place) in _FLAGS.items()]
    try:
        if platform.machine() == "aarch64":
            library.getauxval.restype = ctypes.c_ulong
            return [flag for flag, (at, *bit) in places if len(bit) == 1 and library.getauxval(at) >> bit[0] & 1]
        leaf = library.__x86_get_cpuid_feature_leaf
    except AttributeError:
        return None
    leaf.restype = ctypes.POINTER(ctypes.c_uint32 * 8)  # four registers as CPUID gives them, four with what is usable
    return [flag for flag, (at, *bit) in places if len(bit) == 2 and leaf(at)[0][4 + bit[0]] >> bit[1] & 1]


def _field(text: str, key: str) -> str:
    found = re.search(rf"^(?:{key})\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""
