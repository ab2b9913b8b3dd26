"""The manifest's `inputs:`, `state:` and `outputs:`, each line with the reason why it was written."""

from __future__ import annotations

import json
from collections.abc import Sequence

from workbench.commands.init.interface import Declared
from workbench.commands.init.scalar import scalar
from workbench.values.interface import InputUse, OutputUse


def interface_lines(declared: Declared, roles: Sequence[str] = ()) -> list[str]:
    """
    Args:
        roles: entries of `inputs:` for texts, as lines.
    """
    found, reasons = declared.interface, declared.reasons
    inputs = [
        f"  {scalar(use.name)}: {{{_use(use)}}}{_because(reasons.get(f'inputs.{use.name}', ''))}"
        for use in found.inputs
    ]
    lines = ["inputs:", *roles, *inputs] if roles or inputs else []
    if found.state:
        lines.append(
            "# Output: the input it is carried to from step to step. Arrays have an axis of steps behind that of"
        )
        lines.append("# samples: [samples, steps, ...].")
        lines.append("state:")
        lines += [f"  {scalar(o)}: {scalar(i)}{_because(reasons.get(f'state.{o}', ''))}" for o, i in found.state]
    if found.outputs:
        lines.append(
            "# What each output means decides how a candidate is compared with the float model; the first one's"
        )
        lines.append("# metric is the accuracy. Limits of others: limits: {METRIC: WORST VALUE} in the mapping.")
        lines.append("outputs:")
        lines += [f"  {scalar(use.name)}: {_meaning(use)}{_because(use.reason)}" for use in found.outputs]
    return lines


def _use(use: InputUse) -> str:
    if use.constant is not None:
        return f"constant: {json.dumps(use.constant)}"
    return f"axes: [{', '.join(scalar(axis) if isinstance(axis, str) else str(axis) for axis in use.axes)}]"


def _meaning(use: OutputUse) -> str:
    if not use.options and not use.limits:
        return use.meaning
    parts = [f"meaning: {use.meaning}", *(f"{key}: {_plain(value)}" for key, value in use.options)]
    if use.limits:
        parts.append(f"limits: {{{', '.join(f'{key}: {value:g}' for key, value in use.limits)}}}")
    return f"{{{', '.join(parts)}}}"


def _plain(value: str | int | float | bool) -> str:
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def _because(reason: str) -> str:
    return f"  # {' '.join(reason.split())}" if reason else ""
