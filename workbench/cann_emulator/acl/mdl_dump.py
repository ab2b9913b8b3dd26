"""Dump switched on and off inside a process: `acl.mdl` part (pyacl.md §1.5)."""

from __future__ import annotations

from workbench.cann_emulator.acl import codes, config, dumping, overflow
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.codes import Failed


@call("", "r", device=False)
def init_dump() -> None:
    """After `acl.init`, which must not have configured a dump. Codes: the vendor's dump.cpp, open since 2025."""
    process.require(codes.UNINITIALIZE)
    if dumping.DUMP.begun:
        raise Failed(codes.REPEAT_INITIALIZE)
    if dumping.DUMP.request is not None or overflow.on():
        raise Failed(codes.INTERNAL_ERROR)  # the dump server runs already
    dumping.DUMP.begun = True


@call("|s", "r", device=False)
def set_dump(path: str = "") -> None:
    """A JSON file with a dump section; holds for models loaded afterwards."""
    _begun()
    if not path:
        raise Failed(codes.INVALID_PARAM)
    configuration, _ = config.read(path)
    overflow.configure(configuration.overflow_path)
    dumping.configure(configuration.dump, begun=True)


@call("", "r", device=False)
def finalize_dump() -> None:
    _begun()
    overflow.configure(None)
    dumping.configure(None)


def _begun() -> None:
    process.require(codes.UNINITIALIZE)
    if not dumping.DUMP.begun:
        raise Failed(codes.DUMP_NOT_RUN)
