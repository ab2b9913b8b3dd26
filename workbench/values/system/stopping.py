"""How a command is told to end: SIGTERM and SIGHUP unwind it as Ctrl-C does, and the exit code says which it was.

None of this goes through SIGINT, which is ignored in a command that a script has started with `&`.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from workbench.values.exit_codes import INTERRUPTED


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Until the block ends, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread.

    SIGHUP stays ignored where it was (`nohup`), and so does SIGINT. SIGTERM does not, however the command was started:
    who sends it means it. A block that ends with the code of Ctrl-C after one of them, ends with 128 + the signal.

    Raises:
        SystemExit: in place of KeyboardInterrupt.
    """
    told: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + told[0] if told else INTERRUPTED) from None
    except SystemExit as ended:
        if told and ended.code == INTERRUPTED:
            raise SystemExit(128 + told[0]) from None
        raise
