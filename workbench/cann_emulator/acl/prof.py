"""The module `acl.prof` (pyacl.md §1.7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from workbench.cann_emulator.acl import codes, contexts, handles, profiling, reason
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.handles import Made

_LONGEST_PATH = 4096
_METRICS = (*range(9), 0xFF)


@dataclass(slots=True, kw_only=True, eq=False)
class _Config(Made):
    KIND: ClassVar[str] = "profiling configurations"
    devices: tuple[int, ...]
    started: bool = False


@dataclass(slots=True)
class _Session:
    begun: bool = False
    used: bool = False


_SESSION = _Session()


@call("s", "r", device=False)
def init(path: str) -> None:
    """Where results go; after `acl.init`, before the load, at most once in a process."""
    process.require(codes.FAILURE)
    if profiling.PROFILE.folder is not None:
        raise Failed(codes.REPEAT_INITIALIZE if _SESSION.begun else codes.PROF_ALREADY_RUN)
    if not path or len(path.encode()) > _LONGEST_PATH:
        why = "it is empty or longer than 4096 bytes"
        raise reason.refused(codes.INVALID_PARAM, "EH0003", path=path, reason=why)
    if _SESSION.used:
        raise Failed(codes.REPEAT_INITIALIZE)  # [inferred]: "at most once per process"
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise reason.refused(codes.INVALID_PARAM, "EH0003", path=path, reason=error.strerror) from error
    profiling.PROFILE.folder = Path(path).absolute()
    _SESSION.begun = _SESSION.used = True


@call("OikK", "k", device=False)
def create_config(device_list: list[int], aicore_metrics: int, aicore_events: int, data_type_config: int) -> int:
    """0 for devices that do not exist, unknown metrics, or nothing to collect."""
    if not isinstance(device_list, list):
        raise TypeError("argument 1 is not list")
    if not all(isinstance(device, int) for device in device_list):
        raise TypeError("the first argument is not list of int")
    known = range(len(contexts.devices()))
    wrong = any(device not in known for device in device_list) or aicore_metrics not in _METRICS
    if wrong or aicore_events or not data_type_config or len(set(device_list)) < len(device_list):
        why = "devices, metrics or data mask are wrong"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=device_list, param="config", reason=why)
    return handles.give(_Config(devices=tuple(device_list), site=site()))


@call("k", "r", device=False)
def destroy_config(config: int) -> None:
    handles.need(config, _Config)
    handles.drop(config)


@call("k", "r", device=False)
def start(config: int) -> None:
    found = handles.need(config, _Config)
    if not _SESSION.begun:
        raise reason.refused(codes.PROF_NOT_RUN, "EK0002", second="aclprofStart", first="aclprofInit")
    busy = {device for other in handles.alive(_Config) if other.started for device in other.devices}
    if busy & set(found.devices):
        raise Failed(codes.PROF_ALREADY_RUN)
    found.started = profiling.PROFILE.collecting = True


@call("k", "r", device=False)
def stop(config: int) -> None:
    found = handles.need(config, _Config)
    if not found.started:
        raise Failed(codes.PROF_NOT_RUN)
    found.started = False
    profiling.PROFILE.collecting = any(other.started for other in handles.alive(_Config))


@call("", "r", device=False)
def finalize() -> None:
    """The collected data becomes a PROF_* folder."""
    if not _SESSION.begun:
        raise Failed(codes.PROF_NOT_RUN)
    _SESSION.begun = False
    for config in handles.alive(_Config):
        config.started = False
    profiling.end()


__all__ = ["create_config", "destroy_config", "finalize", "init", "start", "stop"]


def __dir__() -> list[str]:
    return sorted(__all__)
