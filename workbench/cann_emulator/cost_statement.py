"""What the time model says of itself: its prices, what is open about them, and what an execution costs.

The statement that `acl.emulated` gives to whoever asks, in the form of `workbench.values.clocks.statement`. At its own
prices a costed call takes what the time model says, up to the rounding of amounts to seven digits.

    matrix_*                  MFLOP, padded, idle cores counted     vector           MB through vector instructions
    near_memory, far_memory   MB at rates of L2 reads, of HBM       *_launch, gear, copy_latency   how often
    to_device, to_host        MB                                    aicpu_elements   millions
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.cann_emulator.device_data import DeviceData, OpenPoint
from workbench.cann_emulator.om import Dtype, Kernel, OfflineModel
from workbench.cann_emulator.timing import KernelWork, kernel_works, launched
from workbench.values.clocks.statement import Amounts, CallCosts, ModelledClock, Product, Unknown, Work, summed

_CUBE: tuple[Dtype, ...] = ("float16", "bfloat16", "int8", "float32")
_REFITTED_95 = 1.1
"""What a refit to a device's own kernels leaves open [inferred]."""
_COMMAND = "python -m workbench.targets.ascend.microbenchmarks {name} --to clock.json"


def clock_statement(device: DeviceData, name: str) -> ModelledClock:
    """The clock of a chip.

    Args:
        name: of the emulator, as it stands in toolchains.
    """
    prices = {f"matrix_{dtype}": 1 / _reached(device, dtype) for dtype in _CUBE}
    prices |= {
        "vector": 1 / (_vector_peak(device) * device.vector_efficiency),
        "near_memory": 1 / (_near_peak(device) * device.memory_efficiency),
        "far_memory": 1 / (_far_peak(device) * device.memory_efficiency),
        "kernel_launch": device.kernel_launch_us,
        "dynamic_launch": device.dynamic_launch_us,
        "aicpu_launch": device.aicpu_launch_us,
        "aicpu_elements": 1e3 * device.aicpu_element_ns,
        "execute_launch": device.execute_launch_us,
        "gear": device.gear_us,
        "copy_latency": device.copy_latency_us,
        "to_device": 1e3 / device.host_to_device_gb_per_s,
        "to_host": 1e3 / device.device_to_host_gb_per_s,
    }
    return ModelledClock(
        name=f"{device.soc_version}, {name}",
        prices=tuple(prices.items()),
        # what costs nothing by the model costs nothing times any factor
        unknowns=tuple(_unknown(point, device) for point in device.unknowns if _value(point.name, device)),
    )


def execution_costs(
    model: OfflineModel, gear: int, device: DeviceData, *, copied_in: Sequence[int], copied_out: Sequence[int]
) -> CallCosts:
    """One execution as its caller waits for it, with the copies in front of it and behind it.

    Args:
        copied_in, copied_out: bytes of each copy.
    """
    dynamic = model.gear_kind == "range"
    kernels = zip(launched(model, gear), kernel_works(model, gear, device), strict=True)
    works = [_work(kernel, work, device, dynamic=dynamic) for kernel, work in kernels]
    works.append(Work(count=1, before=(("execute_launch", 1.0),)))
    if model.gear_kind and not dynamic:
        works.append(Work(count=1, before=(("gear", 1.0),)))
    for parameter, copies in (("to_device", copied_in), ("to_host", copied_out)):
        works += [Work(count=1, before=_amounts(copy_latency=1, **{parameter: size / 1e6})) for size in copies]
    return summed(works)


