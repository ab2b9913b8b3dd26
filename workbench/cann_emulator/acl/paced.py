"""CANN_EMULATOR_PACED=N: a call takes the modelled time on the machine's own clock, asleep.

For what only shows in real time, such as a service on more emulated cards than the host could compute for: executions
after the first N of a process are not computed, and their outputs are all zeros. The first N prove the model. One card
does one thing at a time, whichever processes use it: each waits for a lock on a file of the card. Everything that says
that it is emulated says that it is paced, too (`revision.emulator`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from workbench.cann_emulator.revision import PACED
from workbench.cann_emulator.state import state_folder

_COMPUTED = {"left": int(os.environ.get(PACED) or 0)}
ON = bool(os.environ.get(PACED))
_FILES: dict[int, int] = {}


def computes() -> bool:
    """Whether this execution is computed; each call counts as one."""
    if not ON:
        return True
    _COMPUTED["left"] -= 1
    return _COMPUTED["left"] >= 0


def sleep_ns(duration_ns: int) -> None:
    """Let time pass; other Python threads run."""
    if duration_ns > 0:
        time.sleep(duration_ns / 1e9)  # what a card would take is waited for: that is what paced means


@contextlib.contextmanager
def alone_on(physical: int) -> Iterator[None]:
    """While the card is this process's; a process that is killed lets it go."""
    if physical not in _FILES:
        _FILES[physical] = os.open(state_folder() / f"card-{physical}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(_FILES[physical], fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_FILES[physical], fcntl.LOCK_UN)
