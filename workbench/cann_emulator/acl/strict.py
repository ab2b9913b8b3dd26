"""What to do where the vendor's behaviour is not established: a code by default, an exception in strict mode.

CANN_EMULATOR_STRICT=1 raises, so that a test of a program finds a mistake at the call that made it.
"""

from __future__ import annotations

import os

from workbench.cann_emulator.acl import reason
from workbench.cann_emulator.acl.codes import Failed

STRICT = {"on": os.environ.get("CANN_EMULATOR_STRICT", "") not in ("", "0")}


class NotEstablished(RuntimeError):
    """The call has no documented result; on a device it corrupts memory, faults or crashes the process."""


def undefined(fact: str, code: int = 0) -> Failed:
    """The failure with `code` [inferred] and a reason text, to be raised where the call fails.

    Raises:
        NotEstablished: in strict mode.
    """
    if STRICT["on"]:
        raise NotEstablished(f"{fact}. The vendor documents no result for this call (without strict mode: {code})")
    return reason.refused(code, "EE1001", extend_info=fact)
