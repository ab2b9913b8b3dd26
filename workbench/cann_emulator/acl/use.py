"""What this process holds and does on the devices, for npu-smi and for `get_mem_info` of other processes.

Only with CANN_EMULATOR_STATE in the environment; at most one report in 100 ms.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

from workbench.cann_emulator.acl import contexts
from workbench.cann_emulator.acl.contexts import Device
from workbench.cann_emulator.state import DeviceUse, processes, report_use

_REPORTING = {"on": bool(os.environ.get("CANN_EMULATOR_STATE"))}
_EVERY_S = 0.1
_LOCK = threading.RLock()
_LAST = {"report_s": 0.0, "others_s": 0.0, "reported": 0.0}
_BUSY: dict[int, tuple[float, float, float]] = {}  # device → (time_s, busy_us) at the last report, and the load then
_OTHERS: dict[int, int] = {}


def update(device: Device, force: bool = False) -> None:
    """Report, unless that was done a moment ago."""
    now = time.monotonic()
    if not _REPORTING["on"] or (not force and now - _LAST["report_s"] < _EVERY_S):
        return
    with _LOCK:
        _LAST["report_s"] = now
        in_use = [d for d in contexts.devices() if d.contexts or (d.arena is not None and d.arena.used)]
        report_use(
            {
                d.physical: DeviceUse(
                    hbm_bytes=d.arena.used if d.arena is not None else 0,
                    aicore_percent=load_percent(d),
                    updated_s=time.time(),
                )
                for d in in_use
            }
        )
        _LAST["reported"] = 1.0


def load_percent(device: Device) -> float:
    """Share of the time since the last question that the modelled device would have computed, 0..100."""
    now = time.monotonic()
    then, busy_us, load = _BUSY.get(device.index, (now, device.busy_us, 0.0))
    if now - then >= _EVERY_S:
        load = min(100.0, (device.busy_us - busy_us) / (now - then) / 1e4)
    if now - then >= _EVERY_S or device.index not in _BUSY:
        _BUSY[device.index] = (now, device.busy_us, load)
    return load


def others_bytes(device: Device, now_exactly: bool = False) -> int:
    """Device memory that other processes hold; up to half a second old unless `now_exactly`."""
    if not _REPORTING["on"]:
        return 0
    now = time.monotonic()
    if now_exactly or now - _LAST["others_s"] > 0.5:
        _LAST["others_s"] = now
        _OTHERS.clear()
        for process in processes():
            if process.pid != os.getpid():
                for physical, held in process.devices.items():
                    _OTHERS[physical] = _OTHERS.get(physical, 0) + held.hbm_bytes
    return _OTHERS.get(device.physical, 0)


def _end() -> None:
    if _LAST["reported"]:
        report_use({})


def _forget() -> None:
    _LAST.update(report_s=0.0, others_s=0.0, reported=0.0)
    _BUSY.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
