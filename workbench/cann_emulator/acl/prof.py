"""The module `acl.prof` (pyacl.md §1.7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.cann_emulator.acl import codes, contexts, handles, leaks, profiling, reason
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call, site

_LONGEST_PATH = 4096
_METRICS = (*range(9), 0xFF)


@dataclass(slots=True, kw_only=True, eq=False)
class _Config:
    devices: tuple[int, ...]
    site: tuple[str, int]
    handle: int = 0
    started: bool = False


@dataclass(slots=True)
class _Session:
    begun: bool = False
    used: bool = False


_SESSION = _Session()


@call("s", "r", device=False)
def init(path: str) -> int:
    """Where results go; after `acl.init`, before the load, at most once in a process."""
    if not process.initialized():
        return codes.FAILURE
    if profiling.PROFILE.folder is not None:
        return codes.REPEAT_INITIALIZE if _SESSION.begun else codes.PROF_ALREADY_RUN
    if not path or len(path.encode()) > _LONGEST_PATH:
        reason.report("EH0003", path=path, reason="it is empty or longer than 4096 bytes")
        return codes.INVALID_PARAM
    if _SESSION.used:
        return codes.REPEAT_INITIALIZE  # [inferred]: "at most once per process"
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason.report("EH0003", path=path, reason=error.strerror)
        return codes.INVALID_PARAM
    profiling.PROFILE.folder = Path(path).absolute()
    _SESSION.begun = _SESSION.used = True
    return 0


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
        reason.report("EH0001", value=device_list, param="config", reason="devices, metrics or data mask are wrong")
        return 0
    config = _Config(devices=tuple(device_list), site=site())
    config.handle = handles.give(config)
    return config.handle


@call("k", "r", device=False)
def destroy_config(config: int) -> int:
    if handles.look(config, _Config) is None:
        return codes.INVALID_PARAM
    handles.drop(config)
    return 0


@call("k", "r", device=False)
def start(config: int) -> int:
    found = handles.look(config, _Config)
    if found is None:
        return codes.INVALID_PARAM
    if not _SESSION.begun:
        reason.report("EK0002", second="aclprofStart", first="aclprofInit")
        return codes.PROF_NOT_RUN
    busy = {device for other in handles.alive(_Config) if other.started for device in other.devices}
    if busy & set(found.devices):
        return codes.PROF_ALREADY_RUN
    found.started = profiling.PROFILE.collecting = True
    return 0


@call("k", "r", device=False)
def stop(config: int) -> int:
    found = handles.look(config, _Config)
    if found is None:
        return codes.INVALID_PARAM
    if not found.started:
        return codes.PROF_NOT_RUN
    found.started = False
    profiling.PROFILE.collecting = any(other.started for other in handles.alive(_Config))
    return 0


@call("", "r", device=False)
def finalize() -> int:
    """The collected data becomes a PROF_* folder."""
    if not _SESSION.begun:
        return codes.PROF_NOT_RUN
    _SESSION.begun = False
    for config in handles.alive(_Config):
        config.started = False
    profiling.end()
    return 0


leaks.watch(_Config, "profiling configurations")
__all__ = ["create_config", "destroy_config", "finalize", "init", "start", "stop"]


def __dir__() -> list[str]:
    return sorted(__all__)
