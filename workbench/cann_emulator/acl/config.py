"""acl.json, the argument of `acl.init`: what it may hold and what each mistake gives (pyacl.md §5.5, §2.5)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.errors import Failed
from workbench.values.documents.json_reader import loads

_DEEPEST = 10
_DUMP_VALUES: Mapping[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_level": ("op", "kernel", "all"),
    "dump_op_switch": ("on", "off"),
    "dump_data": ("tensor",),
    "dump_debug": ("on", "off"),
}
_NOT_EMULATED = ("dump_scene", "dump_step", "dump_stats", "optype_blacklist", "opname_blacklist", "opname_range")
"""Keys of a dump section and of its entries that choose less than a whole model's tensors, or something else."""


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
    # an empty file counts as no configuration [inferred]
    return parse(content, path) if content.strip() else {}, content


def parse(content: bytes, path: str) -> dict[str, Any]:
    """The section `dump`, checked; empty where there is none.

    Raises:
        ConfigurationRefused: with the vendor's code for the mistake.
    """

    def refuse(code: int, why: str) -> ConfigurationRefused:
        errors.report("EH0004", path=path, reason=why)
        return ConfigurationRefused(code)

    try:
        body = loads(content, once=False)
    except ValueError as error:
        raise refuse(errors.PARSE_FILE, f"it is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise refuse(errors.PARSE_FILE, "it is no JSON object")
    if _depth(body) > _DEEPEST:
        raise refuse(errors.PARSE_FILE, f"it is nested deeper than {_DEEPEST}")
    dump: dict[str, Any] = body.get("dump", {})
    if "dump" in body and (wrong := _wrong(dump)):
        raise refuse(errors.INVALID_DUMP_CONFIG, f"dump: {wrong}")
    for key in ("defaultDevice", "err_msg_mode", "profiler"):
        section = body.get(key, "0")
        if section != "0" and not (isinstance(section, dict) and section.get("switch") == "off"):
            remedy = "; run the program under msprof" if key == "profiler" else ""
            raise refuse(errors.INVALID_PARAM, f"{key} is not emulated{remedy}")
    return dump


def _wrong(dump: object) -> str:
    """What is wrong with a dump section."""
    if not isinstance(dump, dict):
        return "it is no object"
    for key, allowed in _DUMP_VALUES.items():
        if key in dump and dump[key] not in allowed:
            return f"{key} is {dump[key]!r}, not one of {', '.join(allowed)}"
    debug, listed = dump.get("dump_debug") == "on", dump.get("dump_list")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed)):
        return "dump_list is no list of objects"
    for section in (dump, *(listed or [])):
        if unknown := next((key for key in _NOT_EMULATED if key in section), None):
            return f"{unknown} is not emulated"
        if not isinstance(section.get("layer", []), list) or not isinstance(section.get("model_name", ""), str):
            return "layer of an entry of dump_list is no list, or its model_name no text"
    # an empty list dumps single operators alone, where their switch is on
    if bool(listed) == debug and not (listed == [] and not debug and dump.get("dump_op_switch") == "on"):
        return "dump_debug excludes dump_list" if debug else "dump_list is missing or empty"
    folder = dump.get("dump_path")
    # os.path and not Path: a name that is too long is no folder, and no exception
    if not (isinstance(folder, str) and folder and os.path.isdir(folder) and os.access(folder, os.W_OK)):  # noqa: PTH112
        return f"dump_path {folder} does not exist or cannot be written"
    return ""


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
