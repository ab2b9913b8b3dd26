"""What the timing model says of itself: what its parts cost, how far off each may be, and what a kernel is made of.

A kernel is its start and the rest, which is a part of its class's, or of HBM's where that decides it; both in
microseconds.
"""

from __future__ import annotations

from workbench.values.modelled_times.device_data import DeviceData
from workbench.values.modelled_times.kernels import KernelWork, times_us
from workbench.values.modelled_times.statement import Amounts, TimingModel, Unknown, Work

_REFITTED_95 = 1.1
"""What a refit to a device's own kernels leaves open [inferred]."""
_BENCHMARK = "python -m workbench.targets.ascend.microbenchmarks {name} --to clock.json"
_REFIT = "workbench emulator fit op_summary.csv --om model.om --to file.yaml"
_READ = {
    "matrix_float16": ("TFLOPS", "rate"),
    "int8_gain": ("times float16's rate", "rate"),
    "matrix_float32": ("TFLOPS", "rate"),
    "vector": ("TB/s of operands", "rate"),
    "far_memory": ("TB/s", "rate"),
    "near_memory": ("TB/s", "rate"),
    "kernel_launch": ("us", "time"),
    "aicpu_task": ("us", "time"),
    "execute_launch": ("us", "time"),
    "gear": ("us", "time"),
    "copy_latency": ("us", "time"),
    "copy_bandwidth": ("GB/s", "rate"),
}
"""Errors that a micro-benchmark settles: unit of its value, and whether more of it is faster."""


def timing_model(device: DeviceData, name: str) -> TimingModel:
    """The times of a chip.

    Args:
        name: of what takes them, such as an emulator as it stands in toolchains.
    """
    prices = {part: 1.0 for error in device.errors.values() for part in error.moves}
    prices |= {
        "aicpu_elements": 1e3 * device.aicpu_element_ns,
        "execute_launch": device.execute_launch_us,
        "gear": device.gear_us,
        "copy_latency": device.copy_latency_us,
        "to_device": 1e3 / device.host_to_device_gb_per_s,
        "to_host": 1e3 / device.device_to_host_gb_per_s,
    }
    return TimingModel(
        name=f"{device.soc_version}, {name}",
        prices=tuple(prices.items()),
        # what costs nothing by the model costs nothing times any factor
        unknowns=tuple(_unknown(one, device) for one in device.errors if _value(one, device)),
    )


def kernel_cost(work: KernelWork, device: DeviceData) -> Work:
    """A kernel by what its time has the error of."""
    start_us, compute_us, memory_us, rest_us = times_us(work, device)
    start = "aicpu_launch" if work.kind == "aicpu" else "kernel_start"
    far = memory_us > compute_us and work.read_far > work.read_near + work.written
    parts = {start: start_us, "far_memory" if far else work.error_class: rest_us}
    return Work(count=1, amounts=amounts(**parts))


def _unknown(name: str, device: DeviceData) -> Unknown:
    error = device.errors[name]
    unit, reads = _READ.get(name, ("times what is modelled", "time"))
    refitted = bool(error.refitted_by) and all(device.origins[one].startswith("measured") for one in error.refitted_by)
    half = f", half of them within {error.median:.0%}" if error.median else " with their whole operator"
    found = f"{error.rows} timed cases that were left out{half}"
    return Unknown(
        name=name,
        about=error.about,
        moves=error.moves,
        factor_95=_REFITTED_95 if refitted else error.factor_95,
        value=_value(name, device),
        unit=unit,
        reads="rate" if reads == "rate" else "time",
        source="refitted to kernels of a device" if refitted else found if error.rows else "[inferred]",
        settled_by=_BENCHMARK.format(name=name) if name in _READ else _REFIT,
    )


def _value(name: str, device: DeviceData) -> float:
    """What the model says, in the unit of a micro-benchmark; 1 where there is none."""
    cores = device.cube_cores * device.clock_mhz / 1e6
    softmax = device.kinds["softmax"]
    half = cores * device.cube_macs_float16 * device.cube_efficiency_float16
    values = {
        "matrix_float16": 2 * half,
        "int8_gain": cores * device.cube_macs_int8 * device.cube_efficiency_int8 / half,
        "matrix_float32": 2 * cores * device.cube_macs_float32 * device.cube_efficiency_float32,
        # of a softmax over rows of 1024 numbers, for which the benchmark counts 12 instructions on halves
        "vector": 24
        * 64
        * device.vector_cores
        * device.clock_mhz
        / 1e6
        * device.vector_efficiency
        / (softmax.instructions + softmax.row_instructions * 64 / 1024),
        "far_memory": device.hbm_tb_per_s * device.memory_efficiency,
        "near_memory": cores * device.l2_read_bytes_per_cycle * device.memory_efficiency,
        "kernel_launch": device.kernel_launch_us * device.full_launches,
        "aicpu_task": device.aicpu_launch_us,
        "execute_launch": device.execute_launch_us,
        "gear": device.gear_us,
        "copy_latency": device.copy_latency_us,
        "copy_bandwidth": device.host_to_device_gb_per_s,
    }
    return values.get(name, 1.0)


def amounts(**units: float) -> Amounts:
    """Without what is nothing."""
    return tuple((name, float(f"{amount:.7g}")) for name, amount in units.items() if amount)
