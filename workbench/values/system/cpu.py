"""What of the processor decides about INT8 on it."""

from __future__ import annotations

import functools
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

_FEATURES = ("amx_int8", "avx2", "avx512_vnni", "avx512f", "avx_vnni", "asimddp", "i8mm", "sve")
"""CPU flags, as Linux spells them, by which libraries choose their matrix kernels."""

_DOT_PRODUCT = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
"""Flags of instructions that multiply 8-bit integers into 32-bit sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """What decides about INT8 on a CPU.

    Attributes:
        features: the flags of `_FEATURES` it has, empty where the system does not tell.
        dot_product: it multiplies 8-bit integers into 32-bit sums in one instruction; True where unknown.
        saturates: its products of unsigned with signed bytes are added in pairs in 16 bits.
    """

    name: str
    features: tuple[str, ...]
    cores: int
    dot_product: bool
    saturates: bool


def parse_cpu(cpuinfo: str | None) -> Cpu:
    """The CPU by the text of /proc/cpuinfo, or by what Python knows on a system without that file."""
    flags = set(_field(cpuinfo, "flags|Features").split())
    dot_product = bool(_DOT_PRODUCT & flags)
    return Cpu(
        name=_field(cpuinfo, "model name|Hardware") or platform.processor() or platform.machine(),
        features=tuple(flag for flag in _FEATURES if flag in flags),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        dot_product=dot_product or not flags,
        saturates="avx2" in flags and not dot_product,
    )


@functools.cache
def this_cpu() -> Cpu:
    """The one that runs this process."""
    file = Path("/proc/cpuinfo")
    return parse_cpu(file.read_text(encoding="utf-8", errors="replace") if file.exists() else None)


def _field(text: str | None, key: str) -> str:
    found = re.search(rf"^(?:{key})\s*:\s*(.*)$", text or "", re.MULTILINE)
    return found.group(1).strip() if found else ""
