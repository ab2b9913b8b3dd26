"""How the last run of a sweep ended: a note beside its journal, which nothing that is measured depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.values.documents.canonical import DecodeError, added_later, decode, encode
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed

_FILE = "last_run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """Attributes:
    reason: why its search ended: 'budget', 'timeout', 'exhausted', or 'interrupted' where the run itself was.
    limit_s: the time limit of the whole run.
    seconds: what it took, up to its report.
    unloaded: ids of confirmed candidates whose service was still to be loaded for real.
    interrupted: id of the candidate that was in flight at the end of the search, and `stage` the stage it was in.
    command: the command line that asked for the run; '' where there was none.
    """

    reason: str
    limit_s: float
    seconds: float
    unloaded: tuple[str, ...] = ()
    interrupted: str | None = None
    stage: str | None = None
    command: str = added_later("")


def write_last_run(journal: Path, run: LastRun) -> None:
    """Raises: ToolchainError: the disk cannot be written."""
    write_sealed(journal / _FILE, encode(run))


def read_last_run(journal: Path) -> LastRun | None:
    """None where no run has ended yet, or its note is damaged."""
    try:
        return decode(LastRun, read_sealed(journal / _FILE))
    except (Unsound, DecodeError):
        return None
