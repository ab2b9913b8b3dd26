"""What a sweep found, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.inputs.experiment import Experiment
from workbench.report import Member, Recommendation, Summary, lines
from workbench.search.sweep import SweepEnd
from workbench.values.candidate import Candidate


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult:
    """The front, the recommendation and everything measured; `print` shows the report of `workbench show`.

    Attributes:
        summary: all of it, as the reports read it.
        end: why and with what the sweep ended; None where it was only read.
        calibration: whether more calibration samples would change anything, in a sentence; None where nothing was
            calibrated, or the sweep was only read.
        links: sentences with addresses in MLflow's UI.
    """

    experiment: Experiment
    summary: Summary
    end: SweepEnd | None = None
    calibration: str | None = None
    links: tuple[str, ...] = ()

    @property
    def front(self) -> tuple[Member, ...]:
        """Candidates that no other dominates, best first in the first objective."""
        return self.summary.front

    @property
    def recommendation(self) -> Recommendation | None:
        """Which candidate to ship and why; None where none meets every constraint."""
        return self.summary.recommended

    @property
    def recommended(self) -> Candidate | None:
        """The candidate of the recommendation."""
        if self.summary.recommended is None:
            return None
        found = self.summary.find(self.summary.recommended.candidate_id)
        return None if found is None else found.candidate

    def __str__(self) -> str:
        return lines(self.summary)

    def __repr__(self) -> str:
        counts = f"{len(self.summary.evaluations)} candidates, {len(self.front)} on the front"
        return f"<{type(self).__name__} of {self.experiment.name!r}: {counts}>"
