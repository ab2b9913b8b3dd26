"""acl.json, the argument of `acl.init`: what it may hold and what each mistake gives (pyacl.md §5.5, §2.5)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.cann_emulator.acl import codes, contexts, reason
from workbench.cann_emulator.acl.codes import Failed
from workbench.values.documents.json_reader import loads

DEEPEST = 10

_ON_OFF = ("on", "off")
_DUMP_VALUES: Mapping[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_level": ("op", "kernel", "all"),
    "dump_op_switch": _ON_OFF,
    "dump_data": ("tensor", "stats"),
    "dump_debug": _ON_OFF,
}
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
_SCENES = ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump", "lite_exception", "watcher")
_PROFILER_KEYS = {
    *("switch", "output", "aic_metrics", "aicpu", "ascendcl", "task_time", "task_trace", "runtime_api"),
    *("ge_api", "task_memory", "l2", "hccl", "msproftx", "storage_limit", "instr_profiling"),
    *("instr_profiling_freq", "task_tsfw", "scale", "sys_hardware_mem_freq", "sys_mem_serviceflow"),
    *("llc_profiling", "sys_io_sampling_freq", "sys_interconnection_freq", "sys_cpu_freq", "sys_lp_freq"),
    *("dvpp_freq", "host_sys", "host_sys_usage", "host_sys_usage_freq"),
}
_PROFILER_VALUES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("switch", "aicpu", "ascendcl", "runtime_api", "task_memory"), _ON_OFF),
    **dict.fromkeys(("l2", "hccl", "msproftx", "task_trace"), _ON_OFF),
    "task_time": (*_ON_OFF, "l0", "l1"),
    "aic_metrics": (
        *("PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio"),
        *("L2Cache", "PipelineExecuteUtilization", "MemoryAccess", ""),
    ),
}


class ConfigurationRefused(Failed):
    """A configuration file that the library does not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDump:
    """Which tensors are dumped.

    Attributes:
        entries: of dump_list; none dumps no model.
        inputs, outputs: what of an operator, by dump_mode.
        steps: first and last execution of each range; empty for all.
        statistics: columns of dump_data stats; None where whole tensors are written.
    """

    path: Path
    entries: tuple[Mapping[str, Any], ...]
    inputs: bool = False
    outputs: bool = True
    steps: tuple[tuple[int, int], ...] = ()
    statistics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What acl.json asks for.

    Attributes:
        overflow_path: where overflow files go; None when off.
        profile_path: result folder when profiling is on.
        default_device: for threads that set none.
    """

    overflow_path: Path | None = None
    dump: TensorDump | None = None
    profile_path: Path | None = None
    default_device: int | None = None
    error_text_per_process: bool = False


def read(path: str) -> tuple[Configuration, bytes]:
    """The configuration and the file's content.

    Raises:
        ConfigurationRefused: with the vendor's code for the mistake.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason.report("EH0003", path=path, reason="it cannot be read")
        raise ConfigurationRefused(codes.INVALID_FILE) from error
    if not content.strip():
        return Configuration(), content  # an empty file counts as no configuration [inferred]
    return parse(content, path), content


