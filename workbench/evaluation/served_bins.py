"""Which padded lengths a candidate's texts run at when it is confirmed: those that the search chose for its service."""

from __future__ import annotations

from workbench.evaluation.journal import Journal
from workbench.values.candidate import Candidate
from workbench.values.measurement import Split


def scored_bins(candidate: Candidate, journal: Journal, split: Split) -> tuple[int, ...] | None:
    """None for the dataset's own. On other splits than the holdout no service is chosen yet: every candidate is scored
    at its own bins, or at those with the least padding."""
    if candidate.sequence_bins is not None or split != "holdout":
        return candidate.sequence_bins
    searched = journal.evaluation(candidate.id)
    service = searched.measurement.service if searched is not None else None
    return None if service is None else (service.best or service.closest).settings.sequence_bins or None
