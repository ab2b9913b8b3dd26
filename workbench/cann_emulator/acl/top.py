"""Init and finalize of the process (pyacl.md §1.1, §2.5 "Init and finalize"), names, error texts, and what the library
tells of its clock."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from types import SimpleNamespace

from workbench.cann_emulator.acl import clock, dumping, errors, handles, models, profile
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import PROCESS, Failed
from workbench.cann_emulator.acl.rt_device import SOC_NAME
from workbench.cann_emulator.revision import emulator
from workbench.values.documents.canonical import canonical_json


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


# --- beyond the vendor's: JSON of `workbench.values.modelled_times.statement`, which takes no time on any clock ---


@functools.cache
def _stated_clock() -> str:
    """The clock that executions and copies are timed by: a `TimingModel`."""
    from workbench.values.modelled_times.device_data import timing_model  # late, as `clock` does

    return canonical_json(timing_model(clock.time_model()[1], emulator()))


def _execution_costs(model_id: int, copied_in: Sequence[int], copied_out: Sequence[int]) -> str | None:
    """The `CallCosts` of one execution with its copies, at the gear that was set last; None for no loaded model.

    Args:
        copied_in, copied_out: bytes of each copy in front of it and behind it.
    """
    if (entry := handles.look(model_id, models.LoadedModel)) is None:
        return None
    times, device = clock.time_model()
    costs = times.execution_costs(entry.model, entry.gear or 0, device, copied_in=copied_in, copied_out=copied_out)
    return canonical_json(costs)


emulated = SimpleNamespace(clock=_stated_clock, execution_costs=_execution_costs)
"""A real `acl` has none."""