def parse(content: bytes, path: str) -> Configuration:
    """
    Raises:
        ConfigurationRefused: with the vendor's code for the mistake.
    """
    try:
        body = loads(content, once=False)
    except ValueError as error:
        raise _refused(codes.PARSE_FILE, path, f"it is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise _refused(codes.PARSE_FILE, path, "it is no JSON object")
    if _depth(body) > DEEPEST:
        raise _refused(codes.PARSE_FILE, path, f"it is nested deeper than {DEEPEST}")
    if "dump" in body:
        _check_dump(body["dump"], path)
    if "profiler" in body:
        _check_profiler(body["profiler"], path)
    dump: dict[str, Any] = body.get("dump", {})
    profiler: dict[str, Any] = body.get("profiler", {})
    overflow = dump.get("dump_debug") == "on"
    profiles = profiler.get("switch") == "on"
    return Configuration(
        overflow_path=Path(dump["dump_path"]) if overflow else None,
        dump=_tensor_dump(dump),
        profile_path=Path(profiler.get("output") or ".") if profiles else None,
        default_device=_default_device(body.get("defaultDevice"), path),
        error_text_per_process=_error_mode(body.get("err_msg_mode"), path),
    )


def _tensor_dump(dump: Mapping[str, Any]) -> TensorDump | None:
    """None for a section about something else; of single operators none runs here, so that only models are dumped."""
    if not isinstance(dump.get("dump_list"), list) or dump.get("dump_scene") is not None:
        return None
    mode = dump.get("dump_mode", "output")
    statistics = tuple(dump.get("dump_stats") or STATISTICS) if dump.get("dump_data") == "stats" else None
    return TensorDump(
        path=Path(dump["dump_path"]),
        entries=tuple(dump["dump_list"]),
        inputs=mode in ("input", "all"),
        outputs=mode in ("output", "all"),
        steps=tuple((int(p[0]), int(p[-1])) for p in _steps(dump.get("dump_step", ""))),
        statistics=statistics,
    )


def _check_dump(dump: object, path: str) -> None:
    def refuse(why: str) -> ConfigurationRefused:
        return _refused(codes.INVALID_DUMP_CONFIG, path, f"dump: {why}")

    if not isinstance(dump, dict):
        raise refuse("it is no object")
    for key, allowed in _DUMP_VALUES.items():
        if key in dump and dump[key] not in allowed:
            raise refuse(f"{key} is {dump[key]!r}, not one of {', '.join(allowed)}")
    scene = dump.get("dump_scene")
    if scene is not None and scene not in _SCENES:
        raise refuse(f"dump_scene is {scene!r}, not one of {', '.join(_SCENES)}")
    debug, listed = dump.get("dump_debug") == "on", dump.get("dump_list")
    if scene is not None and scene != "watcher" and (listed or debug):
        raise refuse("dump_scene excludes tensor and overflow dump")
    if debug and listed:
        raise refuse("dump_debug excludes dump_list")
    if scene is not None and scene != "watcher":
        return
    if listed is not None and not (isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed)):
        raise refuse("dump_list is no list of objects")
    for entry in listed or []:
        for key in ("layer", "optype_blacklist", "opname_blacklist", "opname_range"):
            if not isinstance(entry.get(key, []), list):
                raise refuse(f"{key} of an entry of dump_list is no list")
        if not isinstance(entry.get("model_name", ""), str):
            raise refuse("model_name of an entry of dump_list is no text")
    # an empty list dumps single operators alone, where their switch is on
    if not debug and not listed and not (listed == [] and dump.get("dump_op_switch") == "on"):
        raise refuse("dump_list is missing" if listed is None else "dump_list is empty and dump_op_switch is off")
    folder = dump.get("dump_path")
    if not isinstance(folder, str) or not folder:
        raise refuse("dump_path is missing")
    # os.path and not Path: a name that is too long is no folder, and no exception
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):  # noqa: PTH112
        raise refuse(f"dump_path {folder} does not exist or cannot be written")
    statistics = dump.get("dump_stats", [])
    if not isinstance(statistics, list) or any(s not in STATISTICS for s in statistics):
        raise refuse(f"dump_stats holds something else than {', '.join(STATISTICS)}")
    if not _are_steps(dump.get("dump_step", "")):
        raise refuse(f'dump_step is {dump["dump_step"]!r}, not of the form "0|3-5|10"')


def _are_steps(text: object) -> bool:
    if not isinstance(text, str):
        return False
    steps = _steps(text)
    return all(1 <= len(p) <= 2 and all(n.isdecimal() for n in p) and int(p[0]) <= int(p[-1]) for p in steps)


def _steps(text: str) -> list[list[str]]:
    return [part.split("-") for part in text.split("|")] if text else []


def _check_profiler(profiler: object, path: str) -> None:
    def refuse(why: str) -> ConfigurationRefused:
        return _refused(codes.INVALID_PARAM, path, f"profiler: {why}")

    if not isinstance(profiler, dict):
        raise refuse("it is no object")
    unknown = sorted(set(profiler) - _PROFILER_KEYS)
    if unknown:
        raise refuse(f"{unknown[0]} is no key of it")
    for key, allowed in _PROFILER_VALUES.items():
        if key in profiler and profiler[key] not in allowed:
            raise refuse(f"{key} is {profiler[key]!r}, not one of {', '.join(allowed)}")
    output = profiler.get("output", "")
    if not isinstance(output, str) or len(output.encode()) > 4096:
        raise refuse("output is no path of at most 4096 bytes")


def _default_device(section: object, path: str) -> int | None:
    if section is None:
        return None
    text = section.get("default_device") if isinstance(section, dict) else None
    if not isinstance(text, str) or not text.isdecimal():
        raise _refused(codes.INVALID_PARAM, path, 'defaultDevice: default_device is no number in quotes, such as "0"')
    if int(text) >= len(contexts.devices()):
        raise _refused(codes.FAILURE, path, f"defaultDevice: there is no device {text}")
    return int(text)


def _error_mode(mode: object, path: str) -> bool:
    if mode not in (None, "0", "1"):
        raise _refused(codes.INVALID_PARAM, path, f'err_msg_mode is {mode!r}, not "0" or "1"')
    return mode == "1"


def _refused(code: int, path: str, why: str) -> ConfigurationRefused:
    reason.report("EH0004", path=path, reason=why)
    return ConfigurationRefused(code)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(v) for v in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(v) for v in value), default=0)
    return 0
