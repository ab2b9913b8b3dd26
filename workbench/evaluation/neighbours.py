"""Candidates that were timed beside the search, only to say where the speed-up of another comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError
from workbench.values.measurement import Latency

_FILE = "neighbours.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A candidate with its times on the validation split and nothing else."""

    candidate: Candidate
    latency: Latency


def write_neighbours(journal: Path, neighbours: tuple[Neighbour, ...]) -> None:
    """Raises: ToolchainError: the disk cannot be written."""
    kept = [{"candidate": n.candidate.to_json(), "latency": encode(n.latency)} for n in neighbours]
    write_sealed(journal / _FILE, {"neighbours": kept})


def read_neighbours(journal: Path) -> tuple[Neighbour, ...]:
    """None of them where the file is damaged: the next sweep times them again."""
    try:
        return tuple(
            Neighbour(candidate=candidate_from_json(one["candidate"]), latency=decode(Latency, one["latency"]))
            for one in read_sealed(journal / _FILE)["neighbours"]
        )
    except (Unsound, DecodeError, ConfigError):
        return ()
