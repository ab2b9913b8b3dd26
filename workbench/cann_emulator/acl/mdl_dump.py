"""Dump switched on and off inside a process: `acl.mdl` part (pyacl.md §1.5)."""

from __future__ import annotations

from workbench.cann_emulator.acl import codes, config, dumping, overflow
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call


@call("", "r", device=False)
def init_dump() -> int:
    """After `acl.init`, which must not have configured a dump. Codes: the vendor's dump.cpp, open since 2025."""
    if not process.initialized():
        return codes.UNINITIALIZE
    if dumping.DUMP.begun:
        return codes.REPEAT_INITIALIZE
    if dumping.DUMP.request is not None or overflow.on():
        return codes.INTERNAL_ERROR  # the dump server runs already
    dumping.DUMP.begun = True
    return 0


@call("|s", "r", device=False)
def set_dump(path: str = "") -> int:
    """A JSON file with a dump section; holds for models loaded afterwards."""
    if not process.initialized():
        return codes.UNINITIALIZE
    if not dumping.DUMP.begun:
        return codes.DUMP_NOT_RUN
    if not path:
        return codes.INVALID_PARAM
    try:
        configuration, _ = config.read(path)
    except config.ConfigurationRefused as refused:
        return refused.code
    overflow.configure(configuration.overflow_path)
    dumping.configure(configuration.dump, begun=True)
    return 0


@call("", "r", device=False)
def finalize_dump() -> int:
    if not process.initialized():
        return codes.UNINITIALIZE
    if not dumping.DUMP.begun:
        return codes.DUMP_NOT_RUN
    overflow.configure(None)
    dumping.configure(None)
    return 0
