"""ASCEND_RT_VISIBLE_DEVICES: which devices a process sees, and how it counts them (pyacl.md §6.6)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What the variable means.

    Attributes:
        devices: logic ids in the order the process counts them from 0; None where it restricts nothing.
        problem: what is wrong with it, empty when nothing is. The runtime stops reading at the first wrong entry.
    """

    devices: tuple[int, ...] | None
    problem: str = ""


def visible_devices(environment: Mapping[str, str] = os.environ, present: Sequence[int] | None = None) -> Visible:
    """Read the variable as the runtime does: ascending ids without repeats, up to the first entry that breaks this.

    Args:
        present: logic ids of the machine, where they are known.
    """
    text = environment.get(VARIABLE)
    if not text:  # an empty list restricts nothing [inferred]
        return Visible(devices=None)
    devices: list[int] = []
    for entry in text.split(","):
        word = entry.strip()
        wrong = ""
        if not word.isdecimal():
            wrong = f"{word!r} is no device id"
        elif devices and int(word) <= devices[-1]:
            wrong = f"{word} does not ascend after {devices[-1]}"
        elif present is not None and int(word) not in present:
            wrong = f"the machine has no device {word}, only {', '.join(map(str, present)) or 'none'}"
        if wrong:
            return Visible(
                devices=tuple(devices), problem=f"{VARIABLE}={text}: {wrong}; the rest of the list is not read"
            )
        devices.append(int(word))
    return Visible(devices=tuple(devices))


def logic_id(device: int, environment: Mapping[str, str] = os.environ) -> int:
    """The machine's logic id of what this process calls device `device`: npu-smi knows nothing of the renumbering."""
    visible = visible_devices(environment).devices
    return device if visible is None or device >= len(visible) else visible[device]
