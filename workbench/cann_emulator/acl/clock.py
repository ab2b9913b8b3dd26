"""How long the modelled device needs, from the time model of the emulator; whole nanoseconds."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.cann_emulator.acl import host_clock
from workbench.cann_emulator.acl.contexts import SOC_NAME, Context

if TYPE_CHECKING:
    from workbench.cann_emulator.device_data import DeviceData
    from workbench.cann_emulator.om import OfflineModel
    from workbench.cann_emulator.timing import KernelTime


@functools.cache
def _timing() -> tuple[ModuleType, DeviceData]:
    """The module and the device's data; imported late, as programs that never copy or execute need neither."""
    from workbench.cann_emulator import device_data, timing

    return timing, device_data.load_device_data(SOC_NAME)


def ready() -> None:
    """Read the time model now: a load may take its time, the first launch of a model should not."""
    _timing()


@functools.lru_cache(maxsize=4096)
def copy_ns(count: int, to_device: bool, from_device: bool) -> int:
    timing, device = _timing()
    kind = f"{'device' if from_device else 'host'}_to_{'device' if to_device else 'host'}"
    spent_us: float = timing.copy_us(count, kind, device)
    return round(1000 * spent_us)


def count_copy(context: Context, count: int, to_device: bool, from_device: bool) -> None:
    """A copy that the caller waited for: work of the device, and the host's time, on no stream of the caller."""
    spent = copy_ns(count, to_device, from_device)
    context.device.busy_us += spent / 1000
    host_clock.spend(spent)


def execution_ns(model: OfflineModel, gear: int, times: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """One execution: (on the stream alone, with the host's launch in front of it).

    Args:
        times: by gear, what was computed before for this load.
    """
    found = times.get(gear)
    if found is None:
        timing, device = _timing()
        stream_ns = round(1000 * timing.stream_us(model, gear, device))
        found = times[gear] = stream_ns, round(1000 * timing.execute_us(model, gear, device))
    return found


def gear_ns(model: OfflineModel) -> int:
    """What an execution takes to choose its gear on the device; 0 for a model without gears."""
    chosen: float = _timing()[1].gear_us if model.gear_kind not in ("", "range") else 0.0
    return round(1000 * chosen)


def host_launch_ns(model: OfflineModel, kernel: KernelTime) -> int:
    """By how much the host's own launch of a kernel is longer than a start on the device; 0 but for a shape range."""
    device = _timing()[1]
    own: float = device.dynamic_launch_us - device.kernel_launch_us
    return round(1000 * max(0.0, own)) if model.gear_kind == "range" and kernel.core != "aicpu" else 0


def kernel_times(model: OfflineModel, gear: int) -> tuple[KernelTime, ...]:
    timing, device = _timing()
    times: tuple[KernelTime, ...] = timing.kernel_times(model, gear, device)
    return times
