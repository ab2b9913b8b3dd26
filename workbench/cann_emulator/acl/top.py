"""Init and finalize of the process (pyacl.md §1.1, §2.5 "Init and finalize"), names, error texts."""

from __future__ import annotations

import logging

from workbench.cann_emulator.acl import dumping, errors, handles, models, profile
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import PROCESS, Failed
from workbench.cann_emulator.acl.rt_device import SOC_NAME


@call("", "|s", "r", device=False)
def init(path: str = "") -> None:
    """Once per process; a second call gives 100002, does no harm and counts."""
    if PROCESS.references:
        PROCESS.references += 1
        raise Failed(errors.REPEAT_INITIALIZE)
    dump, content = dumping.read_config(path) if path else ({}, b"")
    if PROCESS.content is not None and PROCESS.content != content:
        raise errors.invalid("configPath", path, "another configuration was used before")
    PROCESS.content, PROCESS.references, PROCESS.finalized = content, 1, False
    dumping.configure(dump)
    profile.begin()


@call("", "", "r", device=False)
def finalize() -> None:
    """Everything ends at once, whatever the count is; a second call gives 100037."""
    if PROCESS.finalized:
        raise Failed(errors.REPEAT_FINALIZE)
    _end()


@call("", "", "Kr", device=False)
def finalize_reference() -> int:
    """One `init` less, and how many are left; the last one ends everything."""
    if not PROCESS.references:
        raise Failed(errors.REPEAT_FINALIZE)
    if PROCESS.references > 1:
        PROCESS.references -= 1
        return PROCESS.references
    _end()
    return 0


def _end() -> None:
    """The graph engine unloads its models; devices, contexts and memory stay until reset or exit."""
    profile.end()
    PROCESS.references, PROCESS.finalized = 0, True
    dumping.configure({})
    try:
        handles.at_finalize()
    finally:
        models.unload_all()


ask("", "", "s", get_recent_err_msg=errors.take, get_soc_name=lambda: SOC_NAME)


_log = logging.getLogger("acl")
_log.addHandler(logging.NullHandler())  # the CANN log is no console: a warning must not reach stderr by default
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@call("", "is", "n", device=False)
def app_log(level: int, message: str) -> None:
    """To the logger `acl`, which stands for the CANN log."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", message)
