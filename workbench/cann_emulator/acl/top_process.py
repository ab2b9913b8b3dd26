"""Init and finalize of the process, versions, names, error texts (pyacl.md §1.1, §2.5 "Init and finalize")."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from workbench.cann_emulator.acl import codes, config, contexts, dumping, leaks, models, overflow, profiling, reason
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.codes import Failed

_log = logging.getLogger("acl")
_log.addHandler(logging.NullHandler())  # the CANN log is no console: a warning must not reach stderr by default
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_ACL_VERSION = (1, 15, 0)
"""Interface version of `aclrtGetVersion` [inferred: not in the reference]."""


@dataclass(slots=True)
class _State:
    """Attributes:
    references: `init` calls that `finalize_reference` did not undo yet.
    content: of the first configuration of the process; None before any `init`.
    finalized: a second `finalize` in a row gives 100037.
    """

    references: int = 0
    content: bytes | None = None
    finalized: bool = False


_STATE = _State()


def initialized() -> bool:
    return _STATE.references > 0


def require(code: int) -> None:
    """
    Raises:
        Failed: the library is not initialized.
    """
    if not initialized():
        raise Failed(code)


@call("|s", "r", device=False)
def init(path: str = "") -> None:
    """Once per process; a second call gives 100002, does no harm and counts."""
    if _STATE.references:
        _STATE.references += 1
        raise Failed(codes.REPEAT_INITIALIZE)
    configuration, content = config.Configuration(), b""
    if path:
        configuration, content = config.read(path)
    if _STATE.content is not None and _STATE.content != content:
        why = "another configuration was used before"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=path, param="configPath", reason=why)
    _STATE.content, _STATE.references, _STATE.finalized = content, 1, False
    reason.share(configuration.error_text_per_process)
    contexts.DEFAULT_DEVICE.clear()
    if configuration.default_device is not None:
        contexts.DEFAULT_DEVICE["device"] = configuration.default_device
    overflow.configure(configuration.overflow_path)
    dumping.configure(configuration.dump)
    profiling.configure(configuration.profile_path)


@call("", "r", device=False)
def finalize() -> None:
    """Everything ends at once, whatever the count is; a second call gives 100037."""
    if _STATE.finalized:
        raise Failed(codes.REPEAT_FINALIZE)
    _end()


@call("", "Kr", device=False)
def finalize_reference() -> int:
    """One `init` less, and how many are left; the last one ends everything."""
    if not _STATE.references:
        raise Failed(codes.REPEAT_FINALIZE)
    if _STATE.references > 1:
        _STATE.references -= 1
        return _STATE.references
    _end()
    return 0


@call("", "s", device=False)
def get_recent_err_msg() -> str | None:
    """The reason texts of this thread since the last call; None when there are none."""
    return reason.take()


@call("", "s", device=False)
def get_soc_name() -> str:
    return contexts.SOC_NAME


@call("", "iiir", device=False)
def get_version() -> tuple[int, int, int]:
    return _ACL_VERSION


@call("is", "n", device=False)
def app_log(level: int, message: str) -> None:
    """To the logger `acl`, which stands for the CANN log."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", message)


def _end() -> None:
    """The graph engine unloads its models; devices, contexts and memory stay until reset or exit."""
    profiling.end()
    _STATE.references, _STATE.finalized = 0, True
    overflow.configure(None)
    dumping.configure(None)
    try:
        leaks.at_finalize()
    finally:
        models.unload_all()
        reason.share(False)