def _work(kernel: Kernel, work: KernelWork, device: DeviceData, *, dynamic: bool) -> Work:
    memory = _amounts(near_memory=work.l2_us * _near_peak(device), far_memory=work.hbm_us * _far_peak(device))
    if kernel.core == "aicpu":
        elements = work.vector_us / device.aicpu_element_ns / 1e3 if device.aicpu_element_ns else 0.0
        return Work(count=1, before=(("aicpu_launch", 1.0),), beside=_parts(_amounts(aicpu_elements=elements), memory))
    return Work(
        count=1,
        before=(("dynamic_launch" if dynamic else "kernel_launch", 1.0),),
        beside=_parts(_amounts(vector=work.vector_us * _vector_peak(device)), memory),
        products=tuple(
            Product(adds=f"matrix_{work.cube_dtype}", loads="near_memory", cuts=_cuts(cuts, work.cube_dtype, device))
            for cuts in work.tilings
        ),
    )


def _cuts(found: Sequence[tuple[float, float]], dtype: Dtype, device: DeviceData) -> tuple[tuple[float, float], ...]:
    """In units, without those that another is at least as good as in both."""
    peak, near = _cube_peak(device, dtype), _near_peak(device)
    kept: list[tuple[float, float]] = []
    for adds, loads in sorted((_rounded(a * peak), _rounded(b * near)) for a, b in found):
        if not kept or loads < kept[-1][1]:
            kept.append((adds, loads))
    return tuple(kept)


def _unknown(point: OpenPoint, device: DeviceData) -> Unknown:
    value = _value(point.name, device)
    on_sheet = 1.0
    if point.data_sheet is not None:
        on_sheet = value / point.data_sheet if point.reads == "rate" else point.data_sheet / value
    refitted = all(device.origins[parameter].startswith("measured") for parameter in point.parameters)
    return Unknown(
        name=point.name,
        about=point.about,
        moves=point.moves,
        factor_95=_REFITTED_95 if refitted else point.factor_95,
        data_sheet=1.0 if refitted else on_sheet,
        value=value,
        unit=point.unit,
        reads=point.reads,
        source="refitted to kernels of a device" if refitted else point.source,
        settled_by=_COMMAND.format(name=point.name),
    )


def _value(name: str, device: DeviceData) -> float:
    """What the model runs on, in the unit of the open point."""
    return {
        "matrix_float16": _reached(device, "float16"),
        "int8_gain": _reached(device, "int8") / _reached(device, "float16"),
        "matrix_float32": _reached(device, "float32"),
        "vector": _vector_peak(device) * device.vector_efficiency,
        "far_memory": _far_peak(device) * device.memory_efficiency,
        "near_memory": _near_peak(device) * device.memory_efficiency,
        "kernel_launch": device.kernel_launch_us,
        "aicpu_task": device.aicpu_launch_us,
        "execute_launch": device.execute_launch_us,
        "gear": device.gear_us,
        "copy_latency": device.copy_latency_us,
        "copy_bandwidth": device.host_to_device_gb_per_s,
    }[name]


def _reached(device: DeviceData, dtype: Dtype) -> float:
    """TFLOPS, which is MFLOP a microsecond."""
    efficiency: float = getattr(device, f"cube_efficiency_{dtype}")
    return _cube_peak(device, dtype) * efficiency


def _cube_peak(device: DeviceData, dtype: Dtype) -> float:
    macs: float = getattr(device, f"cube_macs_{dtype}")
    return 2 * macs * device.cube_cores * device.clock_mhz / 1e6


def _vector_peak(device: DeviceData) -> float:
    """TB/s, which is MB a microsecond."""
    return device.vector_bytes_per_cycle * device.vector_cores * device.clock_mhz / 1e6


def _near_peak(device: DeviceData) -> float:
    return device.l2_read_bytes_per_cycle * device.cube_cores * device.clock_mhz / 1e6


def _far_peak(device: DeviceData) -> float:
    return device.hbm_bytes_per_cycle * device.cube_cores * device.clock_mhz / 1e6


def _parts(*parts: Amounts) -> tuple[Amounts, ...]:
    return tuple(part for part in parts if part)


def _amounts(**units: float) -> Amounts:
    """Without what is nothing."""
    return tuple((name, _rounded(amount)) for name, amount in units.items() if amount)


def _rounded(amount: float) -> float:
    return float(f"{amount:.7g}")
