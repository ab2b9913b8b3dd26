"""Damage to the files of a sweep, as whoever reads them is told of it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.values.measurement import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file of a sweep that is gone, or is not what was written.

    Attributes:
        file: relative to the sweep's folder.
        held: what was in it.
        problem: in words that follow the file's name.
        mended: what the next sweep does about it.
        candidate_id, split: whose result it belongs to; None for a file of the whole sweep.
    """

    file: str
    held: str
    problem: str
    mended: str
    candidate_id: str | None = None
    split: Split | None = None

    def words(self, mender: str = "the next sweep") -> str:
        """'evaluations/3f….json (the evaluation of 3f2a91c0d4e5) is missing; the next sweep evaluates it again'"""
        whose = "" if self.candidate_id is None else f" of {self.candidate_id[:12]}"
        return f"{self.file} ({self.held}{whose}) {self.problem}; {mender} {self.mended}"
