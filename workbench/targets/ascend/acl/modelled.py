"""What an emulated pyACL states of its clock and of an execution; a real one has no such module, and states nothing."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.targets.ascend.acl.calls import library
from workbench.targets.ascend.acl.loaded_model import Plan
from workbench.values.clocks.statement import CallCosts, ModelledClock, Work, summed
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import ToolchainError


def stated_costs(plans: Sequence[Plan]) -> tuple[ModelledClock, CallCosts] | None:
    """The clock, and what executions of these plans in turn cost; None on a real device.

    Raises:
        ToolchainError: the statement is not of the form that this workbench reads.
    """
    stated = getattr(library(), "emulated", None)
    if stated is None:
        return None
    works: list[Work] = []
    try:
        for plan in plans:
            plan.model.choose(plan.gear)
            copied = [[bound.size_bytes for bound in side] for side in (plan.inputs, plan.outputs)]
            told = stated.execution_costs(plan.model.model_id, *copied)
            works += decode(CallCosts, loads(told)).works
        return decode(ModelledClock, loads(stated.clock())), summed(works)
    except (DecodeError, ValueError, TypeError) as error:
        raise ToolchainError(
            f"the emulated pyACL states its costs in a form that is not known here: {error}. Switch on the emulator of "
            'this workbench: eval "$(workbench emulator env)".'
        ) from error
