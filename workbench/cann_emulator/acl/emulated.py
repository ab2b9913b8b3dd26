"""What the emulated library tells of its clock, beyond the vendor's: a real `acl` has no module `emulated`.

Both functions give JSON of `workbench.values.modelled_times.statement`; neither takes time on any clock.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from workbench.cann_emulator.acl import handles, models
from workbench.cann_emulator.acl.rt_device import SOC_NAME
from workbench.cann_emulator.revision import emulator
from workbench.values.documents.canonical import canonical_json


@functools.cache
def clock() -> str:
    """The clock that executions and copies are timed by: a `TimingModel`."""
    from workbench.values.modelled_times.device_data import load_device_data, timing_model  # late, as `acl.clock` does

    return canonical_json(timing_model(load_device_data(SOC_NAME), emulator()))


def execution_costs(model_id: int, copied_in: Sequence[int], copied_out: Sequence[int]) -> str | None:
    """The `CallCosts` of one execution with its copies, at the gear that was set last; None for no loaded model.

    Args:
        copied_in, copied_out: bytes of each copy in front of it and behind it.
    """
    from workbench.cann_emulator.timing import execution_costs as costs_of  # late, as `acl.clock` does
    from workbench.values.modelled_times.device_data import load_device_data

    entry = handles.look(model_id, models.LoadedModel)
    if entry is None:
        return None
    device = load_device_data(SOC_NAME)
    return canonical_json(costs_of(entry.model, entry.gear or 0, device, copied_in=copied_in, copied_out=copied_out))
