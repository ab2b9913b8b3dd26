"""What a command's exit code says; every command, and the programs it starts, end with one of these.

DONE        0    it did what was asked
FAILED      1    a check failed: export proof, bundle, doctor, gate, a candidate that was evaluated alone
USER        2    the user's input; also what typer and argparse give for a wrong option
MACHINE     3    the machine: tool missing, disk full, no device
INTERRUPTED 130  Ctrl-C (128 + SIGINT)
TERMINATED  143  SIGTERM (128 + 15), as a shell, systemd and Kubernetes read it
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import ConfigError, ToolchainError

DONE, FAILED, USER, MACHINE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


def exit_code_of(error: BaseException) -> int:
    """The code of a command that ends with this error; FAILED for a bundle's, a candidate's and every other one."""
    if isinstance(error, ConfigError | DecodeError):
        return USER
    return MACHINE if isinstance(error, ToolchainError) else FAILED


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Until the block ends, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, as Ctrl-C does.

    None of it goes through SIGINT, which is ignored in a command that a script has started with `&`.

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
