"""acl.json, the argument of `acl.init`: what it may hold and what each mistake gives (pyacl.md §5.5, §2.5)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.errors import Failed
from workbench.values.documents.json_reader import loads

DEEPEST = 10

_ON_OFF = ("on", "off")
_DUMP_VALUES: Mapping[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_level": ("op", "kernel", "all"),
    "dump_op_switch": _ON_OFF,
    "dump_data": ("tensor",),
    "dump_debug": _ON_OFF,
}
_NOT_EMULATED = ("dump_scene", "dump_step", "dump_stats", "optype_blacklist", "opname_blacklist", "opname_range")
"""Keys of a dump section and of its entries that choose less than a whole model's tensors, or something else."""
_REMEDIES = {"profiler": "; run the program under msprof"}


class ConfigurationRefused(Failed):
    """A configuration file that the library does not take."""


def read(path: str) -> tuple[dict[str, Any], bytes]:
    """What a file says of dumps, and its content.

    Raises:
        ConfigurationRefused: with the vendor's code for the mistake.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        errors.report("EH0003", path=path, reason="it cannot be read")
        raise ConfigurationRefused(errors.INVALID_FILE) from error
    if not content.strip():
        return {}, content  # an empty file counts as no configuration [inferred]
    return parse(content, path), content


def parse(content: bytes, path: str) -> dict[str, Any]:
    """The section `dump`, checked; empty where there is none.

    Raises:
        ConfigurationRefused: with the vendor's code for the mistake.
    """
    try:
        body = loads(content, once=False)
    except ValueError as error:
        raise _refused(errors.PARSE_FILE, path, f"it is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise _refused(errors.PARSE_FILE, path, "it is no JSON object")
    if _depth(body) > DEEPEST:
        raise _refused(errors.PARSE_FILE, path, f"it is nested deeper than {DEEPEST}")
    if "dump" in body:
        _check_dump(body["dump"], path)
    for key in ("defaultDevice", "err_msg_mode", "profiler"):
        section = body.get(key, "0")
        if section != "0" and not (isinstance(section, dict) and section.get("switch") == "off"):
            raise _refused(errors.INVALID_PARAM, path, f"{key} is not emulated{_REMEDIES.get(key, '')}")
    dump: dict[str, Any] = body.get("dump", {})
    return dump


def _check_dump(dump: object, path: str) -> None:
    def refuse(why: str) -> ConfigurationRefused:
        return _refused(errors.INVALID_DUMP_CONFIG, path, f"dump: {why}")

    if not isinstance(dump, dict):
        raise refuse("it is no object")
    for key, allowed in _DUMP_VALUES.items():
        if key in dump and dump[key] not in allowed:
            raise refuse(f"{key} is {dump[key]!r}, not one of {', '.join(allowed)}")
    debug, listed = dump.get("dump_debug") == "on", dump.get("dump_list")
    if debug and listed:
        raise refuse("dump_debug excludes dump_list")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed)):
        raise refuse("dump_list is no list of objects")
    for section in (dump, *(listed or [])):
        if unknown := next((key for key in _NOT_EMULATED if key in section), None):
            raise refuse(f"{unknown} is not emulated")
        if not isinstance(section.get("layer", []), list) or not isinstance(section.get("model_name", ""), str):
            raise refuse("layer of an entry of dump_list is no list, or its model_name no text")
    # an empty list dumps single operators alone, where their switch is on
    if not debug and not listed and not (listed == [] and dump.get("dump_op_switch") == "on"):
        raise refuse("dump_list is missing" if listed is None else "dump_list is empty and dump_op_switch is off")
    folder = dump.get("dump_path")
    if not isinstance(folder, str) or not folder:
        raise refuse("dump_path is missing")
    # os.path and not Path: a name that is too long is no folder, and no exception
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):  # noqa: PTH112
        raise refuse(f"dump_path {folder} does not exist or cannot be written")


def _refused(code: int, path: str, why: str) -> ConfigurationRefused:
    errors.report("EH0004", path=path, reason=why)
    return ConfigurationRefused(code)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(v) for v in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(v) for v in value), default=0)
    return 0
