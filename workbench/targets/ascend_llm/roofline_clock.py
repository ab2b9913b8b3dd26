"""The clock of the roofline: rates of the chip, what kernels reach of them, and what nobody knows of either.

Rates come from the platform file (atc.md §7.2) and, as a second centre, from the published data sheet: 313 TFLOPS in
float16, 626 TOPS in INT8, 1.6 TB/s. Unknowns have the names and units of the vendor's card elsewhere here, so that
`python -m workbench.targets.ascend.microbenchmarks` measures them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from workbench.targets.ascend.chip import chip_of, peak_tops
from workbench.values.modelled_times.statement import TimingModel, Unknown

_CUBE_REACHED = 0.6
"""Of the cube's peak by large products [inferred]: 216 of 256 TFLOPS were reached on the 910 before it (AIBench, doi
10.1007/s42514-024-00187-x); products of one prompt are smaller."""
_MEMORY_REACHED = 0.8
"""What a streaming kernel usually reaches of a bandwidth [inferred]."""
_VECTOR_REACHED = 0.5
"""Loads, stores and synchronization between instructions [inferred]."""
_LAUNCH_US = 2.0
"""Start of a task of a graph that is on the device as a whole [inferred]."""
_VECTOR_BYTES = 256
"""One instruction handles 256 bytes [inferred: width of a repeat in Ascend C]; a core has two vector units."""
_NEAR_BYTES, _FAR_BYTES = 110, 32
"""Bytes a cycle and core from L2 and from HBM (atc.md §7.2)."""
_SHEET_TB_S = 1.6
_SHEET_TFLOPS = 313.0
_SHEET_INT8_GAIN = 1.5
"""626 TOPS are twice 313; narrower operands leave loads, scaling and hand-on as they are [inferred]."""
_UNKNOWNS: Mapping[str, tuple[str, tuple[str, ...], float, str, str]] = {
    "matrix_float16": (
        "matrix products in float16, and with them in INT8",
        ("matrix_float16", "matrix_int8"),
        1.6,
        "TFLOPS",
        "1.6: what shapes of one library differ by",
    ),
    "int8_gain": (
        "what INT8 gains in a matrix product of the same shape",
        ("matrix_int8",),
        1.35,
        "times float16's rate",
        "at most 2 by the cube's rates; 1.35 reaches from 1.5 to beyond 2",
    ),
    "far_memory": (
        "bytes from HBM: weights, cached keys and values",
        ("far_memory",),
        1.3,
        "TB/s",
        "1.3: what streaming kernels reach differs by that on cards of its kind",
    ),
    "near_memory": (
        "activations from L2",
        ("near_memory",),
        1.4,
        "TB/s",
        "rates of the platform file, of which nobody measured what kernels reach",
    ),
    "vector": (
        "norms, softmax, gates, quantization",
        ("vector",),
        2.0,
        "TB/s of operands",
        "instructions are counted from formulas, no kernel was seen",
    ),
    "kernel_launch": (
        "start of a kernel on the device",
        ("kernel_launch",),
        2.5,
        "us",
        "1 to 5 us are usual for a graph that lies on a device as a whole",
    ),
}
"""Name → what it is, the prices that it moves, the factor within which it lies with 95 %, its unit, why."""


@functools.cache
def roofline_clock(name: str) -> TimingModel:
    """The clock of a chip, such as 'Ascend910B3'."""
    chip, float16, int8 = chip_of(name), peak_tops(name, "float16"), peak_tops(name, "int8")
    if chip is None or float16 is None or int8 is None:
        raise ValueError(f"no platform file is known of {name!r}")
    cycles = chip.cores * chip.clock_mhz * 1e6
    cube, gain = float16 * _CUBE_REACHED, int8 / float16
    far, near = (cycles * each / 1e12 * _MEMORY_REACHED for each in (_FAR_BYTES, _NEAR_BYTES))
    vector = 2 * cycles * _VECTOR_BYTES / 1e12 * _VECTOR_REACHED
    prices = {
        "matrix_float16": 1 / cube,
        "matrix_int8": 1 / (cube * gain),
        "far_memory": 1 / far,
        "near_memory": 1 / near,
        "vector": 1 / vector,
        "kernel_launch": _LAUNCH_US,
    }
    values = {
        "matrix_float16": (cube, _SHEET_TFLOPS * _CUBE_REACHED),
        "int8_gain": (gain, _SHEET_INT8_GAIN),
        "far_memory": (far, _SHEET_TB_S * _MEMORY_REACHED),
        "near_memory": (near, near),
        "vector": (vector, vector),
        "kernel_launch": (_LAUNCH_US, _LAUNCH_US),
    }
    unknowns = tuple(
        Unknown(
            name=unknown,
            about=about,
            moves=moves,
            factor_95=factor,
            data_sheet=values[unknown][0] / values[unknown][1],
            value=values[unknown][0],
            unit=unit,
            reads="time" if unit == "us" else "rate",
            source=f"{source} [inferred]",
            settled_by=f"python -m workbench.targets.ascend.microbenchmarks {unknown} --to clock.json",
        )
        for unknown, (about, moves, factor, unit, source) in _UNKNOWNS.items()
    )
    return TimingModel(name=f"{name}, roofline", prices=tuple(prices.items()), unknowns=unknowns)
