"""What this processor does with 8-bit products; kernels, operands and hints follow from it.

x86 without VNNI multiplies unsigned by signed bytes and adds two such products in 16 bits: 2 · 255 · 127 = 64,770
becomes 32,767. Two forms are exact on every processor: unsigned by unsigned bytes where a library has a kernel that
widens them first (`quantization/exact_operands`), and weights within ±64, since 2 · 255 · 64 = 32,640 fits. A processor
of no known class is treated as one that saturates.

The C library is asked, which asks the processor: under an emulator /proc/cpuinfo shows the flags of the host.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_CLASSES = {
    "amx_int8": "AMX",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "i8mm": "Arm i8mm",
    "asimddp": "Arm dot product",
    "avx512f": "AVX-512 without VNNI",
    "avx2": "AVX2 without VNNI",
}
"""Flag, as Linux spells it → class; the first that a processor has is its own."""

_SATURATING = ("avx512f", "avx2")
_UNKNOWN = "of no known class"
_FEATURES = (*_CLASSES, "sve")
"""Flags by which libraries choose their matrix kernels."""

_X86 = {
    "avx2": (1, 1, 5),
    "avx512f": (1, 1, 16),
    "avx512_vnni": (1, 2, 11),
    "amx_int8": (1, 3, 25),
    "avx_vnni": (6, 0, 4),
}
"""Flag → (leaf, register, bit) of glibc's <sys/platform/x86.h>."""
_ARM = {"asimddp": (16, 20), "sve": (16, 22), "i8mm": (26, 13)}
"""Flag → (entry of the auxiliary vector, bit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """What decides about INT8 on a CPU.

    Attributes:
        features: the flags of `_FEATURES` it has, sorted; empty where the system does not tell.
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
    decisive = next((flag for flag in _CLASSES if flag in flags), "")
    return Cpu(
        name=name,
        features=tuple(sorted(flag for flag in _FEATURES if flag in flags)),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        kind=_CLASSES.get(decisive, _UNKNOWN),
        saturates=not decisive or decisive in _SATURATING,
    )


@functools.cache
def this_cpu() -> Cpu:
    """The one that runs this process."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    name = _field(text, "model name|Hardware") or platform.processor() or platform.machine()
    told = _told()
    return cpu_of(_field(text, "flags|Features").split() if told is None else told, name)


def _told() -> list[str] | None:
    """Flags by the C library; None where it cannot tell: another one than glibc, or one before 2.33."""
    library = ctypes.CDLL(None)
    try:
        if platform.machine() == "aarch64":
            library.getauxval.restype = ctypes.c_ulong
            return [flag for flag, (entry, bit) in _ARM.items() if library.getauxval(entry) >> bit & 1]
        leaf = library.__x86_get_cpuid_feature_leaf
    except AttributeError:
        return None
    leaf.restype = ctypes.POINTER(ctypes.c_uint32 * 8)  # four registers as CPUID gives them, four with what is usable
    return [flag for flag, (number, register, bit) in _X86.items() if leaf(number)[0][4 + register] >> bit & 1]


def _field(text: str, key: str) -> str:
    found = re.search(rf"^(?:{key})\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""
