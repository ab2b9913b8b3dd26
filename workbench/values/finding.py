"""One fact about the machine with what to do about it: what `workbench doctor` shows, whoever found it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine.

    Attributes:
        group: heading it is shown under.
        status: 'fail' when the workbench cannot work because of it; 'warn' when something optional is missing, or
            something will disturb.
        value: what was found.
        remedy: what to do about it; empty when all is well.
    """

    group: str
    name: str
    status: Status
    value: str
    remedy: str = ""


def module_at(name: str) -> str | None:
    """Where Python finds a module, which is not imported; None where it does not."""
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.origin or name
