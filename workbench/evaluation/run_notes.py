"""Notes beside a sweep's journal, on which nothing that is measured depends: how its last run ended, and candidates
that were timed beside the search only to say where the speed-up of another comes from.

A note that is missing or damaged is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.evaluation.journal import sound
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import DecodeError, added_later, decode, encode
from workbench.values.documents.sealed_json import write_sealed
from workbench.values.errors import ConfigError
from workbench.values.measurement import Latency

_LAST_RUN, _NEIGHBOURS = "last_run.json", "neighbours.json"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A candidate with its times on the validation split and nothing else."""

    candidate: Candidate
    latency: Latency


def write_last_run(journal: Path, run: LastRun) -> None:
    """Raises: ToolchainError: the disk cannot be written; as all of these."""
    write_sealed(journal / _LAST_RUN, encode(run))


def read_last_run(journal: Path) -> LastRun | None:
    """None where no run has ended yet."""
    try:
        return decode(LastRun, sound(journal / _LAST_RUN))
    except DecodeError:
        return None


def write_neighbours(journal: Path, neighbours: tuple[Neighbour, ...]) -> None:
    write_sealed(journal / _NEIGHBOURS, {"neighbours": encode(neighbours)})


def read_neighbours(journal: Path) -> tuple[Neighbour, ...]:
    """None of them where the file is damaged: the next sweep times them again."""
    try:
        return decode(tuple[Neighbour, ...], (sound(journal / _NEIGHBOURS) or {}).get("neighbours", []), "neighbours")
    except (DecodeError, ConfigError):
        return ()
