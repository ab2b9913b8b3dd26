"""What processes do on the emulated devices, for `npu-smi` to show: one small file per process.

    <CANN_EMULATOR_STATE>/<pid>.json   {"pid": 7, "name": "python3", "devices": {"0": {"hbm_bytes": 1048576,
                                        "aicore_percent": 71.0, "updated_s": 1763736000.0}}}

A process rewrites its own file whole, by rename, and removes it when it ends; files that a killed process left are
removed by whoever reads them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from workbench.values.modelled_times.device_data import load_device_data
from workbench.values.system.files import temporary_beside

SOC_VERSION = "Ascend910B3"
HBM_MB = 65536
RESERVED_HBM_MB = 3358
"""HBM that an idle 910B3 shows as used [inferred: captures of idle cards show 3350 to 4487 of 65536 MB]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one process holds and does on one device."""

    hbm_bytes: int
    aicore_percent: float = 0.0  # share of the time since the last report that the device computed for it, 0..100
    # `time.time()` of the report; a load older than two seconds counts as none
    updated_s: float = field(default_factory=time.time)


class ProcessUse(NamedTuple):
    pid: int
    name: str
    devices: Mapping[int, DeviceUse]


def state_folder() -> Path:
    """CANN_EMULATOR_STATE, or a folder of this user below the system's temporary one; made when it is missing."""
    named = os.environ.get("CANN_EMULATOR_STATE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"int8-workbench-cann-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def device_count() -> int:
    """CANN_EMULATOR_DEVICES, 1 without it; ValueError where it is no number from 0 to 16."""
    count = int(os.environ.get("CANN_EMULATOR_DEVICES") or 1)
    if not 0 <= count <= 16:
        raise ValueError(f"CANN_EMULATOR_DEVICES is {count}; a machine has 0 to 16 devices")
    return count


def soc_version() -> str:
    """The chip that is emulated: CANN_EMULATOR_SOC, Ascend910B3 without it.

    Raises:
        ConfigError: no chip whose times are modelled.
    """
    asked = os.environ.get("CANN_EMULATOR_SOC") or SOC_VERSION
    if asked != SOC_VERSION:
        load_device_data(asked, known=True)
    return asked


def hbm_mb() -> int:
    """CANN_EMULATOR_HBM_MB, what the chip has without it."""
    if asked := os.environ.get("CANN_EMULATOR_HBM_MB"):
        return int(asked)
    soc = soc_version()
    return HBM_MB if soc == SOC_VERSION else round(load_device_data(soc).hbm_gib * 1024)


def report_use(devices: Mapping[int, DeviceUse]) -> None:
    """Say what this process holds and does; nothing on any device removes its file."""
    folder = state_folder()
    file = folder / f"{os.getpid()}.json"
    if not devices:
        file.unlink(missing_ok=True)
        return
    used = {str(device): asdict(use) for device, use in devices.items()}
    body = {"pid": os.getpid(), "name": Path(sys.executable).name, "devices": used}
    with temporary_beside(file, durable=False) as draft:
        draft.write_text(json.dumps(body), encoding="utf-8")


def processes() -> tuple[ProcessUse, ...]:
    """What the living processes reported, by process id."""
    found = []
    for file in sorted(state_folder().glob("[0-9]*.json"), key=lambda p: int(p.stem) if p.stem.isdigit() else 0):
        try:
            body = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue  # ended in between
        if not psutil.pid_exists(body["pid"]):
            file.unlink(missing_ok=True)
            continue
        devices = {int(device): DeviceUse(**use) for device, use in body["devices"].items()}
        found.append(ProcessUse(body["pid"], body["name"], devices))
    return tuple(found)
