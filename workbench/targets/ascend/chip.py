"""What the chips can do, by their data: cores, clock, multiply-accumulates of a core in a cycle (atc.md §7.2);
910B4 runs at 1650 MHz by its traces, where the file says 1500.

A peak is cores × clock × multiply-accumulates × 2 [inferred]: 910B3 comes to 294.9 TFLOPS in FP16 and 589.8 TOPS in
INT8, where 313 and 626 are quoted for it, so a share of the peak may be a twentieth too high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Attributes:
    cores: that multiply matrices; vector cores are twice as many.
    """

    cores: int
    clock_mhz: float


CHIPS: Mapping[str, Chip] = {
    "Ascend910B1": Chip(cores=24, clock_mhz=1850),
    "Ascend910B2": Chip(cores=24, clock_mhz=1800),
    "Ascend910B2C": Chip(cores=24, clock_mhz=1800),
    "Ascend910B3": Chip(cores=20, clock_mhz=1800),
    "Ascend910B4": Chip(cores=20, clock_mhz=1650),
    "Ascend910B4-1": Chip(cores=20, clock_mhz=1650),
}
_MACS: Mapping[str, int] = {"float16": 16 * 16 * 16, "bfloat16": 16 * 16 * 16, "int8": 16 * 32 * 16}
"""`DtypeMKN` of the platform file; none is published for float32."""


def chip_of(name: str) -> Chip | None:
    """By the name that pyACL, npu-smi or ATC gives; None for one without a platform file in CANN 8.5."""
    return CHIPS.get("Ascend" + name.replace(" ", "").removeprefix("Ascend"))


def peak_tops(name: str, dtype: str) -> float | None:
    """10^12 operations a second of all cores, two for each multiply-accumulate; None where no rate is known."""
    chip, macs = chip_of(name), _MACS.get(dtype)
    return None if chip is None or macs is None else chip.cores * chip.clock_mhz * macs * 2 / 1e6
