"""What a command's exit code says; every command, and the programs it starts, end with one of these.

DONE        0    it did what was asked
FAILED      1    a check failed: export proof, bundle, doctor, gate, a candidate that was evaluated alone
USER        2    the user's input; also what typer and argparse give for a wrong option
MACHINE     3    the machine: tool missing, disk full, no device
INTERRUPTED 130  Ctrl-C (128 + SIGINT)
TERMINATED  143  SIGTERM (128 + 15), as a shell, systemd and Kubernetes read it
"""

from __future__ import annotations

from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import ConfigError, ToolchainError

DONE, FAILED, USER, MACHINE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


def exit_code_of(error: BaseException) -> int:
    """The code of a command that ends with this error; FAILED for a bundle's, a candidate's and every other one."""
    if isinstance(error, ConfigError | DecodeError):
        return USER
    return MACHINE if isinstance(error, ToolchainError) else FAILED
