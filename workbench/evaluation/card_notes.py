"""Which cards a sweep set aside, and why: a note beside its journal, on which nothing that is measured depends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.results import Place

_FILE = "cards.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Attributes:
    reason: what was seen, as a sentence.
    measured_anew: ids of the candidates whose measurements on it were made again elsewhere.
    """

    place: Place
    reason: str
    measured_anew: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        again = len(self.measured_anew)
        what = f"; {again} measurement{'s' if again > 1 else ''} made again elsewhere" if again else ""
        return f"{self.place.words} was set aside: {self.reason}{what}."


def write_set_aside(journal: Path, cards: Sequence[SetAside]) -> None:
    """Raises: ToolchainError: the disk cannot be written."""
    write_sealed(journal / _FILE, {"set_aside": encode(tuple(cards))})


def read_set_aside(journal: Path) -> tuple[SetAside, ...]:
    """Of the last run; none where the note is missing or damaged."""
    try:
        return decode(tuple[SetAside, ...], read_sealed(journal / _FILE)["set_aside"])
    except (Unsound, DecodeError, KeyError, TypeError):
        return ()
