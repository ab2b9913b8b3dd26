"""Faults on request: CANN_EMULATOR_FAULTS="acl.mdl.execute:3=507011;acl.rt.malloc:2=207001".

    faults := fault (";" fault)*
    fault  := name ":" when "=" what
    name   := of the function, such as acl.rt.memcpy
    when   := the how-manieth call of that name in this process, from 1; "n+" means every call from the n-th on
    what   := a return code, or "lost": the device is gone, this and every later call that needs it gives 507899

A call that fails on request does nothing else. Functions that give no return code give their null value instead.
"""

from __future__ import annotations

import os
import re

from workbench.cann_emulator.acl import codes, reason

_FAULT = re.compile(r"(acl(?:\.\w+)+):(\d+)(\+?)=(\d+|lost)")

armed: dict[str, list[tuple[int, bool, int]]] = {}
"""Name → (call, from there on, code); the key LOST is there once the device is lost, FORKED in a forked child."""
LOST, FORKED = "lost", "forked"
_LOST_CODE = -1
_CALLS: dict[str, int] = {}


def arm(text: str) -> None:
    """Replace the faults by those of `text`, and count calls from here.

    Raises:
        ValueError: `text` does not follow the grammar.
    """
    armed.clear()
    _CALLS.clear()
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _FAULT.fullmatch(part)
        if match is None:
            raise ValueError(f"CANN_EMULATOR_FAULTS: {part!r} is not NAME:N=CODE, such as acl.rt.malloc:2=207001")
        name, call, onwards, what = match.groups()
        code = _LOST_CODE if what == "lost" else int(what)
        armed.setdefault(name, []).append((int(call), bool(onwards), code))


def strike(name: str, needs_device: bool) -> int:
    """The code that this call of `name` fails with, 0 for none. Only called while something is armed."""
    calls = _CALLS[name] = _CALLS.get(name, 0) + 1
    for call, onwards, code in armed.get(name, ()):
        if calls == call or (onwards and calls > call):
            if code == _LOST_CODE:
                armed[LOST] = []
                break
            reason.report("E19999", message=f"{name} fails on request (CANN_EMULATOR_FAULTS)")
            return code
    if needs_device and FORKED in armed:
        reason.report("EL0001", reason="the process was forked after its device was opened; open it in the child only")
        return codes.RT_DRV_INTERNAL_ERROR
    if needs_device and LOST in armed:
        reason.report("EL0001", reason="the device is lost (CANN_EMULATOR_FAULTS)")
        return codes.RT_DRV_INTERNAL_ERROR
    return 0


arm(os.environ.get("CANN_EMULATOR_FAULTS", ""))
